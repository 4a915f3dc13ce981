mod domain_agrees;
mod vmi_agrees;

use super::*;

#[test]
fn every_type_of_a_field_is_in_its_table() {
    for schema in [libvirtxml(), vmi()] {
        for of in schema.types.values() {
            for field in &of.fields {
                let name = format!("{}.{}", of.name, field.name);
                if let ValueType::Struct(_) = field.value_type {
                    assert!(field.struct_type().is_some(), "{name}");
                }
                if field.location == Location::Variant {
                    assert!(of.discriminator.is_some(), "{name}");
                }
            }
        }
    }
}

#[test]
fn locations_and_discriminators_are_read() {
    let of = |name| libvirtxml().get(name).unwrap();
    let device = of("DomainDisk").find("Device").unwrap().field;
    assert_eq!(device.location, Location::Attribute("device"));
    assert_eq!(
        of("DomainDiskSource").discriminator,
        Some(Discriminator::Parent("type"))
    );
    assert_eq!(
        of("DomainHostdev").discriminator,
        Some(Discriminator::Own(vec!["mode", "type"]))
    );
    let certificates = of("DomainSmartcard").find("HostCerts").unwrap().field;
    assert_eq!(
        certificates.location,
        Location::Element(vec!["certificate"])
    );
    assert_eq!(certificates.variant, Some("host-certificates"));
}

#[test]
fn fields_of_embedded_structs_are_found() {
    let of = vmi().get("VirtualMachineInstance").unwrap();
    let path = of.find("Labels").unwrap();
    let embedded: Vec<_> = path.embedded.iter().map(|field| field.name).collect();
    assert_eq!(
        (embedded.as_slice(), path.owner.name),
        (&["ObjectMeta"][..], "ObjectMeta")
    );
    assert!(of.find("Nonsense").is_none());
}
