//! A VMI as virt-handler sends it, or any other bytes. Decoding and conversion never panic, and the
//! XML of an accepted VMI is read back without loss.
#![no_main]

use api::vmi::Vmi;
use convert::{self, Context};
use domain::DomainSpec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(vmi) = serde_json::from_slice::<Vmi>(data) else {
        return;
    };
    let context: Context = serde_json::from_str(
        r#"{"architecture":"amd64","hypervisorDeviceAvailable":true,"cpuSet":[0,1,2,3]}"#,
    )
    .expect("the context is a constant");
    let Ok(domain) = convert::domain(&vmi, &context) else {
        return;
    };
    // Texts are compared, not domains: characters that XML cannot hold become U+FFFD, as in Go.
    let written = domain.to_xml();
    assert_eq!(
        DomainSpec::from_xml(&written)
            .expect("what we write can be read")
            .to_xml(),
        written
    );
});
