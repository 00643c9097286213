use wasm_encoder::reencode::Error;
use wasmtime::component::{Component as Compiled, Linker, WasmList};
use wasmtime::{Engine, Module as CompiledModule, Store, StoreContextMut};

use super::*;
use crate::lend::{LentMemory, lent, memory_import};

/// A component whose plugin returns the sum of its state, and changes it. `more` are fields of the module, and `change` is
/// code in its function.
fn component(more: &str, change: &str, behind: &str) -> Vec<u8> {
    let text = format!(
        r#"(component
            (type $before (func (result u32)))
            (core module $plugin
                (memory (export "memory") 3)
                (data (i32.const 65600) "\05")
                (global $calls (mut i32) (i32.const 100))
                (func $unused (param i32) (result i32) local.get 0)
                {more}
                (func (export "a#validate") (result i32)
                    {change}
                    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
                    (i32.store8 (i32.const 65600) (i32.add (i32.load8_u (i32.const 65600)) (i32.const 1)))
                    (i32.store8 (i32.const 150000) (i32.add (i32.load8_u (i32.const 150000)) (i32.const 1)))
                    (i32.store (i32.const 8) (i32.add (global.get $calls)
                        (i32.add (i32.load8_u (i32.const 65600)) (i32.load8_u (i32.const 150000)))))
                    (i32.const 8)))
            (core instance $p (instantiate $plugin))
            (alias core export $p "memory" (core memory $memory))
            (alias core export $p "a#validate" (core func $validate))
            (type $string-list (list u8))
            (type $answer (record (field "sum" u32) (field "rest" u32)))
            (export $named "answer" (type $answer))
            (type $validate-type (func (result $named)))
            (func $lifted (type $validate-type) (canon lift (core func $validate) (memory $memory)))
            {behind}
            (export "validate" (func $lifted)))"#
    );
    wat::parse_str(text).expect("the text is a component")
}

/// Lends the memory and adds a keeper.
fn kept_of(component: &[u8]) -> (Option<Vec<u8>>, Vec<LentMemory>) {
    let lent = lent(component).expect("the component can be read");
    let lent = lent.expect("the memory can be lent");
    let kept = kept(&lent.component).expect("the component can be read");
    if let Some(kept) = &kept {
        let valid = Validator::new_with_features(WasmFeatures::all()).validate_all(kept);
        valid.expect("it is valid");
    }
    (kept, lent.memories)
}

/// Calls `validate` three times in one instance. Returns its results, and for each call the bytes that the host would have to
/// reset.
fn sums(kept: &[u8], memories: &[LentMemory]) -> [(u32, Vec<usize>); 3] {
    type Memories = Vec<Vec<u8>>;
    let engine = Engine::default();
    let component = Compiled::new(&engine, kept).expect("the component is valid");
    let mut linker = Linker::<Memories>::new(&engine);
    for (number, memory) in memories.iter().enumerate() {
        let memory = CompiledModule::new(&engine, memory.module()).expect("it is a module");
        let named = linker.root().module(&memory_import(number), &memory);
        named.expect("no import has this name");
    }
    let reset = |mut store: StoreContextMut<'_, Memories>, (memory,): (WasmList<u8>,)| {
        let memory = memory.as_le_slice(&store).to_vec();
        store.data_mut().push(memory);
        Ok(())
    };
    linker
        .root()
        .func_wrap(RESET, reset)
        .expect("no import has this name");
    let mut store = Store::new(&engine, Memories::new());
    let instance = linker.instantiate(&mut store, &component);
    let instance = instance.expect("the component can be instantiated");
    let validate = instance
        .get_func(&mut store, "validate")
        .expect("it is there");
    [(); 3].map(|()| {
        let mut results = [wasmtime::component::Val::Bool(false)];
        validate
            .call(&mut store, &[], &mut results)
            .expect("it returns");
        let memories = store.data();
        let (first, last) = (&memories[0], &memories[memories.len() - 1]);
        assert_eq!(last.len(), 3 << 16);
        let differ = (0..last.len()).filter(|at| first[*at] != last[*at]);
        let differ = differ.collect();
        let wasmtime::component::Val::Record(fields) = &results[0] else {
            panic!("{results:?}");
        };
        match fields[0].1 {
            wasmtime::component::Val::U32(sum) => (sum, differ),
            ref other => panic!("{other:?}"),
        }
    })
}

#[test]
fn keeper_puts_globals_back_and_hands_over_the_memory() {
    let (kept, memories) = kept_of(&component("", "", ""));
    let kept = kept.expect("it has nothing else");
    // The global has the same value in each call. The host has to reset the memory, and does not do so here.
    let new = 101 + 6 + 1;
    let changed = vec![8, 65_600, 150_000];
    assert_eq!(
        sums(&kept, &memories),
        [
            (new, vec![]),
            (new + 2, changed.clone()),
            (new + 4, changed)
        ]
    );
}

/// Definitions behind the keeper have other numbers, also where nested scopes name them.
#[test]
fn definitions_behind_the_keeper_stay_what_they_are() {
    let behind = r#"
        (type $late (record (field "sum" u32) (field "rest" u32)))
        (component $within
            (import "answer" (type $t (eq $late)))
            (alias outer 1 $late (type $outer))
            (import "f" (func $f (result $t)))
            (export "f" (func $f)))
        (type $instance-type (instance
            (alias outer 1 $validate-type (type $of-outer))
            (export "f" (func (type $of-outer)))))"#;
    // The nested component has an alias of a type behind the keeper.
    let (kept, memories) = kept_of(&component("", "", behind));
    let kept = kept.expect("it has nothing else");
    assert_eq!(sums(&kept, &memories).map(|(sum, _)| sum), [108, 110, 112]);
}

#[test]
fn components_with_other_state_have_no_keeper() {
    let with = |more: &str, change: &str| kept_of(&component(more, change, "")).0.is_some();
    assert!(with("", ""));
    assert!(with(
        "(table $t 1 funcref) (elem (i32.const 0) $unused)",
        "(drop (table.get $t (i32.const 0)))"
    ));
    assert!(with("", "(drop (memory.grow (i32.const 1)))"));
    for (more, change) in [
        (
            "(table $t 1 funcref)",
            "(table.set $t (i32.const 0) (ref.null func))",
        ),
        (
            "(table $t 1 funcref)",
            "(drop (table.grow $t (ref.null func) (i32.const 1)))",
        ),
        (
            "(table $t 1 funcref)",
            "(table.fill $t (i32.const 0) (ref.null func) (i32.const 1))",
        ),
        (
            "(table $t 1 funcref)",
            "(table.copy $t $t (i32.const 0) (i32.const 0) (i32.const 1))",
        ),
        (
            "(table $t 1 funcref) (elem $e func $unused)",
            "(table.init $t $e (i32.const 0) (i32.const 0) (i32.const 1))",
        ),
        ("(elem $e func $unused)", "(elem.drop $e)"),
        ("(global $r (mut funcref) (ref.null func))", ""),
        (
            r#"(global (export "tollgate:global0") i32 (i32.const 1))"#,
            "",
        ),
        (
            r#"(func (export "b#mutate") (param i32) (result i32) local.get 0)"#,
            "",
        ),
        ("(start $begin) (func $begin)", ""),
        ("(tag $t)", "(throw $t)"),
        ("(type $s (struct))", "(drop (struct.new $s))"),
    ] {
        assert!(!with(more, change), "{more} {change}");
    }
}

/// A function that nobody wraps would run in an instance that is not reset.
#[test]
fn component_that_lifts_other_functions_has_no_keeper() {
    let lifted = |body: &str| {
        let more = format!(
            r#"(func (export "tollgate:admission/lifecycle@0.1.0#describe") (result i32) {body})"#
        );
        let behind = r#"
            (alias core export $p "tollgate:admission/lifecycle@0.1.0#describe" (core func $describe))
            (func (type $validate-type) (canon lift (core func $describe) (memory $memory)))"#;
        kept_of(&component(&more, "", behind)).0.is_some()
    };
    assert!(lifted("unreachable"));
    assert!(!lifted("i32.const 8"));
    let other = r#"
        (core module $other (import "p" "a#validate" (func (result i32)))
            (func (export "c#validate") (result i32) call 0) (func (export "d") (result i32) call 0))
        (core instance $o (instantiate $other (with "p" (instance $p))))
        (alias core export $o "NAME" (core func $of-other))
        (func (type $validate-type) (canon lift (core func $of-other) (memory $memory)))"#;
    for name in ["c#validate", "d"] {
        let behind = other.replace("NAME", name);
        assert!(kept_of(&component("", "", &behind)).0.is_none(), "{name}");
    }
}

/// A plugin that calls its keeper would get its fuel again.
#[test]
fn component_that_uses_a_called_function_itself_has_no_keeper() {
    let table = r#"(table (export "table") 1 funcref)"#;
    let fill = |name: &str| {
        format!(
            r#"(core module $fill (import "p" "table" (table 1 funcref))
                (import "f" "f" (func $f (result i32))) (elem (i32.const 0) func $f))
            (alias core export $p "{name}" (core func $again))
            (core instance $f (export "f" (func $again)))
            (core instance (instantiate $fill (with "p" (instance $p)) (with "f" (instance $f))))"#
        )
    };
    let harmless =
        r#"(table (export "table") 1 funcref) (func (export "g") (result i32) i32.const 1)"#;
    assert!(kept_of(&component(harmless, "", &fill("g"))).0.is_some());
    assert!(
        kept_of(&component(table, "", &fill("a#validate")))
            .0
            .is_none()
    );
}

#[test]
fn component_that_asks_like_a_keeper_has_none() {
    let text = format!(
        r#"(type $bytes (list u8))
        (import "{RESET}" (func (param "memory" $bytes) (result u64)))"#
    );
    assert!(kept_of(&component("", "", &text)).0.is_none());
    let wasi = r#"(import "wasi:clocks/monotonic-clock@0.2.0" (instance))"#;
    assert!(kept_of(&component("", "", wasi)).0.is_none());
    let resource = "(type (resource (rep i32)))";
    assert!(kept_of(&component("", "", resource)).0.is_none());
}

#[test]
fn component_that_keeps_its_memory_has_no_keeper() {
    let kept = kept(&component("", "", ""));
    assert!(kept.expect("it can be read").is_none());
}

#[test]
fn cut_component_is_an_error() {
    let whole = component("", "", "");
    let cut: Result<_, Error<Infallible>> = kept(&whole[..whole.len() / 2]);
    assert!(cut.is_err());
}
