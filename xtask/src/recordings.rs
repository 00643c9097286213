//! `cargo xtask recordings`: the figures of recording and replay.

use std::process::ExitCode;

use clap::Args;

use crate::figures::Measured;
use crate::workspace::Workspace;

/// Measure recording and replay with 10 plugins.
///
/// Sends reviews to a server that records and to one that does not, in turns. Prints the processor time and the latencies
/// of both, the bytes per recorded review, the drops of a queue that is too small, and the reviews that a replay takes per
/// second. Fails if content of a Secret is in the recording, if a replay does not name exactly the 37 reviews that a
/// change denies, or if it prints other bytes the second time.
#[derive(Args, Debug)]
pub(crate) struct Recordings {
    /// Number of reviews.
    #[arg(long, value_name = "NUMBER", default_value_t = 100_000)]
    reviews: u32,
    #[command(flatten)]
    measured: Measured,
}

// === impl Recordings ===

impl Recordings {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let workspace = Workspace::find()?;
        let reviews = self.reviews.to_string();
        self.measured.run(
            &workspace,
            "replay",
            "prints_figures_of_recording_and_replay",
            &[("TOLLGATE_RECORDED_REVIEWS", reviews.into())],
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
