//! One tuned wasmtime engine, and how a plugin is called in it.
//!
//! Owns everything that touches wasmtime: the configuration, the bindings of the contract, the limits that are
//! armed before a plugin's first instruction, and the reading of what a call ended with. A call gets a fresh
//! instance in a new store, on a fiber that yields to tokio at every tick of the epoch; the instance is thrown
//! away with its memory when the call ends.

mod answer;
#[expect(unreachable_pub, reason = "generated, and public in itself")]
pub(crate) mod bindings;
mod call;
mod exhaustion;
mod fault;
mod grounds;
mod guest;
mod host;
mod meter;
mod offload;
mod secrecy;
mod state;
mod ticker;
mod wasi;

use std::hash::{Hash as _, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use prometheus_client::metrics::gauge::Gauge;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use wasmtime::component::{Component, Linker};
use wasmtime::{
    Config, Enabled, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig,
    RegallocAlgorithm,
};

pub use crate::metrics::Phase;
pub use answer::{Answer, Mutation};
pub use call::{CallError, CallReport, Overload};
pub use fault::{Abort, Fault, Stop, chain};
pub(crate) use fault::{UNLOADED, kinds};
pub use grounds::Grounds;
pub use guest::{ConfiguredBy, Guest, GuestError, Interfaces};
pub use meter::Spent;
pub(crate) use offload::Offload;
pub use secrecy::{Secrecy, WITHHELD, goes_by_content, is_content};
pub use state::Subject;

use crate::config::{Capability, Limits};
use crate::document::{Account, Room};
use crate::plugin::Code;
use exhaustion::Exhaustion;
use state::CallState;

/// How often the epoch moves: a call is looked at, and yields, this often.
pub const TICK: Duration = Duration::from_millis(1);

/// Fuel for one call of a host function, whatever it does.
pub const FUEL_PER_CALL: u64 = 200;
/// Fuel for every byte that a host function takes from a plugin or gives to it.
pub const FUEL_PER_BYTE: u64 = 1;
/// Fuel for every JSON value that a host function looks at.
pub const FUEL_PER_NODE: u64 = 20;
/// Fuel for every place that `select` hands out, besides its bytes.
pub const FUEL_PER_MATCH: u64 = 100;

/// A call yields, and what it has used is known, when it has used so much fuel since it last called the host: some
/// hundreds of microseconds of work, seldom less than a tick.
const FUEL_BETWEEN_YIELDS: u64 = 1_000_000;

/// Core instances, memories and tables that one component may have at most, whatever its limits say: the pool
/// is laid out for them.
const PER_COMPONENT: u32 = 64;
/// Places in the pool beyond the calls that are let in at once, and as many as these at most. Each call may have all
/// the instances, memories and tables that its limits allow, so it is the permits that run out first, and never a
/// neighbour's share of the pool.
const SPARE_INSTANCES: u32 = 16;
/// Calls of candidates at the same time, in places of their own: what decides never waits for one.
pub(crate) const CANDIDATE_CALLS: u32 = 2;
/// How long a candidate's call rests at every tick: two of them have a quarter of a processor.
const CANDIDATE_REST: Duration = Duration::from_millis(7);
/// Candidates run when nobody else has a use for a processor, and get so many times `limits.timeout` for it.
const CANDIDATE_PATIENCE: u32 = 20;
/// What one memory can grow to at most: the 4 GiB that 32 bits reach.
const MAX_MEMORY_BYTES: usize = 1 << 32;
/// Above what a call touches, so that resetting a slot is a copy and not a system call.
const KEEP_RESIDENT_BYTES: usize = 1 << 20;
/// Memories that can stay as their plugin left them, for its next call: as many as there are plugins times calls of each at
/// the same time, which are hardly ever more than there are threads. An unused one costs what is kept resident of it, and
/// addresses; a plugin that has none, because all are other plugins', pays for a new mapping in every call.
const WARM_MEMORIES: u32 = 1024;
/// Code that is not optimised keeps its variables on the stack: what a plugin may use grows by this.
const STACK_FACTOR_ONCE: usize = 4;
/// Nearly every call has less linear memory than this.
const SMALL_CALL_BYTES: u64 = 4 << 20;
/// Room for host functions on a fiber's stack, above the guest's own.
const HOST_STACK_BYTES: usize = 512 * 1024;

/// What an engine is made of.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Calls that can be under way at once, and so instances that exist.
    pub max_concurrent_calls: u32,
    /// The stack of every guest, in bytes.
    pub max_wasm_stack_bytes: u64,
    /// What the plugins may have each at most; of it, what the pool is laid out for counts.
    pub largest: Limits,
    /// How code is compiled. Only engines that agree on it run each other's code.
    pub tier: Tier,
}

/// How much work the compiler puts into code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Tier {
    /// Code that answers reviews: compiled once, run millions of times.
    #[default]
    Serving,
    /// The same for every processor of this architecture. Valgrind needs it: it runs the host on a processor that it
    /// makes up, while the child that compiles sees the real one.
    Portable,
    /// Code that runs once, to describe and configure a plugin. It compiles in a fraction of the time and uses a
    /// multiple of the stack.
    Once,
}

/// What time it is for the plugins that may know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The system's.
    #[default]
    System,
    /// Always the same, so that what a plugin makes of the time can be tested.
    Fixed(SystemTime),
}

/// The engine that every plugin runs in.
#[derive(Clone)]
pub struct Engine {
    wasmtime: wasmtime::Engine,
    slots: Arc<Semaphore>,
    candidate_slots: Arc<Semaphore>,
    /// For the linear memories of all calls; none without a limit.
    memory: Option<Arc<Room>>,
    /// How many times its `limits.timeout` a call may take by the clock.
    patience: u32,
    /// How long a call rests at every tick.
    rest: Duration,
    ticker: Arc<ticker::Ticker>,
    largest: Arc<Limits>,
    tier: Tier,
    clock: Clock,
    exhaustion: Exhaustion,
    /// Where the host does the costly part of what a review asks of itself.
    offload: Offload,
}

/// Hashes the same in every process, as the standard hasher does not promise to.
struct Sha256Hasher(Sha256);

// === impl Sha256Hasher ===

impl Hasher for Sha256Hasher {
    fn finish(&self) -> u64 {
        let digest = self.0.clone().finalize();
        u64::from_le_bytes(digest[..8].try_into().unwrap_or_default())
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

// === impl Clock ===

impl Clock {
    /// The time.
    #[must_use]
    pub fn now(self) -> SystemTime {
        match self {
            Self::System => SystemTime::now(),
            Self::Fixed(time) => time,
        }
    }
}

// === impl Engine ===

impl Engine {
    /// Builds the engine and starts its tick.
    ///
    /// # Errors
    /// When the pool cannot be reserved.
    pub fn new(settings: &EngineSettings) -> wasmtime::Result<Self> {
        let calls = settings.max_concurrent_calls.max(1);
        let instances = calls + SPARE_INSTANCES.min(calls) + CANDIDATE_CALLS;
        let least = instances.saturating_mul(settings.largest.memories);
        let with = |memories: u32| {
            let config = Self::config(settings, instances, memories)?;
            wasmtime::Engine::new(&config)
        };
        let wanted = WARM_MEMORIES.max(least);
        let wasmtime = with(wanted).or_else(|error| {
            if wanted == least {
                return Err(error);
            }
            tracing::warn!(
                error = format!("{error:#}"), wanted, reserved = least,
                "there are not as many addresses as memories should stay warm (ulimit -v): many plugins will cost more"
            );
            with(least)
        })?;
        let ticker = ticker::Ticker::start(&wasmtime, TICK);
        Ok(Self {
            wasmtime,
            slots: Arc::new(Semaphore::new(calls as usize)),
            candidate_slots: Arc::new(Semaphore::new(CANDIDATE_CALLS as usize)),
            memory: None,
            patience: 1,
            rest: Duration::ZERO,
            ticker: Arc::new(ticker),
            largest: Arc::new(settings.largest.clone()),
            tier: settings.tier,
            clock: Clock::default(),
            exhaustion: Exhaustion::default(),
            offload: Offload::beside_the_servers(),
        })
    }

    /// What wasmtime is set to, with room for so many instances and memories.
    fn config(
        settings: &EngineSettings,
        instances: u32,
        memories: u32,
    ) -> wasmtime::Result<Config> {
        let largest = &settings.largest;
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(instances)
            .total_core_instances(instances.saturating_mul(largest.instances.min(PER_COMPONENT)))
            .total_memories(memories)
            .total_tables(instances.saturating_mul(largest.tables))
            .total_stacks(instances)
            .total_gc_heaps(instances)
            .max_core_instances_per_component(PER_COMPONENT)
            .max_memories_per_component(16)
            .max_tables_per_component(PER_COMPONENT)
            .max_memories_per_module(4)
            .max_tables_per_module(16)
            .max_memory_size(MAX_MEMORY_BYTES)
            .table_elements(largest.table_elements as usize)
            .linear_memory_keep_resident(KEEP_RESIDENT_BYTES)
            .table_keep_resident(KEEP_RESIDENT_BYTES)
            .pagemap_scan(Enabled::Auto)
            .max_unused_warm_slots(memories);

        let mut config = Config::new();
        let stack_bytes = usize::try_from(settings.max_wasm_stack_bytes)?;
        let (stack_bytes, optimise, registers) = match settings.tier {
            Tier::Serving | Tier::Portable => (
                stack_bytes,
                OptLevel::Speed,
                RegallocAlgorithm::Backtracking,
            ),
            Tier::Once => (
                stack_bytes.saturating_mul(STACK_FACTOR_ONCE),
                OptLevel::None,
                RegallocAlgorithm::SinglePass,
            ),
        };
        config
            .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
            .wasm_component_model(true)
            .consume_fuel(true)
            .epoch_interruption(true)
            .max_wasm_stack(stack_bytes)
            .async_stack_size(stack_bytes + HOST_STACK_BYTES)
            .cranelift_opt_level(optimise)
            .cranelift_regalloc_algorithm(registers)
            .concurrency_support(false)
            .native_unwind_info(false)
            .wasm_backtrace_max_frames(None)
            // Only backtraces read it, and it is as large as the code.
            .generate_address_map(false)
            .wasm_threads(false)
            .wasm_memory64(false)
            .wasm_relaxed_simd(false)
            .wasm_function_references(true)
            .wasm_gc(false);
        if settings.tier == Tier::Portable {
            // With a target that is named, nothing is taken from the processor that this runs on.
            config.target(&format!("{}-unknown-linux-gnu", std::env::consts::ARCH))?;
        }
        Ok(config)
    }

    /// The same engine, with another clock for the calls that are made through it.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// The same engine, whose calls may have so much linear memory together.
    #[must_use]
    pub fn with_max_memory(self, bytes: u64, gauge: Gauge) -> Self {
        Self {
            memory: Some(Room::new(bytes, SMALL_CALL_BYTES, gauge)),
            ..self
        }
    }

    /// An account for one call's linear memories.
    fn call_memory(&self) -> Account {
        let memory = self.memory.as_ref();
        memory.map_or_else(Account::unlimited, Room::account)
    }

    /// The same engine for candidates: with few places, none of which is taken from the calls that count, with rests,
    /// and with more time by the clock, because they run at the lowest priority.
    pub(crate) fn for_candidates(&self) -> Self {
        Self {
            slots: self.candidate_slots.clone(),
            offload: Offload::new(1),
            patience: CANDIDATE_PATIENCE,
            rest: CANDIDATE_REST,
            ..self.clone()
        }
    }

    /// Until when a call of a plugin with these limits may take that begins now.
    pub(crate) fn longest(&self, limits: &Limits) -> Instant {
        Instant::now() + limits.timeout * self.patience
    }

    /// Where costly work of the host's own is done.
    pub(crate) fn offload(&self) -> &Offload {
        &self.offload
    }

    /// wasmtime's own.
    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.wasmtime
    }

    /// Compiles a component, in this process: for processes that can be lost.
    pub(crate) fn component(&self, bytes: &[u8]) -> wasmtime::Result<Component> {
        Component::from_binary(&self.wasmtime, bytes)
    }

    /// The component whose code is in a file. Code that is mapped takes memory only for what runs of it; a copy would take
    /// the better part of a megabyte for each plugin.
    #[expect(
        unsafe_code,
        clippy::disallowed_methods,
        reason = "wasmtime trusts the code that it is handed; `Code` is made of nothing but what a compiling child wrote"
    )]
    pub(crate) fn mapped(&self, code: &Code) -> wasmtime::Result<Component> {
        // SAFETY: the code was made by Tollgate's own compiler, in a process that runs no guest code and cannot write
        // files (`plugin/prepare`). The bytes of this very file were compared with the digest under which they were
        // stored while they were written (`plugin/store`), and only this user can write to the folder. wasmtime refuses
        // code of another version or other settings.
        unsafe { Component::deserialize_file(&self.wasmtime, code.path()) }
    }

    /// Reads a component from code in memory. Only for a confined process that runs a plugin once.
    #[expect(
        unsafe_code,
        clippy::disallowed_methods,
        reason = "wasmtime trusts the code that it is handed; this code comes from a compiling child by way of the host"
    )]
    pub(crate) fn read_component(&self, code: &[u8]) -> wasmtime::Result<Component> {
        // SAFETY: the host hands over code that Tollgate's own compiler made in a process that runs no guest code. If the
        // host stored the code in between, it has compared the code with its digest (`plugin/store`). wasmtime refuses
        // code of another version or with other settings.
        unsafe { Component::deserialize(&self.wasmtime, code) }
    }

    /// How its code is compiled.
    pub(crate) fn tier(&self) -> Tier {
        self.tier
    }

    /// What two engines have in common when they can run each other's code.
    pub(crate) fn compatibility(&self) -> [u8; 32] {
        let mut hasher = Sha256Hasher(Sha256::new());
        self.wasmtime
            .precompile_compatibility_hash()
            .hash(&mut hasher);
        hasher.0.finalize().into()
    }

    /// The first of a plugin's limits that the pool was not laid out for, with what is wanted and what there is.
    pub(crate) fn lacks(&self, limits: &Limits) -> Option<(&'static str, u32, u32)> {
        let had = &self.largest;
        [
            ("memories", limits.memories, had.memories),
            ("tables", limits.tables, had.tables),
            ("tableElements", limits.table_elements, had.table_elements),
            ("instances", limits.instances, had.instances),
        ]
        .into_iter()
        .find(|(_, wanted, had)| wanted > had)
    }

    /// What plugins may import: the contract, WASI without anything behind it, and what is granted.
    pub(crate) fn linker(
        &self,
        capabilities: impl IntoIterator<Item = Capability>,
    ) -> wasmtime::Result<Linker<CallState>> {
        let mut linker = Linker::new(&self.wasmtime);
        wasi::add_to_linker(&mut linker)?;
        host::add_contract(&mut linker)?;
        for capability in capabilities {
            match capability {
                Capability::Clock => host::add_clock(&mut linker)?,
            }
        }
        Ok(linker)
    }
}

#[cfg(test)]
mod tests {
    use wasmtime::{Instance, Module, Store};

    use super::*;

    #[tokio::test]
    async fn a_memory_stays_warm_for_every_plugin_however_few_calls_there_are_at_once() {
        const PLUGINS: u32 = 200;
        let engine = Engine::new(&EngineSettings {
            max_concurrent_calls: 1,
            max_wasm_stack_bytes: 64 * 1024,
            largest: Limits::default(),
            tier: Tier::Serving,
        });
        let engine = engine.expect("the engine can be made");
        for plugin in 0..PLUGINS {
            let text = format!("(module (memory 1) (data (i32.const 0) \"{plugin}\"))");
            let module = wat::parse_str(text).expect("the text is a module");
            let module = Module::new(engine.wasmtime(), module).expect("it is valid");
            let mut store = Store::new(engine.wasmtime(), ());
            store.set_epoch_deadline(1);
            let instance = Instance::new_async(&mut store, &module, &[]).await;
            instance.expect("there is room for it");
        }
        let metrics = engine.wasmtime().pooling_allocator_metrics();
        let metrics = metrics.expect("there is a pool");
        assert_eq!(metrics.unused_warm_memories(), PLUGINS);
    }
}
