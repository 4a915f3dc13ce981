//! Lines on standard output and standard error: wrapped at words and with colours on a terminal,
//! unchanged elsewhere.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;

use anstream::adapter::strip_str;
use anstyle::{AnsiColor, Style};
use rustix::termios::tcgetwinsize;
use textwrap::{Options, WordSplitter};

use super::visible;

/// Of a terminal that does not tell its width.
const DEFAULT_WIDTH: usize = 80;

/// A line for people; a newline inside it is somebody else's text.
#[derive(Debug, Clone)]
pub enum Line {
    Sentence(String),
    /// Of a table, or a command to copy: it is not wrapped.
    Row(String),
    /// Of a table.
    Header(String),
    Problem(String),
    Failure(String),
}

impl Line {
    /// As it is shown on a terminal of this width.
    fn shown(&self, width: Option<usize>) -> String {
        let (style, text, width) = match self {
            Self::Sentence(text) => (Style::new(), text, width),
            Self::Row(text) => (Style::new(), text, None),
            Self::Header(text) => (Style::new().bold(), text, None),
            Self::Problem(text) => (AnsiColor::Yellow.on_default(), text, width),
            Self::Failure(text) => (AnsiColor::Red.on_default(), text, width),
        };
        let text = visible::line(text);
        let text = width.map_or_else(|| text.clone(), |width| wrapped(&text, width));
        format!("{style}{text}{style:#}")
    }
}

impl<T: Into<String>> From<T> for Line {
    fn from(text: T) -> Self {
        Self::Sentence(text.into())
    }
}

/// The text wrapped at words; what follows its first line is indented.
fn wrapped(text: &str, width: usize) -> String {
    let indent: String = text.chars().take_while(|c| *c == ' ').collect();
    let indent = indent + "  ";
    let options = Options::new(width).subsequent_indent(&indent);
    let options = options.word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(text, options.break_words(false))
}

/// The stream's width in columns; `None` if it is not a terminal.
fn width(stream: &(impl AsFd + IsTerminal)) -> Option<usize> {
    let size = tcgetwinsize(stream).ok().filter(|_| stream.is_terminal())?;
    let columns = Some(usize::from(size.ws_col)).filter(|columns| *columns > 0);
    Some(columns.unwrap_or(DEFAULT_WIDTH))
}

/// Prints lines on standard output.
pub fn print(lines: impl IntoIterator<Item: Into<Line>>) {
    let (width, mut out) = (width(&std::io::stdout()), anstream::stdout().lock());
    for line in lines {
        let shown = line.into().shown(width);
        // A reader such as head(1) may have closed the pipe.
        let _ = writeln!(out, "{shown}");
    }
}

/// A line as it is shown on standard error.
pub fn on_stderr(line: impl Into<Line>) -> String {
    line.into().shown(width(&std::io::stderr()))
}

/// Prints a line on standard error.
pub fn say(line: impl Into<Line>) {
    let shown = on_stderr(line);
    // The reader may be gone.
    let _ = writeln!(anstream::stderr(), "{shown}");
}

/// The lines as one text, safe for a terminal.
pub fn joined(lines: impl IntoIterator<Item: Into<Line>>) -> String {
    let lines = lines.into_iter().map(|line| line.into().shown(None));
    strip_str(&lines.collect::<Vec<_>>().join("\n")).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_wrap_at_words_and_rows_do_not() {
        let text = "  an image with a-hyphenated-word".to_owned();
        let wrapped = "  an image with\n    a-hyphenated-word";
        assert_eq!(Line::Sentence(text.clone()).shown(Some(20)), wrapped);
        assert_eq!(Line::Row(text.clone()).shown(Some(20)), text);
        assert_eq!(Line::Sentence(text.clone()).shown(None), text);
        let red = Line::Failure("no\u{1b}[2J".into()).shown(Some(80));
        assert_eq!(red, "\u{1b}[31mno\\u{1b}[2J\u{1b}[0m");
    }

    #[test]
    fn a_message_of_others_does_not_look_like_another_line() {
        let lines = ["a\nlauncherctl: b\u{1b}[2J".to_owned(), "c".to_owned()];
        assert_eq!(joined(lines), "a\\nlauncherctl: b\\u{1b}[2J\nc");
    }
}
