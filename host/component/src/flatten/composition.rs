//! Recognises a composition of a plugin's component with parts that trap.

use std::collections::HashSet;

use wasmparser::{
    BinaryReaderError, ComponentAlias, ComponentExternalKind, ComponentInstance,
    ComponentInstantiationArg, ComponentTypeRef, Payload,
};

use super::traps::only_traps;
use crate::outline::own_payloads;

/// A composition of one component with parts that trap.
pub(super) struct Composition<'c> {
    /// The component whose exports the composition has.
    pub(super) part: &'c [u8],
    /// Imports of the part that are served by parts that trap.
    pub(super) traps: HashSet<&'c str>,
    /// Imports of the part that are imports of the composition, under the same name.
    pub(super) imports: HashSet<&'c str>,
    /// Names of what the composition exports, each of which is an export of the part under the same name.
    pub(super) exports: HashSet<&'c str>,
}

/// What an index of an instance or a function of the composition stands for.
#[derive(Clone, Copy)]
enum Item<'c> {
    /// An import of this name.
    Import(&'c str),
    /// An instance of a nested component, by the place in `Parts::instances`.
    Part(usize),
    /// An export of an instance of a nested component, by the same place.
    Of(usize, &'c str),
    /// What the composition exports under this name again.
    Exported,
}

/// An instance of a nested component.
struct PartInstance<'c> {
    component: u32,
    args: Box<[ComponentInstantiationArg<'c>]>,
}

/// The structure of a component that has nothing but imports, nested components and exports.
#[derive(Default)]
struct Parts<'c> {
    components: Vec<&'c [u8]>,
    instances: Vec<PartInstance<'c>>,
    /// The component's own indices of instances.
    items: Vec<Item<'c>>,
    /// The component's own indices of functions.
    functions: Vec<Item<'c>>,
    exports: Vec<(&'c str, Item<'c>)>,
}

// === impl Composition ===

impl<'c> Composition<'c> {
    /// Returns `None` if the component has another form.
    pub(super) fn read(component: &'c [u8]) -> Result<Option<Self>, BinaryReaderError> {
        let mut parts = Parts::default();
        for payload in own_payloads(component) {
            if parts.add(payload?, component)?.is_none() {
                return Ok(None);
            }
        }
        match parts.composed() {
            Some((composition, trapping)) if all_trap(&trapping)? => Ok(Some(composition)),
            _ => Ok(None),
        }
    }
}

fn all_trap(components: &[&[u8]]) -> Result<bool, BinaryReaderError> {
    for component in components {
        if !only_traps(component)? {
            return Ok(false);
        }
    }
    Ok(true)
}

// === impl Parts ===

impl<'c> Parts<'c> {
    /// Returns `None` for what a composition does not have.
    fn add(
        &mut self,
        payload: Payload<'c>,
        component: &'c [u8],
    ) -> Result<Option<()>, BinaryReaderError> {
        match payload {
            Payload::Version { .. }
            | Payload::ComponentTypeSection(_)
            | Payload::CustomSection(_)
            | Payload::End(_) => {}
            Payload::ComponentSection {
                unchecked_range, ..
            } => {
                // If the bytes are cut short, the parser reaches their end and reports it.
                let nested = component.get(unchecked_range);
                self.components.push(nested.unwrap_or_default());
            }
            Payload::ComponentImportSection(section) => {
                for import in section {
                    let import = import?;
                    match import.ty {
                        ComponentTypeRef::Instance(_) => {
                            self.items.push(Item::Import(import.name.name));
                        }
                        ComponentTypeRef::Type(_) => {}
                        _ => return Ok(None),
                    }
                }
            }
            Payload::ComponentInstanceSection(section) => {
                for instance in section {
                    let ComponentInstance::Instantiate {
                        component_index,
                        args,
                    } = instance?
                    else {
                        return Ok(None);
                    };
                    self.items.push(Item::Part(self.instances.len()));
                    self.instances.push(PartInstance {
                        component: component_index,
                        args,
                    });
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section {
                    if self.alias(&alias?).is_none() {
                        return Ok(None);
                    }
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section {
                    let export = export?;
                    let items = match export.kind {
                        ComponentExternalKind::Instance => &mut self.items,
                        ComponentExternalKind::Func => &mut self.functions,
                        _ => return Ok(None),
                    };
                    let Some(&item) = items.get(export.index as usize) else {
                        return Ok(None);
                    };
                    items.push(Item::Exported);
                    self.exports.push((export.name.name, item));
                }
            }
            _ => return Ok(None),
        }
        Ok(Some(()))
    }

    fn alias(&mut self, alias: &ComponentAlias<'c>) -> Option<()> {
        let ComponentAlias::InstanceExport {
            kind,
            instance_index,
            name,
        } = *alias
        else {
            return None;
        };
        if kind == ComponentExternalKind::Type {
            return Some(());
        }
        let Item::Part(part) = *self.items.get(instance_index as usize)? else {
            return None;
        };
        let items = match kind {
            ComponentExternalKind::Instance => &mut self.items,
            ComponentExternalKind::Func => &mut self.functions,
            _ => return None,
        };
        items.push(Item::Of(part, name));
        Some(())
    }

    /// Finds the part that all exports come from. Returns the composition, and the other components.
    fn composed(&self) -> Option<(Composition<'c>, Vec<&'c [u8]>)> {
        let mut exports = HashSet::new();
        let mut own = None;
        for (name, item) in &self.exports {
            let Item::Of(part, of) = item else {
                return None;
            };
            if of != name || own.is_some_and(|own| own != *part) {
                return None;
            }
            own = Some(*part);
            exports.insert(*name);
        }
        let own = own?;
        let component = self.instances.get(own)?.component;
        let is_own = |instance: &&PartInstance<'_>| instance.component == component;
        if self.instances.iter().filter(is_own).count() != 1 {
            return None;
        }
        let (mut traps, mut imports) = (HashSet::new(), HashSet::new());
        for arg in &self.instances.get(own)?.args {
            if arg.kind != ComponentExternalKind::Instance {
                return None;
            }
            match *self.items.get(arg.index as usize)? {
                Item::Import(name) if name == arg.name => imports.insert(arg.name),
                Item::Of(part, _) if part != own => traps.insert(arg.name),
                _ => return None,
            };
        }
        let mut trapping = Vec::new();
        for (place, instance) in self.instances.iter().enumerate() {
            if place == own {
                continue;
            }
            if !instance.args.is_empty() {
                return None;
            }
            trapping.push(*self.components.get(instance.component as usize)?);
        }
        let part = *self.components.get(component as usize)?;
        let composition = Composition {
            part,
            traps,
            imports,
            exports,
        };
        Some((composition, trapping))
    }
}
