//! The help of every subcommand, as a user sees it.

use std::process::{Command, Output};

fn tollgate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(arguments)
        .env("NO_COLOR", "1")
        .output()
        .expect("the program starts")
}

fn text(output: &[u8]) -> &str {
    std::str::from_utf8(output).expect("it is text")
}

/// The names under `Commands:`.
fn subcommands(help: &str) -> Vec<&str> {
    let (_, commands) = help.split_once("Commands:\n").expect("there are commands");
    commands
        .lines()
        .take_while(|line| !line.is_empty())
        // A long description continues on the next line, which has a deeper indent.
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect()
}

#[test]
fn every_subcommand_explains_itself() {
    let help = tollgate(&["--help"]);
    assert!(help.status.success());
    let names = subcommands(text(&help.stdout));
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let help = tollgate(&[name, "--help"]);
        assert!(help.status.success(), "{name}");
        let help = text(&help.stdout);
        let (about, usage) = help.split_once("\n\n").expect("a first paragraph");
        assert!(
            about.ends_with('.') || !about.contains(". "),
            "{name}: {about}"
        );
        assert!(
            usage.contains(&format!("Usage: tollgate {name}")),
            "{name}: {help}"
        );
    }
}

#[test]
fn unknown_subcommand_exits_with_usage_error() {
    let output = tollgate(&["revew"]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(
        error.contains("revew") && error.contains("review"),
        "{error}"
    );
}
