//! Starts children, one of them before there is an order for it.
//!
//! Most of the time that a small plugin's child takes is its start. While a plugin's first child works, the host
//! therefore starts the next one, which waits for its order. The waiting child has read nothing from anyone yet.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::process::{Child, Command};

use crate::plugin::prepare::{CHILD_VARIABLE, SUBCOMMAND};

/// Starts children, and keeps at most one that waits for an order.
#[derive(Debug)]
pub(super) struct Spares {
    /// Path of the `tollgate` binary.
    executable: PathBuf,
    processors: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of plugins that are being prepared.
    busy: usize,
    waiting: Option<Child>,
}

/// Keeps the waiting child alive. The last guard ends it.
#[derive(Debug)]
pub(super) struct Busy<'s>(&'s Spares);

// === impl Spares ===

impl Spares {
    pub(super) fn new(executable: PathBuf, processors: usize) -> Self {
        Self {
            executable,
            processors,
            state: Mutex::default(),
        }
    }

    /// Returns a guard to hold while a plugin is prepared.
    pub(super) fn busy(&self) -> Busy<'_> {
        self.state().busy += 1;
        Busy(self)
    }

    /// Returns the child that waits, or starts one.
    pub(super) fn take(&self) -> io::Result<Child> {
        let waiting = self.state().waiting.take();
        if let Some(mut child) = waiting
            && matches!(child.try_wait(), Ok(None))
        {
            return Ok(child);
        }
        self.start()
    }

    /// Starts a child that waits, unless there is one or nobody is busy.
    pub(super) fn ready(&self) {
        let mut state = self.state();
        if state.busy > 0 && state.waiting.is_none() {
            // Whoever needs a child tries again, and reports why it cannot be started.
            state.waiting = self.start().ok();
        }
    }

    fn start(&self) -> io::Result<Child> {
        Command::new(&self.executable)
            .arg(SUBCOMMAND)
            .env_clear()
            .env(CHILD_VARIABLE, "1")
            // The allocator would map a gigabyte ahead. Memory that is mapped for writing counts against the child's
            // limit.
            .env("MIMALLOC_ARENA_EAGER_COMMIT", "0")
            // A child cannot look up the container's share of the processors.
            .env("RAYON_NUM_THREADS", self.processors.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Give the child its own process group, so that all of its threads are niced at once.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Busy ===

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.busy -= 1;
        if state.busy == 0 {
            // Dropping it kills it.
            state.waiting = None;
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    fn spares(folder: &Path, script: &str) -> Spares {
        let program = folder.join("child");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        Spares::new(program, 1)
    }

    fn waiting(spares: &Spares) -> Option<u32> {
        spares.state().waiting.as_ref().and_then(Child::id)
    }

    #[tokio::test]
    async fn child_waits_only_while_plugins_are_prepared() {
        let folder = tempfile::tempdir().unwrap();
        let spares = spares(folder.path(), "read -r order");
        spares.ready();
        assert_eq!(waiting(&spares), None);
        let (first, second) = (spares.busy(), spares.busy());
        spares.ready();
        let id = waiting(&spares);
        assert!(id.is_some());
        spares.ready();
        assert_eq!(waiting(&spares), id);
        drop(first);
        assert_eq!(spares.take().unwrap().id(), id);
        assert_ne!(spares.take().unwrap().id(), id);
        spares.ready();
        drop(second);
        assert_eq!(waiting(&spares), None);
    }

    #[tokio::test]
    async fn child_that_has_ended_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let spares = spares(folder.path(), "exit 1");
        let _busy = spares.busy();
        spares.ready();
        let id = waiting(&spares);
        let has_ended = || {
            let mut state = spares.state();
            let child = state.waiting.as_mut().unwrap();
            child.try_wait().unwrap().is_some()
        };
        while !has_ended() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_ne!(spares.take().unwrap().id(), id);
    }
}
