//! How much of a guest's answers is kept. Far above what real guests have; KubeVirt shows ten users
//! and ten file systems in the VMI's guest information.

// D-agent-5 (docs/differences.md).
/// Longest answer that is read, in bytes. libvirt limits a text in its protocol to as much.
pub const MAX_ANSWER_BYTES: usize = 4 << 20;
/// Longest text, in bytes: a name, a path, a version.
pub const MAX_TEXT_BYTES: usize = 1024;
/// Commands of an agent; QEMU 10's has about 50.
pub const MAX_COMMANDS: usize = 256;
pub const MAX_USERS: usize = 1000;
/// File systems. A guest that runs containers may have hundreds.
pub const MAX_FILESYSTEMS: usize = 1000;
/// Disks of one file system.
pub const MAX_DISKS: usize = 64;
/// Network interfaces: a guest that is a node of a cluster has one for each container. libvirt's
/// protocol passes on some 500.
pub const MAX_INTERFACES: usize = 1000;
/// Addresses of one interface: kube-proxy gives one the address of each service.
pub const MAX_ADDRESSES: usize = 1000;

/// Cuts a text to [`MAX_TEXT_BYTES`], between two characters.
#[must_use]
pub fn text(mut text: String) -> String {
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        text.shrink_to_fit();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        let long = format!("{}é", "x".repeat(MAX_TEXT_BYTES - 1));
        assert_eq!(text(long), "x".repeat(MAX_TEXT_BYTES - 1));
        assert_eq!(text("é".into()), "é");
    }
}
