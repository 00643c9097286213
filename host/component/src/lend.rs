//! Lets a separated component import its memories, so that one compiled component serves plugins with other contents.
//!
//! A module that has a memory of its own imports it instead. The component imports a module for each such memory, and
//! instantiates it first:
//!
//! ```text
//! before: plugin (code, memory with contents)      after: plugin (code) ← memory with contents
//! ```
//!
//! The imported module has nothing but the memory: no code, no table, no global. So whoever links the component chooses
//! the contents of the memory, and nothing else. Nothing changes for the plugin's code: memory 0 has the same size and
//! the same maximum, and its module exports it under the same names.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;

use wasm_encoder::reencode::{Error, Reencode, ReencodeComponent, RoundtripReencoder, utils};
use wasm_encoder::{
    Component, ComponentAliasSection, ComponentImportSection, ComponentTypeRef, ConstExpr,
    CoreTypeSection, DataSection, EntityType, ExportKind, ExportSection, ImportSection,
    InstanceSection, MemorySection, MemoryType, Module, ModuleArg, ModuleType, RawSection,
    SectionId,
};
use wasmparser::{BinaryReaderError, Instance, Parser, Payload, TypeRef};

use super::outline::{Outline, own_payloads};
use super::separate::{Memory, placeholder, section};

/// The module that a plugin imports its memory from. A colon cannot be in a name of the component model's own, so that it
/// is no other import's.
const MODULE: &str = "tollgate:memory";
/// The name under which the memory is exported.
const MEMORY: &str = "memory";

/// A component that imports its memories.
#[derive(Debug)]
pub struct Lent {
    /// The component. It imports a module for each memory, under the name of [`memory_import`].
    pub component: Vec<u8>,
    /// The modules, with the contents that the component had.
    pub memories: Vec<Vec<u8>>,
    /// Number of memories that an instance of the component has, with those that it imports.
    pub memory_count: u32,
    /// Number of tables that an instance of the component has.
    pub table_count: u32,
}

/// The name under which a component imports the module of a memory.
#[must_use]
pub fn memory_import(memory: usize) -> String {
    format!("tollgate-memory{memory}")
}

/// A module of the component whose memory becomes an import.
struct Lending {
    /// The type of the import.
    kind: MemoryType,
    /// The module that has the memory instead.
    memory: Vec<u8>,
}

/// What the modules of a component ask of memories that they import. The code of a plugin does not depend on the size of its
/// memory, so its import asks for no more than that, and plugins with memories of other sizes have the same component.
struct Asked {
    /// The largest size that an import asks for, in pages.
    minimum: u64,
    /// Whether an import asks for a maximum.
    is_limited: bool,
}

/// The new component: its first modules and instances are those of the memories.
struct Lender {
    /// By the old indices of modules, the number of each memory.
    numbers: HashMap<u32, u32>,
    memories: u32,
}

/// Lets a component import the memories that one segment of data fills, and that are not larger than they need to be.
/// Other memories stay where they are. Returns `None` if there is no such memory, or if the component refers to modules
/// in ways that this step does not follow.
///
/// # Errors
/// When the component cannot be read.
pub fn lent(component: &[u8]) -> Result<Option<Lent>, Error> {
    let outline = Outline::read(component)?;
    if outline.is_unusual {
        return Ok(None);
    }
    let asked = Asked::by(&outline.modules)?;
    let mut lendings = Vec::new();
    let mut numbers = HashMap::new();
    for (index, module) in (0..).zip(&outline.modules) {
        if outline.is_alone(index)
            && let Some(lending) = Lending::read(module, &asked)?
        {
            numbers.insert(index, u32::try_from(lendings.len()).unwrap_or(u32::MAX));
            lendings.push(lending);
        }
    }
    if lendings.is_empty() {
        return Ok(None);
    }
    let (mut memory_count, mut table_count) = (0, 0);
    for (_, module) in outline.instantiated() {
        let module = outline.modules.get(module as usize).copied();
        let (memories, tables) = counted(module.unwrap_or_default())?;
        memory_count += memories;
        table_count += tables;
    }
    let mut lender = Lender {
        memories: u32::try_from(lendings.len()).unwrap_or(u32::MAX),
        numbers,
    };
    let component = lender.component(component, &lendings)?;
    Ok(component.map(|component| Lent {
        component,
        memories: lendings.into_iter().map(|lending| lending.memory).collect(),
        memory_count,
        table_count,
    }))
}

/// The number of memories and of tables that a module has of its own.
fn counted(module: &[u8]) -> Result<(u32, u32), BinaryReaderError> {
    let (mut memories, mut tables) = (0, 0);
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::MemorySection(section) => memories += section.count(),
            Payload::TableSection(section) => tables += section.count(),
            _ => {}
        }
    }
    Ok((memories, tables))
}

// === impl Lent ===

impl Lent {
    /// Fills an image that was separated from the component into a memory that is not compiled. Returns false if there is
    /// no place for it.
    pub fn fill(&mut self, number: usize, image: &[u8]) -> bool {
        let placeholder = placeholder(number, image.len());
        let places = self.memories.iter_mut().filter_map(|memory| {
            let place = memory
                .windows(placeholder.len())
                .position(|bytes| *bytes == *placeholder)?;
            memory.get_mut(place..place + image.len())
        });
        let filled = places.map(|place| place.copy_from_slice(image));
        filled.count() == 1
    }
}

// === impl Asked ===

impl Asked {
    fn by(modules: &[&[u8]]) -> Result<Self, BinaryReaderError> {
        let mut asked = Self {
            minimum: 0,
            is_limited: false,
        };
        for module in modules {
            for payload in Parser::new(0).parse_all(module) {
                if let Payload::ImportSection(section) = payload? {
                    for import in section.into_imports() {
                        if let TypeRef::Memory(memory) = import?.ty {
                            asked.minimum = asked.minimum.max(memory.initial);
                            asked.is_limited |= memory.maximum.is_some();
                        }
                    }
                }
            }
        }
        Ok(asked)
    }

    /// The type under which a memory is imported.
    fn of(&self, memory: MemoryType) -> MemoryType {
        if self.is_limited {
            return memory;
        }
        MemoryType {
            minimum: memory.minimum.min(self.minimum),
            maximum: None,
            ..memory
        }
    }
}

// === impl Lending ===

impl Lending {
    /// Reads a module. Returns `None` if its memory stays where it is.
    fn read(module: &[u8], asked: &Asked) -> Result<Option<Self>, BinaryReaderError> {
        let Some(memory) = Memory::read(module)? else {
            return Ok(None);
        };
        let (&[(offset, content)], false) = (memory.segments(), imports_from(module, MODULE)?)
        else {
            return Ok(None);
        };
        let Ok(offset) = u32::try_from(offset) else {
            return Ok(None);
        };
        let memory = memory.kind();
        let kind = MemoryType {
            minimum: memory.initial,
            maximum: memory.maximum,
            memory64: false,
            shared: false,
            page_size_log2: None,
        };
        let mut memories = MemorySection::new();
        memories.memory(kind);
        let mut exports = ExportSection::new();
        exports.export(MEMORY, ExportKind::Memory, 0);
        let mut data = DataSection::new();
        data.active(
            0,
            &ConstExpr::i32_const(offset.cast_signed()),
            content.iter().copied(),
        );
        let mut lent = Module::new();
        lent.section(&memories).section(&exports).section(&data);
        Ok(Some(Self {
            kind: asked.of(kind),
            memory: lent.finish(),
        }))
    }
}

/// Whether a component within this one has instances of modules. They would not be counted, and can be of the outer
/// component's modules.
fn has_instances(component: &[u8]) -> Result<bool, BinaryReaderError> {
    for payload in Parser::new(0).parse_all(component) {
        if let Payload::InstanceSection(_) | Payload::ModuleSection { .. } = payload? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn imports_from(module: &[u8], name: &str) -> Result<bool, BinaryReaderError> {
    for payload in Parser::new(0).parse_all(module) {
        if let Payload::ImportSection(section) = payload? {
            for import in section.into_imports() {
                if import?.module == name {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

// === impl Lender ===

impl Lender {
    fn component(
        &mut self,
        component: &[u8],
        lendings: &[Lending],
    ) -> Result<Option<Vec<u8>>, Error> {
        let mut lent = Component::new();
        self.begin(&mut lent, lendings);
        let mut module = 0;
        for payload in own_payloads(component) {
            let payload = payload?;
            // If the bytes are cut short, the parser reaches their end and reports it.
            let Some((id, data)) = section(&payload, component) else {
                continue;
            };
            match payload {
                // Indices of types would change.
                Payload::CoreTypeSection(_) => return Ok(None),
                Payload::ComponentSection { .. } if has_instances(data)? => return Ok(None),
                Payload::ModuleSection { .. } => {
                    let lending = self.numbers.get(&module);
                    let lending = lending.and_then(|number| lendings.get(*number as usize));
                    let rewritten = lending
                        .map(|lending| without_memory(data, lending.kind))
                        .transpose()?;
                    module += 1;
                    let data = rewritten.as_deref().unwrap_or(data);
                    lent.section(&RawSection { id, data });
                }
                Payload::InstanceSection(section) => {
                    let mut instances = InstanceSection::new();
                    for instance in section {
                        self.instance(&mut instances, instance?)?;
                    }
                    lent.section(&instances);
                }
                Payload::ComponentAliasSection(section) => {
                    let mut aliases = ComponentAliasSection::new();
                    self.parse_component_alias_section(&mut aliases, section)?;
                    lent.section(&aliases);
                }
                _ => {
                    lent.section(&RawSection { id, data });
                }
            }
        }
        Ok(Some(lent.finish()))
    }

    /// Imports the modules of the memories, and instantiates them.
    fn begin(&self, lent: &mut Component, lendings: &[Lending]) {
        let (mut types, mut imports, mut instances) = (
            CoreTypeSection::new(),
            ComponentImportSection::new(),
            InstanceSection::new(),
        );
        for (number, lending) in (0_u32..).zip(lendings) {
            let mut kind = ModuleType::new();
            kind.export(MEMORY, EntityType::Memory(lending.kind));
            types.ty().module(&kind);
            let name = memory_import(number as usize);
            imports.import(&*name, ComponentTypeRef::Module(number));
            instances.instantiate(number, std::iter::empty::<(&str, ModuleArg)>());
        }
        lent.section(&types).section(&imports).section(&instances);
    }

    fn instance(
        &mut self,
        instances: &mut InstanceSection,
        instance: Instance<'_>,
    ) -> Result<(), Error> {
        match instance {
            Instance::Instantiate { module_index, args } => {
                let memory = self.numbers.get(&module_index).copied();
                let arguments = args
                    .iter()
                    .map(|argument| (argument.name, self.instance_index(argument.index)))
                    .chain(memory.map(|memory| (MODULE, memory)))
                    .map(|(name, index)| (name, ModuleArg::Instance(index)));
                let arguments: Vec<_> = arguments.collect();
                instances.instantiate(self.memories + module_index, arguments);
            }
            Instance::FromExports(exports) => {
                let exports = exports.iter().map(|export| {
                    let kind = ExportKind::from(export.kind);
                    (export.name, kind, export.index)
                });
                let exports: Vec<_> = exports.collect();
                instances.export_items(exports);
            }
        }
        Ok(())
    }
}

impl Reencode for Lender {
    type Error = Infallible;
}

impl ReencodeComponent for Lender {
    fn instance_index(&mut self, instance: u32) -> u32 {
        self.memories + instance
    }
}

/// Rewrites a module to import its memory. Names of functions go: nothing reads them.
fn without_memory(module: &[u8], kind: MemoryType) -> Result<Vec<u8>, Error> {
    let mut rewritten = Module::new();
    let mut is_imported = false;
    let import = |imports: &mut ImportSection| {
        imports.import(MODULE, MEMORY, EntityType::Memory(kind));
    };
    let left_out = [SectionId::Memory, SectionId::Data, SectionId::DataCount].map(u8::from);
    let before_imports = u8::from(SectionId::Type);
    let left_out: HashSet<u8> = left_out.into();
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        let Some((id, data)) = section(&payload, module) else {
            continue;
        };
        if let Payload::CustomSection(_) = payload {
            continue;
        }
        if !is_imported && id > before_imports {
            let mut imports = ImportSection::new();
            if let Payload::ImportSection(section) = payload {
                utils::parse_import_section(&mut RoundtripReencoder, &mut imports, section)?;
            }
            import(&mut imports);
            rewritten.section(&imports);
            is_imported = true;
            if id == u8::from(SectionId::Import) {
                continue;
            }
        }
        if !left_out.contains(&id) {
            rewritten.section(&RawSection { id, data });
        }
    }
    Ok(rewritten.finish())
}

#[cfg(test)]
mod tests;
