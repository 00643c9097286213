//! Builds etcd, kube-apiserver, kubectl and Helm from their Go modules and keeps them between runs.
//!
//! `go.mod` beside this crate sets the release of Kubernetes, and `go.sum` pins its sources. The binaries are kept in
//! the user's cache and not in the target folder, because they take minutes to build and depend only on these two files
//! and the version of Go. To use other binaries, such as those that envtest downloads, set `KUBEBUILDER_ASSETS` to
//! their folder.

pub mod controllers;
mod go;
pub mod helm;
pub mod manifests;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

pub use go::build_program;

/// Variable for a folder with an etcd, a kube-apiserver and a kubectl to use instead of those built here. envtest reads
/// the same variable.
pub const ASSETS_VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// The folder of the binaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binaries {
    folder: PathBuf,
}

/// The reason why there are no binaries.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    /// The binaries have not been built yet.
    #[error(
        "they are not built yet, into {}: `cargo xtask kubernetes` builds them, which takes minutes", .0.display()
    )]
    NotBuilt(PathBuf),
    /// `KUBEBUILDER_ASSETS` names a folder that lacks a program.
    #[error("{ASSETS_VARIABLE} names {}, where there is no {program}", folder.display())]
    NotInAssets {
        /// The folder that the variable names.
        folder: PathBuf,
        /// The missing program.
        program: &'static str,
    },
    /// Go does not run.
    #[error("`go` does not run ({0}): install Go {required} or later", required = go::required_version())]
    NoGo(io::Error),
    /// Go is too old.
    #[error("`go` is {0}: install Go {required} or later", required = go::required_version())]
    OldGo(String),
    /// The sources cannot be fetched.
    #[error("the sources cannot be fetched: {0}")]
    Offline(String),
    /// Go fails to build the binaries.
    #[error("`{command}` failed: {reason}")]
    Build {
        /// The command line.
        command: String,
        /// The output of Go.
        reason: String,
    },
    /// The folder in the cache is unusable.
    #[error("{}: {reason}", path.display())]
    Cache {
        /// The folder.
        path: PathBuf,
        /// The error from the system.
        reason: io::Error,
    },
    /// No cache folder is known.
    #[error("there is no folder to keep them in: set XDG_CACHE_HOME or HOME")]
    NoCache,
}

/// The programs, with the packages that they are built from.
const PROGRAMS: [(&str, &str); 3] = [
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
];

// === impl Binaries ===

impl Binaries {
    /// Finds the binaries.
    ///
    /// # Errors
    /// Fails if there are none. The error tells what to do about it.
    pub fn find() -> Result<Self, Missing> {
        if let Some(folder) = std::env::var_os(ASSETS_VARIABLE) {
            let folder = PathBuf::from(folder);
            return match absent_in(&folder) {
                None => Ok(Self { folder }),
                Some(program) => Err(Missing::NotInAssets { folder, program }),
            };
        }
        let folder = go::KUBERNETES.cache_folder(&format!("kubernetes-{}", release()))?;
        match absent_in(&folder) {
            None => Ok(Self { folder }),
            Some(_) => Err(Missing::NotBuilt(folder)),
        }
    }

    /// Finds the binaries, and builds them first if they are missing. `building` is called before each one is built.
    ///
    /// # Errors
    /// Fails if they cannot be built.
    pub fn build(mut building: impl FnMut(&str)) -> Result<Self, Missing> {
        let folder = match Self::find() {
            Err(Missing::NotBuilt(folder)) => folder,
            found_or_not => return found_or_not,
        };
        let version = go::kubernetes_version();
        build_into(&folder, &go::KUBERNETES, &version, &PROGRAMS, &mut building)?;
        Ok(Self { folder })
    }

    /// Path of etcd.
    #[must_use]
    pub fn etcd(&self) -> PathBuf {
        self.folder.join("etcd")
    }

    /// Path of kube-apiserver.
    #[must_use]
    pub fn kube_apiserver(&self) -> PathBuf {
        self.folder.join("kube-apiserver")
    }

    /// Path of kubectl.
    #[must_use]
    pub fn kubectl(&self) -> PathBuf {
        self.folder.join("kubectl")
    }

    /// The folder of the binaries.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

// === impl Missing ===

impl Missing {
    /// Whether this is a limit of the machine and not a mistake. Tests that need the binaries are skipped then.
    #[must_use]
    pub fn is_circumstance(&self) -> bool {
        matches!(
            self,
            Self::NotBuilt(_) | Self::NoGo(_) | Self::OldGo(_) | Self::Offline(_) | Self::NoCache
        )
    }
}

/// The release of Kubernetes that is built here, such as `v1.36.3`.
///
/// # Panics
/// Panics if `go.mod` does not name it.
#[must_use]
pub fn release() -> &'static str {
    go::KUBERNETES.required("k8s.io/kubernetes")
}

/// Returns the folder of the sources of Kubernetes in Go's cache, and downloads them if they are missing.
///
/// # Errors
/// When Go is not installed, or cannot download the module.
pub fn sources() -> Result<PathBuf, Missing> {
    go::KUBERNETES.sources("k8s.io/kubernetes")
}

/// Builds the programs that a folder lacks. Other processes wait meanwhile.
fn build_into(
    folder: &Path,
    module: &go::Module,
    variables: &str,
    programs: &[(&str, &str)],
    building: &mut dyn FnMut(&str),
) -> Result<(), Missing> {
    let cannot_keep = |reason| Missing::Cache {
        path: folder.to_path_buf(),
        reason,
    };
    std::fs::create_dir_all(folder).map_err(cannot_keep)?;
    let lock = File::create(folder.join(".lock")).map_err(cannot_keep)?;
    lock.lock().map_err(cannot_keep)?;
    for (name, package) in programs {
        let program = folder.join(name);
        if program.is_file() {
            continue;
        }
        building(name);
        // The file gets its final name only when it is complete.
        let unfinished = folder.join(format!(".{name}"));
        module.build(package, variables, &unfinished)?;
        std::fs::rename(&unfinished, &program).map_err(cannot_keep)?;
    }
    Ok(())
}

fn absent_in(folder: &Path) -> Option<&'static str> {
    let mut names = PROGRAMS.iter().map(|(name, _)| *name);
    names.find(|name| !folder.join(name).is_file())
}
