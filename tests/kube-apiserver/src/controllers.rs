//! Builds kube-controller-manager, whose garbage collector and namespace controller some tests need.
//!
//! The build takes seven minutes of processor time even when kube-apiserver has just been built. So it is not part of a
//! test run: `cargo xtask kubernetes --controllers` does it once, and the tests that need it are skipped before.

use std::path::PathBuf;

use crate::go::{self, Module};
use crate::{Missing, build_into, release};

const MODULE: Module = Module {
    folder: concat!(env!("CARGO_MANIFEST_DIR"), "/controllers"),
    go_mod: include_str!("../controllers/go.mod"),
    go_sum: include_str!("../controllers/go.sum"),
};
const PROGRAM: &str = "kube-controller-manager";
const PACKAGE: &str = "k8s.io/kubernetes/cmd/kube-controller-manager";

/// Returns the path of kube-controller-manager.
///
/// # Errors
/// Fails if it is not built.
pub fn find() -> Result<PathBuf, Missing> {
    let folder = MODULE.cache_folder(&format!("controllers-{}", release()))?;
    let program = folder.join(PROGRAM);
    if program.is_file() {
        Ok(program)
    } else {
        Err(Missing::NotBuilt(folder))
    }
}

/// Builds kube-controller-manager if it is missing. `building` is called before.
///
/// # Errors
/// Fails if it cannot be built.
pub fn build(mut building: impl FnMut(&str)) -> Result<PathBuf, Missing> {
    let folder = match find() {
        Err(Missing::NotBuilt(folder)) => folder,
        found_or_not => return found_or_not,
    };
    let version = go::kubernetes_version();
    build_into(
        &folder,
        &MODULE,
        &version,
        &[(PROGRAM, PACKAGE)],
        &mut building,
    )?;
    find()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_has_the_release_that_the_suites_test_with() {
        assert_eq!(MODULE.required("k8s.io/kubernetes"), release());
    }
}
