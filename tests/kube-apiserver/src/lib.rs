//! etcd, kube-apiserver and kubectl, built from their Go modules and kept between runs.
//!
//! `go.mod` beside this crate says which release of Kubernetes, and `go.sum` what exactly its sources are. The binaries
//! lie in the user's cache and not in the target folder, because they take minutes to build and change with neither.
//! Whoever has others, such as those that envtest downloads, names their folder in `KUBEBUILDER_ASSETS`.

mod go;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Names a folder with an etcd, a kube-apiserver and a kubectl to take in place of those built here: the variable that
/// envtest reads.
pub const ASSETS_VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// Where they lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binaries {
    folder: PathBuf,
}

/// Why there are none.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    /// They have not been built yet.
    #[error(
        "they are not built yet, into {}: `cargo xtask kubernetes` builds them, which takes minutes", .0.display()
    )]
    NotBuilt(PathBuf),
    /// `KUBEBUILDER_ASSETS` names something else.
    #[error("{ASSETS_VARIABLE} names {}, where there is no {program}", folder.display())]
    NotInAssets {
        /// What it names.
        folder: PathBuf,
        /// What is not there.
        program: &'static str,
    },
    /// Go cannot be run.
    #[error("`go` does not run ({0}): install Go {required} or later", required = go::required_version())]
    NoGo(io::Error),
    /// Go is too old.
    #[error("`go` is {0}: install Go {required} or later", required = go::required_version())]
    OldGo(String),
    /// The sources cannot be fetched.
    #[error("the sources cannot be fetched: {0}")]
    Offline(String),
    /// Go does not build them.
    #[error("`{command}` failed: {reason}")]
    Build {
        /// The command line.
        command: String,
        /// What Go says.
        reason: String,
    },
    /// The folder in the cache cannot be had.
    #[error("{}: {reason}", path.display())]
    Cache {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// There is no place to keep them.
    #[error("there is no folder to keep them in: set XDG_CACHE_HOME or HOME")]
    NoCache,
}

/// The programs and the packages that they are built from.
const PROGRAMS: [(&str, &str); 3] = [
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
];

// === impl Binaries ===

impl Binaries {
    /// Those that are there.
    ///
    /// # Errors
    /// When there are none, and what to do about it.
    pub fn find() -> Result<Self, Missing> {
        if let Some(folder) = std::env::var_os(ASSETS_VARIABLE) {
            let folder = PathBuf::from(folder);
            return match absent_in(&folder) {
                None => Ok(Self { folder }),
                Some(program) => Err(Missing::NotInAssets { folder, program }),
            };
        }
        let folder = go::cache_folder()?;
        match absent_in(&folder) {
            None => Ok(Self { folder }),
            Some(_) => Err(Missing::NotBuilt(folder)),
        }
    }

    /// Those that are there, built before where they were not. `building` is told of each before its turn.
    ///
    /// # Errors
    /// When they cannot be built.
    pub fn build(mut building: impl FnMut(&str)) -> Result<Self, Missing> {
        let folder = match Self::find() {
            Err(Missing::NotBuilt(folder)) => folder,
            found_or_not => return found_or_not,
        };
        let cannot_keep = |reason| Missing::Cache {
            path: folder.clone(),
            reason,
        };
        std::fs::create_dir_all(&folder).map_err(cannot_keep)?;
        let lock = File::create(folder.join(".lock")).map_err(cannot_keep)?;
        lock.lock().map_err(cannot_keep)?;
        for (name, package) in PROGRAMS {
            let program = folder.join(name);
            if program.is_file() {
                continue;
            }
            building(name);
            // Under its own name only when it is whole.
            let unfinished = folder.join(format!(".{name}"));
            go::build(package, &unfinished)?;
            std::fs::rename(&unfinished, &program).map_err(cannot_keep)?;
        }
        Ok(Self { folder })
    }

    /// etcd.
    #[must_use]
    pub fn etcd(&self) -> PathBuf {
        self.folder.join("etcd")
    }

    /// kube-apiserver.
    #[must_use]
    pub fn kube_apiserver(&self) -> PathBuf {
        self.folder.join("kube-apiserver")
    }

    /// kubectl.
    #[must_use]
    pub fn kubectl(&self) -> PathBuf {
        self.folder.join("kubectl")
    }

    /// Their folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

// === impl Missing ===

impl Missing {
    /// Whether that is how things are on this machine, and not a mistake: what needs them is left out then.
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
/// When `go.mod` does not say.
#[must_use]
pub fn release() -> &'static str {
    go::required("k8s.io/kubernetes")
}

fn absent_in(folder: &Path) -> Option<&'static str> {
    let mut names = PROGRAMS.iter().map(|(name, _)| *name);
    names.find(|name| !folder.join(name).is_file())
}
