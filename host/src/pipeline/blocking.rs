//! Work of the host's own that takes milliseconds: done so that other requests go on meanwhile.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does the work here and now; where it is `heavy`, the runtime is told to go on on another thread.
pub(super) fn blocking_if<T>(heavy: bool, work: impl FnOnce() -> T) -> T {
    // A runtime of one thread has nobody to hand over to, and tokio would panic.
    if heavy && Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}
