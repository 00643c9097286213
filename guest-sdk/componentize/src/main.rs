//! `tollgate-componentize`: build scripts call it for languages whose compilers write core modules.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

/// Build Tollgate plugins from core modules.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Build a component from a core module. A component is copied unchanged.
    Component {
        /// The core module.
        module: PathBuf,
        /// The output file.
        #[arg(short, long)]
        output: PathBuf,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Component { module, output } => component(&module, &output),
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
    let bytes =
        std::fs::read(module).with_context(|| format!("cannot read {}", module.display()))?;
    let component = tollgate_componentize::componentize(&bytes)
        .with_context(|| module.display().to_string())?;
    std::fs::write(output, component).with_context(|| format!("cannot write {}", output.display()))
}
