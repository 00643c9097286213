//! Builds the peer in Go: a controller-runtime webhook. cargo builds the peer in Rust with the other programs.

use tollgate_kube_apiserver::build_program;

use crate::terminal::{self, NOTABLE};
use crate::workspace::Workspace;

/// The groups that need the peers begin with this.
const GROUPS: &str = "peers";
const SOURCES: &str = "bench/peers/controller-runtime";
/// The name under which the benchmark looks for the program, beside its own.
const PROGRAM: &str = "peer-controller-runtime";

/// Builds the webhook in Go. Without Go or its module proxy, the benchmark leaves the webhook out.
///
/// # Errors
/// Fails if the program does not compile.
pub(super) fn build(workspace: &Workspace) -> anyhow::Result<()> {
    terminal::paragraph(
        "  ",
        &format!(
            "installing: {PROGRAM}, by `go build` in {SOURCES}. The first time, Go downloads controller-runtime and the \
             modules that it needs, as {SOURCES}/go.sum pins them, and compiles them for some minutes"
        ),
    );
    let program = workspace.target().join("release").join(PROGRAM);
    let Err(error) = build_program(&workspace.root().join(SOURCES), &program) else {
        return Ok(());
    };
    // A program of earlier sources must not be measured.
    match std::fs::remove_file(&program) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            anyhow::bail!("cannot remove {}: {error}", program.display());
        }
        _ => {}
    }
    if !error.is_circumstance() {
        return Err(error.into());
    }
    anstream::println!("  {NOTABLE}SKIPPED: the webhook in Go is not measured: {error}{NOTABLE:#}");
    Ok(())
}

/// Whether the groups with these names need the peers. Without names, all groups run.
pub(super) fn are_wanted(only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|group| group.starts_with(GROUPS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_built_for_their_groups_only() {
        let wanted = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(ToString::to_string).collect();
            are_wanted(&only)
        };
        assert!(wanted(&[]));
        assert!(wanted(&["peers"]));
        assert!(wanted(&["plugins", "peers 93 kB"]));
        assert!(!wanted(&["plugins"]));
    }
}
