//! C: clang or Zig compiles the policy together with the single source file of the SDK.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};

use super::sdk::{self, Sdk};
use super::tool::Tool;
use super::{Built, Language, Pipeline, Template};

/// C with the SDK and without a C library.
pub(super) struct C;

const INSTALL: &str = "install clang and lld 17 or later (Debian 12: clang-19 lld-19; Debian 13: clang lld), or Zig (`pip install ziglang`)";
const FLAGS: &str = "compile_flags.txt";
const TARGET: &str = "--target=";
/// Flags for every build. `-fno-builtin` keeps the compiler from turning the SDK's `memcpy` into a call of itself.
const ALWAYS: [&str; 6] = [
    "-O2",
    "-fno-builtin",
    "-nostdlib",
    "-Wl,--no-entry",
    "-Wl,-z,stack-size=65536",
    "-Wl,--strip-all",
];
/// Suffixes of clang and its linker, in the order in which they are tried: no version first, then the newest first.
const CLANG_VERSIONS: [&str; 7] = ["", "-22", "-21", "-20", "-19", "-18", "-17"];

static TEMPLATE: Template = Template {
    files: &[
        (FLAGS, include_str!("c/compile_flags.txt.template")),
        (".gitignore", include_str!("c/gitignore.template")),
    ],
    sample: &[(
        "policy.c",
        include_str!("../../../../languages/c/trusted-registries/policy.c"),
    )],
    empty: &[("policy.c", include_str!("empty/policy.c.template"))],
    unit_tests: "tollgate test --watch               # beside an editor; there are no tests without WebAssembly",
    fuel: 20_000,
    pipeline: Pipeline {
        github: "      - run: sudo apt-get update && sudo apt-get install --yes clang lld\n",
        debian: "    - apt-get update && apt-get install --yes clang lld",
        unit_tests: None,
    },
};

// === impl C ===

impl Language for C {
    fn name(&self) -> &'static str {
        "c"
    }

    fn marker(&self) -> &'static str {
        "policy.c"
    }

    fn template(&self) -> &'static Template {
        &TEMPLATE
    }

    fn sdk(&self) -> &'static Sdk {
        &sdk::C
    }

    fn build(&self, folder: &Path, scratch: &Path) -> anyhow::Result<Built> {
        let flags = Flags::read(&folder.join(FLAGS))?;
        let file = scratch.join("module.wasm");
        let tool = match compiler(folder)? {
            Compiler::Clang(version, linker) => {
                Tool::new(format!("clang{version}"), folder, INSTALL)
                    .args(&flags.all)
                    .args([
                        format!("-fuse-ld={}", linker.display()).as_str(),
                        "-Wl,--stack-first",
                    ])
            }
            Compiler::Zig(program, arguments) => Tool::new(program, folder, INSTALL)
                .args(arguments)
                .args(["cc", "-target", "wasm32-freestanding"])
                .args(flags.all.iter().filter(|flag| !flag.starts_with(TARGET))),
        };
        tool.args(ALWAYS)
            .args(sources(folder)?)
            .args([&flags.sdk])
            .args([Path::new("-o"), &file])
            .run()?;
        let included = flags.all.iter().filter_map(|flag| flag.strip_prefix("-I"));
        let mut inputs: Vec<PathBuf> = included.map(|include| folder.join(include)).collect();
        inputs.push(folder.join(&flags.sdk));
        Ok(Built {
            name: name(folder)?,
            file,
            inputs,
        })
    }
}

/// The flags in `compile_flags.txt`, which editors read too.
struct Flags {
    all: Vec<String>,
    /// Path of the SDK's source file.
    sdk: PathBuf,
}

enum Compiler {
    /// Clang, with the suffix of its name and the path of its linker. For WebAssembly, clang refuses the name of a linker.
    Clang(&'static str, PathBuf),
    /// Zig, with the program and its first arguments.
    Zig(&'static str, &'static [&'static str]),
}

// === impl Flags ===

impl Flags {
    fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let all: Vec<String> = text
            .lines()
            .filter(|line| !line.is_empty())
            .map(ToOwned::to_owned)
            .collect();
        let mut includes = all.iter().filter_map(|flag| flag.strip_prefix("-I"));
        let include =
            includes.find(|folder| file.with_file_name(folder).join("tollgate.h").is_file());
        let include = include.ok_or_else(|| {
            anyhow!(
                "{}: no include folder contains tollgate.h; add a line such as -Isdk/include",
                file.display()
            )
        })?;
        let sdk = Path::new(include).join("../src/tollgate.c");
        Ok(Self { sdk, all })
    }
}

fn compiler(folder: &Path) -> anyhow::Result<Compiler> {
    let runs = |program: &str, arguments: &[&str]| {
        Tool::new(program, folder, INSTALL).args(arguments).works()
    };
    let linker_runs = |file: &Path| Tool::new(file, folder, INSTALL).args(["--version"]).works();
    for version in CLANG_VERSIONS {
        if runs(&format!("clang{version}"), &["--version"])
            && let Some(linker) = program(&format!("wasm-ld{version}"), linker_runs)
        {
            return Ok(Compiler::Clang(version, linker));
        }
    }
    if runs("zig", &["version"]) {
        return Ok(Compiler::Zig("zig", &[]));
    }
    if runs("python3", &["-m", "ziglang", "version"]) {
        return Ok(Compiler::Zig("python3", &["-m", "ziglang"]));
    }
    bail!("found no C compiler for WebAssembly: {INSTALL}")
}

/// Returns the path of a program that can be run.
fn program(name: &str, runs: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let files = std::env::split_paths(&path).map(|folder| folder.join(name));
    let mut files = files.filter_map(|file| std::path::absolute(file).ok());
    files.find(|file| file.is_file() && runs(file))
}

/// Lists the author's C files: those directly in the folder.
fn sources(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let names = entries
        .filter_map(Result::ok)
        .map(|entry| PathBuf::from(entry.file_name()));
    let mut sources: Vec<PathBuf> = names
        .filter(|name| name.extension().is_some_and(|ending| ending == "c"))
        .collect();
    sources.sort();
    Ok(sources)
}

/// Returns the project's name. A C project has no file with a name, so the folder's name is used.
fn name(folder: &Path) -> anyhow::Result<String> {
    let folder = std::fs::canonicalize(folder).with_context(|| folder.display().to_string())?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    Ok(name.into_owned())
}
