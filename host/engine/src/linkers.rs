//! What plugins import: functions of the host, and their memories.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tollgate_component::{RESET, memory_import};
use tollgate_config::Capability;
use wasmtime::Module;
use wasmtime::component::{Component, InstancePre, Linker};

use super::state::CallState;
use super::{access, host, images, keeping, lookups, wasi};

/// A linker for each set of capabilities that a plugin has. A linker has hundreds of functions, so plugins share it.
#[derive(Default)]
pub(super) struct Linkers {
    made: Mutex<ByCapabilities>,
}

/// Components that plugins use, by the digest of their code. Plugins with the same code share it.
#[derive(Default)]
pub(super) struct Components {
    mapped: Mutex<HashMap<String, Weak<Component>>>,
}

/// The compiled parts of a plugin.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) component: Arc<Component>,
    /// A module for each memory that the component imports.
    pub(super) memories: Vec<Module>,
}

type ByCapabilities = BTreeMap<BTreeSet<Capability>, Arc<Linker<CallState>>>;

// === impl Linkers ===

impl Linkers {
    /// Returns the linker for plugins with exactly these capabilities.
    pub(super) fn with(
        &self,
        capabilities: BTreeSet<Capability>,
        engine: &wasmtime::Engine,
    ) -> wasmtime::Result<Arc<Linker<CallState>>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(linker) = made.get(&capabilities) {
            return Ok(Arc::clone(linker));
        }
        let linker = Arc::new(link(&capabilities, engine)?);
        made.insert(capabilities, Arc::clone(&linker));
        Ok(linker)
    }
}

// === impl Components ===

impl Components {
    /// Returns the component whose code has this digest, and maps it if no plugin uses it.
    pub(super) fn with(
        &self,
        digest: &str,
        map: impl FnOnce() -> wasmtime::Result<Component>,
    ) -> wasmtime::Result<Arc<Component>> {
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(component) = mapped.get(digest).and_then(Weak::upgrade) {
            return Ok(component);
        }
        let component = Arc::new(map()?);
        mapped.retain(|_, component| component.strong_count() > 0);
        mapped.insert(digest.to_owned(), Arc::downgrade(&component));
        Ok(component)
    }
}

// === impl Parts ===

impl Parts {
    /// Links the component with its memories, and with what the linker has.
    pub(super) fn link(
        &self,
        linker: &Linker<CallState>,
    ) -> wasmtime::Result<InstancePre<CallState>> {
        if self.memories.is_empty() {
            return linker.instantiate_pre(&self.component);
        }
        let mut linker = linker.clone();
        for (number, memory) in self.memories.iter().enumerate() {
            linker.root().module(&memory_import(number), memory)?;
        }
        linker.instantiate_pre(&self.component)
    }

    /// Whether instances can be reset after a call.
    pub(super) fn has_keeper(&self, engine: &wasmtime::Engine) -> bool {
        let kind = self.component.component_type();
        kind.imports(engine).any(|(name, _)| name == RESET)
    }

    /// Whether an import is one of the memories.
    pub(super) fn has_memory(&self, import: &str) -> bool {
        let mut numbers = 0..self.memories.len();
        numbers.any(|number| memory_import(number) == import)
    }
}

impl From<Component> for Parts {
    fn from(component: Component) -> Self {
        Self {
            component: Arc::new(component),
            memories: Vec::new(),
        }
    }
}

/// Links the contract, WASI without access to anything, and the granted capabilities. Rights and lookups are there for
/// every plugin, and answer only what is granted.
fn link(
    capabilities: &BTreeSet<Capability>,
    engine: &wasmtime::Engine,
) -> wasmtime::Result<Linker<CallState>> {
    let mut linker = Linker::new(engine);
    wasi::add_to_linker(&mut linker)?;
    host::add_contract(&mut linker)?;
    let mut has_access = false;
    for capability in capabilities {
        match capability {
            Capability::Clock => host::add_clock(&mut linker)?,
            Capability::Cluster => {}
            Capability::Access => has_access = true,
            Capability::Images => images::add_to_linker(&mut linker)?,
        }
    }
    lookups::add_to_linker(&mut linker)?;
    access::add_to_linker(&mut linker, has_access)?;
    keeping::add_to_linker(&mut linker)?;
    Ok(linker)
}
