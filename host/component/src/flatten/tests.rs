use wasmparser::Validator;
use wasmtime::component::{Component, Linker, Val};
use wasmtime::{Engine, Store};

use super::flattened;

/// A part that uses a resource and functions of `wasi:io/streams`, and `host:own/log`. Its export `run` calls what its
/// argument says. Two modules are between it and the functions, as wit-component writes them.
const PART: &str = r#"
    (type $streams (instance
        (export "stream" (type $stream (sub resource)))
        (type (list u8))
        (type (borrow $stream))
        (type (func (param "self" 2) (param "bytes" 1)))
        (export "write" (func (type 3)))
        (type (own $stream))
        (type (func (result 4)))
        (export "open" (func (type 5)))))
    (import "wasi:io/streams" (instance $streams (type $streams)))
    (alias export $streams "stream" (type $stream))
    (type $poll (instance
        (alias outer 1 $stream (type))
        (export "stream" (type $stream (eq 0)))
        (type (own $stream))
        (type (func (param "of" 2) (result u64)))
        (export "poll" (func (type 3)))))
    (import "wasi:io/poll" (instance $poll (type $poll)))
    (type $log (instance
        (type (func (param "text" u32)))
        (export "log" (func (type 0)))))
    (import "host:own/log" (instance $log (type $log)))
    (core module $memory (memory (export "memory") 1))
    (core instance $memory (instantiate $memory))
    (alias core export $memory "memory" (core memory $memory))
    (alias export $log "log" (func $log))
    (core func $log (canon lower (func $log)))
    (alias export $streams "write" (func $write))
    (core func $write (canon lower (func $write) (memory $memory)))
    (core func $drop (canon resource.drop $stream))
    (alias export $poll "poll" (func $poll))
    (core func $poll (canon lower (func $poll)))
    (alias export $streams "open" (func $open))
    (core func $open (canon lower (func $open)))
    (core module $main
        (import "host" "log" (func $log (param i32)))
        (import "host" "write" (func $write (param i32 i32 i32)))
        (import "host" "drop" (func $drop (param i32)))
        (import "host" "poll" (func $poll (param i32) (result i64)))
        (import "host" "open" (func $open (result i32)))
        (global $calls (mut i32) (i32.const 40))
        (func (export "run") (param i32) (result i32)
            (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
            (call $log (local.get 0))
            (block (block (block (block (block
                (br_table 0 1 2 3 4 (local.get 0)))
                (return (global.get $calls)))
                (call $write (i32.const 1) (i32.const 0) (i32.const 0)) (return (i32.const 1)))
                (call $drop (i32.const 1)) (return (i32.const 2)))
                (drop (call $poll (i32.const 1))) (return (i32.const 3)))
            (drop (call $open))
            (i32.const 4)))
    (core instance $host
        (export "log" (func $log))
        (export "write" (func $write))
        (export "drop" (func $drop))
        (export "poll" (func $poll))
        (export "open" (func $open)))
    (core instance $main (instantiate $main (with "host" (instance $host))))
    (alias core export $main "run" (core func $run))
    (type $run (func (param "what" u32) (result u32)))
    (func $run (type $run) (canon lift (core func $run)))
    (component $shown
        (import "run" (func $run (param "what" u32) (result u32)))
        (export "run" (func $run)))
    (instance $shown (instantiate $shown (with "run" (func $run))))
    (export "plugin:own/run" (instance $shown))
"#;

/// Traps for the interfaces of WASI that the part imports.
const TRAPS: &str = r#"
    (core module $m
        (memory (export "memory") 0)
        (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable)
        (func (export "write") (param i32 i32 i32) unreachable)
        (func (export "poll") (param i32) (result i64) unreachable)
        (func (export "open") (result i32) unreachable))
    (core instance $i (instantiate $m))
    (alias core export $i "memory" (core memory $memory))
    (type $stream' (resource (rep i32)))
    (export $stream "stream" (type $stream'))
    (func $write (param "self" (borrow $stream)) (param "bytes" (list u8))
        (canon lift (core func $i "write") (memory $memory) (realloc (func $i "realloc"))))
    (func $open (result (own $stream)) (canon lift (core func $i "open")))
    (func $poll (param "of" (own $stream)) (result u64) (canon lift (core func $i "poll")))
    (instance $streams (export "stream" (type $stream)) (export "write" (func $write)) (export "open" (func $open)))
    (export "wasi:io/streams" (instance $streams))
    (instance $poll (export "stream" (type $stream)) (export "poll" (func $poll)))
    (export "wasi:io/poll" (instance $poll))
"#;

const IMPORT: &str = r#"
    (import "host:own/log" (instance $log
        (export "log" (func (param "text" u32)))))
"#;

/// A composition of a part with traps.
fn composed(part: &str, traps: &str) -> Vec<u8> {
    let text = format!(
        r#"(component
            {IMPORT}
            (component $part {part})
            (component $traps {traps})
            (instance $traps (instantiate $traps))
            (alias export $traps "wasi:io/streams" (instance $streams))
            (alias export $traps "wasi:io/poll" (instance $poll))
            (instance $part (instantiate $part
                (with "wasi:io/streams" (instance $streams))
                (with "wasi:io/poll" (instance $poll))
                (with "host:own/log" (instance $log))))
            (alias export $part "plugin:own/run" (instance $run))
            (export "plugin:own/run" (instance $run)))"#
    );
    wat::parse_str(text).unwrap()
}

/// What the host and the caller see of a call.
fn seen(component: &[u8], what: u32) -> (Vec<u32>, Result<Vec<Val>, ()>) {
    let engine = Engine::default();
    let component = Component::new(&engine, component).unwrap();
    let mut linker = Linker::<Vec<u32>>::new(&engine);
    let mut log = linker.instance("host:own/log").unwrap();
    log.func_wrap("log", |mut store, (text,): (u32,)| {
        store.data_mut().push(text);
        Ok(())
    })
    .unwrap();
    let mut store = Store::new(&engine, Vec::new());
    let instance = linker.instantiate(&mut store, &component).unwrap();
    let of = instance
        .get_export_index(&mut store, None, "plugin:own/run")
        .unwrap();
    let run = instance
        .get_export_index(&mut store, Some(&of), "run")
        .unwrap();
    let run = instance.get_func(&mut store, run).unwrap();
    let mut results = [Val::Bool(false)];
    let answer = run.call(&mut store, &[Val::U32(what)], &mut results);
    let answer = answer.map(|()| results.to_vec()).map_err(|_| ());
    (store.into_data(), answer)
}

#[test]
fn flat_component_answers_and_traps_as_the_composition_does() {
    let composed = composed(PART, TRAPS);
    let flat = flattened(&composed).unwrap().expect("it is a composition");
    Validator::new().validate_all(&flat).unwrap();
    for what in 0..5 {
        assert_eq!(seen(&flat, what), seen(&composed, what), "{what}");
        assert_eq!(seen(&flat, what).1.is_ok(), what == 0);
    }
    assert!(flattened(&flat).unwrap().is_none());
}

#[test]
fn flat_component_has_a_snapshot() {
    let composed = composed(PART, TRAPS);
    let wizer = wasmtime_wizer::Wizer::new();
    assert!(wizer.instrument_component(&composed).is_err());
    let flat = flattened(&composed).unwrap().unwrap();
    wizer.instrument_component(&flat).unwrap();
}

#[test]
fn compositions_within_each_other_become_one_component() {
    let inner = composed(PART, TRAPS);
    let mut outer = String::from(IMPORT);
    outer.push_str(
        r#"(component $traps
            (core module $m (func (export "f") unreachable))
            (core instance $i (instantiate $m))
            (func $f (canon lift (core func $i "f")))
            (instance $loader (export "load" (func $f)))
            (export "own:init/loader" (instance $loader)))
        (instance $traps (instantiate $traps))"#,
    );
    outer.push_str("(component $part ");
    let part = PART.to_owned()
        + r#"(type $loader (instance (type (func)) (export "load" (func (type 0)))))
             (import "own:init/loader" (instance (type $loader)))"#;
    let within = format!(
        r#"(import "own:init/loader" (instance $loader (export "load" (func))))
           {IMPORT}
           (component $part {part})
           (component $traps {TRAPS})
           (instance $traps (instantiate $traps))
           (alias export $traps "wasi:io/streams" (instance $streams))
           (alias export $traps "wasi:io/poll" (instance $poll))
           (instance $part (instantiate $part
               (with "own:init/loader" (instance $loader))
               (with "wasi:io/streams" (instance $streams))
               (with "wasi:io/poll" (instance $poll))
               (with "host:own/log" (instance $log))))
           (alias export $part "plugin:own/run" (instance $run))
           (export "plugin:own/run" (instance $run)))"#
    );
    outer.push_str(&within);
    outer.push_str(
        r#"(alias export $traps "own:init/loader" (instance $loader))
           (instance $part (instantiate $part
               (with "own:init/loader" (instance $loader))
               (with "host:own/log" (instance $log))))
           (alias export $part "plugin:own/run" (instance $run))
           (export "plugin:own/run" (instance $run))"#,
    );
    let twice = wat::parse_str(format!("(component {outer})")).unwrap();
    let flat = flattened(&twice).unwrap().expect("it is a composition");
    for what in 0..5 {
        assert_eq!(seen(&flat, what), seen(&inner, what), "{what}");
    }
}

#[test]
fn composition_with_a_function_that_may_return_stays_as_it_is() {
    let stays = |part: &str, traps: &str| flattened(&composed(part, traps)).unwrap().is_none();
    assert!(!stays(PART, TRAPS));
    for (before, after) in [
        // A function that returns.
        ("(result i64) unreachable", "(result i64) i64.const 7"),
        // A function that takes the arguments, and returns.
        (
            "(param i32 i32 i32 i32) (result i32) unreachable",
            "(param i32 i32 i32 i32) (result i32) i32.const 0",
        ),
        // A function with the bytes of a trap behind other ones.
        ("(result i64) unreachable", "(result i64) nop unreachable"),
    ] {
        assert!(TRAPS.contains(before), "{before}");
        assert!(stays(PART, &TRAPS.replace(before, after)), "{after}");
    }
    // A function of no module.
    let part = PART
        .replace("(result u64)", "(result u32)")
        .replace("(result i64)", "(result i32)");
    let traps = TRAPS
        .replace("(result u64)", "(result u32)")
        .replace("(result i64)", "(result i32)");
    assert!(!stays(&part, &traps));
    let built_in = traps.replace(
        r#"(func $poll (param "of" (own $stream)) (result u32) (canon lift (core func $i "poll")))"#,
        r#"(core func $rep (canon resource.rep $stream'))
           (func $poll (param "of" (own $stream)) (result u32) (canon lift (core func $rep)))"#,
    );
    assert!(built_in != traps && stays(&part, &built_in));
    // A function that a module only passes on.
    let passed_on = traps.replace(
        "(core instance $i (instantiate $m))",
        r#"(core instance $m (instantiate $m))
               (core module $n
                    (import "m" "memory" (memory 0))
                    (import "m" "poll" (func $poll (param i32) (result i32)))
                    (export "memory" (memory 0))
                    (export "poll" (func $poll))
                    (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable)
                    (func (export "write") (param i32 i32 i32) unreachable)
                    (func (export "open") (result i32) unreachable))
               (core instance $i (instantiate $n (with "m" (instance $m))))"#,
    );
    assert!(passed_on != traps && stays(&part, &passed_on));
}

#[test]
fn composition_with_traps_that_give_code_away_stays_as_it_is() {
    let instance = "(core instance $i (instantiate $m))";
    for (before, after) in [
        // Modules and components that another part can instantiate.
        (
            instance,
            r#"(core instance $i (instantiate $m)) (core module $c) (export "own:it/code" (core module $c))"#,
        ),
        (
            instance,
            r#"(core instance $i (instantiate $m)) (component $c) (export "own:it/code" (component $c))"#,
        ),
        (
            instance,
            r#"(core instance $i (instantiate $m))
               (core module $c) (instance $c (export "c" (core module $c))) (export "own:it/code" (instance $c))"#,
        ),
        (
            instance,
            r#"(core instance $i (instantiate $m))
               (component $o (core module $c) (export "c" (core module $c)))
               (instance $o (instantiate $o)) (alias export $o "c" (core module $n))"#,
        ),
        // A module that a nested component passes on: it is not the one that its number says.
        (
            instance,
            r#"(component $o (import "c" (core module $c)) (export "c" (core module $c)))
               (instance $o (instantiate $o (with "c" (core module $m))))
               (alias export $o "c" (core module $n))
               (core instance $i (instantiate $m))"#,
        ),
        (
            instance,
            r#"(core instance $i (instantiate $m))
               (component $o (alias outer 1 $m (core module $c)) (export "c" (core module $c)))
               (instance $o (instantiate $o)) (export "own:it/code" (instance $o))"#,
        ),
    ] {
        assert!(TRAPS.contains(before), "{before}");
        let composed = composed(PART, &TRAPS.replace(before, after));
        Validator::new().validate_all(&composed).unwrap();
        assert!(flattened(&composed).unwrap().is_none(), "{after}");
    }
}

/// A module of the traps may do something when it is instantiated. Nobody else sees it.
#[test]
fn traps_may_fill_their_own_tables_and_memories() {
    let memory = r#"(memory (export "memory") 0)"#;
    assert!(TRAPS.contains(memory));
    for after in [
        r#"(memory (export "memory") 0) (func $begin) (start $begin)"#,
        r#"(memory (export "memory") 1) (data (i32.const 0) "a")"#,
        r#"(memory (export "memory") 0) (table 1 funcref) (func $f) (elem (i32.const 0) func $f)"#,
    ] {
        let composed = composed(PART, &TRAPS.replace(memory, after));
        assert!(flattened(&composed).unwrap().is_some(), "{after}");
    }
}

#[test]
fn part_that_shows_a_type_of_the_traps_stays_as_it_is() {
    let shown = PART.replace(
        r#"(type $run (func (param "what" u32) (result u32)))"#,
        r#"(type $run (func (param "what" u32) (result u32)))
           (type $shown (func (param "of" (own $stream))))
           (core module $shows (func (export "f") (param i32)))
           (core instance $shows (instantiate $shows))
           (func (type $shown) (canon lift (core func $shows "f")))"#,
    );
    assert!(flattened(&composed(&shown, TRAPS)).unwrap().is_none());
}

#[test]
fn plain_components_stay_as_they_are() {
    for component in ["(component)", "(component (core module))"] {
        let component = wat::parse_str(component).unwrap();
        assert!(flattened(&component).unwrap().is_none());
    }
}

#[test]
fn reports_truncated_component() {
    let composed = composed(PART, TRAPS);
    for end in [10, composed.len() / 2, composed.len() - 1] {
        assert!(flattened(&composed[..end]).is_err(), "{end}");
    }
}
