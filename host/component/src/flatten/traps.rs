//! Proves that each call of a component traps.

use std::collections::{HashMap, HashSet};

use wasmparser::{
    BinaryReaderError, CanonicalFunction, CanonicalOption, ComponentAlias, ComponentExternalKind,
    ComponentInstance, ComponentOuterAliasKind, Instance, Parser, Payload,
};

use crate::outline::{is_function, own_payloads};

/// A function body with no locals and only `unreachable`.
pub(super) const UNREACHABLE: &[u8] = &[0x00, 0x00, 0x0b];

/// The core functions of a component, and which of them trap at once.
#[derive(Default)]
struct Functions<'c> {
    /// For each module, the exported functions that trap at once.
    modules: Vec<HashSet<&'c str>>,
    /// For each core instance, its module. `None` for an instance of other things.
    instances: Vec<Option<u32>>,
    /// For each core function, whether it traps at once.
    trap: Vec<bool>,
}

/// Whether a component imports nothing, and each call of its functions traps.
///
/// A component's functions are lifted from core functions. So it is enough that each of these traps at once, and so does
/// the function that takes the arguments. Neither its modules nor its components are given away. What else the component does
/// cannot be seen from outside: when it is instantiated, it can only take time or trap.
pub(super) fn only_traps(component: &[u8]) -> Result<bool, BinaryReaderError> {
    let mut functions = Functions::default();
    for payload in own_payloads(component) {
        if !functions.add(payload?, component)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a nested component only passes on what it gets.
fn passes_on(component: &[u8]) -> Result<bool, BinaryReaderError> {
    for payload in Parser::new(0).parse_all(component) {
        let payload = payload?;
        if let Payload::ModuleSection { .. }
        | Payload::ComponentCanonicalSection(_)
        | Payload::ComponentStartSection { .. } = payload
        {
            return Ok(false);
        }
        if gives_code(&payload)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a part of a component gives a module or a component to another one, or takes it from there. Its functions would
/// not be known.
fn gives_code(payload: &Payload<'_>) -> Result<bool, BinaryReaderError> {
    let is_code = |kind: ComponentExternalKind| {
        matches!(
            kind,
            ComponentExternalKind::Module | ComponentExternalKind::Component
        )
    };
    match payload {
        Payload::ComponentExportSection(section) => {
            for export in section.clone() {
                if is_code(export?.kind) {
                    return Ok(true);
                }
            }
        }
        Payload::ComponentInstanceSection(section) => {
            for instance in section.clone() {
                let gives = match instance? {
                    ComponentInstance::Instantiate { args, .. } => {
                        args.iter().any(|argument| is_code(argument.kind))
                    }
                    ComponentInstance::FromExports(exports) => {
                        exports.iter().any(|export| is_code(export.kind))
                    }
                };
                if gives {
                    return Ok(true);
                }
            }
        }
        Payload::ComponentAliasSection(section) => {
            for alias in section.clone() {
                let takes = match alias? {
                    ComponentAlias::InstanceExport { kind, .. } => is_code(kind),
                    ComponentAlias::Outer { kind, .. } => matches!(
                        kind,
                        ComponentOuterAliasKind::CoreModule | ComponentOuterAliasKind::Component
                    ),
                    ComponentAlias::CoreInstanceExport { .. } => false,
                };
                if takes {
                    return Ok(true);
                }
            }
        }
        _ => {}
    }
    Ok(false)
}

/// Returns the exported functions of a module that trap at once.
fn trapping(module: &[u8]) -> Result<HashSet<&str>, BinaryReaderError> {
    let (mut imports, mut bodies, mut exports) = (0, HashMap::new(), Vec::new());
    let mut defined = 0_u32;
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    imports += u32::from(matches!(
                        import?.ty,
                        wasmparser::TypeRef::Func(_) | wasmparser::TypeRef::FuncExact(_)
                    ));
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export?;
                    if is_function(export.kind) {
                        exports.push((export.name, export.index));
                    }
                }
            }
            Payload::CodeSectionEntry(body) => {
                bodies.insert(imports + defined, body.as_bytes() == UNREACHABLE);
                defined += 1;
            }
            _ => {}
        }
    }
    let traps = exports.into_iter();
    let traps = traps.filter(|(_, index)| bodies.get(index) == Some(&true));
    Ok(traps.map(|(name, _)| name).collect())
}

// === impl Functions ===

impl<'c> Functions<'c> {
    /// Returns whether this part of the component keeps the proof.
    fn add(
        &mut self,
        payload: Payload<'c>,
        component: &'c [u8],
    ) -> Result<bool, BinaryReaderError> {
        if gives_code(&payload)? {
            return Ok(false);
        }
        match payload {
            Payload::ComponentImportSection(imports) if imports.count() > 0 => return Ok(false),
            Payload::ComponentStartSection { .. } => return Ok(false),
            Payload::ComponentSection {
                unchecked_range, ..
            } => return passes_on(component.get(unchecked_range).unwrap_or_default()),
            Payload::ModuleSection {
                unchecked_range, ..
            } => {
                let module = component.get(unchecked_range).unwrap_or_default();
                self.modules.push(trapping(module)?);
            }
            Payload::InstanceSection(section) => {
                for instance in section {
                    self.instances.push(match instance? {
                        Instance::Instantiate { module_index, .. } => Some(module_index),
                        Instance::FromExports(_) => None,
                    });
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section {
                    match alias? {
                        ComponentAlias::CoreInstanceExport {
                            kind,
                            instance_index,
                            name,
                        } if is_function(kind) => {
                            let traps = self.traps(instance_index, name);
                            self.trap.push(traps);
                        }
                        ComponentAlias::Outer { .. } => return Ok(false),
                        _ => {}
                    }
                }
            }
            Payload::ComponentCanonicalSection(section) => {
                for function in section {
                    match function? {
                        CanonicalFunction::Lift {
                            core_func_index,
                            options,
                            ..
                        } => {
                            let takes = options.iter().filter_map(|option| match option {
                                CanonicalOption::Realloc(index) => Some(*index),
                                _ => None,
                            });
                            let mut called = takes.chain([core_func_index]);
                            let traps = |index: u32| self.trap.get(index as usize) == Some(&true);
                            if !called.all(traps) {
                                return Ok(false);
                            }
                        }
                        _ => self.trap.push(false),
                    }
                }
            }
            _ => {}
        }
        Ok(true)
    }

    /// Whether an export of a core instance is a function that traps at once.
    fn traps(&self, instance: u32, name: &str) -> bool {
        let module = self.instances.get(instance as usize).copied().flatten();
        let exports = module.and_then(|module| self.modules.get(module as usize));
        exports.is_some_and(|traps| traps.contains(name))
    }
}
