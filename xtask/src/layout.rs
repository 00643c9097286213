//! `cargo xtask layout`: which functions a server calls, so that the linker puts them beside each other.
//!
//! Linux maps a program in pieces of 64 KiB and more. A server calls a tenth of the program's code. In the order of the
//! compiler, these functions are spread over all of it.
//!
//! The linker writes a map of the program. This command runs the server with a breakpoint at each function, sends reviews,
//! and notes the order in which functions are called for the first time. `host/cli/build.rs` hands that order to the linker.

mod record;
mod scenario;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::image::{self, Build};
use crate::workspace::Workspace;
use crate::{cargo, terminal};

/// The folder of `host/cli/build.rs` with a file for each target.
const FOLDER: &str = "host/cli/layout";
/// What `cargo build` and `cargo xtask bench` compile.
const DEVELOPED: &str = "x86_64-unknown-linux-gnu";
/// What `cargo xtask image` and `cargo xtask release` compile.
const SHIPPED: &str = "x86_64-unknown-linux-musl";
/// Tells `host/cli/build.rs` where the linker is to write its map.
const MAP_VARIABLE: &str = "TOLLGATE_LINK_MAP";
/// The beginnings of the names of functions in Rust, and of the allocator's. Other names in the code can be tables.
const FUNCTIONS: [&str; 4] = ["_ZN", "_R", "mi_", "_mi_"];
/// A server calls more functions than this. Fewer mean that the recording failed.
const FEWEST: usize = 2000;

/// Record which functions the server calls, for the order in which the linker puts them.
///
/// Builds the release binary and the binary of the image, serves three plugins with each, and writes `host/cli/layout/`.
/// Takes half an hour if nothing is built. The names of functions change with the compiler, with dependencies and with the
/// version of the workspace. A name that the program does not have does nothing, so run it when `--check` fails.
#[derive(Args, Debug)]
pub(crate) struct Layout {
    /// Only this target.
    #[arg(long, value_parser = [DEVELOPED, SHIPPED])]
    target: Option<String>,
    /// Only print how many of the recorded functions the programs have. Fails if a tenth is missing.
    #[arg(long)]
    check: bool,
}

/// A program, and its functions by their addresses.
struct Program {
    target: &'static str,
    binary: PathBuf,
    functions: Functions,
}

/// Names of functions by address. Equal functions can share one.
type Functions = BTreeMap<u64, Vec<String>>;

/// Tells about names that the program that was built last does not have, because measurements of it then mean less.
pub(crate) fn report_missing(workspace: &Workspace) -> anyhow::Result<()> {
    // There is no recorded order for other targets.
    if !cfg!(all(target_arch = "x86_64", target_env = "gnu")) {
        return Ok(());
    }
    let file = workspace
        .root()
        .join(FOLDER)
        .join(format!("{DEVELOPED}.txt"));
    let recorded = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let binary = workspace.target().join("release/tollgate");
    let program = fs::read(&binary).with_context(|| binary.display().to_string())?;
    let (found, all) = (names_in(&program, &recorded), recorded.lines().count());
    if !are_enough(found, all) {
        terminal::problem(&format!(
            "the program has {found} of the {all} functions whose order was recorded, so it is slower than it could be; \
             record them again: cargo xtask layout --target {DEVELOPED}"
        ));
    }
    Ok(())
}

/// Counts the recorded names in the list of symbols of a program.
fn names_in(program: &[u8], recorded: &str) -> usize {
    let recorded: HashSet<&[u8]> = recorded.lines().map(str::as_bytes).collect();
    let names = program.split(|byte| *byte == 0);
    let found: HashSet<&[u8]> = names.filter(|name| recorded.contains(name)).collect();
    found.len()
}

/// Whether so many of the recorded functions are most of them.
fn are_enough(found: usize, recorded: usize) -> bool {
    found * 10 >= recorded * 9
}

// === impl Layout ===

impl Layout {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let workspace = Workspace::find()?;
        let mut are_current = true;
        for target in [DEVELOPED, SHIPPED] {
            if self.target.as_deref().is_some_and(|only| only != target) {
                continue;
            }
            let program = Program::build(&workspace, target)?;
            let file = workspace.root().join(FOLDER).join(format!("{target}.txt"));
            if self.check {
                are_current &= program.check(&file)?;
            } else {
                let names = program.record(&workspace)?;
                fs::write(&file, names).with_context(|| file.display().to_string())?;
                println!("  {}", workspace.shown(&file));
            }
        }
        Ok(match are_current {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }
}

// === impl Program ===

impl Program {
    /// Builds the program as users get it, with a map of the linker.
    fn build(workspace: &Workspace, target: &'static str) -> anyhow::Result<Self> {
        let (mut command, binary) = match target {
            SHIPPED => {
                let build = Build::new(workspace, image::source_date(workspace)?)?;
                let binary = build.host_file(target);
                (build.host_command(target)?, binary)
            }
            _ => {
                let mut command = workspace.cargo();
                // All packages, as everywhere else: another selection would build wasmtime again.
                command.args(["build", "--release", "--workspace", "--bin", "tollgate"]);
                (command, workspace.target().join("release/tollgate"))
            }
        };
        let map = binary.with_extension("map");
        command.env(MAP_VARIABLE, &map);
        terminal::paragraph("  ", &format!("compiling for {target}"));
        cargo::run(&mut command)?;
        let text = fs::read_to_string(&map).with_context(|| {
            format!("the linker wrote no map to {}: expected LLD", map.display())
        })?;
        let functions = functions(&text);
        ensure!(!functions.is_empty(), "{} has no functions", map.display());
        Ok(Self {
            target,
            binary,
            functions,
        })
    }

    /// Prints how many of the recorded functions there are. Returns whether these are enough.
    fn check(&self, file: &Path) -> anyhow::Result<bool> {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let known: HashSet<&str> = self.names(self.functions.keys()).collect();
        let recorded = text.lines().count();
        let found = text.lines().filter(|name| known.contains(name)).count();
        println!(
            "  {}: the program has {found} of the {recorded} recorded functions",
            self.target
        );
        let are_enough = are_enough(found, recorded);
        if !are_enough {
            println!("  record them again: cargo xtask layout");
        }
        Ok(are_enough)
    }

    /// Runs the program. Returns the names of the functions that it called, a line for each.
    fn record(&self, workspace: &Workspace) -> anyhow::Result<String> {
        let called = scenario::run(workspace, &self.binary, &self.functions)?;
        ensure!(
            called.len() > FEWEST,
            "the recorded server called only {} functions",
            called.len()
        );
        println!(
            "  {}: the server called {} of {} functions",
            self.target,
            called.len(),
            self.functions.len()
        );
        Ok(self.names(&called).flat_map(|name| [name, "\n"]).collect())
    }

    fn names<'n>(
        &'n self,
        addresses: impl IntoIterator<Item = &'n u64>,
    ) -> impl Iterator<Item = &'n str> {
        let named = addresses
            .into_iter()
            .filter_map(|address| self.functions.get(address));
        named.flatten().map(String::as_str)
    }
}

/// Reads the functions of a program from the linker's map. Each line has an address, the address in the file, a size, an
/// alignment, and behind them by indentation a section, a part of an object file, or a symbol.
fn functions(map: &str) -> Functions {
    const SYMBOL_INDENTATION: usize = 16;
    let mut functions = Functions::new();
    let mut is_code = false;
    for line in map.lines() {
        let fields = line.split_ascii_whitespace();
        let [address, _, size, _, name] = fields.collect::<Vec<_>>()[..] else {
            continue;
        };
        let numbers = [address, size].map(|text| u64::from_str_radix(text, 16));
        let [Ok(address), Ok(size)] = numbers else {
            continue;
        };
        if name.starts_with('.') {
            is_code = name == ".text";
        }
        let is_symbol = line
            .strip_suffix(name)
            .is_some_and(|before| before.ends_with(&" ".repeat(SYMBOL_INDENTATION)));
        let is_function = FUNCTIONS.iter().any(|prefix| name.starts_with(prefix));
        if is_code && is_symbol && is_function && size > 0 {
            functions.entry(address).or_default().push(name.to_owned());
        }
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_names_in_the_symbols_of_a_program() {
        let program = b"\x7fELF\0_ZN1aE\0_ZN1bE\0_ZN1aE\0_ZN1cEx\0";
        assert_eq!(names_in(program, "_ZN1aE\n_ZN1bE\n_ZN1cE\n"), 2);
        assert!(are_enough(9, 10) && !are_enough(8, 10));
    }

    #[test]
    fn reads_functions_of_a_map() {
        let map = "
             VMA              LMA     Size Align Out     In      Symbol
            23a8             23a8   3691c8     8 .rela.dyn
         1198980          1197980  32eb5ac    64 .text
         1198980          1197980       3e    16         /a/b.o:(.text._ZN1aE)
         1198980          1197980       3e     1                 _ZN1aE
         1198980          1197980       3e     1                 _ZN1bE
         11989c0          11979c0       10    16         /a/b.o:(.text.table)
         11989c0          11979c0       10     1                 table
         11989d0          11979d0        0     1                 _ZN4zeroE
         44852c0          44832c0   2ab9a8    64 .data.rel.ro
         44852c0          44832c0        8     1                 _ZN4dataE
";
        let functions = functions(map);
        let expected = [(0x0119_8980, vec!["_ZN1aE".to_owned(), "_ZN1bE".to_owned()])];
        assert_eq!(functions, expected.into());
    }
}
