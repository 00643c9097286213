//! What plugins may import.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_config::Capability;
use wasmtime::component::Linker;

use super::state::CallState;
use super::{access, host, images, lookups, wasi};

/// A linker for each set of capabilities that a plugin has. A linker has hundreds of functions, so plugins share it.
#[derive(Default)]
pub(super) struct Linkers {
    made: Mutex<ByCapabilities>,
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
    Ok(linker)
}
