//! Reads an answer of a guest agent as the answer to each command.
#![no_main]

use domain::guest_agent::{GuestAgentInfo, answer, limits};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let agent = answer::agent_info(&text).unwrap_or_default();
    let filesystems = answer::filesystems(&text).unwrap_or_default();
    assert!(agent.version.len() <= limits::MAX_TEXT_BYTES);
    assert!(agent.commands.len() <= limits::MAX_COMMANDS);
    assert!(filesystems.len() <= limits::MAX_FILESYSTEMS);
    for one in &filesystems {
        assert!(one.disks.len() <= limits::MAX_DISKS);
        assert!(one.mount_point.len() <= limits::MAX_TEXT_BYTES);
    }
    let info = GuestAgentInfo {
        agent,
        filesystems,
        freeze_status: answer::freeze_status(&text).ok(),
        ..GuestAgentInfo::default()
    };
    let json = info.to_json().expect("what is read can be written");
    serde_json::from_str::<serde_json::Value>(&json).expect("it is JSON");
    drop(answer::exec_pid(&text));
    drop(answer::exec_status(&text));
    drop(answer::file_handle(&text));
    drop(answer::file_content(&text));
});
