//! `tollgate-componentize`: what a build script calls for languages whose compilers leave core modules.

#[cfg(feature = "bindings")]
mod bindings;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

/// Makes Tollgate plugins of core modules.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Make a component of a core module. A component is copied as it is.
    Component {
        /// The module that the compiler left.
        module: PathBuf,
        /// Where the component goes.
        #[arg(short, long)]
        output: PathBuf,
    },
    /// Write the bindings that the SDKs are built on anew, from the contract.
    #[cfg(feature = "bindings")]
    Bindings(bindings::Bindings),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Component { module, output } => component(&module, &output),
        #[cfg(feature = "bindings")]
        Task::Bindings(bindings) => bindings.write(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn component(module: &Path, output: &Path) -> anyhow::Result<()> {
    let bytes = std::fs::read(module).with_context(|| module.display().to_string())?;
    let component = tollgate_componentize::componentize(&bytes)
        .with_context(|| module.display().to_string())?;
    std::fs::write(output, component).with_context(|| output.display().to_string())
}
