//! Hands the linker the order of the functions that a server calls: `layout/`, which `cargo xtask layout` records.
//!
//! Linux maps a program in pieces of 64 KiB and more around what it calls. With these functions beside each other, a server
//! needs some 12 MB less. Without a file for the target, or without LLD, functions stay in the order of the compiler.
//! Relocations are compact where the C library knows that form, which saves 4 MB more.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the linker is to write its map, from which `cargo xtask layout` takes the functions.
const MAP_VARIABLE: &str = "TOLLGATE_LINK_MAP";
/// Only LLD knows this. Names change with the compiler and with dependencies, and a name that is not there does nothing.
const NO_WARNING: &str = "-Wl,--no-warn-symbol-ordering";

/// Relocations in a tenth of the space. C libraries know them since glibc 2.36 and musl 1.2.4.
const COMPACT: &str = "-Wl,-z,pack-relative-relocs";

fn main() {
    println!("cargo:rerun-if-changed=layout");
    println!("cargo:rerun-if-env-changed={MAP_VARIABLE}");
    if text("PROFILE") != "release" {
        return;
    }
    let layout = Path::new(&text("CARGO_MANIFEST_DIR"))
        .join("layout")
        .join(text("TARGET"))
        .with_extension("txt");
    let map = env::var_os(MAP_VARIABLE).map(PathBuf::from);
    let mut arguments = vec![NO_WARNING.to_owned()];
    if layout.is_file() {
        arguments.push(format!("-Wl,--symbol-ordering-file={}", layout.display()));
    } else if map.is_none() {
        return;
    }
    if let Some(map) = map {
        arguments.push(format!("-Wl,-Map={}", map.display()));
        arguments.push("-Wl,--no-demangle".to_owned());
    }
    let lld = lld();
    for relocations in [Some(COMPACT), None] {
        for linker in [None, lld.as_ref()] {
            let linker = linker.into_iter().flatten().map(String::as_str);
            let arguments = arguments.iter().map(String::as_str);
            let all: Vec<&str> = linker.chain(arguments).chain(relocations).collect();
            if works(&all) {
                for argument in all {
                    println!("cargo:rustc-link-arg-bins={argument}");
                }
                return;
            }
        }
    }
}

/// Tells a C compiler that calls another linker to call the LLD that comes with Rust.
fn lld() -> Option<[String; 2]> {
    let output = Command::new(rustc()).arg("--print=sysroot").output().ok()?;
    let sysroot = String::from_utf8(output.stdout).ok()?;
    let folder = Path::new(sysroot.trim())
        .join("lib/rustlib")
        .join(text("HOST"))
        .join("bin/gcc-ld");
    Some([format!("-B{}", folder.display()), "-fuse-ld=lld".to_owned()])
}

/// Whether a program can be linked with these arguments, and, if it is for this machine, run.
fn works(arguments: &[&str]) -> bool {
    let folder = PathBuf::from(text("OUT_DIR"));
    let source = folder.join("probe.rs");
    if std::fs::write(&source, "fn main() {}").is_err() {
        return false;
    }
    let mut rustc = Command::new(rustc());
    rustc.args(["--edition=2024", "--target", &text("TARGET")]);
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut argument = OsString::from("-Clinker=");
        argument.push(linker);
        rustc.arg(argument);
    }
    let flags = text("CARGO_ENCODED_RUSTFLAGS");
    rustc.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    for argument in arguments {
        rustc.arg(format!("-Clink-arg={argument}"));
    }
    let probe = folder.join("probe");
    rustc.arg("-o").arg(&probe).arg(source);
    succeeds(&mut rustc) && (text("HOST") != text("TARGET") || succeeds(&mut Command::new(probe)))
}

fn succeeds(command: &mut Command) -> bool {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn rustc() -> OsString {
    env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
}

fn text(name: &str) -> String {
    env::var(name).unwrap_or_default()
}
