//! Code for a separated component, with the images filled in, is the code of the original component.

use tollgate_component::{separate, slots};
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Engine, Store};

const PAGE: usize = 1 << 16;

fn engine() -> Engine {
    let mut config = Config::new();
    config.consume_fuel(true);
    Engine::new(&config).unwrap()
}

fn component(data: &str) -> Vec<u8> {
    let text = format!(
        r#"(component
            (core module $m
                (memory (export "memory") 4)
                {data}
                (func (export "sum") (result i32) (local $at i32) (local $sum i32)
                    (loop $next
                        (local.set $sum (i32.add (local.get $sum) (i32.load8_u (local.get $at))))
                        (local.set $at (i32.add (local.get $at) (i32.const 1)))
                        (br_if $next (i32.lt_u (local.get $at) (i32.const 262144))))
                    (local.get $sum)))
            (core instance $i (instantiate $m))
            (func (export "sum") (result u32) (canon lift (core func $i "sum"))))"#
    );
    wat::parse_str(text).unwrap()
}

fn compiled(engine: &Engine, component: &[u8]) -> Vec<u8> {
    Component::new(engine, component)
        .unwrap()
        .serialize()
        .unwrap()
}

/// Compiles the separated component, and fills the images in.
fn filled(engine: &Engine, component: &[u8]) -> Vec<u8> {
    let separated = separate(component).unwrap();
    let mut code = compiled(engine, &separated.component);
    let sizes: Vec<_> = separated
        .images
        .iter()
        .map(|image| image.len() as u64)
        .collect();
    assert!(!sizes.is_empty());
    let places = slots(&code, &sizes).unwrap();
    for (place, image) in places.into_iter().zip(separated.images) {
        let place = usize::try_from(place).unwrap();
        code[place..place + image.len()].copy_from_slice(&image);
    }
    code
}

/// The answer of the code, and the fuel that it took.
#[expect(
    unsafe_code,
    clippy::disallowed_methods,
    reason = "the code was compiled above"
)]
fn answer(engine: &Engine, code: &[u8]) -> (u32, u64) {
    const FUEL: u64 = 100_000_000;
    // SAFETY: the compiler made this code, and the test filled contents of memory into the places for them.
    let component = unsafe { Component::deserialize(engine, code) }.unwrap();
    let mut store = Store::new(engine, ());
    store.set_fuel(FUEL).unwrap();
    let instance = Linker::new(engine)
        .instantiate(&mut store, &component)
        .unwrap();
    let sum = instance
        .get_typed_func::<(), (u32,)>(&mut store, "sum")
        .unwrap();
    let (sum,) = sum.call(&mut store, ()).unwrap();
    (sum, FUEL - store.get_fuel().unwrap())
}

#[test]
fn filled_code_is_what_the_compiler_makes() {
    // The data fills whole pages of WebAssembly, because images do.
    let data = format!(
        r#"(data (i32.const {PAGE}) "\01{}\02")"#,
        "\\00\\05".repeat(PAGE / 2 - 1)
    );
    let engine = engine();
    let component = component(&data);
    assert!(filled(&engine, &component) == compiled(&engine, &component));
}

#[test]
fn filled_code_gives_the_same_answer_with_the_same_fuel() {
    let engine = engine();
    let texts = [
        r#"(data (i32.const 1) "\01")"#,
        r#"(data (i32.const 65530) "\01\02\03\04\05\06\07\08\09") (data (i32.const 200000) "\ff\ff")"#,
        r#"(data (i32.const 262143) "\0b")"#,
        r#"(data (i32.const 5) "\01\01\01") (data (i32.const 6) "\09")"#,
    ];
    let expected = [1, 45 + 2 * 255, 11, 11];
    for (text, expected) in texts.into_iter().zip(expected) {
        let component = component(text);
        let original = answer(&engine, &compiled(&engine, &component));
        assert_eq!(original.0, expected);
        assert_eq!(
            answer(&engine, &filled(&engine, &component)),
            original,
            "{text}"
        );
    }
}
