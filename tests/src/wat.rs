//! Builds WebAssembly modules from text and embeds the contract's WIT, as a plugin's compiler would.
//!
//! A fixture holds only its special parts. The prelude adds everything else that a plugin needs, unless the fixture
//! exports the same name itself:
//!
//! - a memory and an allocator
//! - a `describe` with one rule that matches everything
//! - a `configure` that accepts, a `validate` that allows, and a `mutate` that changes nothing

use std::path::Path;
use std::sync::LazyLock;

use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::{Resolve, WorldId, WorldKey};

use crate::binary::workspace;

/// Worlds beside those of the contract, for modules that do not follow the contract.
const WORLDS: &str = "
    package tollgate:hostile;

    /// Can be described and configured, and does nothing.
    world only-lifecycle {
        export tollgate:admission/lifecycle@0.1.0;
    }

    /// Validates without ever having been described.
    world no-lifecycle {
        export tollgate:admission/validating@0.1.0;
    }

    /// Wants to know the time.
    world with-clock {
        include tollgate:admission/validator@0.1.0;
        import tollgate:admission/clock@0.1.0;
    }

    /// Wants to see objects of the cluster.
    world with-cluster {
        include tollgate:admission/validator@0.1.0;
        import tollgate:admission/cluster@0.1.0;
    }

    /// Wants to ask what users may do.
    world with-access {
        include tollgate:admission/validator@0.1.0;
        import tollgate:admission/access@0.1.0;
    }

    /// Wants to ask what users may do, and can do without.
    world with-access-and-grants {
        include tollgate:admission/validator@0.1.0;
        import tollgate:admission/access@0.1.0;
        import tollgate:admission/grants@0.1.0;
    }

    /// Wants to have images verified.
    world with-images {
        include tollgate:admission/validator@0.1.0;
        import tollgate:admission/images@0.1.0;
    }

    /// Wants to see objects of the cluster, and changes what it reviews.
    world mutator-with-cluster {
        include tollgate:admission/mutator@0.1.0;
        import tollgate:admission/cluster@0.1.0;
    }

    /// Wants what no host has.
    world with-unknown-import {
        include tollgate:admission/validator@0.1.0;
        import unknown;
    }

    interface unknown {
        run: func();
    }

    /// Imports what a toolchain for WASI leaves behind: a way to sleep.
    world with-wasi-clock {
        include tollgate:admission/validator@0.1.0;
        import wasi:clocks/monotonic-clock@0.2.0;
    }

    /// Likewise: the environment.
    world with-wasi-environment {
        include tollgate:admission/validator@0.1.0;
        import wasi:cli/environment@0.2.0;
    }
";

/// The part of WASI that the worlds need.
const WASI: [(&str, &str); 3] = [
    (
        "io.wit",
        "package wasi:io@0.2.0; interface poll { resource pollable { block: func(); } }",
    ),
    (
        "clocks.wit",
        "package wasi:clocks@0.2.0;
        interface monotonic-clock {
            use wasi:io/poll@0.2.0.{pollable};
            type duration = u64;
            subscribe-duration: func(when: duration) -> pollable;
        }",
    ),
    (
        "cli.wit",
        "package wasi:cli@0.2.0;
        interface environment { get-environment: func() -> list<tuple<string, string>>; }",
    ),
];

/// Start address of the prelude's allocator. Fixtures keep their data segments below it.
pub const HEAP_START: u32 = 32768;

/// A part of the prelude.
struct Part {
    /// The export by which a fixture replaces the part.
    export: &'static str,
    /// The part is added if the world exports this interface. None means that every module needs the part.
    interface: Option<&'static str>,
    text: &'static str,
}

/// The default parts. Addresses below 1024 belong to the prelude, the rest up to [`HEAP_START`] to the fixture.
const PRELUDE: &[Part] = &[
    Part {
        export: "memory",
        interface: None,
        text: r#"(memory $memory (export "memory") 2)"#,
    },
    Part {
        export: "cabi_realloc",
        interface: None,
        text: r#"
            ;; Bumps, grows the memory where it has to, and frees nothing.
            (global $heap (mut i32) (i32.const 32768))
            (func $realloc (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32)
                (result i32)
                (local $at i32) (local $end i32)
                (local.set $at
                    (i32.and
                        (i32.add (global.get $heap) (i32.sub (local.get $align) (i32.const 1)))
                        (i32.sub (i32.const 0) (local.get $align))))
                (local.set $end (i32.add (local.get $at) (local.get $size)))
                (if (i32.gt_u (local.get $end) (i32.mul (memory.size) (i32.const 65536)))
                    (then
                        (drop (memory.grow
                            (i32.add
                                (i32.div_u
                                    (i32.sub (local.get $end) (i32.mul (memory.size) (i32.const 65536)))
                                    (i32.const 65536))
                                (i32.const 1))))))
                (memory.copy (local.get $at) (local.get $old) (local.get $old_size))
                (global.set $heap (local.get $end))
                (local.get $at))"#,
    },
    Part {
        export: "tollgate:admission/lifecycle@0.1.0#describe",
        interface: Some("lifecycle"),
        text: r#"
            (data (i32.const 16) "hostile" "*" "*/*")
            ;; Lists of one text each: `*` and `*/*`.
            (data (i32.const 32) "\17\00\00\00\01\00\00\00" "\18\00\00\00\03\00\00\00")
            ;; One rule: operations, groups and versions are `*`, resources are `*/*`, no scope.
            (data (i32.const 64) "\20\00\00\00\01\00\00\00" "\20\00\00\00\01\00\00\00" "\20\00\00\00\01\00\00\00"
                "\28\00\00\00\01\00\00\00")
            ;; The manifest: a name, no version, no description, no schema, that rule, no labels.
            (data (i32.const 128) "\10\00\00\00\07\00\00\00")
            (data (i32.const 164) "\40\00\00\00\01\00\00\00")
            (func $describe (export "tollgate:admission/lifecycle@0.1.0#describe") (result i32) (i32.const 128))"#,
    },
    Part {
        export: "tollgate:admission/lifecycle@0.1.0#configure",
        interface: Some("lifecycle"),
        text: r#"
            ;; 256 holds zeros: `accepted`, `allow` and `unchanged` are all case 0.
            (func $configure (export "tollgate:admission/lifecycle@0.1.0#configure") (param i32 i32) (result i32)
                (i32.const 256))"#,
    },
    Part {
        export: "tollgate:admission/validating@0.1.0#validate",
        interface: Some("validating"),
        text: r#"(func $validate (export "tollgate:admission/validating@0.1.0#validate") (result i32) (i32.const 256))"#,
    },
    Part {
        export: "tollgate:admission/mutating@0.1.0#mutate",
        interface: Some("mutating"),
        text: r#"(func $mutate (export "tollgate:admission/mutating@0.1.0#mutate") (result i32) (i32.const 256))"#,
    },
];

/// The contract, parsed once.
static CONTRACT: LazyLock<Resolve> = LazyLock::new(|| {
    let mut resolve = Resolve::default();
    resolve
        .push_dir(workspace().join("wit"))
        .expect("wit/ holds the contract and parses");
    for (file, text) in WASI {
        resolve
            .push_str(file, text)
            .expect("the parts of WASI above parse");
    }
    resolve
        .push_str("hostile.wit", WORLDS)
        .expect("the worlds above parse");
    resolve
});

/// Builds a core module of a world. `fields` are the module's fields, imports first. The prelude follows them.
///
/// # Panics
/// Panics if the text is not WebAssembly, with the place of the error, or if there is no such world.
#[must_use]
pub fn plugin(world: &str, fields: &str) -> Vec<u8> {
    let mut bytes = core_module(world, fields);
    embed(&mut bytes, world);
    bytes
}

/// Builds a mutator that sets one label to its version.
///
/// # Panics
/// Panics if the label or the version is too long for a fixture.
#[must_use]
pub fn marker(label: &str, version: &str) -> Vec<u8> {
    let path = format!("/metadata/labels/{label}");
    let end = 1024 + path.len();
    let bytes = |number: usize| {
        let number = u32::try_from(number).expect("addresses of a fixture are small");
        let escaped = number.to_le_bytes().map(|byte| format!("\\{byte:02x}"));
        escaped.concat()
    };
    let texts = format!("(data (i32.const 1024) \"{path}\" \"\\22{version}\\22\")");
    // json-patch (1) of one operation: add (0) at the path the JSON (0).
    let operation = format!(
        "(data (i32.const 1600) \"{}\" \"{}{}\" \"{}\" \"{}{}\")",
        bytes(0),
        bytes(1024),
        bytes(path.len()),
        bytes(0),
        bytes(end),
        bytes(version.len() + 2)
    );
    let answer = format!(
        "(data (i32.const 1632) \"{}\" \"{}\" \"{}\")",
        bytes(1),
        bytes(1600),
        bytes(1)
    );
    let mutate = "(func (export \"tollgate:admission/mutating@0.1.0#mutate\") (result i32) (i32.const 1632))";
    plugin(
        "mutator",
        &format!("{texts}\n{operation}\n{answer}\n{mutate}"),
    )
}

/// Builds a core module like `plugin`, but without the WIT.
///
/// # Panics
/// Panics if the text is not WebAssembly.
#[must_use]
pub fn core_module(world: &str, fields: &str) -> Vec<u8> {
    let mut text = format!("(module\n{fields}\n");
    let interfaces = exported_interfaces(find_world(world));
    let wanted = |part: &&Part| part.interface.is_none_or(|name| interfaces.contains(&name));
    for part in PRELUDE.iter().filter(wanted) {
        if !fields.contains(&format!("\"{}\"", part.export)) {
            text.push_str(part.text);
            text.push('\n');
        }
    }
    text.push_str(")\n");
    binary(&text)
}

/// Converts a complete text to its binary form.
///
/// # Panics
/// Panics if the text is not WebAssembly.
#[must_use]
pub fn binary(text: &str) -> Vec<u8> {
    match ::wat::parse_str(text) {
        Ok(bytes) => bytes,
        Err(error) => panic!("a fixture is not valid WebAssembly text: {error}"),
    }
}

fn find_world(name: &str) -> WorldId {
    let packages = CONTRACT.packages.iter();
    let found = packages
        .filter_map(|(_, package)| package.worlds.get(name))
        .next();
    *found.unwrap_or_else(|| panic!("there is no world `{name}` in wit/ or in {}", file!()))
}

fn exported_interfaces(world: WorldId) -> Vec<&'static str> {
    let exports = CONTRACT.worlds[world].exports.keys();
    let interfaces = exports.filter_map(|key| match key {
        WorldKey::Interface(interface) => CONTRACT.interfaces[*interface].name.as_deref(),
        WorldKey::Name(_) => None,
    });
    interfaces.collect()
}

fn embed(bytes: &mut Vec<u8>, world: &str) {
    embed_component_metadata(bytes, &CONTRACT, find_world(world), StringEncoding::UTF8)
        .unwrap_or_else(|error| panic!("the world cannot be embedded: {error:#}"));
}

/// Reads a fixture. Its first line is `;; world: NAME`, or `;; component` for a complete text.
///
/// # Panics
/// Panics if the file is missing or is not such a text.
#[must_use]
pub fn fixture(path: &Path) -> Vec<u8> {
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let first = text.lines().next().unwrap_or_default().trim();
    match (first.strip_prefix(";; world: "), first) {
        (Some(world), _) => plugin(world, &text),
        (None, ";; no world") => core_module("validator", &text),
        (None, ";; component") => binary(&text),
        _ => panic!(
            "{}: the first line is `{first}`, not `;; world: NAME`, `;; no world` or `;; component`",
            path.display()
        ),
    }
}
