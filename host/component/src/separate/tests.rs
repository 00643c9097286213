use super::*;

const PAGE: usize = 1 << 16;

fn component(module: &str) -> Vec<u8> {
    wat::parse_str(format!("(component (core module {module}))")).unwrap()
}

fn separated(module: &str) -> Separated {
    let component = component(module);
    let separated = separate(&component).unwrap();
    wasmparser::Validator::new()
        .validate_all(&separated.component)
        .unwrap();
    separated
}

/// The bytes other than zero of an image, each with its place.
fn written(image: &[u8]) -> Vec<(usize, u8)> {
    let bytes = image.iter().copied().enumerate();
    bytes.filter(|(_, byte)| *byte != 0).collect()
}

#[test]
fn components_with_other_data_have_the_same_code() {
    let first = separated(r#"(memory 3) (data (i32.const 70000) "\01\02") (func)"#);
    let second = separated(
        r#"(memory 3) (data (i32.const 65600) "\07") (data (i32.const 131071) "\08") (func)"#,
    );
    assert_eq!(first.component, second.component);
    assert_eq!(first.images.len(), 1);
    assert_eq!(first.images[0].len(), PAGE);
    assert_eq!(written(&first.images[0]), [(4464, 1), (4465, 2)]);
    assert_eq!(written(&second.images[0]), [(64, 7), (PAGE - 1, 8)]);
}

#[test]
fn code_size_and_globals_still_distinguish_components() {
    let module = r#"(memory 3) (data (i32.const 70000) "\01") (global i32 (i32.const 1)) (func)"#;
    let base = separated(module).component;
    let changes = [
        ("(memory 3)", "(memory 4)"),
        ("i32.const 1)", "i32.const 2)"),
        ("(func)", "(func nop)"),
        ("i32.const 70000", "i32.const 7000"),
    ];
    for (from, to) in changes {
        let changed = module.replace(from, to);
        assert_ne!(changed, module);
        assert_ne!(separated(&changed).component, base, "{to}");
    }
}

#[test]
fn later_segments_overwrite_earlier_ones() {
    let module = r#"(memory 1) (data (i32.const 8) "\01\02\03") (data (i32.const 9) "\04") (data (i32.const 0) "")"#;
    let images = separated(module).images;
    assert_eq!(written(&images[0]), [(8, 1), (9, 4), (10, 3)]);
}

#[test]
fn passive_data_that_nothing_refers_to_goes() {
    let passive =
        separated(r#"(memory 1) (data "\01") (data (i32.const 8) "\02") (data "\03") (func)"#);
    let plain = separated(r#"(memory 1) (data (i32.const 8) "\02") (func)"#);
    assert_eq!(written(&passive.images[0]), [(8, 2)]);
    assert_eq!(passive.component, plain.component);
}

#[test]
fn names_do_not_distinguish_components() {
    let component = |name: &str| {
        let text =
            format!(r#"(component (core module ${name} (memory 1) (data (i32.const 8) "\02")))"#);
        // The name of a module is in the component and in the module. Here, only the component's name differs.
        let bytes = wat::parse_str(text.replace(name, "mm")).unwrap();
        let mut component = bytes.clone();
        let at = bytes.windows(2).rposition(|bytes| bytes == b"mm").unwrap();
        component[at..at + 2].copy_from_slice(name.as_bytes());
        component
    };
    let (first, second) = (component("ab"), component("cd"));
    assert_ne!(first, second);
    let separated = |component: &[u8]| separate(component).unwrap().component;
    assert_eq!(separated(&first), separated(&second));
}

#[test]
fn each_module_has_its_own_image() {
    let module =
        |byte: u8| format!(r#"(core module (memory 1) (data (i32.const 8) "\{byte:02x}"))"#);
    let component = format!("(component {}{})", module(1), module(2));
    let separated = separate(&wat::parse_str(component).unwrap()).unwrap();
    let images: Vec<_> = separated
        .images
        .iter()
        .map(|image| written(image))
        .collect();
    assert_eq!(images, [[(8, 1)], [(8, 2)]]);
}

#[test]
fn memories_that_cannot_be_separated_stay_as_they_are() {
    let modules = [
        // Nothing to separate.
        "(memory 1)",
        r#"(memory 1) (data (i32.const 0) "\00\00")"#,
        // Code that refers to data.
        r#"(memory 1) (data (i32.const 0) "\01") (data "\01") (func data.drop 1)"#,
        r#"(memory 1) (data (i32.const 0) "\01") (func data.drop 0)"#,
        r#"(memory 1) (data (i32.const 0) "\01")
           (func (memory.init 0 (i32.const 0) (i32.const 0) (i32.const 0)))"#,
        // The instantiation traps, and must go on to do so.
        r#"(memory 1) (data (i32.const 65535) "\01\02")"#,
        // Addresses and memories that are not known here.
        r#"(import "" "" (global $g i32)) (memory 1) (data (global.get $g) "\01")"#,
        r#"(import "" "" (memory 1)) (data (i32.const 0) "\01")"#,
        r#"(memory $a 1) (memory $b 1) (data (memory $b) (i32.const 0) "\01")"#,
        // Almost only zeros.
        r#"(memory 300) (data (i32.const 0) "\01") (data (i32.const 17000000) "\01")"#,
    ];
    for module in modules {
        let separated = separated(module);
        assert!(separated.images.is_empty(), "{module}");
        assert_eq!(separated.component, component(module), "{module}");
    }
}

#[test]
fn finds_places_at_page_boundaries_only() {
    let placeholder = |image| slots::placeholder(image, PAGE);
    let mut code = vec![1; 4096];
    code.extend(placeholder(0));
    code.extend(placeholder(1));
    code.extend([1; 10]);
    code.extend(placeholder(2));
    let size = PAGE as u64;
    assert_eq!(slots(&code, &[]), Ok(vec![]));
    assert_eq!(slots(&code, &[size, size]), Ok(vec![4096, 4096 + size]));
    let missing = slots(&code, &[size, size, size]).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "the compiled code has 0 places for image 2 of the plugin's memory; expected one"
    );
    assert!(slots(&code, &[2 * size]).is_err());
    assert!(slots(&code, &[0]).is_err());
}

#[test]
fn refuses_a_second_place_that_the_plugin_itself_contains() {
    let code = slots::placeholder(0, PAGE).repeat(2);
    let error = slots(&code, &[PAGE as u64]).unwrap_err();
    assert!(error.to_string().contains("has 2 places"), "{error}");
}

#[test]
fn reports_truncated_component() {
    let component = component(r#"(memory 1) (data (i32.const 0) "\01\02\03")"#);
    assert!(separate(&component[..component.len() - 2]).is_err());
}
