//! The thread that moves the epoch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Moves an engine's epoch until it is dropped. An OS thread, not a task: a runtime whose threads all run guests
/// would not get round to it.
pub(super) struct Ticker {
    stop: Arc<AtomicBool>,
}

// === impl Ticker ===

impl Ticker {
    pub(super) fn start(engine: &wasmtime::Engine, interval: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let engine = engine.weak();
        let stopped = stop.clone();
        std::thread::Builder::new()
            .name("tollgate-epoch".into())
            .spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    std::thread::sleep(interval);
                    match engine.upgrade() {
                        Some(engine) => engine.increment_epoch(),
                        None => return,
                    }
                }
            })
            .expect("a process that cannot start one more thread at start-up cannot serve");
        Self { stop }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
