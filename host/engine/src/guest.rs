//! Links a plugin, so that calls can start from it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Semaphore;
use tollgate_admission::Phase;
use tollgate_admission::images::ImageVerifier;
use tollgate_component::{RESET, kept, wanted};
use tollgate_config::lookup::Lookups;
use tollgate_config::{Access, Capability, Images, Limits, PluginName};
use tollgate_lookups::Granted;
use wasmparser::{Instance, Parser, Payload, Validator};
use wasmtime::component::{Component, InstancePre};

use super::access::{self, Grant};
use super::answers::Answers;
use super::bindings::EveryPluginIndices;
use super::bindings::types::{Mutation, Verdict};
use super::export::Export;
use super::images;
use super::keeping::Shelf;
use super::linkers::Parts;
use super::lookups::{self, Bound, no_tables};
use super::state::CallState;
use super::{Engine, PER_COMPONENT, Runtime, Tier};
use crate::Compiled;

/// A plugin that can be called.
pub struct Guest {
    pub(super) name: PluginName,
    /// The code. Guests that differ in their limits share it.
    pub(super) linked: Arc<ArcSwap<Linked>>,
    interfaces: Interfaces,
    capabilities: Arc<[Capability]>,
    pub(super) configured: ConfiguredBy,
    pub(super) limits: Arc<Limits>,
    pub(super) slots: Arc<Semaphore>,
    pub(super) imports_wasi: bool,
    /// Number of memories that the component imports.
    pub(super) imported_memories: u32,
    pub(super) lookups: Bound,
    /// What the plugin may ask about rights. None without the capability `access`.
    pub(super) access: Option<Grant>,
    /// What the plugin may have verified. None without the capability `images`.
    pub(super) images: Option<images::Grant>,
    /// What earlier calls have answered. None if answers are not reused.
    pub(super) answers: Option<Arc<Answers>>,
    /// The namespace that the plugin is confined to, whose budget pays for its calls.
    pub(super) tenant: Option<Arc<str>>,
}

/// The code of a plugin, linked for an engine. Calls that have begun keep theirs when other code takes its place.
pub(super) struct Linked {
    pub(super) runtime: Arc<Runtime>,
    /// Keeps the component, which other plugins can then find.
    _component: Arc<Component>,
    pub(super) instance: InstancePre<CallState>,
    pub(super) lifecycle: EveryPluginIndices,
    pub(super) mutate: Option<Export<(), (Mutation,)>>,
    pub(super) validate: Option<Export<(), (Verdict,)>>,
    /// The kept instances; `None` if the component has no keeper.
    pub(super) shelf: Option<Arc<Shelf>>,
}

/// How a fresh instance gets its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfiguredBy {
    /// The component is a snapshot, taken after `configure`.
    Snapshot,
    /// The host calls `configure` in every fresh instance, before anything else.
    EachCall {
        /// Settings as JSON.
        settings: String,
        /// The reason why there is no snapshot.
        reason: String,
    },
}

/// The interfaces of the contract that a plugin exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interfaces {
    /// Whether the plugin exports `mutating`.
    pub mutating: bool,
    /// Whether the plugin exports `validating`.
    pub validating: bool,
}

/// Why a component cannot be used as a plugin.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The component cannot be compiled.
    #[error("it is not a valid component")]
    Invalid(#[source] wasmtime::Error),
    /// The component has more memories or tables than the pool serves.
    #[error(
        "it is not a valid component: it has {largest} memories or tables; a component may have at most {limit} of each"
    )]
    TooManyParts {
        /// Number of its memories or tables, whichever is larger.
        largest: u32,
        /// Maximum number of each.
        limit: u32,
    },
    /// The compiled code cannot be used.
    #[error("the compiled code cannot be used")]
    Code(#[source] wasmtime::Error),
    /// The component needs more than its limits allow.
    #[error("it needs {needed} {what}; the limit is {limit} ({setting})")]
    Limited {
        /// The resource that is limited.
        what: &'static str,
        /// Number that the component needs.
        needed: u32,
        /// Number that the component may have.
        limit: u32,
        /// Configuration key of the limit.
        setting: &'static str,
    },
    /// The component imports something that this host does not have.
    #[error(
        "it imports `{name}`, which this host does not have; a plugin may import tollgate:admission/review, \
         /logging and /types @{version}, the capabilities that its configuration grants, and WASI 0.2"
    )]
    UnknownImport {
        /// Name of the import.
        name: String,
        /// Contract version of this host.
        version: &'static str,
    },
    /// The component imports a capability that is not granted.
    #[error(
        "it imports `{name}`, a capability that is not granted: if the plugin should have it, add \
         `{key}` to its configuration"
    )]
    NotGranted {
        /// Name of the import.
        name: String,
        /// The key of the configuration that grants the capability.
        key: &'static str,
    },
    /// The component was built for another version of the contract.
    #[error(
        "it was built for `{name}`, but this host serves tollgate:admission@{version}: rebuild it for this version"
    )]
    OtherVersion {
        /// Name of the import or export.
        name: String,
        /// Contract version of this host.
        version: &'static str,
    },
    /// The component lacks an export that every plugin needs.
    #[error(
        "it does not export `{0}`: a plugin exports the interface `lifecycle`, and `mutating`, `validating` or both"
    )]
    MissingExport(String),
    /// An import or export has a different type from the contract's.
    #[error("it does not fit the contract tollgate:admission@{version}")]
    Mismatch {
        /// Contract version of this host.
        version: &'static str,
        /// wasmtime's error.
        source: wasmtime::Error,
    },
}

/// Resources that a component needs for instantiation, as far as its own sections tell. Invalid components are not
/// detected here; the compiler rejects them.
#[derive(Default)]
struct Needs {
    instances: u32,
    /// Number of elements of the component's largest table.
    table_elements: u32,
}

/// Contract version that this host serves.
const CONTRACT_VERSION: &str = "0.1.0";
const PACKAGE: &str = "tollgate:admission/";
/// Interfaces that need a capability: interface name, the key that grants it, capability.
const CAPABILITIES: [(&str, &str, Capability); 4] = [
    ("clock", "capabilities: [clock]", Capability::Clock),
    ("cluster", "lookups", Capability::Cluster),
    ("access", "capabilities: [access]", Capability::Access),
    ("images", "images", Capability::Images),
];

// === impl Interfaces ===

impl Interfaces {
    /// Whether the plugin can be called in this phase.
    #[must_use]
    pub fn exports(&self, phase: Phase) -> bool {
        match phase {
            Phase::Mutate => self.mutating,
            Phase::Validate => self.validating,
        }
    }
}

// === impl Linked ===

impl Linked {
    fn of(
        engine: &Engine,
        parts: Parts,
        interfaces: Interfaces,
        capabilities: &[Capability],
    ) -> Result<Self, GuestError> {
        let component = &parts.component;
        let keeping = engine.runtime.keeping.clone();
        let keeping = keeping.filter(|_| parts.has_keeper(engine.wasmtime()));
        let mismatch = |source: wasmtime::Error| GuestError::Mismatch {
            version: CONTRACT_VERSION,
            source,
        };
        let linker = engine
            .linker(capabilities.iter().copied())
            .map_err(mismatch)?;
        let instance = parts.link(&linker).map_err(mismatch)?;
        let lifecycle = EveryPluginIndices::new(&instance).map_err(mismatch)?;
        let mutate = interfaces
            .mutating
            .then(|| Export::find(component, &interface_name("mutating"), "mutate"))
            .transpose()
            .map_err(mismatch)?;
        let validate = interfaces
            .validating
            .then(|| Export::find(component, &interface_name("validating"), "validate"))
            .transpose()
            .map_err(mismatch)?;
        Ok(Self {
            runtime: engine.runtime.clone(),
            _component: parts.component,
            instance,
            lifecycle,
            mutate,
            validate,
            shelf: keeping.map(|keeping| Arc::new(Shelf::new(keeping))),
        })
    }
}

// === impl Guest ===

impl Guest {
    /// Compiles a component and links it, without running any of its code.
    ///
    /// The compiler can crash, so call this only in a process that the host can lose.
    ///
    /// # Errors
    /// When the bytes are not a component of the contract, or the component needs something that is not granted.
    pub fn link(
        engine: &Engine,
        name: PluginName,
        component: &[u8],
        configured: ConfiguredBy,
        capabilities: impl IntoIterator<Item = Capability>,
        limits: Arc<Limits>,
    ) -> Result<Self, GuestError> {
        Self::link_lent(
            engine,
            name,
            component,
            &[],
            configured,
            capabilities,
            limits,
        )
    }

    /// Compiles a component that imports its memories, and links it with modules of these memories. A component that has its
    /// memories needs none. The compiler can crash here, too.
    ///
    /// # Errors
    /// As for [`Self::link`].
    pub fn link_lent(
        engine: &Engine,
        name: PluginName,
        component: &[u8],
        memories: &[Vec<u8>],
        configured: ConfiguredBy,
        capabilities: impl IntoIterator<Item = Capability>,
        limits: Arc<Limits>,
    ) -> Result<Self, GuestError> {
        // The pool is laid out for the limits. Compiling a larger component would fail with an error in wasmtime's
        // words.
        let mut needs = Needs::of(component);
        // The plugin did not ask for the instances of its memories.
        let lent_instances = u32::try_from(memories.len()).unwrap_or(u32::MAX);
        needs.instances = needs.instances.saturating_sub(lent_instances);
        needs.fit(&limits)?;
        // Once it is compiled, wasmtime no longer counts for a component that imports modules.
        let wanted = wanted(component).map_err(|error| GuestError::Invalid(error.into()))?;
        if let Some(wanted) = wanted {
            within((wanted.memory_count, wanted.table_count), &limits)?;
        }
        let can_be_kept = engine.adds_keepers() && configured == ConfiguredBy::Snapshot;
        let kept = can_be_kept.then(|| with_keeper(component)).flatten();
        let compile = || {
            let memories = memories.iter().map(|memory| engine.memory(memory));
            Ok(Parts {
                component: Arc::new(engine.component(kept.as_deref().unwrap_or(component))?),
                memories: memories.collect::<wasmtime::Result<_>>()?,
            })
        };
        let parts = compile().map_err(GuestError::Invalid)?;
        let keeper = kept.is_some();
        Self::of(
            engine,
            name,
            parts,
            configured,
            capabilities,
            limits,
            keeper,
        )
    }

    /// Links a component that was compiled in another process.
    ///
    /// # Errors
    /// When the code cannot be used, or the component needs something that is not granted.
    pub fn link_code(
        engine: &Engine,
        name: PluginName,
        code: &Compiled,
        configured: ConfiguredBy,
        capabilities: impl IntoIterator<Item = Capability>,
        limits: Arc<Limits>,
    ) -> Result<Self, GuestError> {
        let parts = engine.mapped(code).map_err(GuestError::Code)?;
        // A child that ran no guest code made it.
        let keeper = engine.adds_keepers();
        Self::of(
            engine,
            name,
            parts,
            configured,
            capabilities,
            limits,
            keeper,
        )
    }

    /// Links a component from code that another process compiled for an engine with the same settings. Only for a
    /// confined process that runs a plugin once.
    pub fn link_bytes(
        engine: &Engine,
        name: PluginName,
        code: &[u8],
        capabilities: impl IntoIterator<Item = Capability>,
        limits: Arc<Limits>,
    ) -> Result<Self, GuestError> {
        let component = engine.read_component(code).map_err(GuestError::Code)?;
        let configured = ConfiguredBy::Snapshot;
        Self::of(
            engine,
            name,
            component.into(),
            configured,
            capabilities,
            limits,
            false,
        )
    }

    fn of(
        engine: &Engine,
        name: PluginName,
        parts: Parts,
        configured: ConfiguredBy,
        capabilities: impl IntoIterator<Item = Capability>,
        limits: Arc<Limits>,
        may_have_keeper: bool,
    ) -> Result<Self, GuestError> {
        let capabilities: Vec<Capability> = capabilities.into_iter().collect();
        let interfaces = admit(engine, &parts, &capabilities, may_have_keeper)?;
        let component = &parts.component;
        // wasmtime does not count for a component that imports modules: the child that compiled it has.
        if let Some(required) = component.resources_required() {
            within((required.num_memories, required.num_tables), &limits)?;
        }
        let imports_wasi = component
            .component_type()
            .imports(engine.wasmtime())
            .any(|(name, _)| name.starts_with("wasi:"));
        let imported_memories = u32::try_from(parts.memories.len()).unwrap_or(u32::MAX);
        let slots = Arc::new(Semaphore::new(limits.concurrency as usize));
        let tenant: Option<Arc<str>> = name.namespace().map(Arc::from);
        let has_access = capabilities.contains(&Capability::Access);
        let has_images = capabilities.contains(&Capability::Images);
        let linked = Linked::of(engine, parts, interfaces, &capabilities)?;
        Ok(Self {
            name,
            linked: Arc::new(ArcSwap::from_pointee(linked)),
            interfaces,
            capabilities: capabilities.into(),
            configured,
            limits,
            slots,
            imports_wasi,
            imported_memories,
            lookups: Bound::new(Lookups::new(), no_tables()),
            access: has_access.then(|| Grant::new(Access::default(), tenant.clone())),
            images: has_images.then(|| images::Grant::of_tenant(tenant.is_some())),
            answers: engine.answers.as_ref().map(Answers::new).map(Arc::new),
            tenant,
        })
    }

    /// Returns the same plugin with lookups, and takes their tables from the engine's source.
    #[must_use]
    pub fn with_lookups(self, engine: &Engine, lookups: &Lookups) -> Self {
        Self {
            lookups: Bound::new(lookups.clone(), engine.tables.clone()),
            ..self
        }
    }

    /// Returns the same plugin with what its configuration lets it ask about rights. Without the capability `access`, it
    /// may ask nothing.
    #[must_use]
    pub fn with_access(self, access: Access) -> Self {
        let grant = |_| Grant::new(access, self.tenant.clone());
        Self {
            access: self.access.as_ref().map(grant),
            ..self
        }
    }

    /// Returns the same plugin with what its configuration lets it have verified, and who verifies it. Without the
    /// capability `images`, it may have nothing verified.
    #[must_use]
    pub fn with_images(
        self,
        images: Option<Arc<Images>>,
        verifier: Option<Arc<dyn ImageVerifier>>,
    ) -> Self {
        let grant = |own: &images::Grant| own.with(images, verifier);
        Self {
            images: self.images.as_ref().map(grant),
            ..self
        }
    }

    /// Returns the same plugin with other limits, and with places for its calls that it shares with nobody. The code and
    /// the lookups are shared.
    ///
    /// The engine's pool is laid out for the limits that the plugin was linked with, so only limits of time may be larger.
    #[must_use]
    pub fn apart(&self, limits: Limits) -> Self {
        Self {
            name: self.name.clone(),
            linked: self.linked.clone(),
            interfaces: self.interfaces,
            capabilities: self.capabilities.clone(),
            configured: self.configured.clone(),
            slots: Arc::new(Semaphore::new(limits.concurrency as usize)),
            limits: Arc::new(limits),
            imports_wasi: self.imports_wasi,
            imported_memories: self.imported_memories,
            lookups: self.lookups.clone(),
            access: self.access.clone(),
            images: self.images.clone(),
            // Other limits can lead to other answers.
            answers: self.answers.as_ref().map(|own| Arc::new(own.empty())),
            tenant: self.tenant.clone(),
        }
    }

    /// The lookups of the plugin, with their tables.
    #[must_use]
    pub fn lookups(&self) -> &Granted {
        self.lookups.granted()
    }

    /// Serialises the compiled code of the component, for an engine with the same settings.
    pub fn code(&self) -> wasmtime::Result<Vec<u8>> {
        self.linked.load().instance.component().serialize()
    }

    /// Whether the plugin's instances can be reset after a call.
    #[must_use]
    pub fn has_keeper(&self) -> bool {
        self.linked.load().shelf.is_some()
    }

    /// Number of instances that wait for the next call.
    #[must_use]
    pub fn idle_instances(&self) -> usize {
        let linked = self.linked.load();
        linked.shelf.as_ref().map_or(0, |shelf| shelf.len())
    }

    /// Whether the code is only there until the optimised code is ready.
    #[must_use]
    pub fn is_interim(&self) -> bool {
        self.linked.load().runtime.tier == Tier::Interim
    }

    /// Replaces interim code by the optimised code of the same component, for all calls that begin from now on.
    ///
    /// # Errors
    /// When the code cannot be used.
    pub fn finish(&self, engine: &Engine, code: &Compiled) -> Result<(), GuestError> {
        let parts = engine.mapped(code).map_err(GuestError::Code)?;
        let linked = Linked::of(engine, parts, self.interfaces, &self.capabilities)?;
        self.linked.store(Arc::new(linked));
        Ok(())
    }

    /// The interfaces that the plugin exports.
    #[must_use]
    pub fn interfaces(&self) -> Interfaces {
        self.interfaces
    }

    /// How the plugin's instances get their settings.
    #[must_use]
    pub fn configured(&self) -> &ConfiguredBy {
        &self.configured
    }

    /// The limits of every call of this plugin.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
}

// === impl Needs ===

impl Needs {
    fn of(component: &[u8]) -> Self {
        let mut needs = Self::default();
        for payload in Parser::new(0).parse_all(component).map_while(Result::ok) {
            match payload {
                Payload::InstanceSection(section) => {
                    let instances = section.into_iter().filter_map(Result::ok);
                    let made = instances
                        .filter(|instance| matches!(instance, Instance::Instantiate { .. }));
                    let made = u32::try_from(made.count()).unwrap_or(u32::MAX);
                    needs.instances = needs.instances.saturating_add(made);
                }
                Payload::TableSection(section) => {
                    for table in section.into_iter().filter_map(Result::ok) {
                        let elements = u32::try_from(table.ty.initial).unwrap_or(u32::MAX);
                        needs.table_elements = needs.table_elements.max(elements);
                    }
                }
                _ => {}
            }
        }
        needs
    }

    fn fit(&self, limits: &Limits) -> Result<(), GuestError> {
        fit(
            "core instances",
            self.instances,
            limits.instances,
            "limits.instances",
        )?;
        fit(
            "elements in a table",
            self.table_elements,
            limits.table_elements,
            "limits.tableElements",
        )
    }
}

/// The component with a keeper. Without one, it works too, so a mistake of that step costs no plugin.
fn with_keeper(component: &[u8]) -> Option<Vec<u8>> {
    let kept = kept(component).ok().flatten()?;
    Validator::new().validate_all(&kept).is_ok().then_some(kept)
}

/// Checks that every import exists and is granted, and that the required interfaces are exported.
fn admit(
    engine: &Engine,
    parts: &Parts,
    capabilities: &[Capability],
    may_have_keeper: bool,
) -> Result<Interfaces, GuestError> {
    let kind = parts.component.component_type();
    // A plugin that can ask what is granted can do without access, and without lookups.
    let asks_for_grants = kind
        .imports(engine.wasmtime())
        .any(|(name, _)| matches!(contract_interface(name), Some((access::GRANTS, _))));
    let mut memories = 0;
    for (name, _) in kind.imports(engine.wasmtime()) {
        if parts.has_memory(name) {
            memories += 1;
            continue;
        }
        if may_have_keeper && name == RESET {
            continue;
        }
        let is_optional = matches!(
            contract_interface(name),
            Some((access::ACCESS | lookups::CLUSTER, _))
        );
        if is_optional && asks_for_grants {
            admit_import(name, &[Capability::Access, Capability::Cluster])?;
        } else {
            admit_import(name, capabilities)?;
        }
    }
    if memories != parts.memories.len() {
        return Err(GuestError::Code(wasmtime::format_err!(
            "it imports {memories} memories, and there are {}",
            parts.memories.len()
        )));
    }
    let exports: Vec<&str> = kind
        .exports(engine.wasmtime())
        .map(|(name, _)| name)
        .collect();
    let exports_interface = |interface: &str| -> Result<bool, GuestError> {
        for name in &exports {
            match contract_interface(name) {
                Some((found, CONTRACT_VERSION)) if found == interface => return Ok(true),
                Some((found, _)) if found == interface => {
                    return Err(GuestError::OtherVersion {
                        name: (*name).to_owned(),
                        version: CONTRACT_VERSION,
                    });
                }
                _ => {}
            }
        }
        Ok(false)
    };
    if !exports_interface("lifecycle")? {
        return Err(GuestError::MissingExport(interface_name("lifecycle")));
    }
    let interfaces = Interfaces {
        mutating: exports_interface("mutating")?,
        validating: exports_interface("validating")?,
    };
    if !interfaces.mutating && !interfaces.validating {
        return Err(GuestError::MissingExport(interface_name("validating")));
    }
    Ok(interfaces)
}

/// Checks the numbers of memories and tables that an instance of a component has.
fn within((memories, tables): (u32, u32), limits: &Limits) -> Result<(), GuestError> {
    let largest = memories.max(tables);
    if largest > PER_COMPONENT {
        return Err(GuestError::TooManyParts {
            largest,
            limit: PER_COMPONENT,
        });
    }
    fit("memories", memories, limits.memories, "limits.memories")?;
    fit("tables", tables, limits.tables, "limits.tables")
}

/// Checks that a component needs no more of a resource than its limit allows.
fn fit(
    what: &'static str,
    needed: u32,
    limit: u32,
    setting: &'static str,
) -> Result<(), GuestError> {
    if needed <= limit {
        return Ok(());
    }
    Err(GuestError::Limited {
        what,
        needed,
        limit,
        setting,
    })
}

fn admit_import(name: &str, capabilities: &[Capability]) -> Result<(), GuestError> {
    if name.starts_with("wasi:") && name.contains("@0.2.") {
        return Ok(());
    }
    let unknown = || GuestError::UnknownImport {
        name: name.to_owned(),
        version: CONTRACT_VERSION,
    };
    let (interface, version) = contract_interface(name).ok_or_else(unknown)?;
    if version != CONTRACT_VERSION {
        return Err(GuestError::OtherVersion {
            name: name.to_owned(),
            version: CONTRACT_VERSION,
        });
    }
    if matches!(interface, "types" | "review" | "logging" | access::GRANTS) {
        return Ok(());
    }
    let (_, key, needed) = CAPABILITIES
        .into_iter()
        .find(|(known, ..)| *known == interface)
        .ok_or_else(unknown)?;
    if capabilities.contains(&needed) {
        Ok(())
    } else {
        Err(GuestError::NotGranted {
            name: name.to_owned(),
            key,
        })
    }
}

/// Returns the full name of an interface of the contract.
fn interface_name(interface: &str) -> String {
    format!("{PACKAGE}{interface}@{CONTRACT_VERSION}")
}

/// Splits a name of the contract's package into interface and version.
fn contract_interface(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix(PACKAGE)?.split_once('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admits_contract_wasi_and_granted_capabilities() {
        for name in [
            "tollgate:admission/review@0.1.0",
            "tollgate:admission/types@0.1.0",
            "wasi:cli/environment@0.2.6",
        ] {
            assert!(admit_import(name, &[]).is_ok(), "{name}");
        }
        assert!(admit_import("tollgate:admission/clock@0.1.0", &[Capability::Clock]).is_ok());
        assert!(admit_import("tollgate:admission/access@0.1.0", &[Capability::Access]).is_ok());
        assert!(admit_import("tollgate:admission/grants@0.1.0", &[]).is_ok());
    }

    #[test]
    fn refuses_other_imports_by_name() {
        let refused = |name: &str| admit_import(name, &[]).unwrap_err().to_string();
        assert!(refused("tollgate:admission/clock@0.1.0").contains("capabilities: [clock]"));
        assert!(refused("tollgate:admission/cluster@0.1.0").contains("add `lookups` to"));
        assert!(refused("tollgate:admission/access@0.1.0").contains("capabilities: [access]"));
        assert!(refused("tollgate:admission/images@0.1.0").contains("add `images` to"));
        assert!(refused("tollgate:admission/review@0.9.0").contains("rebuild it"));
        for name in [
            "evil:host/exec@1.0.0",
            "tollgate:admission/secrets@0.1.0",
            "exec",
            "wasi:http/types@0.3.0",
        ] {
            assert!(refused(name).contains(&format!("`{name}`")), "{name}");
        }
    }
}
