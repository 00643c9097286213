//! Defines the data that a store holds during one call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_admission::namespaces::Namespaces;
use tollgate_admission::review::request::{AdmissionRequest, Operation};
use tollgate_config::{Limits, PluginName};
use tollgate_json::document::{Account, Json, NoRoom};
use tollgate_lookups::Granted;
use wasmtime::{ResourceLimiter, UpdateDeadline};

use super::access::Asking;
use super::answers::Transcript;
use super::bindings::review::Part;
use super::fault::Stop;
use super::grounds::{Depth, Grounds};
use super::guest::Guest;
use super::images;
use super::keeping::Keepable;
use super::meter::Meter;
use super::pointers::PointerLists;
use super::reads::Reads;
use super::secrecy::Secrecy;
use super::ticker::Running;
use super::wasi::Wasi;
use super::{Clock, Engine};

/// The review that a call evaluates.
#[derive(Clone)]
pub struct Subject {
    /// The request, unchanged.
    pub request: Arc<AdmissionRequest>,
    /// The object as the earlier mutators left it; `None` on DELETE.
    pub object: Option<Json>,
}

/// The data of a store during one call.
pub struct CallState {
    pub(super) plugin: PluginName,
    /// The review; `None` while the plugin is being loaded, when it cannot ask for a review.
    pub(super) subject: Option<Subject>,
    /// A copy of these few numbers. Calls of one plugin on several threads would count on the same `Arc`.
    pub(super) limits: Limits,
    pub(super) clock: Clock,
    /// The source for lookups of the request's Namespace.
    pub(super) namespaces: Arc<dyn Namespaces>,
    /// The objects of the cluster that the plugin may see.
    pub(super) lookups: Granted,
    /// The source of answers about rights, and the answers so far. None without the capability `access`.
    pub(super) access: Option<Box<Asking>>,
    /// The verifier of images, and its answers so far. None without the capability `images`.
    pub(super) images: Option<Box<images::Asking>>,
    /// Number of log lines that an earlier attempt of the same call has written.
    pub(super) lines_before: u32,
    pub(super) secrecy: Secrecy,
    pub(super) grounds: Grounds,
    /// The record of reads, if reads are recorded.
    pub(super) reads: Option<Arc<Reads>>,
    /// Whether the request is an UPDATE, or one of a workload whose template the plugin gets. Grounds are needed only
    /// for such denials.
    pub(super) is_update: bool,
    /// The last memory growth that was refused. The heap for references does not keep the reason why it could not grow.
    pub(super) refused: Option<Stop>,
    pub(super) output_bytes: u64,
    pub(super) memory_bytes: u64,
    /// The part that the linear memories take of the memory for all calls. None while no code may run.
    pub(super) memory: Option<Account>,
    pub(super) warnings: Vec<String>,
    pub(super) annotations: Vec<(String, String)>,
    pub(super) log_lines: u32,
    pub(super) dropped_log_lines: u32,
    pub(super) wasi: Option<Box<Wasi>>,
    /// Number of calls of host functions, without WASI's.
    pub(super) host_calls: u32,
    /// What the call asks and is told, if it is written down.
    pub(super) transcript: Option<Transcript>,
    /// What is known about the instance, if it may be kept.
    pub(super) keepable: Option<Keepable>,
    /// The lists of pointers that the instance has asked for.
    pub(super) pointers: PointerLists,
    /// The limits of time. None while no code may run.
    pub(super) time: Option<Time>,
}

/// The limits of time of a call, or of a session of the loader.
pub(super) struct Time {
    pub(super) meter: Arc<Meter>,
    pub(super) cpu_time: Duration,
    pub(super) deadline: Instant,
    /// The pause after each tick. Zero means that the call only yields.
    pub(super) rest: Duration,
    /// The epoch moves as long as the state has this. Without it, the caller takes care of that.
    pub(super) _running: Option<Running>,
}

// === impl Subject ===

impl Subject {
    /// Whether the user changes an object that exists. The grounds of an answer count only then.
    pub(super) fn is_update(&self) -> bool {
        self.request.received().operation == Operation::Update
    }
}

// === impl Time ===

impl Time {
    /// Decides at a tick whether the code may go on.
    pub(super) fn tick(&self) -> wasmtime::Result<UpdateDeadline> {
        if self.meter.tick() >= self.cpu_time {
            return Err(Stop::Cpu.into());
        }
        if Instant::now() >= self.deadline {
            return Err(Stop::Wall.into());
        }
        Ok(UpdateDeadline::YieldCustom(
            1,
            if self.rest.is_zero() {
                Box::pin(tokio::task::yield_now())
            } else {
                Box::pin(tokio::time::sleep(self.rest))
            },
        ))
    }
}

// === impl CallState ===

impl CallState {
    /// Creates the state of a call of `guest`, in an instance that may have a keeper. `memory` is the account of its linear
    /// memories.
    pub(super) fn new(
        guest: &Guest,
        has_keeper: bool,
        engine: &Engine,
        subject: Option<Subject>,
        memory: Account,
    ) -> Self {
        let About { secrecy, is_update } = About::of(subject.as_ref());
        Self {
            plugin: guest.name.clone(),
            subject,
            limits: limits_of(guest, has_keeper),
            clock: engine.clock,
            namespaces: engine.namespaces.clone(),
            lookups: guest.lookups.of(&engine.tables),
            access: Self::asking(guest, engine),
            images: Self::asking_about_images(guest, engine),
            lines_before: 0,
            secrecy,
            grounds: Grounds::default(),
            reads: engine.reads.clone(),
            is_update,
            refused: None,
            output_bytes: 0,
            memory_bytes: 0,
            memory: Some(memory),
            warnings: Vec::new(),
            annotations: Vec::new(),
            log_lines: 0,
            dropped_log_lines: 0,
            wasi: None,
            host_calls: 0,
            transcript: None,
            keepable: None,
            pointers: PointerLists::default(),
            time: None,
        }
    }

    /// Makes this the state of another call, in a kept instance. It is then as [`CallState::new`] makes it, except for what
    /// is known about the instance: `keepable` and `pointers`.
    ///
    /// It is changed where it is. What is the same is not written: all threads count on the same `Arc`s.
    pub(super) fn renew(
        &mut self,
        guest: &Guest,
        engine: &Engine,
        subject: Option<Subject>,
        memory: Account,
    ) {
        let about = About::of(subject.as_ref());
        // With the names of all fields, none is forgotten.
        let Self {
            plugin,
            subject: its_subject,
            limits,
            clock,
            namespaces,
            lookups,
            access,
            images,
            lines_before,
            secrecy,
            grounds,
            reads,
            is_update,
            refused,
            output_bytes,
            memory_bytes,
            memory: its_memory,
            warnings,
            annotations,
            log_lines,
            dropped_log_lines,
            wasi,
            host_calls,
            transcript,
            keepable: _,
            pointers: _,
            time,
        } = self;
        if *plugin != guest.name {
            *plugin = guest.name.clone();
        }
        *its_subject = subject;
        *limits = limits_of(guest, true);
        *clock = engine.clock;
        if !Arc::ptr_eq(namespaces, &engine.namespaces) {
            *namespaces = engine.namespaces.clone();
        }
        *lookups = guest.lookups.of(&engine.tables);
        *access = Self::asking(guest, engine);
        *images = Self::asking_about_images(guest, engine);
        *lines_before = 0;
        *secrecy = about.secrecy;
        *grounds = Grounds::default();
        *reads = engine.reads.clone();
        *is_update = about.is_update;
        *refused = None;
        *output_bytes = 0;
        *memory_bytes = 0;
        *its_memory = Some(memory);
        *warnings = Vec::new();
        *annotations = Vec::new();
        *log_lines = 0;
        *dropped_log_lines = 0;
        *wasi = None;
        *host_calls = 0;
        *transcript = None;
        *time = None;
    }

    fn asking(guest: &Guest, engine: &Engine) -> Option<Box<Asking>> {
        let grant = guest.access.as_ref()?;
        Some(Box::new(Asking::new(grant, &engine.authorizer)))
    }

    fn asking_about_images(guest: &Guest, engine: &Engine) -> Option<Box<images::Asking>> {
        let grant = guest.images.as_ref()?;
        Some(Box::new(images::Asking::new(grant, engine.images.as_ref())))
    }

    /// Records a read if the grounds of the answer may be needed later.
    pub(super) fn takes_note(&mut self, part: Part, at: &str, depth: Depth) {
        if self.is_update {
            self.grounds.reads(part, at, depth);
        }
    }

    /// Records a place that the plugin asks for, if reads are recorded. `at` is well-formed.
    pub(super) fn records(&self, part: Part, at: &str, is_pattern: bool) {
        if let Some(reads) = &self.reads {
            reads.add(&self.plugin, part, at, is_pattern);
        }
    }

    /// Counts a call of a host function that tells the plugin nothing.
    pub(super) fn says(&mut self) {
        if let Some(transcript) = &mut self.transcript {
            transcript.says();
        }
    }

    /// Takes the transcript of a call that has ended with an answer, if it has everything that the answer can depend on.
    pub(super) fn complete_transcript(&mut self) -> Option<Transcript> {
        let transcript = self.transcript.take()?;
        let is_complete = transcript.is_complete(self.host_calls)
            && self.wasi.is_none()
            && self.secrecy == Secrecy::Open;
        is_complete.then_some(transcript)
    }

    /// Drops everything about the call, once it is over and the instance is kept.
    pub(super) fn forget(&mut self) {
        self.subject = None;
        self.access = None;
        self.images = None;
        self.reads = None;
        self.memory = None;
        self.warnings = Vec::new();
        self.annotations = Vec::new();
        self.refused = None;
        self.transcript = None;
        self.time = None;
    }

    /// Takes bytes of linear memory from the plugin's limit, and from the memory for all calls.
    pub(super) fn takes_memory(&mut self, bytes: usize) -> wasmtime::Result<()> {
        let bytes = bytes as u64;
        let wanted_bytes = self.memory_bytes.saturating_add(bytes);
        if wanted_bytes > self.limits.memory_bytes {
            let stop = Stop::Memory {
                wanted_bytes,
                limit_bytes: self.limits.memory_bytes,
            };
            self.refused = Some(stop.clone());
            return Err(stop.into());
        }
        let Some(memory) = &self.memory else {
            return Err(Stop::Contract("its memory grew outside of a call".to_owned()).into());
        };
        memory.take(bytes).map_err(|error| match error {
            NoRoom::Crowded => wasmtime::Error::from(error),
            NoRoom::TooLarge { most_bytes } => Stop::Memory {
                wanted_bytes,
                limit_bytes: most_bytes,
            }
            .into(),
        })?;
        self.memory_bytes = wanted_bytes;
        Ok(())
    }

    /// Charges bytes that the plugin hands to the host.
    pub(super) fn take(&mut self, bytes: usize) -> wasmtime::Result<()> {
        self.output_bytes = self.output_bytes.saturating_add(bytes as u64);
        if self.output_bytes > self.limits.output_bytes {
            return Err(Stop::Output {
                limit_bytes: self.limits.output_bytes,
            }
            .into());
        }
        Ok(())
    }

    /// Whether the plugin still holds a WASI resource.
    pub fn holds_resources(&self) -> bool {
        self.wasi
            .as_ref()
            .is_some_and(|wasi| !wasi.table.is_empty())
    }
}

/// What the subject of a call says about the call.
struct About {
    secrecy: Secrecy,
    is_update: bool,
}

// === impl About ===

impl About {
    fn of(subject: Option<&Subject>) -> Self {
        Self {
            secrecy: Secrecy::of(subject.is_some_and(|subject| subject.request.is_secret())),
            is_update: subject.is_some_and(Subject::is_update),
        }
    }
}

/// The limits of a store.
fn limits_of(guest: &Guest, has_keeper: bool) -> Limits {
    let mut limits = Limits::clone(&guest.limits);
    // A memory that the component imports is an instance that the plugin did not ask for.
    limits.instances = limits.instances.saturating_add(guest.imported_memories);
    if has_keeper {
        // The keeper is an instance that the plugin did not ask for either.
        limits.instances = limits.instances.saturating_add(1);
    }
    limits
}

impl ResourceLimiter for CallState {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            // The growth exceeds the module's own declared maximum. As WebAssembly requires, the module gets an error
            // value.
            return Ok(false);
        }
        if let Some(keepable) = &mut self.keepable {
            keepable.grows(desired);
        }
        self.takes_memory(desired.saturating_sub(current))?;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(error)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        // The maximum of the pool, which is unrelated to the module.
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let limit_elements = self.limits.table_elements;
        if desired > limit_elements as usize {
            return Err(Stop::Table {
                wanted_elements: desired as u64,
                limit_elements,
            }
            .into());
        }
        Ok(true)
    }

    fn table_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(error)
    }

    fn instances(&self) -> usize {
        self.limits.instances as usize
    }

    fn tables(&self) -> usize {
        self.limits.tables as usize
    }

    fn memories(&self) -> usize {
        self.limits.memories as usize
    }
}
