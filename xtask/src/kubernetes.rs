//! `cargo xtask kubernetes`: builds the Kubernetes programs for the end-to-end suites.

use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use tollgate_kube_apiserver::helm::{Helm, Major};
use tollgate_kube_apiserver::{Binaries, Missing, controllers, release};

use crate::terminal::{self, NOTABLE};
use crate::toolchain;

/// Build etcd, kube-apiserver, kubectl and Helm for the end-to-end suites, and print the folder of the first three.
///
/// Builds them from their Go modules, which takes some seven minutes on two processors, and keeps them in
/// $XDG_CACHE_HOME/tollgate (~/.cache/tollgate). If KUBEBUILDER_ASSETS names a folder, uses that folder as it is.
#[derive(Args, Debug)]
pub(crate) struct Kubernetes {
    /// Also build kube-controller-manager, which takes seven more minutes of processor time. The tests of garbage collection
    /// need it, and are skipped without it.
    #[arg(long)]
    controllers: bool,
}

// === impl Kubernetes ===

impl Kubernetes {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        println!("{}", build()?.folder().display());
        if self.controllers {
            println!("{}", controllers::build(announce)?.display());
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Builds the programs if possible. If not, prints the consequences.
pub(crate) fn ensure() -> anyhow::Result<()> {
    match build() {
        Ok(binaries) => {
            println!("  {}", binaries.folder().display());
            Ok(())
        }
        Err(missing) if missing.is_circumstance() => {
            anstream::println!(
                "  {NOTABLE}nothing is tested against kube-apiserver: {missing}{NOTABLE:#}"
            );
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Installs what the suites need to run the pods of the chart. The tests of pods say what is missing, and are skipped.
pub(crate) fn ensure_pods() {
    toolchain::ensure_command("bwrap", "bubblewrap");
    toolchain::ensure_file(
        "/usr/share/containers/seccomp.json",
        "golang-github-containers-common",
    );
    toolchain::ensure_file(
        "/usr/share/doc/python3-seccomp/copyright",
        "python3-seccomp",
    );
}

/// Builds the programs. Fails where [`ensure`] goes on without them.
pub(crate) fn require() -> anyhow::Result<()> {
    build()?;
    Ok(())
}

fn build() -> Result<Binaries, Missing> {
    let mut began: Option<(String, Instant)> = None;
    let built = |began: &mut Option<(String, Instant)>| {
        if let Some((name, since)) = began.take() {
            anstream::eprintln!("  built {name}: {}", terminal::time(since.elapsed()));
        }
    };
    let binaries = Binaries::build(|name| {
        built(&mut began);
        anstream::eprintln!(
            "  building {name} of Kubernetes {}: minutes the first time",
            release()
        );
        began = Some((name.to_owned(), Instant::now()));
    });
    let binaries = binaries?;
    built(&mut began);
    for major in Major::ALL {
        Helm::build(major, announce)?;
    }
    Ok(binaries)
}

/// Tells that a program is being built.
pub(crate) fn announce(name: &str) {
    anstream::eprintln!("  building {name}: a minute the first time");
}
