use super::*;
use crate::DomainSpec;
use crate::alias::Alias;

/// Reads, writes, and reads again: nothing may get lost on the way.
fn read(text: &str) -> DomainSpec {
    let domain = DomainSpec::from_xml(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let written = domain.to_xml();
    assert_eq!(
        DomainSpec::from_xml(&written).unwrap_or_else(|e| panic!("{e}\n{written}")),
        domain,
        "{written}"
    );
    domain
}

fn refused(text: &str) -> ReadError {
    DomainSpec::from_xml(text).unwrap_err()
}

fn too_much(most: usize, of: &'static str) -> ReadError {
    ReadError::TooMuch { line: 1, most, of }
}

fn error(text: &str) -> String {
    refused(text).to_string()
}

#[track_caller]
fn assert_malformed(text: &str) {
    let error = refused(text);
    assert!(
        matches!(error, ReadError::Malformed { .. }),
        "{text:?}: {error}"
    );
}

// ---- what is taken ------------------------------------------------------------------------------

#[test]
fn order_and_unknown_elements_do_not_matter() {
    let domain = read(
        "<domain><on_crash>destroy</on_crash><devices><audio id='1'><x><y/></x></audio><emulator>/e</emulator></devices><name>a</name></domain>",
    );
    assert_eq!(
        (domain.name.as_str(), domain.devices.emulator.as_str()),
        ("a", "/e")
    );
}

#[test]
fn text_is_taken_as_it_stands() {
    let domain = read(
        "<domain><name> a &lt;&#x41;&amp;&apos;<![CDATA[<b>&amp;]]><!-- c --><?pi?>\r\nd </name></domain>",
    );
    assert_eq!(domain.name, " a <A&'<b>&amp;\nd ");
}

#[test]
fn text_around_children_is_one_text() {
    let domain = read(
        "<domain><os><type> h<x>no</x>vm </type></os><memory unit='b'>\n 10<!-- --> </memory></domain>",
    );
    assert_eq!(domain.os.r#type.os, " hvm ");
    assert_eq!(domain.memory.value, 10);
}

#[test]
fn attributes_are_normalized_as_xml_says() {
    let domain = read("<domain type='a\n\tb&#10;c&quot;'/>");
    assert_eq!(domain.r#type, "a  b\nc\"");
}

#[test]
fn an_empty_element_is_zero() {
    let domain = read("<domain><vcpu placement='static'/><name/><iothreads></iothreads></domain>");
    assert_eq!(domain.vcpu.unwrap().cpus, 0);
    assert_eq!(domain.iothreads.unwrap().iothreads, 0);
    assert_eq!(domain.name, "");
}

#[test]
fn a_second_element_adds_to_the_first() {
    let domain = read(
        "<domain><cpu mode='a'><topology sockets='2'/></cpu><cpu><topology cores='3'/></cpu><name>x</name><name>y</name>
         <sysinfo><system><entry name='a'/></system><system><entry name='b'/></system></sysinfo></domain>",
    );
    let topology = domain.cpu.topology.unwrap();
    assert_eq!((topology.sockets, topology.cores), (2, 3));
    assert_eq!(domain.cpu.mode, "a");
    assert_eq!(domain.name, "y");
    assert_eq!(domain.sys_info.unwrap().system.len(), 2);
}

#[test]
fn user_aliases_lose_their_prefix_and_get_it_back() {
    let domain = read(
        "<domain><devices><input><alias name='ua-a'/></input><input><alias name='input1'/></input></devices></domain>",
    );
    let inputs = domain.devices.inputs.iter();
    let aliases: Vec<_> = inputs.map(|input| input.alias.clone().unwrap()).collect();
    let expected = [Alias::user("a"), Alias::libvirt("input1")];
    assert_eq!(aliases, expected);
    assert!(domain.to_xml().contains("<alias name=\"ua-a\"/>"));
}

#[test]
fn around_the_root_only_a_second_root_is_refused() {
    read("\u{feff}<?xml version='1.0'?>\n<!-- a --> junk <domain/> more <!-- b -->");
    assert_eq!(
        error("<domain/>\n<domain/>"),
        "line 2: not well-formed XML: there is a second root element"
    );
}

// ---- namespaces ---------------------------------------------------------------------------------

const QEMU: &str = "http://libvirt.org/schemas/domain/qemu/1.0";

#[test]
fn kubevirts_metadata_is_known_by_its_namespace() {
    for text in [
        "<domain><metadata><kubevirt xmlns='http://kubevirt.io'><uid>u</uid></kubevirt></metadata></domain>",
        "<domain><metadata><k:kubevirt xmlns:k='http://kubevirt.io'><k:uid>u</k:uid></k:kubevirt></metadata></domain>",
        "<domain xmlns:k='http://kubevirt.io'><metadata><k:kubevirt><k:uid>u</k:uid></k:kubevirt></metadata></domain>",
    ] {
        assert_eq!(read(text).metadata.kube_virt.uid, "u", "{text}");
    }
}

#[test]
fn other_metadata_is_passed_over() {
    let domain = read(
        "<domain><metadata>
           <kubevirt><uid>none</uid></kubevirt>
           <kubevirt xmlns='http://example.org'><uid>other</uid></kubevirt>
           <x:kubevirt><x:uid>undeclared</x:uid></x:kubevirt>
           <kubevirt xmlns='http://kubevirt.io'><uid xmlns=''>outside</uid></kubevirt>
         </metadata></domain>",
    );
    assert_eq!(domain.metadata.kube_virt.uid, "");
}

#[test]
fn metadata_is_written_with_its_namespace() {
    let written = DomainSpec::default().to_xml();
    assert!(
        written.contains("<kubevirt xmlns=\"http://kubevirt.io\">\n      <uid/>\n    </kubevirt>"),
        "{written}"
    );
}

#[test]
fn qemus_command_line_is_known_under_any_prefix() {
    for text in [
        format!(
            "<domain xmlns:qemu='{QEMU}'><qemu:commandline><qemu:arg value='-s'/></qemu:commandline></domain>"
        ),
        format!(
            "<domain xmlns:q='{QEMU}'><q:commandline><q:arg value='-s'/></q:commandline></domain>"
        ),
        format!("<domain><commandline xmlns='{QEMU}'><arg value='-s'/></commandline></domain>"),
    ] {
        let domain = read(&text);
        assert_eq!(
            domain.qemu_cmd.as_ref().unwrap().args[0].value,
            "-s",
            "{text}"
        );
        assert_eq!(
            domain.xmlns, QEMU,
            "written, the prefix has to be declared: {text}"
        );
    }
}

#[test]
fn foreign_elements_are_not_taken_for_libvirts() {
    let domain = read(
        "<domain><x:name xmlns:x='u:x'>a</x:name><name xmlns='u:y'>b</name><commandline><arg value='-s'/></commandline></domain>",
    );
    assert_eq!((domain.name.as_str(), domain.qemu_cmd), ("", None));
}

#[test]
fn a_declaration_ends_with_its_element() {
    let domain = read(
        "<domain><os xmlns:x='u:x'><x:y/></os><x:name>a</x:name><clock xmlns='u:y'/><name>b</name></domain>",
    );
    assert_eq!((domain.name.as_str(), domain.clock), ("b", None));
}

// ---- what is written ----------------------------------------------------------------------------

#[test]
fn elements_are_written_in_the_order_of_the_schema() {
    let domain = read(
        "<domain><vcpu>1</vcpu><cpu/><features/><devices><input/><disk/><interface/></devices><os/><memory>1</memory><uuid>u</uuid><name>n</name></domain>",
    );
    let written = domain.to_xml();
    let tags = "<name <uuid <memory <os <devices <interface <disk <input </devices \
                <metadata <features <cpu <vcpu";
    let place = |tag| {
        written
            .find(tag)
            .unwrap_or_else(|| panic!("{tag}: {written}"))
    };
    assert!(tags.split(' ').map(place).is_sorted(), "{written}");
}

#[test]
fn what_needs_escaping_survives() {
    let mut domain = DomainSpec {
        name: "<&>'\"\t\n\r é𝄞".into(),
        ..DomainSpec::default()
    };
    domain.r#type = domain.name.clone();
    assert_eq!(DomainSpec::from_xml(&domain.to_xml()).unwrap(), domain);
}

// ---- what is refused ----------------------------------------------------------------------------

#[test]
fn values_of_the_wrong_kind_are_told_with_their_place() {
    for (text, expected) in [
        (
            "<domain>\n <devices>\n  <disk>\n   <driver queues='many'/>\n  </disk></devices></domain>",
            "line 4: /domain/devices/disk/driver/@queues: \"many\" is not a whole number from 0 to 18446744073709551615",
        ),
        (
            "<domain>\n<vcpu>two\n\n</vcpu></domain>",
            "line 2: /domain/vcpu: \"two\\n\\n\" is not a whole number from 0 to 4294967295",
        ),
        (
            "<domain><devices><disk><capacity>1e9</capacity></disk></devices></domain>",
            "line 1: /domain/devices/disk/capacity: \"1e9\" is not a whole number from -9223372036854775808 to 9223372036854775807",
        ),
    ] {
        assert_eq!(error(text), expected);
    }
}

#[test]
fn no_document_is_refused() {
    for text in [
        "",
        " \n",
        "no XML",
        "<!-- only -->",
        "<?xml version='1.0'?>",
    ] {
        let error = error(text);
        assert!(error.ends_with("there is no element"), "{text:?}: {error}");
    }
    assert_eq!(
        error("<network/>"),
        "the root element is <network>, not <domain>"
    );
}

#[test]
fn broken_documents_are_refused() {
    for text in [
        "<domain>",
        "<domain><name>",
        "<domain><unknown>",
        "<domain><name>a</domain>",
        "<domain><unknown></x></domain>",
        "</domain>",
        "<domain",
        "<domain><!-- ",
        "<domain><![CDATA[ </domain>",
        "<domain type=kvm/>",
        "<domain type='kvm/>",
        "<domain type/>",
        "<domain type='a' type='b'/>",
        "<domain type='&'/>",
        "<domain>& </domain>",
        "<domain></domain></domain>",
    ] {
        assert_malformed(text);
    }
}

#[test]
fn lines_are_counted() {
    assert!(
        error("<domain>\n\n<name>a</nam></domain>").starts_with("line 3: not well-formed XML: ")
    );
    assert_eq!(
        error("<domain>\n\n<name>"),
        "line 3: not well-formed XML: the document ends inside an element"
    );
}

#[test]
fn characters_outside_of_xml_are_refused() {
    assert_eq!(
        error("<domain>\n<name>a\0</name></domain>"),
        "line 2: not well-formed XML: the character U+0000 cannot be in XML"
    );
    for text in [
        "<domain><name>&#0;</name></domain>",
        "<domain><name>&#x1f;</name></domain>",
        "<domain><name>&#xFFFE;</name></domain>",
        "<domain><name>&#xD800;</name></domain>",
        "<domain><name>&#x110000;</name></domain>",
        "<domain><name>&#99999999999;</name></domain>",
        "<domain type='&#1;'/>",
        "<domain><name>\u{ffff}</name></domain>",
    ] {
        assert_malformed(text);
    }
}

#[test]
fn entities_are_not_expanded() {
    let mut laughs = String::from("<!DOCTYPE domain [<!ENTITY l0 \"lol\">");
    for i in 1..30 {
        laughs += &format!("<!ENTITY l{i} \"{}\">", format!("&l{};", i - 1).repeat(10));
    }
    assert_eq!(
        error(&format!("{laughs}]>\n<domain><name>&l29;</name></domain>")),
        "line 2: not well-formed XML: unknown entity &l29;"
    );
    assert!(error(&format!("{laughs}]>\n<domain type='&l29;'/>")).contains("l29"));
    assert!(
        error("<!DOCTYPE d [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><domain><name>&x;</name></domain>").contains("unknown entity &x;")
    );
    assert_eq!(
        read(&format!("{laughs}]><domain><name>a</name></domain>")).name,
        "a"
    );
}

#[test]
fn deep_documents_are_refused() {
    let (open, close) = ("<x>".repeat(100_000), "</x>".repeat(100_000));
    assert_eq!(
        refused(&format!("<domain>{open}{close}</domain>")),
        too_much(MAX_DEPTH, "levels of nesting")
    );
    // Elements that the schema nests without end.
    let stores = "<dataStore><source>".repeat(50_000);
    assert_eq!(
        refused(&format!("<domain><devices><disk><source>{stores}")),
        too_much(MAX_DEPTH, "levels of nesting")
    );
    // What libvirt can still read is read: its limit is the same.
    let (open, close) = ("<x>".repeat(MAX_DEPTH - 1), "</x>".repeat(MAX_DEPTH - 1));
    read(&format!("<domain>{open}{close}</domain>"));
}

#[test]
fn large_documents_are_refused() {
    let text = format!("<domain><name>{}</name></domain>", "a".repeat(5 << 20));
    assert_eq!(refused(&text), ReadError::TooLarge { bytes: text.len() });
    let disks = "<disk/>".repeat(MAX_ELEMENTS);
    assert_eq!(
        refused(&format!("<domain><devices>{disks}</devices></domain>")),
        too_much(MAX_ELEMENTS, "elements")
    );
}

#[test]
fn many_attributes_are_refused_before_their_names_are_compared() {
    let attributes: String = (0..=MAX_ATTRIBUTES).map(|n| format!(" a{n}=''")).collect();
    for (start, end) in [
        ("<domain", "/>"),
        ("<domain><name", "/></domain>"),
        ("<domain xmlns='u'", "/>"),
    ] {
        assert_eq!(
            refused(&format!("{start}{attributes}{end}")),
            too_much(MAX_ATTRIBUTES, "attributes in one element")
        );
    }
}

#[test]
fn an_error_quotes_only_the_start_of_a_long_name() {
    let long = "n".repeat(25_000);
    for text in [
        format!("<{long}/>"),
        format!("<domain><{long}></x></domain>"),
        format!("<domain>&{long};</domain>"),
        format!("<domain><memory>{long}</memory></domain>"),
    ] {
        let error = error(&text);
        assert!(error.contains("nnn") && error.len() < 400, "{error}");
    }
    let tree = |text: &str| super::tree::Element::parse(text).unwrap_err().to_string();
    for text in [
        format!("<{long}>"),
        format!("<a&{long}/>"),
        format!("<a><{long}></x></a>"),
        format!("{long}<a/>"),
        format!("<a>&{long};</a>"),
    ] {
        let error = tree(&text);
        assert!(error.contains("nnn") && error.len() < 400, "{error}");
    }
}
