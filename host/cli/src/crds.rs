//! `tollgate crds`

use std::process::ExitCode;

use clap::Args;
use tollgate_cluster::{Kind, canary_definition_yaml, definition_yaml};

use super::terminal::say;

/// Print the definitions of the custom resources, as YAML.
#[derive(Args, Debug)]
pub(super) struct Crds {}

// === impl Crds ===

impl Crds {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Self {} = self;
        for kind in Kind::ALL {
            say!("---\n{}", definition_yaml(kind)?.trim_end_matches('\n'));
        }
        say!("---\n{}", canary_definition_yaml()?.trim_end_matches('\n'));
        Ok(ExitCode::SUCCESS)
    }
}
