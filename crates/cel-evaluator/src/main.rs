//! `cel-evaluator`: evaluates one CEL expression of a plugin in its own process.
//!
//! An expression that loops or grows without end, or is nested too deeply, ends only this process.
//! The launcher (`hooks::plugins`) limits its time and address space. This program itself gives up
//! the right to open files.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::sync::Arc;

use cel_evaluator::{ExpressionInput, condition, mutation};
use domain::xml::tree::Element;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

const USAGE: &str = "Usage: cel-evaluator condition|mutation | --help

Evaluates a CEL expression of a plugin. Standard input is the expression, the domain XML and the VMI's JSON, with a zero
byte between them. Prints true or false for a condition, the changed domain XML for a mutation. Status 1 means that the
expression is wrong or fails; standard error says why.";

/// Stack of the thread that compiles and evaluates by recursion. Unused pages take no memory.
const STACK_BYTES: usize = 256 << 20;
/// Exit status after a panic; the same as the standard library's.
const PANICKED: u8 = 101;

/// Evaluates an expression and returns the text to print.
type Evaluate = fn(&str, &ExpressionInput) -> Result<String, Box<dyn Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let evaluate: Evaluate = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["condition"] => |text, input| Ok(condition(text, input)?.to_string()),
        ["mutation"] => |text, input| Ok(mutation(text, input)?.to_xml()),
        ["--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Err(error) = give_up_privileges() {
        eprintln!("cannot give up files and core dumps: {error}");
        return ExitCode::from(2);
    }
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    match thread.spawn(move || answer(evaluate).map_err(|error| chain(&*error))) {
        Ok(thread) => match thread.join() {
            Ok(Ok(())) => ExitCode::SUCCESS,
            Ok(Err(error)) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
            Err(_) => ExitCode::from(PANICKED),
        },
        Err(error) => {
            eprintln!("no thread for the expression: {error}");
            ExitCode::from(2)
        }
    }
}

/// Forbids opening files and dumping core, and makes this process the first that the kernel kills
/// when memory runs out.
fn give_up_privileges() -> io::Result<()> {
    // Without /proc the process keeps the usual OOM score.
    drop(std::fs::write("/proc/self/oom_score_adj", "1000"));
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let no_more = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    Ok(setrlimit(Resource::Nofile, no_more)?)
}

fn answer(evaluate: Evaluate) -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let [expression, domain, vmi] = text.split('\0').collect::<Vec<_>>()[..] else {
        return Err("standard input is not an expression, a domain and a VMI".into());
    };
    let input = ExpressionInput {
        domain: Arc::new(Element::parse(domain)?),
        vmi: Arc::new(serde_json::from_str(vmi)?),
    };
    let answer = evaluate(expression, &input)?;
    Ok(io::stdout().write_all(answer.as_bytes())?)
}

/// The error and its causes, in the launcher's format.
fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (**error).source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}
