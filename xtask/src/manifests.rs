//! `cargo xtask manifests`: writes the plain manifests that the chart renders.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use tollgate_kube_apiserver::helm::{Helm, Major};
use tollgate_kube_apiserver::manifests;

use crate::kubernetes;
use crate::workspace::Workspace;

/// Render deploy/manifests from deploy/chart, and copy deploy/crds into the chart.
///
/// Builds Helm from its Go module, if it is not in the cache.
#[derive(Args, Debug)]
pub(crate) struct Manifests;

// === impl Manifests ===

impl Manifests {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let workspace = Workspace::find()?;
        let deploy = workspace.root().join("deploy");
        let helm = Helm::build(Major::V4, kubernetes::announce)?;
        let crds = manifests::copy_crds(&deploy).context("cannot copy deploy/crds")?;
        for name in &crds {
            println!("deploy/chart/files/crds/{name}");
        }
        let folder = deploy.join("manifests");
        std::fs::create_dir_all(&folder)?;
        let files = manifests::render(&helm, &deploy)?;
        for stale in manifests::yaml_files(&folder)? {
            if !files.contains_key(&*stale) {
                std::fs::remove_file(folder.join(stale))?;
            }
        }
        for (name, text) in files {
            let path = folder.join(name);
            std::fs::write(&path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
            println!("{}", workspace.shown(&path));
        }
        Ok(ExitCode::SUCCESS)
    }
}
