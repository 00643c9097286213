//! Compares the plugin `rego` with OPA, and records answers of OPA, which the plugin's tests replay.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tollgate_kube_apiserver::build_program;

use crate::workspace::Workspace;
use crate::{cargo, terminal};

/// The Go module with the program, and the name of the built program.
const SOURCE: &str = "tests/opa";
/// The tests of the package `rego` that this command runs, without their module.
const RECORDS: &str = "records_answers_of_opa";
const COMPARES: &str = "random_reviews_get_the_same_violations_as_in_opa";

/// Builds the program that evaluates templates with OPA. Its modules come from Go's module proxy.
pub(crate) fn build(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let program = workspace.target().join("oracles/opa");
    terminal::paragraph(
        "  ",
        &format!("building {SOURCE} (a minute the first time)"),
    );
    build_program(&workspace.root().join(SOURCE), &program)?;
    Ok(program)
}

/// Records answers, and compares random objects.
pub(super) fn compare(workspace: &Workspace, objects: u32, seed: u64) -> anyhow::Result<()> {
    let program = build(workspace)?;
    test(workspace, &program, RECORDS, &[])?;
    let variables = [
        ("TOLLGATE_DIFFERENTIAL_OBJECTS", objects.to_string()),
        ("TOLLGATE_DIFFERENTIAL_SEED", seed.to_string()),
    ];
    test(workspace, &program, COMPARES, &variables).context("the plugin `rego` and OPA differ")
}

/// Runs an ignored test of the plugin, natively and optimized.
fn test(
    workspace: &Workspace,
    opa: &Path,
    name: &str,
    variables: &[(&str, String)],
) -> anyhow::Result<()> {
    let mut test = workspace.cargo();
    test.args(["test", "--release", "--package", "rego", "--lib"])
        .args(["--", "--ignored", "--nocapture", name])
        .env("TOLLGATE_OPA", opa)
        .envs(variables.iter().map(|(name, value)| (name, value)));
    println!("$ {}", cargo::typed(&test));
    cargo::run(&mut test)
}
