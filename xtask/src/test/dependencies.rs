//! Checks the dependencies of the workspace: deny.toml, and the RustSec advisories.

use std::process::{Command, Output, Stdio};

use crate::cargo;
use crate::test::count::Count;
use crate::toolchain;
use crate::workspace::Workspace;

/// Checks bans, licences and sources. Also checks advisories if their database can be fetched.
pub(super) fn check(workspace: &Workspace, count: &mut Count) -> anyhow::Result<()> {
    match toolchain::ensure_cargo_command("deny") {
        Ok(version) => println!("  {version}"),
        Err(error) => {
            count.skip(format!("deny.toml is not checked: {error:#}"));
            return Ok(());
        }
    }
    run(workspace, &["deny", "check", "bans", "licenses", "sources"])?;
    // The database is a separate repository, and not every machine can reach its host.
    let fetched = quietly(workspace, &["deny", "fetch", "db"])?;
    if !fetched.status.success() {
        count.skip(format!(
            "cannot fetch the advisory database: {}",
            last_words(&fetched)
        ));
        return Ok(());
    }
    run(workspace, &["deny", "check", "advisories"])
}

fn run(workspace: &Workspace, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = workspace.cargo();
    println!("$ {}", cargo::typed(command.args(arguments)));
    cargo::run(&mut command)
}

fn quietly(workspace: &Workspace, arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command: Command = workspace.cargo();
    println!("$ {}", cargo::typed(command.args(arguments)));
    Ok(command.stdin(Stdio::null()).output()?)
}

/// Returns the reason why a command failed, on one line.
fn last_words(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.next_back().unwrap_or("no reason given").to_owned()
}
