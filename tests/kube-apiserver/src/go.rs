//! Runs Go: finds its version and builds programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sha2::{Digest as _, Sha256};

use crate::{Missing, release};

const GO_MOD: &str = include_str!("../go.mod");
const GO_SUM: &str = include_str!("../go.sum");

/// The package in which Kubernetes programs keep their version.
const VERSION_PACKAGE: &str = "k8s.io/component-base/version";

/// Returns the version of a module that `go.mod` requires.
pub(crate) fn required(module: &str) -> &'static str {
    let mut versions = GO_MOD.lines().filter_map(|line| {
        let (name, version) = line.trim().split_once(' ')?;
        (name == module).then(|| version.split(' ').next().unwrap_or(version))
    });
    versions
        .next()
        .unwrap_or_else(|| panic!("go.mod does not require {module}"))
}

/// Returns the version of Go that `go.mod` requires.
pub(crate) fn required_version() -> &'static str {
    required("go")
}

/// Returns the folder for these binaries. Other sources or another version of Go get another folder.
pub(crate) fn cache_folder() -> Result<PathBuf, Missing> {
    let mut hash = Sha256::new();
    let version = version()?;
    for part in [GO_MOD, GO_SUM, &version] {
        hash.update(Sha256::digest(part));
    }
    let hash = hash.finalize();
    let hash: String = hash[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    let absolute = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let name = format!("kubernetes-{}-{hash}", release());
    Ok(cache.ok_or(Missing::NoCache)?.join("tollgate").join(name))
}

/// Returns the version of Go, such as `go1.26.8`.
fn version() -> Result<String, Missing> {
    let output = run(go().args(["env", "GOVERSION"]))?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if numbers(&version) < numbers(required_version()) {
        return Err(Missing::OldGo(version));
    }
    Ok(version)
}

/// Returns the numbers of a version in their order.
fn numbers(version: &str) -> Vec<u32> {
    let parts = version.trim_start_matches("go").split(['.', '-', ' ']);
    parts.map_while(|part| part.parse().ok()).collect()
}

/// Builds a static program without debug information, with the release as its version.
pub(crate) fn build(package: &str, program: &Path) -> Result<(), Missing> {
    let (major, minor) = major_and_minor();
    let release = release();
    let flags = format!(
        "-s -w -X {VERSION_PACKAGE}.gitVersion={release} -X {VERSION_PACKAGE}.gitMajor={major} \
         -X {VERSION_PACKAGE}.gitMinor={minor}"
    );
    let mut command = go();
    command.args(["build", "-trimpath", "-ldflags", &flags, "-o"]);
    command.arg(program).arg(package);
    run(&mut command).map(drop)
}

/// Splits a release: `v1.36.3` becomes `1` and `36`.
fn major_and_minor() -> (&'static str, &'static str) {
    let mut parts = release().trim_start_matches('v').split('.');
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) => (major, minor),
        _ => panic!("go.mod requires a release without a minor version"),
    }
}

fn go() -> Command {
    let mut command = Command::new("go");
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("CGO_ENABLED", "0");
    command
}

fn run(command: &mut Command) -> Result<Output, Missing> {
    let output = command.output().map_err(Missing::NoGo)?;
    if output.status.success() {
        return Ok(output);
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if is_offline(&reason) {
        return Err(Missing::Offline(reason));
    }
    let words: Vec<_> = command
        .get_args()
        .map(|word| word.to_string_lossy())
        .collect();
    Err(Missing::Build {
        command: format!("go {}", words.join(" ")),
        reason,
    })
}

/// Whether the build failed because there is no module proxy. Any other failure is a mistake.
fn is_offline(reason: &str) -> bool {
    ["dial tcp", "no such host", "i/o timeout", "403 Forbidden"]
        .iter()
        .any(|sign| reason.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_and_its_staging_modules_belong_together() {
        assert!(release().starts_with("v1."), "{}", release());
        let staging = release().replacen("v1.", "v0.", 1);
        let replaced: Vec<&str> = GO_MOD
            .lines()
            .filter_map(|line| line.split_once(" => ").map(|(_, with)| with))
            .collect();
        assert!(replaced.len() > 20, "{replaced:?}");
        for with in replaced {
            assert!(with.ends_with(&format!(" {staging}")), "{with}");
        }
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(numbers("go1.9.7") < numbers("1.26.0"));
        assert!(numbers("go1.26") < numbers("1.26.0"));
        assert!(numbers("go1.26.8 X:nocoverageredesign") > numbers("1.26.0"));
        assert!(numbers(required_version()) > numbers("1.20"));
    }

    #[test]
    fn no_network_is_told_from_a_mistake() {
        assert!(is_offline(
            "dial tcp: lookup proxy.golang.org: no such host"
        ));
        assert!(!is_offline(
            "missing go.sum entry for module providing package"
        ));
    }
}
