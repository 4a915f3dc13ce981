//! `<video>` and `<graphics>`: display devices and how to see them.
//!
//! libvirt:
//! [video devices](https://libvirt.org/formatdomain.html#video-devices),
//! [graphical framebuffers](https://libvirt.org/formatdomain.html#graphical-framebuffers)
use super::vocabulary::YesNo;
use super::xml::elements;

elements! {
/// `<video>`: a display device.
Video {
    child "model" "Model" model: VideoModel,
}
/// `<model>`: what card the guest sees; memory in KiB.
VideoModel {
    attr "type" "Type" r#type: String,
    attr? "heads" "Heads" heads: Option<u64>,
    attr? "ram" "Ram" ram: Option<u64>,
    attr? "vram" "VRam" vram: Option<u64>,
    attr? "vgamem" "VGAMem" vga_mem: Option<u64>,
}
/// `<graphics>`: the VNC server.
Graphics {
    attr? "autoport" "AutoPort" auto_port: YesNo,
    attr? "defaultMode" "DefaultMode" default_mode: String,
    child "listen" "Listen" listen: Option<GraphicsListen>,
    attr? "passwdValidTo" "PasswdValidTo" passwd_valid_to: String,
    attr? "port" "Port" port: i32,
    attr? "tlsPort" "TLSPort" tls_port: i64,
    attr "type" "Type" r#type: String,
}
/// `<listen>`: its socket.
GraphicsListen {
    attr "type" "Type" r#type: String,
    attr? "address" "Address" address: String,
    /// The reference's spelling: libvirt's `network` is never read, nor written.
    attr? "newtork" "Network" network: String,
    attr? "socket" "Socket" socket: String,
}
}
