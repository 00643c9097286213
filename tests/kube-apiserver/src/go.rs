//! Runs Go: finds its version and builds programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sha2::{Digest as _, Sha256};

use crate::{Missing, release};

/// A Go module that names programs as its tools, and pins their sources.
#[derive(Debug)]
pub(crate) struct Module {
    /// Folder of the module.
    pub(crate) folder: &'static str,
    /// Content of its `go.mod`.
    pub(crate) go_mod: &'static str,
    /// Content of its `go.sum`.
    pub(crate) go_sum: &'static str,
}

/// Kubernetes and etcd.
pub(crate) const KUBERNETES: Module = Module {
    folder: env!("CARGO_MANIFEST_DIR"),
    go_mod: include_str!("../go.mod"),
    go_sum: include_str!("../go.sum"),
};

/// The package in which Kubernetes programs keep their version.
const VERSION_PACKAGE: &str = "k8s.io/component-base/version";

// === impl Module ===

impl Module {
    /// Returns the version of a module that `go.mod` requires.
    pub(crate) fn required(&self, module: &str) -> &'static str {
        let mut versions = self.go_mod.lines().filter_map(|line| {
            let line = line.trim().trim_start_matches("require ");
            let (name, version) = line.split_once(' ')?;
            (name == module).then(|| version.split(' ').next().unwrap_or(version))
        });
        versions
            .next()
            .unwrap_or_else(|| panic!("{}/go.mod does not require {module}", self.folder))
    }

    /// Returns the folder for the binaries of a release of this module. Other sources or another version of Go get
    /// another folder.
    pub(crate) fn cache_folder(&self, release: &str) -> Result<PathBuf, Missing> {
        let mut hash = Sha256::new();
        let version = version()?;
        for part in [self.go_mod, self.go_sum, &version] {
            hash.update(Sha256::digest(part));
        }
        let hash = hash.finalize();
        let hash: String = hash[..6].iter().map(|byte| format!("{byte:02x}")).collect();
        let absolute = |name: &str| {
            let path = std::env::var_os(name).map(PathBuf::from);
            path.filter(|path| path.is_absolute())
        };
        let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
        let name = format!("{release}-{hash}");
        Ok(cache.ok_or(Missing::NoCache)?.join("tollgate").join(name))
    }

    /// Returns the folder of a module's sources in Go's cache, and downloads them if they are missing.
    pub(crate) fn sources(&self, module: &str) -> Result<PathBuf, Missing> {
        let mut download = go();
        download.current_dir(self.folder);
        run(download.args(["mod", "download", module]))?;
        let mut list = go();
        list.current_dir(self.folder);
        let output = run(list.args(["list", "-m", "-f", "{{.Dir}}", module]))?;
        let folder = String::from_utf8_lossy(&output.stdout);
        Ok(PathBuf::from(folder.trim()))
    }

    /// Builds a static program without debug information. `variables` are further flags of the linker.
    pub(crate) fn build(
        &self,
        package: &str,
        variables: &str,
        program: &Path,
    ) -> Result<(), Missing> {
        let mut command = go();
        command.current_dir(self.folder);
        let flags = format!("-s -w {variables}");
        command.args(["build", "-trimpath", "-ldflags", flags.trim_end(), "-o"]);
        command.arg(program).arg(package);
        run(&mut command).map(drop)
    }
}

/// Builds a program of another Go module: the package in `folder`.
///
/// # Errors
/// Fails if Go is not installed or too old, if the sources cannot be fetched, or if the program does not compile.
pub fn build_program(folder: &Path, program: &Path) -> Result<(), Missing> {
    version()?;
    let mut command = go();
    command.current_dir(folder);
    // Sources without a repository around them, or in one of another user, would be refused otherwise.
    command.args(["build", "-trimpath", "-buildvcs=false", "-o"]);
    command.arg(program).arg(".");
    run(&mut command).map(drop)
}

/// Returns the version of Go that `go.mod` requires.
pub(crate) fn required_version() -> &'static str {
    KUBERNETES.required("go")
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

/// Returns the linker's flags that put the release of Kubernetes into a program.
pub(crate) fn kubernetes_version() -> String {
    let (major, minor) = major_and_minor();
    let release = release();
    format!(
        "-X {VERSION_PACKAGE}.gitVersion={release} -X {VERSION_PACKAGE}.gitMajor={major} \
         -X {VERSION_PACKAGE}.gitMinor={minor}"
    )
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
        let replaced: Vec<&str> = KUBERNETES
            .go_mod
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
