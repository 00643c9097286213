//! The `tollgate` binary.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// A large part of a review's cost is allocations of a few dozen bytes. mimalloc halves that part.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    tollgate::cli::run()
}
