//! Removes secrets from a bug report. In doubt it removes too much.

use serde_json::Value;

use domain::xml::secrets::{shown_command_line, without_secrets};

/// Replaces a secret.
pub const REMOVED: &str = "[removed]";

/// Parts of names with secret values, in lower case and without separators.
const SECRET_NAMES: [&str; 14] = [
    "passw",
    "passphrase",
    "secret",
    "token",
    "userdata",
    "networkdata",
    "privatekey",
    "sshkey",
    "authorizedkey",
    "publickey",
    "cookie",
    "credential",
    "apikey",
    "ignition",
];
/// Beginnings of the base64 of an SSH public key and of a JSON web token.
const SECRET_BEGINNINGS: [&str; 2] = ["AAAA", "eyJ"];
/// Shorter words are not keys.
const MIN_KEY_LENGTH: usize = 20;

/// Whether the value of this name is secret.
fn is_secret_name(name: &str) -> bool {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let name: String = letters.map(|c| c.to_ascii_lowercase()).collect();
    SECRET_NAMES.iter().any(|secret| name.contains(secret))
}

/// A JSON document without its secrets.
pub fn json(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let clean = |(name, member): (String, Value)| {
                let is_empty = member.is_null() || member == "" || member.is_boolean();
                let is_secret = is_secret_name(&name) && !is_empty;
                let clean = if is_secret {
                    REMOVED.into()
                } else {
                    json(member)
                };
                (name, clean)
            };
            members.into_iter().map(clean).collect()
        }
        Value::Array(items) => items.into_iter().map(json).collect(),
        Value::String(string) => Value::String(text(&string)),
        other => other,
    }
}

/// Domain XML without its secrets.
pub fn xml(document: &str) -> String {
    text(&without_secrets(document))
}

/// A log without its secrets, line by line. The launcher's lines are JSON objects.
pub fn log(log: &str) -> String {
    let mut clean = String::with_capacity(log.len());
    for line in log.lines() {
        match serde_json::from_str::<Value>(line) {
            Ok(line @ Value::Object(_)) => clean.push_str(&log_line(line).to_string()),
            _ => clean.push_str(&text(&shown_command_line(line))),
        }
        clean.push('\n');
    }
    // For a key that spans several lines.
    without_pem(&clean)
}

fn log_line(mut line: Value) -> Value {
    if let Some(members) = line.as_object_mut() {
        let is_cloud_init = members.values().any(|value| value == "PreCloudInitIso");
        for (name, member) in members {
            let Value::String(string) = member else {
                continue;
            };
            if let Some((before, _)) = string.split_once("Base64 dump ") {
                *string = format!("{before}Base64 dump {REMOVED}");
            } else if name == "xml" {
                *string = xml(string);
            } else if name == "changed" && is_cloud_init {
                *string = REMOVED.to_owned();
            } else if let Ok(document @ Value::Object(_)) = serde_json::from_str(string) {
                *string = json(document).to_string();
            } else {
                *string = shown_command_line(string);
            }
        }
    }
    json(line)
}

/// Text without anything that looks like a key, a token, or a secret name's value.
pub fn text(text: &str) -> String {
    let text = without_pem(text);
    let mut clean = String::with_capacity(text.len());
    let mut hide_next = false;
    let is_separator = |c: char| c.is_whitespace() || "\"'=:,;<>&()[]{}\\".contains(c);
    for part in text.split_inclusive(is_separator) {
        let word = part.trim_end_matches(is_separator);
        let end = part.get(word.len()..).unwrap_or_default();
        if word.is_empty() {
            // Between a name and its value; the line's end ends the value.
            hide_next &= end != "\n" && end != ",";
            clean.push_str(end);
            continue;
        }
        let mut beginnings = SECRET_BEGINNINGS.iter();
        let is_key = word.len() >= MIN_KEY_LENGTH && beginnings.any(|it| word.starts_with(it));
        clean.push_str(if is_key || hide_next { REMOVED } else { word });
        clean.push_str(end);
        let names_secret = is_secret_name(word) && matches!(end, "=" | ":" | "\"" | "'");
        // The scheme precedes the secret.
        hide_next = names_secret || matches!(word, "Bearer" | "Basic");
    }
    clean
}

/// Text without PEM blocks and their begin lines.
fn without_pem(text: &str) -> String {
    let (begin, end, dashes) = ("-----BEGIN ", "-----END ", "-----");
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, block)) = rest.split_once(begin) {
        clean.push_str(before);
        clean.push_str(REMOVED);
        // Without an end, all the rest may be the key.
        let end = block.split_once(end).map_or("", |(_, end)| end);
        rest = end.split_once(dashes).map_or("", |(_, after)| after);
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SSH_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHfUjkuGMwh me@example";
    const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl";
    const PEM: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nMORE\n-----END OPENSSH PRIVATE KEY-----";

    fn has_no_secret(clean: &str) {
        for secret in ["hunter2", "AAAAC3", "eyJ", "b3Blbn", "MORE"] {
            assert!(!clean.contains(secret), "{secret} is in {clean}");
        }
    }

    #[test]
    fn cloud_init_passwords_keys_and_tokens_are_taken_out_of_text() {
        for secret in [
            "password: hunter2".to_owned(),
            "chpasswd: {list: x}\n  plain_text_passwd: 'hunter2'".to_owned(),
            r#"<graphics type="vnc" passwd="hunter2" port="1"/>"#.to_owned(),
            "http://x/?access_token=hunter2&y=1".to_owned(),
            r#"{"apiKey": "hunter2"}"#.to_owned(),
            "Authorization: Bearer hunter2".to_owned(),
            SSH_KEY.to_owned(),
            format!("token {TOKEN} end"),
            format!("before\n{PEM}\nafter"),
        ] {
            has_no_secret(&text(&secret));
        }
        assert_eq!(text(&format!("a {PEM} b")), format!("a {REMOVED} b"));
        let harmless = "uuid: 5f0a1c1e, password:\nnext line\n";
        assert_eq!(text(harmless), harmless);
    }

    #[test]
    fn members_with_secret_names_are_taken_out_of_json() {
        let document = json!({
            "volumes": [{"name": "seed", "cloudInitNoCloud": {"userData": "hunter2", "userDataBase64": "hunter2"}}],
            "ACCESS_TOKEN": "hunter2", "keys": [SSH_KEY], "autoattachSecretLike": false,
            "annotation": format!("x {TOKEN}"), "cpu": 2,
        });
        let clean = json(document);
        has_no_secret(&clean.to_string());
        assert_eq!(clean["volumes"][0]["name"], "seed");
        assert_eq!(clean["cpu"], 2);
    }

    #[test]
    fn strings_for_the_guest_are_taken_out_of_domain_xml() {
        let document = "<domain><name>vm</name><sysinfo><oemStrings><entry>io.systemd.credential:a=hunter2</entry></oemStrings>\
            </sysinfo><launchSecurity><session>hunter2</session></launchSecurity></domain>";
        let clean = xml(document);
        has_no_secret(&clean);
        assert!(clean.contains("<name>vm</name>") && clean.ends_with("</domain>"));
    }

    #[test]
    fn a_log_keeps_its_lines() {
        let lines = [
            json!({"msg": "Domain XML generated. Base64 dump aHVudGVyMg=="}),
            json!({"msg": "Domain to define", "xml": "<a passwd='hunter2'/>"}),
            json!({"msg": "A hook sidecar has run", "point": "PreCloudInitIso", "changed": "UserData: hunter2"}),
            json!({"msg": "Context of the conversion", "context": "{\"userData\":\"hunter2\",\"cpuSet\":[1]}"}),
            json!({"msg": "qemu \\-smbios type=11,value=hunter2 \\-x", "subcomponent": "qemu"}),
        ];
        let text = lines.map(|line| line.to_string()).join("\n")
            + "\nplain password=hunter2\n-smbios type=11,value=hunter2 \\\n";
        let clean = log(&text);
        has_no_secret(&clean);
        assert!(!clean.contains("aHVudGVyMg"));
        assert_eq!(clean.lines().count(), 7);
        assert!(clean.contains("cpuSet"), "{clean}");
    }
}
