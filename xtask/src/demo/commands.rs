//! Shows the two commands that explain verdicts: one before a deployment, and one afterwards.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use super::server::Server;
use crate::terminal::{self, STRONG};
use crate::workspace::Workspace;

/// A command, and a text that its output must contain.
struct Line<'l> {
    arguments: Vec<String>,
    exit_code: i32,
    words: &'l [&'l str],
}

/// A review that two plugins deny.
const CARELESS: &str = "xtask/demo/create-careless-pod.json";
/// The uid of the review in which a plugin ran out of fuel.
const FAILED: &str = "0f3e9a77-6c1b-4f52-b7c4-9d8e7f6a5b03";

/// Runs both commands, and returns the number of wrong properties.
pub(super) fn show(
    workspace: &Workspace,
    configuration: &Path,
    server: &Server,
) -> anyhow::Result<usize> {
    let executable = workspace.target().join("debug/tollgate");
    terminal::heading("E. before: what would become of it, without a server");
    terminal::paragraph(
        "  ",
        "The Pod of C once more, by the code that has just answered, from a file or a pipe; the exit code is the \
         verdict. Here it goes through the mutators first, as in a cluster: they put the pull policies right, and the \
         labels are left to complain of.",
    );
    let mut problems = run(
        workspace,
        &executable,
        &Line {
            arguments: vec![
                "review".to_owned(),
                "--config".to_owned(),
                workspace.shown(configuration).to_string(),
                CARELESS.to_owned(),
            ],
            exit_code: 1,
            words: &[
                "/spec/containers/1/imagePullPolicy",
                "metadata.labels[team]",
            ],
        },
    )?;
    terminal::heading("F. afterwards: why the server decided so");
    terminal::paragraph(
        "  ",
        "The review of D, by the uid that is in the server's log. No value of the object and no word of a plugin is \
         kept: places, lengths and hashes are.",
    );
    problems += run(
        workspace,
        &executable,
        &Line {
            arguments: vec![
                "explain".to_owned(),
                "--admin".to_owned(),
                server.admin_url(),
                FAILED.to_owned(),
            ],
            exit_code: 0,
            words: &["starved", "out-of-fuel", "starved-optional"],
        },
    )?;
    Ok(problems)
}

fn run(workspace: &Workspace, executable: &Path, line: &Line<'_>) -> anyhow::Result<usize> {
    let typed = line.arguments.join(" ");
    anstream::println!("\n  {STRONG}$ tollgate {typed}{STRONG:#}");
    let output = Command::new(executable)
        .args(&line.arguments)
        .current_dir(workspace.root())
        .output()
        .with_context(|| format!("{} cannot be run", executable.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    for line in said.lines() {
        println!("{}", format!("  {line}").trim_end());
    }
    let mut problems = Vec::new();
    if output.status.code() != Some(line.exit_code) {
        let errors = String::from_utf8_lossy(&output.stderr);
        problems.push(format!(
            "{}, expected exit code {}: {errors}",
            output.status, line.exit_code
        ));
    }
    for words in line.words {
        if !said.contains(words) {
            problems.push(format!("expected `{words}` in what it says"));
        }
    }
    for problem in &problems {
        terminal::problem(problem);
    }
    Ok(problems.len())
}
