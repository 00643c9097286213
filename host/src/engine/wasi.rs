//! WASI with nothing behind it.
//!
//! Some toolchains keep WASI imports that their guests never use, so they are linked for everyone: no files, no
//! network, no environment, no arguments, closed streams, a clock that stands still and randomness from a fixed
//! seed. What a plugin is to decide by – the time of day, for one – it has to ask the host for by name.

use std::time::Duration;

use wasmtime::component::{Linker, ResourceTable};
use wasmtime_wasi::random::Deterministic;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtx, WasiCtxView, WasiView};

use super::state::CallState;

/// A store's share of WASI.
pub(super) struct Wasi {
    context: WasiCtx,
    pub(super) table: ResourceTable,
}

struct Frozen;

/// Streams, pollables and the like that a plugin may hold at once.
const MAX_RESOURCES: usize = 256;

// === impl Wasi ===

impl Wasi {
    pub(super) fn inert() -> Self {
        let context = WasiCtx::builder()
            .wall_clock(Frozen)
            .monotonic_clock(Frozen)
            .secure_random(Deterministic::new(vec![0x54, 0x6f, 0x6c, 0x6c]))
            .insecure_random(Deterministic::new(vec![0x67, 0x61, 0x74, 0x65]))
            .insecure_random_seed(0x546f_6c6c_6761_7465)
            // Drawn in one go, which no tick interrupts.
            .max_random_size(4096)
            .allow_tcp(false)
            .allow_udp(false)
            .build();
        let mut table = ResourceTable::new();
        table.set_max_capacity(MAX_RESOURCES);
        Self { context, table }
    }
}

impl HostWallClock for Frozen {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

impl HostMonotonicClock for Frozen {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        0
    }
}

// === impl CallState ===

impl WasiView for CallState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        // Made at the first use: few guests ever come here, and a call should not pay for it.
        let wasi = self.wasi.get_or_insert_with(|| Box::new(Wasi::inert()));
        WasiCtxView {
            ctx: &mut wasi.context,
            table: &mut wasi.table,
        }
    }
}

pub(super) fn add_to_linker(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)
}
