//! Host work that takes milliseconds, run so that other requests are not held up.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs `work` on this thread. If the work is `heavy`, the runtime first moves its other tasks to another thread.
pub(super) fn blocking_if<T>(heavy: bool, work: impl FnOnce() -> T) -> T {
    // A single-threaded runtime has no other thread, and `block_in_place` would panic.
    if heavy && Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}
