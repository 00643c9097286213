//! `cargo xtask lookups`: the figures of lookups, with a real kube-apiserver.

use std::process::ExitCode;

use clap::Args;

use crate::figures::Measured;
use crate::kubernetes;
use crate::workspace::Workspace;

/// Measure lookups of many Ingresses in a real kube-apiserver.
///
/// For each number of Ingresses, prints the memory of the process, the time of a lookup by index, and the cost of a plugin
/// with a lookup beside the same plugin without. Compares the memory that `tollgate check` estimates for three lookups
/// with the memory that the process takes. Takes some minutes, and builds kube-apiserver and etcd the first time.
#[derive(Args, Debug)]
pub(crate) struct Lookups {
    /// Numbers of Ingresses, from small to large.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_values_t = [10_000, 50_000, 100_000])]
    ingresses: Vec<u32>,
    #[command(flatten)]
    measured: Measured,
}

// === impl Lookups ===

impl Lookups {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let workspace = Workspace::find()?;
        kubernetes::require()?;
        let numbers: Vec<String> = self.ingresses.iter().map(ToString::to_string).collect();
        self.measured.run(
            &workspace,
            "kube_apiserver",
            "prints_figures_of_lookups",
            &[("TOLLGATE_LOOKUP_INGRESSES", numbers.join(",").into())],
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
