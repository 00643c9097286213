//! `tollgate schema`

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use tollgate_cluster::editor_schema;

use super::terminal::say;

/// Print the JSON Schema of a kind of file, for editors.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Schema {
    /// Kind of file.
    #[arg(value_name = "KIND")]
    kind: Kind,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// The configuration, `tollgate.yaml`.
    Config,
    /// A suite of `tollgate test`, `policy.test.yaml`.
    Suite,
    /// Manifests of ClusterAdmissionPlugin, AdmissionPlugin and PluginException.
    CustomResources,
}

const EXAMPLES: &str = "\
Examples:
  tollgate schema config > config.json
  tollgate schema suite > suite.json

Then, in the first line of the file:
  # yaml-language-server: $schema=./config.json";

// === impl Schema ===

impl Schema {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let schema = match self.kind {
            Kind::Config => tollgate_config::schema::config(),
            Kind::Suite => super::test::schema::suite(),
            Kind::CustomResources => editor_schema(),
        };
        say!("{schema:#}");
        Ok(ExitCode::SUCCESS)
    }
}
