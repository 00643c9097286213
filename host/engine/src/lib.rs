//! Configures the wasmtime engine and calls plugins in it.
//!
//! This module owns everything that touches wasmtime:
//!
//! - The engine's configuration.
//! - The bindings of the contract.
//! - The limits, which are set before a plugin's first instruction.
//! - The errors that a call ends with.
//!
//! Each call gets a new instance in a new store, or a kept one that is reset before the plugin runs (`keeping`). The call
//! runs on a fiber, which yields to tokio at every tick of the epoch.

mod access;
mod answer;
mod answers;
#[doc(hidden)]
pub mod bindings;
mod call;
mod exhaustion;
mod export;
mod fault;
mod grounds;
mod guest;
mod host;
mod images;
mod keeping;
mod linkers;
mod lookups;
mod meter;
mod namespaces;
mod offload;
mod pages;
mod pointers;
mod reads;
mod secrecy;
mod state;
mod store;
mod tenants;
#[cfg(test)]
mod testing;
mod ticker;
mod values;
mod wasi;

use std::hash::{Hash as _, Hasher};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use prometheus_client::metrics::gauge::Gauge;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tollgate_admission::access::Authorizer;
use tollgate_admission::images::ImageVerifier;
use tollgate_admission::namespaces::Namespaces;
use tollgate_component::LentMemory;
use tollgate_config::{Capability, Limits, TenantBudget};
use tollgate_json::document::{Account, Room};
use tollgate_lookups::Tables;
use wasmtime::component::{Component, Linker};
use wasmtime::{
    Config, Enabled, InstanceAllocationStrategy, Module, OptLevel, PoolingAllocationConfig,
    RegallocAlgorithm, Strategy,
};

pub use answer::{Answer, Mutation};
pub use call::{CallError, CallReport, Overload};
pub use fault::{Abort, Fault, Stop};
pub use fault::{UNLOADED, kinds};
pub use grounds::Grounds;
pub use guest::{ConfiguredBy, Guest, GuestError, Interfaces};
pub use keeping::together;
pub use meter::Spent;
pub use offload::Offload;
pub use reads::{Read, ReadDocument, Reads};
pub use secrecy::{Secrecy, WITHHELD, goes_by_content, is_content};
pub use state::{CallState, Subject};
pub use store::{Code, Compiled, Key, Store, Writing};

use answers::AnswerMemory;
use exhaustion::Exhaustion;
use keeping::Keeping;
use linkers::{Components, Linkers, Parts};
use tenants::Tenants;

/// Interval of the epoch. At every tick, the host checks each running call, and the call yields.
pub const TICK: Duration = Duration::from_millis(1);

/// Fuel for each call of any host function.
pub const FUEL_PER_CALL: u64 = 200;
/// Fuel for each byte that a host function takes from a plugin or gives to it.
pub const FUEL_PER_BYTE: u64 = 1;
/// Fuel for each JSON value that a host function looks at.
pub const FUEL_PER_NODE: u64 = 20;
/// Fuel for each match that `select` hands out, in addition to its bytes.
pub const FUEL_PER_MATCH: u64 = 100;

/// Fuel after which a call yields if it has not called the host since. At that point the host learns how much fuel the
/// call has used. This amount is some hundreds of microseconds of work, usually less than a tick.
const FUEL_BETWEEN_YIELDS: u64 = 1_000_000;

/// Maximum number of core instances and of tables in one component, whatever its limits are. The pool is laid out for
/// this number.
const PER_COMPONENT: u32 = 64;
/// Maximum number of memories in one component, whatever its limits are.
const MEMORIES_PER_COMPONENT: u32 = 16;
/// Maximum number of spare places in the pool, beyond the calls that may run at once. The pool never has more spare
/// places than such calls.
///
/// The pool is sized so that every call may use all the instances, memories and tables that its limits allow. The
/// permits therefore run out first, and no call takes a neighbour's share of the pool.
const SPARE_INSTANCES: u32 = 16;
/// Number of shadow calls that may run at once. Shadows have places of their own, so serving calls never wait for one.
pub const SHADOW_CALLS: u32 = 2;
/// Number of calls of the background scan that may run at once. They have a place of their own, too.
const SCAN_CALLS: u32 = 1;
/// Pause of a shadow call at every tick. With this pause, two shadow calls use a quarter of a processor.
const SHADOW_REST: Duration = Duration::from_millis(7);
/// Multiple of `limits.timeout` that a shadow call may take. Shadows run only when nobody else needs a processor.
const SHADOW_PATIENCE: u32 = 20;
/// Maximum size of one memory: the 4 GiB that 32 bits can address.
const MAX_MEMORY_BYTES: usize = 1 << 32;
/// Bytes of a slot that stay resident. A call touches less, so resetting a slot is a copy and not a system call.
const KEEP_RESIDENT_BYTES: usize = 1 << 20;
/// Number of memories that may stay as their plugin left them, ready for its next call.
///
/// The host needs one for each plugin and each of its concurrent calls. A plugin hardly ever has more concurrent calls
/// than there are threads. An unused warm memory costs its resident bytes and its addresses. If all warm memories
/// belong to other plugins, a plugin pays for a new mapping in every call.
const WARM_MEMORIES: u32 = 1024;
/// Factor by which the guest's stack grows for unoptimised code, which keeps its variables on the stack. Most functions
/// need up to four times the stack, and the loop of an interpreter some thirty times.
const STACK_FACTOR_ONCE: usize = 64;
/// Most stack of a guest in unoptimised code. It counts as data of the process that loads a plugin.
const MAX_STACK_BYTES_ONCE: usize = 64 << 20;
/// Factor by which the guest's stack grows for interim code.
const STACK_FACTOR_INTERIM: usize = 32;
/// Most stack of a guest in interim code.
const MAX_STACK_BYTES_INTERIM: usize = 16 << 20;
/// Memory that a slot has beside the guest's own stack, for a host function's stack and tables.
const SLOT_BYTES: usize = 1 << 20;
/// Factor by which the CPU time of a call may be longer in interim code. Fuel limits the same work.
const CPU_FACTOR_INTERIM: u32 = 4;
/// Linear memory that nearly every call stays below.
const SMALL_CALL_BYTES: u64 = 4 << 20;
/// Stack for host functions on a fiber, in addition to the guest's own stack.
const HOST_STACK_BYTES: usize = 512 * 1024;

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Number of calls that may run at once, and therefore of instances.
    pub max_concurrent_calls: u32,
    /// Stack of every guest, in bytes.
    pub max_wasm_stack_bytes: u64,
    /// The largest limits of any plugin. The engine uses those that the pool is laid out for.
    pub largest: Limits,
    /// How code is compiled. Engines run each other's code only if they have the same tier.
    pub tier: Tier,
    /// Maximum number of instances that are kept for the next call of their plugin. With 0, every call gets a new one.
    pub kept_instances: u32,
}

/// How much work the compiler puts into code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Tier {
    /// Code that answers reviews: compiled once, run millions of times.
    #[default]
    Serving,
    /// Code that runs on every processor of this architecture.
    ///
    /// Valgrind needs this tier, because it runs the host on an emulated processor, while the child that compiles sees
    /// the real one.
    Portable,
    /// Code that answers reviews until the optimised code is ready. The compiler makes it in less than half the time. The
    /// code is slower, and uses a multiple of the stack. It uses the same fuel.
    Interim,
    /// Code that runs once, to describe and configure a plugin: what [`Tier::Interim`] compiles, with the stack of a child
    /// process.
    Once,
    /// Code that runs once, too, made by wasmtime's baseline compiler (Winch) in a third of the time that [`Tier::Once`]
    /// takes. It supports fewer features of WebAssembly. Only child processes run this code.
    Baseline,
}

/// The clock for plugins that may read the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The system's clock.
    #[default]
    System,
    /// Always the same time, so that a plugin's use of the time can be tested.
    Fixed(SystemTime),
}

/// The engine that every plugin runs in.
#[derive(Clone)]
pub struct Engine {
    runtime: Arc<Runtime>,
    /// The runtime of interim code, while a plugin has such code.
    interim: Arc<Mutex<Weak<Runtime>>>,
    slots: Arc<Semaphore>,
    /// The number of slots in all.
    calls: u32,
    shadow_slots: Arc<Semaphore>,
    scan_slots: Arc<Semaphore>,
    /// Memory for the linear memories of all calls; `None` without a limit.
    memory: Option<Arc<Room>>,
    /// Multiple of `limits.timeout` that a call may take by the wall clock.
    patience: u32,
    /// Pause of a call at every tick.
    rest: Duration,
    settings: Arc<EngineSettings>,
    clock: Clock,
    /// Where the host looks up namespaces.
    namespaces: Arc<dyn Namespaces>,
    /// Where the objects of lookups come from.
    tables: Arc<dyn Tables>,
    /// Who says what users may do.
    authorizer: Arc<dyn Authorizer>,
    /// Who verifies images instead of the registries of each plugin; `None` for the registries.
    images: Option<Arc<dyn ImageVerifier>>,
    /// The budget of plugins of namespaces; `None` if nothing limits them beyond their own limits.
    tenants: Option<Arc<Tenants>>,
    exhaustion: Exhaustion,
    /// The memory for answers that later calls may be given; `None` if every call runs.
    answers: Option<Arc<AnswerMemory>>,
    /// Whether the calls of this engine use these answers, and add to them.
    reuses_answers: bool,
    /// The record of the reads of calls. The server records none.
    reads: Option<Arc<Reads>>,
    /// Where the host does its own costly work for reviews.
    offload: Offload,
}

/// wasmtime's engine for the code of one tier.
pub(crate) struct Runtime {
    pub(crate) wasmtime: wasmtime::Engine,
    pub(crate) ticker: ticker::Ticker,
    pub(crate) tier: Tier,
    /// The number of slots that a call takes. The memory of a slot covers the usual stack, and interim code has a larger
    /// one.
    pub(crate) slots: u32,
    linkers: Linkers,
    components: Components,
    /// The instances that may be kept; `None` if every call gets a new one.
    keeping: Option<Arc<Keeping>>,
}

/// A hasher with the same result in every process. The standard hasher does not promise that.
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
    /// The current time of this clock.
    #[must_use]
    pub fn now(self) -> SystemTime {
        match self {
            Self::System => SystemTime::now(),
            Self::Fixed(time) => time,
        }
    }
}

// === impl Runtime ===

impl Runtime {
    fn new(settings: &EngineSettings) -> wasmtime::Result<Self> {
        Self::laid_out(settings).or_else(|error| {
            if settings.kept_instances == 0 {
                return Err(error);
            }
            tracing::warn!(
                error = format!("{error:#}"),
                "not enough address space for kept instances (engine.keptInstances): every call gets a new instance; raise \
                 `ulimit -v`"
            );
            Self::laid_out(&EngineSettings {
                kept_instances: 0,
                ..settings.clone()
            })
        })
    }

    fn laid_out(settings: &EngineSettings) -> wasmtime::Result<Self> {
        let calls = settings.max_concurrent_calls.max(1);
        let others = match settings.tier {
            Tier::Serving | Tier::Portable | Tier::Interim => SHADOW_CALLS + SCAN_CALLS,
            // Stacks are large there, and count as data of the process.
            Tier::Once | Tier::Baseline => 0,
        };
        let keeping = match settings.tier {
            // Nothing is kept in code that others replace soon.
            Tier::Interim => None,
            _ => Keeping::new(settings.kept_instances).map(Arc::new),
        };
        let kept = keeping.as_ref().map_or(0, |_| settings.kept_instances);
        let instances = calls + SPARE_INSTANCES.min(calls) + others;
        let least = instances.saturating_mul(settings.largest.memories);
        let instances = instances.saturating_add(kept);
        // A component that has more than one memory is not kept.
        let least = least.saturating_add(kept);
        let with = |memories: u32| {
            let config = Self::config(settings, instances, memories)?;
            wasmtime::Engine::new(&config)
        };
        let wanted = match settings.tier {
            // There are few plugins with such code, and for seconds.
            Tier::Interim => least,
            _ => WARM_MEMORIES.max(least),
        };
        let wasmtime = with(wanted).or_else(|error| {
            if wanted == least {
                return Err(error);
            }
            tracing::warn!(
                error = format!("{error:#}"), wanted, reserved = least,
                "not enough address space for the wanted number of warm memories: with many plugins, calls cost more; \
                 raise `ulimit -v`"
            );
            with(least)
        })?;
        let ticker = ticker::Ticker::start(&wasmtime, TICK);
        Ok(Self {
            wasmtime,
            ticker,
            tier: settings.tier,
            slots: slots(settings)?,
            linkers: Linkers::default(),
            components: Components::default(),
            keeping,
        })
    }

    /// Builds wasmtime's configuration, with room for the given numbers of instances and memories.
    fn config(
        settings: &EngineSettings,
        instances: u32,
        memories: u32,
    ) -> wasmtime::Result<Config> {
        let largest = &settings.largest;
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(instances)
            // Each memory that a component imports is an instance, and so is a keeper.
            .total_core_instances(instances.saturating_mul(
                largest.instances.min(PER_COMPONENT)
                    + largest.memories.min(MEMORIES_PER_COMPONENT)
                    + 1,
            ))
            .total_memories(memories)
            .total_tables(instances.saturating_mul(largest.tables))
            .total_stacks(instances)
            .total_gc_heaps(instances)
            // The memories that a component imports are instances, too.
            .max_core_instances_per_component(PER_COMPONENT + MEMORIES_PER_COMPONENT)
            .max_memories_per_component(MEMORIES_PER_COMPONENT)
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
        let stack_bytes = stack_bytes(settings)?;
        let (optimise, registers) = match settings.tier {
            Tier::Serving | Tier::Portable => (OptLevel::Speed, RegallocAlgorithm::Backtracking),
            Tier::Interim | Tier::Once | Tier::Baseline => {
                (OptLevel::None, RegallocAlgorithm::SinglePass)
            }
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
            // Only backtraces need the address map, and it is as large as the code.
            .generate_address_map(false)
            .wasm_threads(false)
            .wasm_memory64(false)
            .wasm_relaxed_simd(false)
            .wasm_function_references(settings.tier != Tier::Baseline)
            .wasm_gc(false);
        if settings.tier == Tier::Baseline {
            config.strategy(Strategy::Winch);
        }
        if settings.tier == Tier::Portable {
            // With a named target, the compiler ignores the features of this processor.
            let libc = if cfg!(target_env = "musl") {
                "musl"
            } else {
                "gnu"
            };
            config.target(&format!("{}-unknown-linux-{libc}", std::env::consts::ARCH))?;
        }
        Ok(config)
    }

    /// Factor by which the CPU time of a call may be longer than the plugin's limit.
    pub(crate) fn cpu_factor(&self) -> u32 {
        match self.tier {
            Tier::Interim => CPU_FACTOR_INTERIM,
            Tier::Serving | Tier::Portable | Tier::Once | Tier::Baseline => 1,
        }
    }
}

/// The stack of a guest. Unoptimised code keeps its variables there.
fn stack_bytes(settings: &EngineSettings) -> wasmtime::Result<usize> {
    let bytes = usize::try_from(settings.max_wasm_stack_bytes)?;
    let calls = settings.max_concurrent_calls.max(1) as usize;
    Ok(match settings.tier {
        Tier::Serving | Tier::Portable => bytes,
        Tier::Interim => bytes
            .saturating_mul(STACK_FACTOR_INTERIM)
            .min(MAX_STACK_BYTES_INTERIM)
            // One call must fit into all slots.
            .min(calls * (bytes + SLOT_BYTES) - SLOT_BYTES)
            .max(bytes),
        Tier::Once | Tier::Baseline => bytes
            .saturating_mul(STACK_FACTOR_ONCE)
            .min(MAX_STACK_BYTES_ONCE),
    })
}

/// The number of slots whose memory a call's stack can fill.
fn slots(settings: &EngineSettings) -> wasmtime::Result<u32> {
    let usual = usize::try_from(settings.max_wasm_stack_bytes)? + SLOT_BYTES;
    let slots = (stack_bytes(settings)? + SLOT_BYTES).div_ceil(usual);
    Ok(u32::try_from(slots)?)
}

// === impl Engine ===

impl Engine {
    /// Builds the engine and starts its tick.
    ///
    /// # Errors
    /// When the pool cannot be reserved.
    pub fn new(settings: &EngineSettings) -> wasmtime::Result<Self> {
        let calls = settings.max_concurrent_calls.max(1);
        Ok(Self {
            runtime: Arc::new(Runtime::new(settings)?),
            interim: Arc::default(),
            slots: Arc::new(Semaphore::new(calls as usize)),
            calls,
            shadow_slots: Arc::new(Semaphore::new(SHADOW_CALLS as usize)),
            scan_slots: Arc::new(Semaphore::new(SCAN_CALLS as usize)),
            memory: None,
            patience: 1,
            rest: Duration::ZERO,
            settings: Arc::new(settings.clone()),
            clock: Clock::default(),
            namespaces: namespaces::no_namespaces(),
            tables: lookups::no_tables(),
            authorizer: access::no_authorizer(),
            images: None,
            tenants: None,
            exhaustion: Exhaustion::default(),
            answers: None,
            reuses_answers: false,
            reads: None,
            offload: Offload::beside_the_servers(),
        })
    }

    /// Returns the same engine for plugins whose code has the tier [`Tier::Interim`]. Calls share their places with those
    /// of this engine.
    ///
    /// # Errors
    /// When the pool cannot be reserved.
    pub fn interim(&self) -> wasmtime::Result<Self> {
        let mut interim = self.interim.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = match interim.upgrade() {
            Some(runtime) => runtime,
            None => {
                let settings = EngineSettings {
                    tier: Tier::Interim,
                    kept_instances: 0,
                    ..(*self.settings).clone()
                };
                let runtime = Arc::new(Runtime::new(&settings)?);
                *interim = Arc::downgrade(&runtime);
                runtime
            }
        };
        Ok(Self {
            runtime,
            ..self.clone()
        })
    }

    /// Returns the same engine with another clock for its calls.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Returns the same engine with another source of namespaces. Without one, a plugin that asks for the namespace of a
    /// request has a fault.
    #[must_use]
    pub fn with_namespaces(self, namespaces: Arc<dyn Namespaces>) -> Self {
        Self { namespaces, ..self }
    }

    /// Returns the same engine with another source of the objects of lookups. Without one, lookups answer
    /// `not-synchronised`.
    #[must_use]
    pub fn with_tables(self, tables: Arc<dyn Tables>) -> Self {
        Self { tables, ..self }
    }

    /// Returns the same engine with another authorizer. Without one, every question about a right is `unavailable`.
    #[must_use]
    pub fn with_authorizer(self, authorizer: Arc<dyn Authorizer>) -> Self {
        Self { authorizer, ..self }
    }

    /// Returns the same engine with a verifier that answers instead of the registries, for all plugins.
    #[must_use]
    pub fn with_images(self, images: Arc<dyn ImageVerifier>) -> Self {
        Self {
            images: Some(images),
            ..self
        }
    }

    /// Returns the same engine with a record of what its calls read.
    #[must_use]
    pub fn with_reads(self, reads: Arc<Reads>) -> Self {
        Self {
            reads: Some(reads),
            ..self
        }
    }

    /// Returns the same engine with memory in bytes for answers of earlier calls. A call that would ask the same and be
    /// told the same as an earlier one gets its answer. Without this, every call runs.
    #[must_use]
    pub fn with_answer_cache(self, bytes: u64) -> Self {
        Self {
            answers: (bytes > 0).then(|| AnswerMemory::new(bytes)),
            reuses_answers: bytes > 0,
            ..self
        }
    }

    /// Returns the same engine with a budget for the calls of namespaces' plugins.
    #[must_use]
    pub fn with_tenants(self, budget: TenantBudget) -> Self {
        Self {
            tenants: Some(Arc::new(Tenants::new(budget))),
            ..self
        }
    }

    /// Returns the same engine with a limit in bytes on the linear memory of all its calls together.
    #[must_use]
    pub fn with_max_memory(self, bytes: u64, gauge: Gauge) -> Self {
        Self {
            memory: Some(Room::new(bytes, SMALL_CALL_BYTES, gauge)),
            ..self
        }
    }

    /// Opens an account for the linear memories of one call.
    fn call_memory(&self) -> Account {
        let memory = self.memory.as_ref();
        memory.map_or_else(Account::unlimited, Room::account)
    }

    /// Returns the same engine for shadow calls, which run at the lowest priority.
    ///
    /// Shadow calls have a few places of their own, so serving calls keep all of theirs. Such a call pauses at every
    /// tick, and may take more wall-clock time.
    pub fn for_shadows(&self) -> Self {
        Self {
            slots: self.shadow_slots.clone(),
            calls: SHADOW_CALLS,
            offload: Offload::new(1),
            patience: SHADOW_PATIENCE,
            rest: SHADOW_REST,
            // Their cost is compared with that of other calls.
            reuses_answers: false,
            ..self.clone()
        }
    }

    /// Returns the same engine for the calls of a background scan: one at a time, at the priority of shadow calls.
    pub fn for_scans(&self) -> Self {
        Self {
            slots: self.scan_slots.clone(),
            calls: SCAN_CALLS,
            ..self.for_shadows()
        }
    }

    /// The latest end of a call that begins now, for a plugin with these limits.
    pub fn longest(&self, limits: &Limits) -> Instant {
        self.longest_from(Instant::now(), limits)
    }

    /// The latest end of a call that begins at `began`.
    fn longest_from(&self, began: Instant, limits: &Limits) -> Instant {
        began + limits.timeout * self.patience
    }

    /// Where the host does its own costly work.
    pub fn offload(&self) -> &Offload {
        &self.offload
    }

    /// Whether the engine can keep instances, so that components should have a keeper.
    #[must_use]
    pub fn keeps_instances(&self) -> bool {
        let keeping = self.runtime.keeping.as_ref();
        keeping.is_some_and(|keeping| keeping.is_possible())
    }

    /// Whether components that this engine compiles get a keeper, for an engine that can keep instances.
    pub(crate) fn adds_keepers(&self) -> bool {
        self.runtime.keeping.is_some()
    }

    /// The underlying wasmtime engine.
    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.runtime.wasmtime
    }

    /// Compiles a component in this process. The compiler can crash, so use this only in a process that the host can
    /// lose.
    pub(crate) fn component(&self, bytes: &[u8]) -> wasmtime::Result<Component> {
        Component::from_binary(self.wasmtime(), bytes)
    }

    /// Compiles the module of a memory.
    pub(crate) fn memory(&self, bytes: &[u8]) -> wasmtime::Result<Module> {
        Module::from_binary(self.wasmtime(), bytes)
    }

    /// Compiles the module of a memory that a component imports, and serialises it. The compiler can crash here, too.
    ///
    /// # Errors
    /// When the size does not fit into a memory.
    pub fn memory_code(&self, memory: &LentMemory) -> wasmtime::Result<Vec<u8>> {
        self.wasmtime().precompile_module(&memory.module())
    }

    /// Maps compiled code from its files. Plugins with the same component share its mapping.
    pub(crate) fn mapped(&self, code: &Compiled) -> wasmtime::Result<Parts> {
        let component = &code.component;
        let map = || self.mapped_component(component);
        let memories = code.memories.iter().map(|code| self.mapped_memory(code));
        Ok(Parts {
            component: self.runtime.components.with(component.digest(), map)?,
            memories: memories.collect::<wasmtime::Result<_>>()?,
        })
    }

    /// Maps the compiled component in a file.
    ///
    /// Mapped code takes memory only for the parts that run. A copy would take the better part of a megabyte for each
    /// plugin.
    #[expect(
        unsafe_code,
        clippy::disallowed_methods,
        reason = "wasmtime trusts the code that it is handed; `Code` is made of nothing but what a compiling child wrote"
    )]
    fn mapped_component(&self, code: &Code) -> wasmtime::Result<Component> {
        // SAFETY: the code was made by Tollgate's own compiler, in a process that runs no guest code and cannot write
        // files (`plugin/prepare`). The bytes of this very file were compared with the digest under which they were
        // stored while they were written (`plugin/store`), and only this user can write to the folder. wasmtime refuses
        // code of another version or other settings.
        unsafe { Component::deserialize_file(self.wasmtime(), code.path()) }
    }

    /// Maps the compiled module of a memory in a file.
    #[expect(
        unsafe_code,
        clippy::disallowed_methods,
        reason = "wasmtime trusts the code that it is handed; `Code` is made of nothing but what a compiling child wrote"
    )]
    fn mapped_memory(&self, code: &Code) -> wasmtime::Result<Module> {
        // SAFETY: as for the component. The host has filled contents of the plugin's memory in, at the place that the
        // compiling child named and that lies within the file: data, which nothing executes.
        unsafe { Module::deserialize_file(self.wasmtime(), code.path()) }
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
        unsafe { Component::deserialize(self.wasmtime(), code) }
    }

    /// How the engine compiles code.
    pub fn tier(&self) -> Tier {
        self.runtime.tier
    }

    /// A hash that two engines share if they can run each other's code.
    pub fn compatibility(&self) -> [u8; 32] {
        let mut hasher = Sha256Hasher(Sha256::new());
        self.wasmtime()
            .precompile_compatibility_hash()
            .hash(&mut hasher);
        hasher.0.finalize().into()
    }

    /// The first of a plugin's limits that the pool is too small for: its name, the plugin's limit, and the pool's.
    pub fn lacks(&self, limits: &Limits) -> Option<(&'static str, u32, u32)> {
        let had = &self.settings.largest;
        [
            ("memories", limits.memories, had.memories),
            ("tables", limits.tables, had.tables),
            ("tableElements", limits.table_elements, had.table_elements),
            ("instances", limits.instances, had.instances),
        ]
        .into_iter()
        .find(|(_, wanted, had)| wanted > had)
    }

    /// Everything that plugins with these capabilities may import. Plugins with the same capabilities share it.
    pub(crate) fn linker(
        &self,
        capabilities: impl IntoIterator<Item = Capability>,
    ) -> wasmtime::Result<Arc<Linker<CallState>>> {
        let Runtime {
            linkers, wasmtime, ..
        } = &*self.runtime;
        linkers.with(capabilities.into_iter().collect(), wasmtime)
    }
}

#[cfg(test)]
mod tests {
    use wasmtime::{Instance, Module, Store};

    use super::*;

    #[test]
    fn call_of_interim_code_takes_the_slots_that_its_stack_fills() {
        let slots_of = |max_concurrent_calls, tier, max_wasm_stack_bytes| {
            let settings = EngineSettings {
                max_concurrent_calls,
                max_wasm_stack_bytes,
                largest: Limits::default(),
                tier,
                kept_instances: 0,
            };
            slots(&settings).expect("the sizes fit")
        };
        let slots = |tier, stack_bytes| slots_of(128, tier, stack_bytes);
        assert_eq!(slots(Tier::Serving, 512 << 10), 1);
        assert_eq!(slots(Tier::Interim, 512 << 10), 12);
        assert_eq!(slots(Tier::Interim, 64 << 10), 3);
        assert_eq!(slots(Tier::Interim, 8 << 20), 2);
        for calls in [1, 4] {
            assert_eq!(slots_of(calls, Tier::Interim, 512 << 10), calls);
        }
    }

    #[tokio::test]
    async fn interim_code_shares_one_runtime_that_goes_with_it() {
        let engine = Engine::new(&EngineSettings {
            max_concurrent_calls: 2,
            max_wasm_stack_bytes: 64 << 10,
            largest: Limits::default(),
            tier: Tier::Serving,
            kept_instances: 0,
        });
        let engine = engine.expect("the engine can be made");
        let interim = || engine.interim().expect("the engine can be made");
        let (one, other) = (interim(), interim());
        assert!(Arc::ptr_eq(&one.runtime, &other.runtime));
        assert!(Arc::ptr_eq(&one.slots, &engine.slots));
        assert_eq!((one.tier(), engine.tier()), (Tier::Interim, Tier::Serving));
        drop((one, other));
        assert_eq!(
            engine
                .interim
                .lock()
                .expect("nothing panicked")
                .strong_count(),
            0
        );
    }

    #[tokio::test]
    async fn keeps_memory_warm_for_every_plugin() {
        const PLUGINS: u32 = 200;
        let engine = Engine::new(&EngineSettings {
            max_concurrent_calls: 1,
            max_wasm_stack_bytes: 64 * 1024,
            largest: Limits::default(),
            tier: Tier::Serving,
            kept_instances: 0,
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
