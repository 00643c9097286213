//! The `tollgate` binary.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// What a review costs is to a good part allocations of a few dozen bytes; this takes half of that away.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    tollgate::cli::run()
}
