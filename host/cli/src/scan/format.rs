//! `--format`

use clap::ValueEnum;
use tollgate_config::ReportFormat;

/// The API of policy reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// `Report` and `ClusterReport` of openreports.io/v1alpha1
    Openreports,
    /// `PolicyReport` and `ClusterPolicyReport` of wgpolicyk8s.io/v1alpha2
    Policyreport,
}

// === impl Format ===

impl From<Format> for ReportFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Openreports => Self::Openreports,
            Format::Policyreport => Self::Policyreport,
        }
    }
}
