//! What of a domain is secret, and so stands in no log and no bug report. docs/sidecars.md promises
//! it.

use std::borrow::Cow;

use super::local_name;
use super::tree::{Element, Node};

/// Stands in a secret's place.
pub const HIDDEN: &str = "(secret)";

/// Elements with nothing but secrets inside: SEV's certificate and session, cookies of network
/// disks, and strings for the guest, which systemd reads credentials from.
const ELEMENTS: [&str; 4] = ["dhCert", "session", "cookies", "oemStrings"];
/// Attributes with secret values. VNC and SPICE have `passwd`.
const ATTRIBUTES: [&str; 2] = ["passwd", "password"];

/// Whether all that is inside elements of this name is secret.
#[must_use]
pub fn is_secret_element(name: &str) -> bool {
    ELEMENTS.contains(&local_name(name))
}

/// An attribute's value as it may be shown.
#[must_use]
pub fn shown<'v>(name: &str, value: &'v str) -> Cow<'v, str> {
    if ATTRIBUTES.contains(&name) || is_secret_object(value) {
        return HIDDEN.into();
    }
    let is_password = |option: &str| {
        option
            .split_once('=')
            .is_some_and(|(key, _)| ATTRIBUTES.iter().any(|name| key.ends_with(name)))
    };
    if !value.split(',').any(is_password) {
        return value.into();
    }
    let option = |option| match str::split_once(option, '=') {
        Some((key, _)) if is_password(option) => format!("{key}={HIDDEN}"),
        _ => option.to_owned(),
    };
    let options: Vec<String> = value.split(',').map(option).collect();
    options.join(",").into()
}

/// An argument of QEMU that makes an object of a secret, or a password in its JSON.
fn is_secret_object(value: &str) -> bool {
    let value = value.trim_start();
    let is_json = value.starts_with('{');
    value.starts_with("secret,")
        || (is_json
            && ["\"secret\"", "password"]
                .iter()
                .any(|part| value.contains(part)))
}

/// QEMU's command line without its secrets. libvirt writes it to QEMU's log with a backslash after
/// each option; a single line of it will do.
#[must_use]
pub fn shown_command_line(text: &str) -> String {
    const END: &str = " \\";
    let options = text.split(END).map(shown_option);
    options.collect::<Vec<_>>().join(END)
}

fn shown_option(text: &str) -> Cow<'_, str> {
    let option = text.split_once(' ').filter(|(name, _)| name.contains('-'));
    let Some((name, value)) = option else {
        return text.into();
    };
    let bare = value.trim_matches('\'');
    // libvirt's own secret has its key in a file.
    let has_no_key = is_secret_object(bare) && !bare.contains("data");
    let is_for_guest = name.ends_with("-smbios") && bare.starts_with("type=11");
    let shown = if is_for_guest {
        HIDDEN.into()
    } else {
        shown("value", bare)
    };
    if has_no_key || shown == bare {
        return text.into();
    }
    format!("{name} {shown}").into()
}

/// A document without its secrets; the same text if it has none. One that cannot be read is not
/// shown at all.
#[must_use]
pub fn without_secrets(document: &str) -> Cow<'_, str> {
    let Ok(mut root) = Element::parse(document) else {
        return "(not shown: it cannot be read)".into();
    };
    if hide(&mut root) {
        root.to_xml().into()
    } else {
        document.into()
    }
}

/// Hides an element's secrets; returns whether there were any. Recursion is as deep as a tree may
/// be.
fn hide(element: &mut Element) -> bool {
    if is_secret_element(&element.name) && !element.nodes.is_empty() {
        element.nodes = vec![Node::Text(HIDDEN.to_owned())];
        return true;
    }
    let mut hidden = false;
    for (name, value) in &mut element.attributes {
        let shown = shown(name, value);
        if shown != *value {
            *value = shown.into_owned();
            hidden = true;
        }
    }
    for child in element.children_mut() {
        hidden |= hide(child);
    }
    hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_secret_is_hidden_and_nothing_else() {
        for secret in [
            "<graphics type='vnc' passwd='hunter2'/>",
            "<launchSecurity type='sev'><session>hunter2</session><dhCert>hunter2</dhCert></launchSecurity>",
            "<cookies><cookie name='a'>hunter2</cookie></cookies>",
            "<oemStrings><entry>io.systemd.credential:a=hunter2</entry></oemStrings>",
            "<qemu:arg value='secret,id=s,data=hunter2'/>",
            r#"<qemu:arg value='{"qom-type": "secret", "data": "hunter2"}'/>"#,
            "<qemu:arg value='user,id=n,password=hunter2,smb=x'/>",
            "<qemu:arg value='proxy-password=hunter2'/>",
        ] {
            let document = format!("<domain><name>vm</name>{secret}</domain>");
            let shown = without_secrets(&document);
            assert!(!shown.contains("hunter2"), "{shown}");
            assert!(
                shown.contains("<name>vm</name>") && shown.contains(HIDDEN),
                "{shown}"
            );
        }
        assert_eq!(
            shown("value", "user,password=a,smb=x"),
            "user,password=(secret),smb=x"
        );
    }

    #[test]
    fn a_command_line_is_shown_without_secrets() {
        let harmless = r#"/usr/bin/qemu-system-x86_64 \-name guest=a,debug-threads=on \-object '{"qom-type":"secret","id":"masterKey0","format":"raw","file":"/k"}' \-no-user-config \"#;
        assert_eq!(shown_command_line(harmless), harmless);
        for option in [
            "-smbios 'type=11,value=hunter2'",
            "-smbios type=11,value=hunter2",
            "-object secret,id=s,data=hunter2",
            r#"-object '{"qom-type":"secret","data":"hunter2"}'"#,
            "-netdev user,id=n,password=hunter2,smb=x",
        ] {
            for text in [
                format!("{option} \\"),
                format!("a \\{option} \\-x"),
                option.to_owned(),
            ] {
                let shown = shown_command_line(&text);
                assert!(
                    !shown.contains("hunter2") && shown.contains(HIDDEN),
                    "{shown}"
                );
                assert_eq!(shown.ends_with('\\'), text.ends_with('\\'), "{shown}");
            }
        }
    }

    #[test]
    fn a_document_without_secrets_stays_as_it_is() {
        let document = "<domain>\n<!-- c --> <graphics passwdValidTo='2027-01-01T00:00:00'/>\
            <auth><secret type='ceph' usage='u'/></auth><oemStrings/></domain>";
        assert!(matches!(without_secrets(document), Cow::Borrowed(text) if text == document));
        assert!(!without_secrets("<domain passwd='hunter2'").contains("hunter2"));
    }
}
