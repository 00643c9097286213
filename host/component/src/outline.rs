//! Reads the structure of a component that the rewriting steps need: its core modules, instances and aliases.

use wasmparser::{
    BinaryReaderError, CanonicalFunction, ComponentAlias, ComponentExternalKind,
    ComponentOuterAliasKind, ComponentType, ComponentTypeRef, ExternalKind, Instance, Parser,
    Payload,
};

/// The structure of a component. Positions in these lists are the component's own indices.
#[derive(Default)]
pub(super) struct Outline<'c> {
    /// The modules of the component. One that it imports is empty.
    pub(super) modules: Vec<&'c [u8]>,
    pub(super) instances: Vec<Instance<'c>>,
    pub(super) aliases: Vec<Alias<'c>>,
    /// Number of core functions so far.
    functions: u32,
    /// Whether the component refers to modules or functions in ways that this reader does not follow. Such components
    /// export or alias modules, or have a resource with a destructor.
    pub(super) is_unusual: bool,
    /// Whether the component imports modules, as only components do that [`lend`](super::lend) makes.
    pub(super) imports_modules: bool,
}

/// An alias of an export of a core instance.
pub(super) struct Alias<'c> {
    pub(super) kind: ExternalKind,
    pub(super) instance: u32,
    pub(super) name: &'c str,
    /// Number of functions before the alias. If the alias is a function, this is its index.
    pub(super) function: u32,
    /// Number of instances before the alias.
    pub(super) behind: usize,
}

/// The component's own sections, without those of nested modules and components.
pub(super) fn own_payloads(
    component: &[u8],
) -> impl Iterator<Item = Result<Payload<'_>, BinaryReaderError>> {
    let mut depth = 0_u32;
    Parser::new(0).parse_all(component).filter(move |payload| {
        let is_own = depth == 0;
        match payload {
            Ok(Payload::ComponentSection { .. } | Payload::ModuleSection { .. }) => depth += 1,
            Ok(Payload::End(_)) => depth = depth.saturating_sub(1),
            _ => {}
        }
        is_own || payload.is_err()
    })
}

/// Whether an export of this kind is a function.
pub(super) fn is_function(kind: ExternalKind) -> bool {
    matches!(kind, ExternalKind::Func | ExternalKind::FuncExact)
}

// === impl Alias ===

impl Alias<'_> {
    pub(super) fn is_function(&self) -> bool {
        is_function(self.kind)
    }
}

// === impl Outline ===

impl<'c> Outline<'c> {
    pub(crate) fn read(component: &'c [u8]) -> Result<Self, BinaryReaderError> {
        let mut outline = Self::default();
        for payload in own_payloads(component) {
            outline.add(payload?, component)?;
        }
        Ok(outline)
    }

    /// Indices of the instances of modules, each with the index of its module.
    pub(super) fn instantiated(&self) -> impl Iterator<Item = (u32, u32)> {
        let instances = (0..).zip(&self.instances);
        instances.filter_map(|(number, instance)| match instance {
            Instance::Instantiate { module_index, .. } => Some((number, *module_index)),
            Instance::FromExports(_) => None,
        })
    }

    /// Whether a module has exactly one instance.
    pub(super) fn is_alone(&self, module: u32) -> bool {
        let of_it = self.instantiated().filter(|(_, of)| *of == module);
        of_it.count() == 1
    }

    fn add(&mut self, payload: Payload<'c>, component: &'c [u8]) -> Result<(), BinaryReaderError> {
        match payload {
            Payload::ModuleSection {
                unchecked_range, ..
            } => {
                // If the bytes are cut short, the parser reaches their end and reports it.
                let module = component.get(unchecked_range);
                self.modules.push(module.unwrap_or_default());
            }
            Payload::ComponentImportSection(section) => {
                for import in section {
                    if let ComponentTypeRef::Module(_) = import?.ty {
                        self.imports_modules = true;
                        self.modules.push(&[]);
                    }
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section {
                    self.is_unusual |= export?.kind == ComponentExternalKind::Module;
                }
            }
            Payload::ComponentTypeSection(section) => {
                for kind in section {
                    self.is_unusual |=
                        matches!(kind?, ComponentType::Resource { dtor: Some(_), .. });
                }
            }
            Payload::InstanceSection(section) => {
                for instance in section {
                    self.instances.push(instance?);
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section {
                    self.alias(&alias?);
                }
            }
            Payload::ComponentCanonicalSection(section) => {
                for function in section {
                    if !matches!(function?, CanonicalFunction::Lift { .. }) {
                        self.functions += 1;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn alias(&mut self, alias: &ComponentAlias<'c>) {
        match *alias {
            ComponentAlias::CoreInstanceExport {
                kind,
                instance_index,
                name,
            } => {
                self.aliases.push(Alias {
                    kind,
                    instance: instance_index,
                    name,
                    function: self.functions,
                    behind: self.instances.len(),
                });
                if is_function(kind) {
                    self.functions += 1;
                }
            }
            ComponentAlias::InstanceExport {
                kind: ComponentExternalKind::Module,
                ..
            }
            | ComponentAlias::Outer {
                kind: ComponentOuterAliasKind::CoreModule,
                ..
            } => self.is_unusual = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: &str = r#"
        (component
            (core module $inner (func (export "a")) (func (export "b")))
            (core instance $inner (instantiate $inner))
            (alias core export $inner "a" (core func))
            (alias core export $inner "b" (core func)))
    "#;

    fn component(within: &str) -> Vec<u8> {
        let text = format!(
            r#"(component
                {within}
                (core module $m (memory (export "memory") 1) (func (export "f")) (func (export "g")))
                (core instance $i (instantiate $m))
                (alias core export $i "memory" (core memory))
                (alias core export $i "f" (core func $f))
                (func (export "f") (canon lift (core func $f)))
                (alias core export $i "g" (core func)))"#
        );
        wat::parse_str(text).unwrap()
    }

    #[test]
    fn ignores_content_of_nested_components() {
        for within in ["", WITHIN] {
            let component = component(within);
            let outline = Outline::read(&component).unwrap();
            assert_eq!(outline.modules.len(), 1);
            assert_eq!(outline.instances.len(), 1);
            let aliases = outline.aliases.iter();
            let aliases: Vec<_> = aliases
                .map(|alias| {
                    (
                        alias.name,
                        alias.is_function(),
                        alias.function,
                        alias.behind,
                    )
                })
                .collect();
            let expected = [
                ("memory", false, 0, 1),
                ("f", true, 0, 1),
                ("g", true, 1, 1),
            ];
            assert_eq!(aliases, expected);
            assert!(!outline.is_unusual);
        }
    }

    #[test]
    fn reports_truncated_component() {
        let component = component(WITHIN);
        let module = Outline::read(&component).unwrap().modules[0];
        let end = module.as_ptr_range().end.addr() - component.as_ptr().addr();
        assert!(Outline::read(&component[..end - 1]).is_err());
    }
}
