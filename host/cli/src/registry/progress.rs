//! Progress of a transfer, for people who wait at a terminal.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tollgate_oci::Progress;

/// A progress bar on standard error.
struct Bar(ProgressBar);

const TICK: Duration = Duration::from_millis(100);
const PULLING: &str = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}";
/// Template for a push. The body of the request is sent in one piece, so its progress is not known.
const PUSHING: &str = "{spinner} {msg} {total_bytes} {elapsed}";

/// Returns a progress bar if standard error is a terminal.
pub(super) fn on_a_terminal() -> Option<Arc<dyn Progress>> {
    std::io::stderr()
        .is_terminal()
        .then(|| Arc::new(Bar(ProgressBar::hidden())) as Arc<dyn Progress>)
}

// === impl Bar ===

impl Bar {
    fn show(&self, template: &str, what: &'static str, total_bytes: u64) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style.progress_chars("=> "));
        }
        self.0.reset();
        self.0.set_length(total_bytes);
        self.0.set_message(what);
        self.0
            .set_draw_target(indicatif::ProgressDrawTarget::stderr());
        self.0.enable_steady_tick(TICK);
    }
}

impl Progress for Bar {
    fn pulling(&self, total_bytes: u64) {
        self.show(PULLING, "pulling", total_bytes);
    }

    fn pushing(&self, total_bytes: u64) {
        self.show(PUSHING, "pushing", total_bytes);
    }

    fn received(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    fn done(&self) {
        self.0.disable_steady_tick();
        self.0.finish_and_clear();
    }
}
