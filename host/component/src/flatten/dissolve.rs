//! Writes the part of a composition as a component of its own.

use std::convert::Infallible;

use wasm_encoder::reencode::{Error, Reencode, ReencodeComponent, component_utils};
use wasm_encoder::{
    Alias, CanonicalFunctionSection, CodeSection, Component, ComponentAliasSection,
    ComponentExportSection, ComponentImportSection, ComponentInstanceSection, ComponentTypeSection,
    ExportKind, ExportSection, FuncType, FunctionSection, InstanceSection, Module, ModuleSection,
    NestedComponentSection, RawSection, TypeSection,
};
use wasmparser::types::Types;
use wasmparser::{
    CanonicalFunction, ComponentAlias, ComponentExternalKind, ComponentTypeRef, KnownCustom,
    Payload,
};

use super::composition::Composition;
use crate::outline::{is_function, own_payloads};

/// Index of the instance of the module whose functions trap. The module and the instance are the first ones.
const TRAPS: u32 = 0;

/// The new index of each old one. `None` for what is left out.
#[derive(Default)]
struct Indices {
    new: Vec<Option<u32>>,
    kept: u32,
}

/// The work of writing the part without the imports that trap.
pub(super) struct Dissolving<'a> {
    composition: &'a Composition<'a>,
    /// Types of the part.
    of: &'a Types,
    types: Indices,
    instances: Indices,
    functions: Indices,
    /// Number of core functions so far. None is left out, so their indices stay.
    core_functions: u32,
    /// Number of types and components around the item that is written.
    depth: u32,
    /// Whether the item refers to something that is left out, or to something outside of the part.
    is_cut_off: bool,
    traps: Vec<FuncType>,
    exports: usize,
}

/// Says that the component stays as it is.
struct Refused;

type Written = Result<Result<(), Refused>, Error<Infallible>>;

// === impl Dissolving ===

impl<'a> Dissolving<'a> {
    pub(super) fn new(composition: &'a Composition<'a>, of: &'a Types) -> Self {
        Self {
            composition,
            of,
            types: Indices::default(),
            instances: Indices::default(),
            functions: Indices::default(),
            core_functions: 0,
            depth: 0,
            is_cut_off: false,
            traps: Vec::new(),
            exports: 0,
        }
    }

    /// Returns `None` if the part cannot do without what is left out.
    pub(super) fn run(mut self, part: &[u8]) -> Result<Option<Vec<u8>>, Error<Infallible>> {
        let mut rest = Component::new();
        for payload in own_payloads(part) {
            if let Err(Refused) = self.payload(payload?, part, &mut rest)? {
                return Ok(None);
            }
        }
        if self.exports != self.composition.exports.len() {
            return Ok(None);
        }
        let mut instances = InstanceSection::new();
        instances.instantiate(0, std::iter::empty::<(&str, _)>());
        let mut whole = Component::new();
        whole
            .section(&ModuleSection(&trapping(&self.traps)))
            .section(&instances);
        let mut whole = whole.finish();
        // The sections, without the header.
        whole.extend(rest.finish().into_iter().skip(Component::HEADER.len()));
        Ok(Some(whole))
    }

    fn payload(&mut self, payload: Payload<'_>, part: &[u8], to: &mut Component) -> Written {
        match payload {
            Payload::ComponentTypeSection(section) => {
                for kind in section {
                    let kind = kind?;
                    let mut types = ComponentTypeSection::new();
                    self.parse_component_type(types.ty(), kind)?;
                    if self.take_cut_off() {
                        self.types.leave_out();
                    } else {
                        self.types.keep();
                        to.section(&types);
                    }
                }
            }
            Payload::ComponentImportSection(section) => {
                for import in section {
                    let import = import?;
                    let name = import.name.name;
                    if self.composition.traps.contains(name) {
                        self.instances.leave_out();
                        continue;
                    }
                    if !self.composition.imports.contains(name) {
                        return Ok(Err(Refused));
                    }
                    let ComponentTypeRef::Instance(_) = import.ty else {
                        return Ok(Err(Refused));
                    };
                    let mut imports = ComponentImportSection::new();
                    imports.import(import.name, self.component_type_ref(import.ty)?);
                    self.instances.keep();
                    to.section(&imports);
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section {
                    let alias = alias?;
                    if let Err(Refused) = self.alias(&alias, to)? {
                        return Ok(Err(Refused));
                    }
                }
            }
            Payload::ComponentCanonicalSection(section) => {
                for function in section {
                    if let Err(Refused) = self.canonical(function?, to)? {
                        return Ok(Err(Refused));
                    }
                }
            }
            Payload::ComponentInstanceSection(section) => {
                for instance in section {
                    let mut instances = ComponentInstanceSection::new();
                    self.parse_component_instance(&mut instances, instance?)?;
                    self.instances.keep();
                    to.section(&instances);
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section {
                    let export = export?;
                    let indices = match export.kind {
                        ComponentExternalKind::Func => &mut self.functions,
                        ComponentExternalKind::Instance => &mut self.instances,
                        _ => return Ok(Err(Refused)),
                    };
                    indices.keep();
                    self.exports += 1;
                    if !self.composition.exports.contains(export.name.name) {
                        return Ok(Err(Refused));
                    }
                    let mut exports = ComponentExportSection::new();
                    self.parse_component_export(&mut exports, export)?;
                    to.section(&exports);
                }
            }
            Payload::InstanceSection(section) => {
                let mut instances = InstanceSection::new();
                self.parse_instance_section(&mut instances, section)?;
                to.section(&instances);
            }
            Payload::ComponentSection {
                parser,
                unchecked_range,
            } => {
                let nested = part.get(unchecked_range).unwrap_or_default();
                let mut component = Component::new();
                self.push_depth();
                component_utils::parse_component(self, &mut component, parser, nested, part)?;
                self.pop_depth();
                to.section(&NestedComponentSection(&component));
            }
            Payload::ComponentStartSection { .. } => return Ok(Err(Refused)),
            // Names of items by their old indices.
            Payload::CustomSection(section)
                if matches!(section.as_known(), KnownCustom::ComponentName(_)) => {}
            other => {
                if let Some((id, range)) = other.as_section() {
                    // If the bytes are cut short, the parser reaches their end and reports it.
                    let data = part.get(range).unwrap_or_default();
                    to.section(&RawSection { id, data });
                }
            }
        }
        Ok(match self.take_cut_off() {
            true => Err(Refused),
            false => Ok(()),
        })
    }

    fn alias(&mut self, alias: &ComponentAlias<'_>, to: &mut Component) -> Written {
        let mut aliases = ComponentAliasSection::new();
        aliases.alias(self.component_alias(alias.clone())?);
        let is_cut_off = self.take_cut_off();
        let indices = match *alias {
            ComponentAlias::InstanceExport { kind, .. } => match kind {
                ComponentExternalKind::Type => &mut self.types,
                ComponentExternalKind::Func => &mut self.functions,
                ComponentExternalKind::Instance => &mut self.instances,
                _ => return Ok(Err(Refused)),
            },
            ComponentAlias::CoreInstanceExport { kind, .. } if !is_cut_off => {
                if is_function(kind) {
                    self.core_functions += 1;
                }
                to.section(&aliases);
                return Ok(Ok(()));
            }
            _ => return Ok(Err(Refused)),
        };
        if is_cut_off {
            indices.leave_out();
        } else {
            indices.keep();
            to.section(&aliases);
        }
        Ok(Ok(()))
    }

    fn canonical(&mut self, function: CanonicalFunction, to: &mut Component) -> Written {
        let mut functions = CanonicalFunctionSection::new();
        let may_be_left_out = matches!(
            function,
            CanonicalFunction::Lower { .. } | CanonicalFunction::ResourceDrop { .. }
        );
        let is_lift = matches!(function, CanonicalFunction::Lift { .. });
        self.parse_component_canonical(&mut functions, function)?;
        match (self.take_cut_off(), may_be_left_out) {
            (false, _) => {
                to.section(&functions);
            }
            (true, true) => {
                let Some(kind) = self.core_function_type(self.core_functions) else {
                    return Ok(Err(Refused));
                };
                let mut aliases = ComponentAliasSection::new();
                aliases.alias(Alias::CoreInstanceExport {
                    instance: TRAPS,
                    kind: ExportKind::Func,
                    name: &self.traps.len().to_string(),
                });
                self.traps.push(kind);
                to.section(&aliases);
            }
            (true, false) => return Ok(Err(Refused)),
        }
        match is_lift {
            true => self.functions.keep(),
            false => self.core_functions += 1,
        }
        Ok(Ok(()))
    }

    /// The type of a core function of the part.
    fn core_function_type(&self, index: u32) -> Option<FuncType> {
        let of = self.of.as_ref();
        let kind = &of[of.core_function_at(index)];
        match &kind.composite_type.inner {
            wasmparser::CompositeInnerType::Func(kind) => FuncType::try_from(kind.clone()).ok(),
            _ => None,
        }
    }

    fn take_cut_off(&mut self) -> bool {
        std::mem::take(&mut self.is_cut_off)
    }

    fn moved(&mut self, of: fn(&Self) -> &Indices, index: u32) -> u32 {
        if self.depth > 0 {
            // An index of the type or component that is written.
            return index;
        }
        self.moved_out(of, index)
    }

    fn moved_out(&mut self, of: fn(&Self) -> &Indices, index: u32) -> u32 {
        let moved = of(self).new.get(index as usize).copied().flatten();
        self.is_cut_off |= moved.is_none();
        moved.unwrap_or_default()
    }
}

impl Reencode for Dissolving<'_> {
    type Error = Infallible;
}

impl ReencodeComponent for Dissolving<'_> {
    fn component_type_index(&mut self, index: u32) -> u32 {
        self.moved(|own| &own.types, index)
    }

    fn component_instance_index(&mut self, index: u32) -> u32 {
        self.moved(|own| &own.instances, index)
    }

    fn component_func_index(&mut self, index: u32) -> u32 {
        self.moved(|own| &own.functions, index)
    }

    fn module_index(&mut self, index: u32) -> u32 {
        index + u32::from(self.depth == 0)
    }

    fn instance_index(&mut self, index: u32) -> u32 {
        index + u32::from(self.depth == 0)
    }

    fn outer_component_type_index(&mut self, count: u32, index: u32) -> u32 {
        match count.cmp(&self.depth) {
            std::cmp::Ordering::Less => index,
            std::cmp::Ordering::Equal => self.moved_out(|own| &own.types, index),
            // Something of the composition.
            std::cmp::Ordering::Greater => {
                self.is_cut_off = true;
                index
            }
        }
    }

    fn outer_module_index(&mut self, count: u32, index: u32) -> u32 {
        self.is_cut_off |= count >= self.depth;
        index
    }

    fn outer_component_index(&mut self, count: u32, index: u32) -> u32 {
        self.is_cut_off |= count > self.depth;
        index
    }

    fn push_depth(&mut self) {
        self.depth += 1;
    }

    fn pop_depth(&mut self) {
        self.depth -= 1;
    }
}

// === impl Indices ===

impl Indices {
    fn keep(&mut self) {
        self.new.push(Some(self.kept));
        self.kept += 1;
    }

    fn leave_out(&mut self) {
        self.new.push(None);
    }
}

/// A module with a function of each type that traps.
fn trapping(functions: &[FuncType]) -> Module {
    let (mut types, mut section) = (TypeSection::new(), FunctionSection::new());
    let (mut exports, mut code) = (ExportSection::new(), CodeSection::new());
    for (number, kind) in (0..).zip(functions) {
        types.ty().func_type(kind);
        section.function(number);
        exports.export(&number.to_string(), ExportKind::Func, number);
        code.raw(super::traps::UNREACHABLE);
    }
    let mut module = Module::new();
    module
        .section(&types)
        .section(&section)
        .section(&exports)
        .section(&code);
    module
}
