//! `cargo xtask recordings`: the figures of recording and replay.

use std::process::ExitCode;

use clap::Args;

use crate::workspace::Workspace;
use crate::{cargo, toolchain};

/// Measure recording and replay with 10 plugins.
///
/// Sends reviews to a server that records and to one that does not, in turns. Prints the processor time of both, the bytes
/// per recorded review, the drops of a queue that is too small, and the reviews that a replay takes per second. Fails if
/// a replay does not name exactly the 37 reviews that a change denies, or prints other bytes the second time.
#[derive(Args, Debug)]
pub(crate) struct Recordings {
    /// Number of reviews.
    #[arg(long, value_name = "NUMBER", default_value_t = 100_000)]
    reviews: u32,
}

// === impl Recordings ===

impl Recordings {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let workspace = Workspace::find()?;
        toolchain::ensure_wasm_target()?;
        let mut build = workspace.cargo();
        build.args(["build", "--workspace", "--release", "--bin", "tollgate"]);
        cargo::run(&mut build)?;
        let mut test = workspace.cargo();
        test.args(["test", "--workspace", "--release", "--test", "replay"])
            .args([
                "--",
                "--ignored",
                "--nocapture",
                "prints_figures_of_recording_and_replay",
            ])
            .env("TOLLGATE_RECORDED_REVIEWS", self.reviews.to_string());
        cargo::run(&mut test)?;
        Ok(ExitCode::SUCCESS)
    }
}
