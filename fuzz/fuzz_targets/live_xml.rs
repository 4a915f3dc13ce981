//! Domain XML as libvirt reports it, or any other bytes. Reading never panics. A domain that was
//! read is written, read again and shown as JSON without loss.
#![no_main]

use domain::DomainSpec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(domain) = DomainSpec::from_xml(text) else {
        return;
    };
    let written = domain.to_xml();
    let again = DomainSpec::from_xml(&written).expect("what we write can be read");
    assert!(again == domain, "something got lost:\n{written}");
    let json: serde_json::Value =
        serde_json::from_str(&domain.to_json()).expect("Domain JSON is JSON");
    assert_eq!(json["Name"], domain.name.as_str());
});
