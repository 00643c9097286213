//! Builds Helm 3 and Helm 4, and renders charts with them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::go::Module;
use crate::{Missing, build_into, release};

/// A major version of Helm. Charts must work with both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Major {
    /// Helm 3, which applies objects by a patch that it computes itself.
    V3,
    /// Helm 4, which applies objects on the server.
    V4,
}

/// A built Helm.
#[derive(Clone, Debug)]
pub struct Helm {
    program: PathBuf,
}

const V3: Module = Module {
    folder: concat!(env!("CARGO_MANIFEST_DIR"), "/helm3"),
    go_mod: include_str!("../helm3/go.mod"),
    go_sum: include_str!("../helm3/go.sum"),
};
const V4: Module = Module {
    folder: concat!(env!("CARGO_MANIFEST_DIR"), "/helm4"),
    go_mod: include_str!("../helm4/go.mod"),
    go_sum: include_str!("../helm4/go.sum"),
};

// === impl Major ===

impl Major {
    /// Both versions.
    pub const ALL: [Self; 2] = [Self::V3, Self::V4];

    /// The version that is built, such as `v4.3.1`.
    #[must_use]
    pub fn version(self) -> &'static str {
        self.module().required(self.path())
    }

    fn module(self) -> &'static Module {
        match self {
            Self::V3 => &V3,
            Self::V4 => &V4,
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::V3 => "helm.sh/helm/v3",
            Self::V4 => "helm.sh/helm/v4",
        }
    }
}

// === impl Helm ===

impl Helm {
    /// Finds a Helm.
    ///
    /// # Errors
    /// Fails if it is not built. The error tells what to do about it.
    pub fn find(major: Major) -> Result<Self, Missing> {
        let folder = folder(major)?;
        let program = folder.join("helm");
        if program.is_file() {
            Ok(Self { program })
        } else {
            Err(Missing::NotBuilt(folder))
        }
    }

    /// Finds a Helm, and builds it first if it is missing. `building` is called before it is built.
    ///
    /// # Errors
    /// Fails if it cannot be built.
    pub fn build(major: Major, mut building: impl FnMut(&str)) -> Result<Self, Missing> {
        let folder = match Self::find(major) {
            Err(Missing::NotBuilt(folder)) => folder,
            found_or_not => return found_or_not,
        };
        let package = format!("{}/cmd/helm", major.path());
        let mut announce = |name: &str| building(&format!("{name} {}", major.version()));
        build_into(
            &folder,
            major.module(),
            "",
            &[("helm", &package)],
            &mut announce,
        )?;
        Self::find(major)
    }

    /// Path of the program.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Runs `helm template` for the release `name` in a namespace, without a cluster, for the release of Kubernetes that
    /// the suites test with.
    ///
    /// # Errors
    /// Fails if the program cannot be run. A chart that cannot be rendered is in the output's status.
    pub fn template(
        &self,
        name: &str,
        chart: &Path,
        namespace: &str,
        arguments: &[&str],
    ) -> std::io::Result<Output> {
        let home = std::env::temp_dir();
        Command::new(&self.program)
            .args(["template", name])
            .arg(chart)
            .args(["--namespace", namespace, "--kube-version", release()])
            .args(arguments)
            // Settings and plugins of the user must not change the result.
            .env("HELM_CONFIG_HOME", home.join("tollgate-helm"))
            .env("HELM_PLUGINS", home.join("tollgate-helm/plugins"))
            .env_remove("HELM_NAMESPACE")
            .env_remove("KUBECONFIG")
            .output()
    }
}

fn folder(major: Major) -> Result<PathBuf, Missing> {
    major
        .module()
        .cache_folder(&format!("helm-{}", major.version()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_require_their_major_version() {
        assert!(Major::V3.version().starts_with("v3."));
        assert!(Major::V4.version().starts_with("v4."));
    }
}
