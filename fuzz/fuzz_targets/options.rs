//! A VMI, and the conversion's context: `VMI<NUL>CONTEXT`, both JSON.
#![no_main]

use api::vmi::Vmi;
use convert::{self, Context};
use domain::DomainSpec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(at) = data.iter().position(|&byte| byte == 0) else {
        return;
    };
    let (Ok(vmi), Ok(context)) = (
        serde_json::from_slice::<Vmi>(&data[..at]),
        serde_json::from_slice::<Context>(&data[at + 1..]),
    ) else {
        return;
    };
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
