//! Shows two commands that explain decisions: one before a configuration is used, one after a review.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use super::server::Server;
use crate::terminal::{self, STRONG};
use crate::workspace::Workspace;

/// A command, with the words that its output must contain.
struct Line<'l> {
    arguments: Vec<String>,
    exit_code: i32,
    words: &'l [&'l str],
}

/// A review that two plugins deny.
const CARELESS: &str = "xtask/demo/create-careless-pod.json";
/// The uid of the review in which the plugin without fuel failed.
const FAILED: &str = "0f3e9a77-6c1b-4f52-b7c4-9d8e7f6a5b03";

/// Runs both commands, and returns the number of wrong properties.
pub(super) fn show(
    workspace: &Workspace,
    configuration: &Path,
    server: &Server,
) -> anyhow::Result<usize> {
    let executable = workspace.target().join("debug/tollgate");
    terminal::heading("E. before: review a manifest without a server");
    terminal::paragraph(
        "  ",
        "The Pod of C once more, from a file or a pipe, evaluated by the same code as in the server. The exit code \
         is the verdict. Here the mutators run first, as in a cluster: they correct the pull policies, so only the \
         labels are denied.",
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
        "The review of D, by the uid in the server's log. A decision keeps places, lengths and hashes, but no values \
         of the object and no texts of plugins.",
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
        .with_context(|| format!("cannot run {}", executable.display()))?;
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
            problems.push(format!("expected `{words}` in its output"));
        }
    }
    for problem in &problems {
        terminal::problem(problem);
    }
    Ok(problems.len())
}
