use wasmtime::component::Linker;
use wasmtime::{Engine, Module, Store};

use super::*;

/// Parts of a component whose plugin counts how often it is called, reads its data, and grows its memory.
const PLUGIN: &str = r#"
    (core module $plugin
        (import "host" "seven" (func $seven (result i32)))
        (memory (export "memory") 2 3)
        (global $calls (mut i32) (i32.const 0))
        (data (i32.const 65540) "\05")
        (start $start)
        (func $start (i32.store8 (i32.const 65541) (i32.load8_u (i32.const 65540))))
        (func (export "check") (result i32)
            (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
            global.get $calls
            (i32.mul (i32.load8_u (i32.const 65540)) (i32.const 10)) i32.add
            (i32.mul (i32.load8_u (i32.const 65541)) (i32.const 100)) i32.add
            (i32.mul (call $seven) (i32.const 1000)) i32.add
            (i32.mul (memory.size) (i32.const 10000)) i32.add
            (i32.mul (memory.grow (i32.const 1)) (i32.const 100000)) i32.add
            (i32.mul (memory.grow (i32.const 1)) (i32.const 1000000)) i32.add))
    (core module $other (table 1 funcref) (memory 1) (func (export "seven") (result i32) i32.const 7))
    (core instance $o (instantiate $other))
    (core instance $host (export "seven" (func $o "seven")))
    (core instance $p (instantiate $plugin (with "host" (instance $host))))
    (alias core export $p "memory" (core memory $memory))
    (component $within
        (import "check" (func $check (result u32)))
        (export "check" (func $check)))
    (func $check (result u32) (canon lift (core func $p "check")))
    (instance $i (instantiate $within (with "check" (func $check))))
    (export "check" (func $i "check"))"#;

fn component(parts: &str) -> Vec<u8> {
    wat::parse_str(format!("(component {parts})")).expect("the text is a component")
}

/// Calls `check` of a fresh instance, and returns its answer and its fuel.
fn checked(component: &[u8], memories: &[LentMemory]) -> (u32, u64) {
    let mut config = wasmtime::Config::new();
    config.consume_fuel(true);
    let engine = Engine::new(&config).expect("the settings fit");
    let component = wasmtime::component::Component::new(&engine, component);
    let mut linker = Linker::new(&engine);
    for (number, memory) in memories.iter().enumerate() {
        let memory = Module::new(&engine, memory.module()).expect("the memory is a module");
        let named = linker.root().module(&memory_import(number), &memory);
        named.expect("no import has this name");
    }
    let mut store = Store::new(&engine, ());
    store.set_fuel(1_000_000).expect("fuel is metered");
    let instance = linker.instantiate(&mut store, &component.expect("the component is valid"));
    let instance = instance.expect("the component can be instantiated");
    let check = instance.get_typed_func::<(), (u32,)>(&mut store, "check");
    let answer = check.expect("`check` is there").call(&mut store, ());
    let fuel = 1_000_000 - store.get_fuel().expect("fuel is metered");
    (answer.expect("`check` returns").0, fuel)
}

fn lent_of(parts: &str) -> Lent {
    let lent = lent(&component(parts)).expect("the component can be read");
    let lent = lent.expect("a memory can be lent");
    let memories = lent.memories.iter().map(LentMemory::module);
    for bytes in memories.chain([lent.component.clone()]) {
        let valid = wasmparser::Validator::new_with_features(wasmparser::WasmFeatures::all());
        { valid }.validate_all(&bytes).expect("it is valid");
    }
    links_with_empty_memories(&lent.component);
    lent
}

/// The child that compiles a component has only empty memories to link it with.
fn links_with_empty_memories(component: &[u8]) {
    let engine = Engine::default();
    let wanted = wanted(component).expect("the component can be read");
    let wanted = wanted.expect("it imports a memory");
    let component = wasmtime::component::Component::new(&engine, component);
    let mut linker = Linker::new(&engine);
    for (number, memory) in wanted.memories.iter().enumerate() {
        let memory = Module::new(&engine, memory).expect("the memory is a module");
        let named = linker.root().module(&memory_import(number), &memory);
        named.expect("no import has this name");
    }
    let linked: wasmtime::Result<wasmtime::component::InstancePre<()>> =
        linker.instantiate_pre(&component.expect("the component is valid"));
    linked.expect("it fits the imports");
}

#[test]
fn component_answers_as_with_a_memory_of_its_own() {
    let lent = lent_of(PLUGIN);
    let own = checked(&component(PLUGIN), &[]);
    // The memory has two pages, grows by one, and then it has its maximum.
    let grown = 2_u32.wrapping_mul(100_000).wrapping_sub(1_000_000);
    assert_eq!(
        own.0,
        (1 + 50 + 500 + 7_000 + 20_000_u32).wrapping_add(grown)
    );
    assert_eq!(checked(&lent.component, &lent.memories), own);
    let wanted = wanted(&lent.component).expect("the component can be read");
    let wanted = wanted.expect("it imports a memory");
    assert_eq!((wanted.memory_count, wanted.table_count), (2, 1));
    assert_eq!(wanted.memories.len(), 1);
}

#[test]
fn one_component_takes_other_contents() {
    let lent = lent_of(PLUGIN);
    let other = lent_of(&PLUGIN.replace(r#""\05""#, r#""\06""#));
    assert_eq!(lent.component, other.component);
    let answers = [&lent, &other].map(|lent| checked(&lent.component, &lent.memories).0);
    assert_eq!(answers[1] - answers[0], 110);
    // The code sees the contents of the memory that it is linked with, and no other.
    let swapped = checked(&lent.component, &other.memories).0;
    assert_eq!(swapped, answers[1]);
}

#[test]
fn one_component_takes_memories_of_other_sizes() {
    let lent = lent_of(PLUGIN);
    let text = PLUGIN.replace("\"memory\") 2 3)", "\"memory\") 7)");
    let larger = lent_of(&text);
    assert_eq!(lent.component, larger.component);
    for (lent, parts) in [(&lent, PLUGIN), (&larger, &text)] {
        let own = checked(&component(parts), &[]);
        assert_eq!(checked(&lent.component, &lent.memories), own);
    }
}

/// Another module asks for a memory of some size, and gets one.
#[test]
fn component_whose_modules_share_a_memory_stays_valid() {
    for asked in ["1", "2", "0 3"] {
        let parts = format!(
            r#"(core module $a (memory (export "memory") 2 3) (data (i32.const 0) "\01"))
            (core instance $a (instantiate $a))
            (core module $b (import "a" "memory" (memory {asked}))
                (func (export "check") (result i32)
                    (i32.add (i32.load8_u (i32.const 0)) (i32.mul (memory.size) (i32.const 10)))))
            (core instance $b (instantiate $b (with "a" (instance $a))))
            (func (export "check") (result u32) (canon lift (core func $b "check")))"#
        );
        let lent = lent_of(&parts);
        let own = checked(&component(&parts), &[]);
        assert_eq!(own.0, 21);
        assert_eq!(checked(&lent.component, &lent.memories), own, "{asked}");
    }
}

#[test]
fn imported_module_has_nothing_but_the_memory() {
    let lent = lent_of(PLUGIN);
    for memory in &lent.memories {
        for payload in Parser::new(0).parse_all(&memory.module()) {
            let payload = payload.expect("the module can be read");
            assert!(
                matches!(
                    payload,
                    Payload::Version { .. }
                        | Payload::MemorySection(_)
                        | Payload::ExportSection(_)
                        | Payload::DataSection(_)
                        | Payload::End(_)
                ),
                "{payload:?}"
            );
        }
    }
}

/// Each of several modules has its own memory.
#[test]
fn memories_of_several_modules_do_not_change_places() {
    let module = |name: &str, byte: u8| {
        format!(
            r#"(core module ${name} (memory 1) (data (i32.const 0) "\{byte:02x}")
                (func (export "read") (result i32) (i32.load8_u (i32.const 0))))
            (core instance $i{name} (instantiate ${name}))"#
        )
    };
    let parts = format!(
        r#"{}{}
        (core module $both
            (import "a" "read" (func $a (result i32))) (import "b" "read" (func $b (result i32)))
            (func (export "check") (result i32)
                (i32.add (call $a) (i32.mul (call $b) (i32.const 10)))))
        (core instance $both (instantiate $both (with "a" (instance $ia)) (with "b" (instance $ib))))
        (func (export "check") (result u32) (canon lift (core func $both "check")))"#,
        module("a", 1),
        module("b", 2)
    );
    let lent = lent_of(&parts);
    assert_eq!(lent.memories.len(), 2);
    let own = checked(&component(&parts), &[]);
    assert_eq!(own.0, 21);
    assert_eq!(checked(&lent.component, &lent.memories), own);
}

#[test]
fn other_components_stay_as_they_are() {
    let memory = r#"(memory 1) (data (i32.const 0) "\01")"#;
    let instance = "(core instance (instantiate $m))";
    let unlent = [
        // Nothing to lend.
        format!("(core module $m) {instance}"),
        format!("(core module $m (memory 1)) {instance}"),
        // Data that code refers to.
        format!("(core module $m {memory} (func data.drop 0)) {instance}"),
        // The instantiation traps, and must go on to do so.
        format!(r#"(core module $m (memory 1) (data (i32.const 65536) "\01")) {instance}"#),
        // Memories that other parts of the component may instantiate, or that several instances have.
        format!("(core module $m {memory})"),
        format!("(core module $m {memory}) {instance} {instance}"),
        format!("(core module $m {memory}) {instance} (export \"m\" (core module $m))"),
        format!(
            "(core module $m {memory}) {instance}
            (component $within (core module $n) (core instance (instantiate $n)))"
        ),
        format!(
            "(core module $m {memory}) {instance}
            (component $within (alias outer 1 $m (core module $n)) (core instance (instantiate $n)))"
        ),
        // Types whose indices would change, and a name that is taken.
        format!("(core type $t (module)) (core module $m {memory}) {instance}"),
        format!(
            r#"(core module $h (memory (export "memory") 1)) (core instance $h (instantiate $h))
            (core module $m (import "tollgate:memory" "memory" (memory 1)) {memory})
            (core instance (instantiate $m (with "tollgate:memory" (instance $h))))"#
        ),
        format!(
            r#"(core module $h (func (export "f"))) (core instance $h (instantiate $h))
            (core module $m (import "tollgate:memory" "f" (func)) {memory})
            (core instance (instantiate $m (with "tollgate:memory" (instance $h))))"#
        ),
    ];
    for parts in unlent {
        let lent = lent(&component(&parts)).expect("the component can be read");
        assert!(lent.is_none(), "{parts}");
    }
}

#[test]
fn instances_that_cannot_be_counted_are_refused() {
    let import = r#"(import "tollgate-memory0" (core module $m (export "memory" (memory 1))))"#;
    let count = |parts: &str| {
        let wanted = wanted(&component(&format!("{import} {parts}")));
        let wanted = wanted.map_err(|error| error.to_string())?;
        Ok::<_, String>(wanted.expect("it imports a memory").memory_count)
    };
    let uncounted = Err(WantedError::Uncounted.to_string());
    let instance = "(core instance (instantiate $m))";
    assert_eq!(count(""), Ok(0));
    assert_eq!(count(instance), Ok(1));
    assert_eq!(count(&instance.repeat(2)), Ok(2));
    assert_eq!(count("(component $within)"), Ok(0));
    let within = "(component (core module $n (memory 1)) (core instance (instantiate $n)))";
    assert_eq!(count(within), uncounted);
    let passed = r#"(component $w (import "m" (core module $k)) (export "n" (core module $k)))
        (instance $i (instantiate $w (with "m" (core module $m))))"#;
    assert_eq!(count(passed), Ok(0));
    let taken = format!(r#"{passed} (alias export $i "n" (core module))"#);
    assert_eq!(count(&taken), uncounted);
    let exported = r#"(export "x" (core module $m))
        (core module $n (memory 1) (memory 1)) (core instance (instantiate $n))"#;
    assert_eq!(count(exported), uncounted);
}

#[test]
fn truncated_component_is_an_error() {
    let component = component(PLUGIN);
    assert!(lent(&component[..component.len() - 2]).is_err());
}
