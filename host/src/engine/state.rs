//! What a store holds for the length of one call.

use std::sync::Arc;

use wasmtime::ResourceLimiter;

use super::Clock;
use super::fault::Stop;
use super::secrecy::Secrecy;
use super::wasi::Wasi;
use crate::config::{Limits, PluginName};
use crate::document::{Account, Json, NoRoom};
use crate::review::request::AdmissionRequest;

/// What a call is about.
#[derive(Clone)]
pub struct Subject {
    /// The request, as it came.
    pub request: Arc<AdmissionRequest>,
    /// The object, as the mutators before left it; none on DELETE.
    pub object: Option<Json>,
}

/// What a store holds.
pub(crate) struct CallState {
    pub(super) plugin: PluginName,
    /// None while the plugin is being loaded: the review cannot be asked then.
    pub(super) subject: Option<Subject>,
    pub(super) limits: Arc<Limits>,
    pub(super) clock: Clock,
    pub(super) secrecy: Secrecy,
    pub(super) output_bytes: u64,
    pub(super) memory_bytes: u64,
    /// What the linear memories take of those of all calls.
    pub(super) memory: Account,
    pub(super) warnings: Vec<String>,
    pub(super) annotations: Vec<(String, String)>,
    pub(super) log_lines: u32,
    pub(super) dropped_log_lines: u32,
    pub(super) wasi: Option<Box<Wasi>>,
}

// === impl CallState ===

impl CallState {
    pub(super) fn new(plugin: PluginName, subject: Option<Subject>, limits: Arc<Limits>) -> Self {
        let secrecy = Secrecy::of(
            subject
                .as_ref()
                .is_some_and(|subject| subject.request.is_secret()),
        );
        Self {
            plugin,
            subject,
            limits,
            clock: Clock::default(),
            secrecy,
            output_bytes: 0,
            memory_bytes: 0,
            memory: Account::unlimited(),
            warnings: Vec::new(),
            annotations: Vec::new(),
            log_lines: 0,
            dropped_log_lines: 0,
            wasi: None,
        }
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

    /// Whether a resource that WASI handed out is still held.
    pub(crate) fn holds_resources(&self) -> bool {
        self.wasi
            .as_ref()
            .is_some_and(|wasi| !wasi.table.is_empty())
    }
}

impl ResourceLimiter for CallState {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            // Past what the module itself declares: it is told so, as WebAssembly has it.
            return Ok(false);
        }
        let grown = desired.saturating_sub(current) as u64;
        let wanted_bytes = self.memory_bytes.saturating_add(grown);
        if wanted_bytes > self.limits.memory_bytes {
            return Err(Stop::Memory {
                wanted_bytes,
                limit_bytes: self.limits.memory_bytes,
            }
            .into());
        }
        self.memory.take(grown).map_err(|error| match error {
            NoRoom::Crowded => wasmtime::Error::from(error),
            NoRoom::TooLarge { most_bytes } => Stop::Memory {
                wanted_bytes,
                limit_bytes: most_bytes,
            }
            .into(),
        })?;
        self.memory_bytes = wanted_bytes;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(error)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        // The pool's, which says nothing of the module.
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
