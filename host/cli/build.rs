//! Hands the linker the order of the functions that a server calls: `layout/`, which `cargo xtask layout` records.
//!
//! Linux maps a program in pieces of 64 KiB and more around what it calls. With these functions beside each other, a server
//! needs some 12 MB less. With the order, relocations are compact where the C library knows that form, which saves 3.5 MB
//! more. Without a file for the target, or without LLD, the program is as the compiler made it.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the linker is to write its map, from which `cargo xtask layout` takes the functions.
const MAP_VARIABLE: &str = "TOLLGATE_LINK_MAP";
/// Only LLD knows this. Names change with the compiler and with dependencies, and a name that is not there does nothing.
const NO_WARNING: &str = "--no-warn-symbol-ordering";
/// Relocations in a tenth of the space. C libraries know them since glibc 2.36 and musl 1.2.4.
const COMPACT: [&str; 2] = ["-z", "pack-relative-relocs"];
/// Parts of the flags that choose a linker.
const CHOICES: [&str; 3] = ["fuse-ld", "linker=", "linker-f"];

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
    let mut ordered = vec![NO_WARNING.to_owned()];
    if layout.is_file() {
        ordered.push(format!("--symbol-ordering-file={}", layout.display()));
    } else if map.is_none() {
        return;
    }
    if let Some(map) = map {
        ordered.push(format!("-Map={}", map.display()));
        ordered.push("--no-demangle".to_owned());
    }
    let compact = ordered.iter().cloned().chain(COMPACT.map(str::to_owned));
    let variants = [compact.collect(), ordered];
    let linker = lld().unwrap_or_default();
    let works = variants[usize::from(!may_be_compact())..]
        .iter()
        .map(|variant| arguments(&linker, variant))
        .find(|arguments| works(arguments));
    let Some(arguments) = works else {
        println!(
            "cargo:warning=the linker is not LLD, so the functions of the program are not in the order that saves memory \
             (docs/decisions/0108)"
        );
        return;
    };
    for argument in arguments {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
}

/// The C compiler's arguments for these of the linker. A path may contain a comma, at which `-Wl,` would split it.
fn arguments(linker: &[String], variant: &[String]) -> Vec<String> {
    let passed = variant
        .iter()
        .flat_map(|argument| ["-Xlinker".to_owned(), argument.clone()]);
    linker.iter().cloned().chain(passed).collect()
}

/// For musl, Rust calls the C compiler's linker. Tells that compiler to call the LLD that comes with Rust, unless the user
/// chose a linker.
fn lld() -> Option<Vec<String>> {
    let flags = text("CARGO_ENCODED_RUSTFLAGS");
    let has_choice = CHOICES.iter().any(|choice| flags.contains(choice));
    if text("CARGO_CFG_TARGET_ENV") != "musl" || env::var_os("RUSTC_LINKER").is_some() || has_choice
    {
        return None;
    }
    let output = Command::new(rustc()).arg("--print=sysroot").output().ok()?;
    let sysroot = String::from_utf8(output.stdout).ok()?;
    let folder = Path::new(sysroot.trim())
        .join("lib/rustlib")
        .join(text("HOST"))
        .join("bin/gcc-ld");
    Some(vec![
        format!("-B{}", folder.display()),
        "-fuse-ld=lld".to_owned(),
    ])
}

/// musl is part of the program. Another C library has to show that it knows the form, by running the probe.
fn may_be_compact() -> bool {
    text("CARGO_CFG_TARGET_ENV") == "musl" || is_native()
}

fn is_native() -> bool {
    text("HOST") == text("TARGET")
}

/// Whether a program can be linked with these arguments, and, if it is for this machine, run.
fn works(arguments: &[String]) -> bool {
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
    succeeds(&mut rustc) && (!is_native() || succeeds(&mut Command::new(probe)))
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
