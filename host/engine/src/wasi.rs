//! WASI without access to anything outside the guest.
//!
//! Some toolchains keep WASI imports that their guests never use, so the host links WASI for every plugin. WASI offers:
//!
//! - No files, network, environment or arguments.
//! - Closed streams.
//! - A clock that stands still.
//! - Randomness from a fixed seed.
//!
//! A plugin that needs real data, for example the time of day, must import that capability from the host by name.

use std::time::Duration;

use wasmtime::component::{Linker, ResourceTable};
use wasmtime_wasi::random::Deterministic;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtx, WasiCtxView, WasiView};

use super::state::CallState;

/// The WASI part of a store.
pub(super) struct Wasi {
    context: WasiCtx,
    pub(super) table: ResourceTable,
}

struct Frozen;

/// Number of resources that a plugin may hold at once, for example streams and pollables.
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
            // Random bytes are drawn in one step that no tick interrupts.
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
        // Created on first use: few guests ever use WASI, and the others should not pay for it.
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
