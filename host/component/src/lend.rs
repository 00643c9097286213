//! Lets a component import its memories, so that one compiled component serves plugins with other contents.
//!
//! A module with a memory imports this memory instead. The component imports another module for each such memory, and
//! instantiates that module first:
//!
//! ```text
//! before: plugin (code, memory with contents)      after: plugin (code) ← memory with contents
//! ```
//!
//! The imported module has nothing but the memory: no code, no table, no global. So the host chooses the contents of the
//! memory when it links the component, and nothing else. Nothing changes for the plugin's code. Memory 0 has the same size
//! and the same maximum. The plugin's module exports the memory under the same names.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use wasm_encoder::reencode::{
    Error, Reencode, ReencodeComponent, RoundtripReencoder, component_utils, utils,
};
use wasm_encoder::{
    Component, ComponentAliasSection, ComponentImportSection, ConstExpr, CoreTypeSection,
    DataSection, EntityType, ExportKind, ExportSection, ImportSection, InstanceSection,
    MemorySection, MemoryType, Module, ModuleArg, ModuleType, RawSection, SectionId,
};
use wasmparser::{
    BinaryReaderError, ComponentTypeRef, CoreType, Instance, ModuleTypeDeclaration, Parser,
    Payload, TypeRef,
};

use super::outline::{Outline, own_payloads};
use super::separate::{Memory, Separated, placeholder, section, separate};

/// The module that a plugin imports its memory from.
pub(super) const MODULE: &str = "tollgate:memory";
/// The name under which the memory is exported.
pub(super) const MEMORY: &str = "memory";

/// A component that imports its memories.
#[derive(Debug)]
pub struct Lent {
    /// The component. It imports a module for each memory, under the name of [`memory_import`].
    pub component: Vec<u8>,
    /// The memories, with the contents that the component had.
    pub memories: Vec<LentMemory>,
}

/// A memory that a component imports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LentMemory {
    /// Size at the beginning, in pages of 64 KiB.
    pub minimum: u64,
    /// Maximum size in pages.
    pub maximum: Option<u64>,
    /// Address of the content.
    pub offset: u32,
    /// The content. Everything else is zero.
    pub content: Vec<u8>,
}

/// The needs of a component that imports its memories.
#[derive(Debug)]
pub struct Wanted {
    /// An empty module for each memory that it imports, to check the component with.
    pub memories: Vec<Vec<u8>>,
    /// Number of memories that an instance of the component has, with those that it imports.
    pub memory_count: u32,
    /// Number of tables that an instance of the component has.
    pub table_count: u32,
}

/// Why it is not known what a component needs.
#[derive(Debug, thiserror::Error)]
pub enum WantedError {
    /// The component cannot be read.
    #[error(transparent)]
    Unreadable(#[from] BinaryReaderError),
    /// The component imports modules, and has instances that cannot be counted. [`lent`] makes no such component.
    #[error("it imports modules, and exports, aliases or nests others")]
    Uncounted,
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
    memory: LentMemory,
}

/// The demands of a component's modules on memories that they import. The code of a plugin does not depend on the size of its
/// memory. So the new import asks for no more than the other ones, and plugins with memories of other sizes have the same
/// component.
#[derive(Default)]
struct Asked {
    /// The largest size that an import asks for, in pages.
    minimum: u64,
    /// Whether an import asks for a maximum.
    is_limited: bool,
    /// Whether a module has imports under the name of [`MODULE`] already.
    has_name: bool,
}

/// The new component: its first modules and instances are those of the memories.
struct Lender {
    /// By the old indices of modules, the number of each memory.
    numbers: HashMap<u32, u32>,
    memories: u32,
}

/// Lets a component import the memories whose contents can be separated. Other memories stay where they are. Returns `None`
/// if there is no such memory, or if the component refers to modules in ways that this step does not follow.
///
/// # Errors
/// When the component cannot be read.
pub fn lent(component: &[u8]) -> Result<Option<Lent>, Error> {
    let outline = Outline::read(component)?;
    let asked = Asked::by(&outline.modules)?;
    if outline.is_unusual || outline.imports_modules || asked.has_name {
        return Ok(None);
    }
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
    let mut lender = Lender {
        memories: u32::try_from(lendings.len()).unwrap_or(u32::MAX),
        numbers,
    };
    let component = lender.component(component, &lendings)?;
    Ok(component.map(|component| Lent {
        component,
        memories: lendings.into_iter().map(|lending| lending.memory).collect(),
    }))
}

/// Lets a component import its memories, and separates the contents of the other ones.
///
/// # Errors
/// When the component cannot be read.
pub fn parted(component: &[u8]) -> Result<Separated, Error> {
    let Some(Lent {
        component,
        memories,
    }) = lent(component)?
    else {
        return Ok(separate(component)?);
    };
    Ok(Separated {
        memories: memories.into_iter().map(Arc::new).collect(),
        ..separate(&component)?
    })
}

/// Returns what a component needs that imports its memories, or `None` if it imports no modules.
///
/// # Errors
/// When the component cannot be read, or has instances that cannot be counted.
pub fn wanted(component: &[u8]) -> Result<Option<Wanted>, WantedError> {
    let outline = Outline::read(component)?;
    if !outline.imports_modules {
        return Ok(None);
    }
    let nests_instances = own_payloads(component).any(|payload| match payload {
        Ok(Payload::ComponentSection {
            unchecked_range, ..
        }) => {
            let within = component.get(unchecked_range).unwrap_or_default();
            has_instances(within).unwrap_or(true)
        }
        _ => false,
    });
    if outline.is_unusual || nests_instances {
        return Err(WantedError::Uncounted);
    }
    let mut wanted = Wanted {
        memories: imported(component)?,
        memory_count: 0,
        table_count: 0,
    };
    for (_, module) in outline.instantiated() {
        let (memories, tables) = match outline.modules.get(module as usize) {
            Some([]) => (1, 0),
            Some(module) => counted(module)?,
            None => return Err(WantedError::Uncounted),
        };
        wanted.memory_count = wanted.memory_count.saturating_add(memories);
        wanted.table_count = wanted.table_count.saturating_add(tables);
    }
    Ok(Some(wanted))
}

/// An empty module for each module that a component imports, with the memory that its type exports.
fn imported(component: &[u8]) -> Result<Vec<Vec<u8>>, BinaryReaderError> {
    let (mut types, mut modules) = (Vec::new(), Vec::new());
    for payload in own_payloads(component) {
        match payload? {
            Payload::CoreTypeSection(section) => {
                for kind in section {
                    types.push(asked_memory(&kind?));
                }
            }
            Payload::ComponentImportSection(section) => {
                for import in section {
                    if let ComponentTypeRef::Module(kind) = import?.ty {
                        let memory = types.get(kind as usize).copied().flatten();
                        let (minimum, maximum) = memory.unwrap_or_default();
                        let memory = LentMemory {
                            minimum,
                            maximum,
                            offset: 0,
                            content: Vec::new(),
                        };
                        modules.push(memory.module());
                    }
                }
            }
            _ => {}
        }
    }
    Ok(modules)
}

/// The size and the maximum of the memory that a module of this type exports.
fn asked_memory(kind: &CoreType<'_>) -> Option<(u64, Option<u64>)> {
    let CoreType::Module(declarations) = kind else {
        return None;
    };
    declarations
        .iter()
        .find_map(|declaration| match declaration {
            ModuleTypeDeclaration::Export {
                ty: TypeRef::Memory(memory),
                ..
            } => Some((memory.initial, memory.maximum)),
            _ => None,
        })
}

/// The number of memories and of tables that a module defines.
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

// === impl LentMemory ===

impl LentMemory {
    /// The same memory with a placeholder of this size for its content, for [`slots`](super::slots).
    #[must_use]
    pub fn with_placeholder(self, bytes: usize) -> Self {
        Self {
            content: placeholder(0, bytes),
            ..self
        }
    }

    /// Writes the module that has the memory. It has nothing else.
    #[must_use]
    pub fn module(&self) -> Vec<u8> {
        let mut memories = MemorySection::new();
        memories.memory(memory_type(self.minimum, self.maximum));
        let mut exports = ExportSection::new();
        exports.export(MEMORY, ExportKind::Memory, 0);
        let mut module = Module::new();
        module.section(&memories).section(&exports);
        if !self.content.is_empty() {
            let mut data = DataSection::new();
            let address = ConstExpr::i32_const(self.offset.cast_signed());
            data.active(0, &address, self.content.iter().copied());
            module.section(&data);
        }
        module.finish()
    }
}

// === impl Asked ===

impl Asked {
    fn by(modules: &[&[u8]]) -> Result<Self, BinaryReaderError> {
        let mut asked = Self::default();
        for module in modules {
            for payload in Parser::new(0).parse_all(module) {
                if let Payload::ImportSection(section) = payload? {
                    for import in section.into_imports() {
                        let import = import?;
                        asked.has_name |= import.module == MODULE;
                        if let TypeRef::Memory(memory) = import.ty {
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
    fn of(&self, memory: &LentMemory) -> MemoryType {
        match self.is_limited {
            true => memory_type(memory.minimum, memory.maximum),
            false => memory_type(memory.minimum.min(self.minimum), None),
        }
    }
}

/// The type of a memory of 32 bits.
fn memory_type(minimum: u64, maximum: Option<u64>) -> MemoryType {
    MemoryType {
        minimum,
        maximum,
        memory64: false,
        shared: false,
        page_size_log2: None,
    }
}

// === impl Lending ===

impl Lending {
    /// Reads a module. Returns `None` if its memory stays where it is.
    fn read(module: &[u8], asked: &Asked) -> Result<Option<Self>, BinaryReaderError> {
        let memory = Memory::read(module)?;
        let Some((kind, image)) = memory.and_then(|memory| Some((memory.kind(), memory.image()?)))
        else {
            return Ok(None);
        };
        let memory = LentMemory {
            minimum: kind.initial,
            maximum: kind.maximum,
            offset: image.offset.cast_unsigned(),
            content: image.content,
        };
        Ok(Some(Self {
            kind: asked.of(&memory),
            memory,
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
                    self.parse_instance_section(&mut instances, section)?;
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
            imports.import(&*name, wasm_encoder::ComponentTypeRef::Module(number));
            instances.instantiate(number, std::iter::empty::<(&str, ModuleArg)>());
        }
        lent.section(&types).section(&imports).section(&instances);
    }
}

impl Reencode for Lender {
    type Error = Infallible;
}

impl ReencodeComponent for Lender {
    fn module_index(&mut self, module: u32) -> u32 {
        self.memories + module
    }

    fn instance_index(&mut self, instance: u32) -> u32 {
        self.memories + instance
    }

    /// Gives the instance of a module that had a memory the instance of that memory.
    fn parse_instance(
        &mut self,
        instances: &mut InstanceSection,
        instance: Instance<'_>,
    ) -> Result<(), Error> {
        let lent = match &instance {
            Instance::Instantiate { module_index, args } => {
                let memory = self.numbers.get(module_index).copied();
                memory.map(|memory| (*module_index, args, memory))
            }
            Instance::FromExports(_) => None,
        };
        let Some((module, arguments, memory)) = lent else {
            return component_utils::parse_instance(self, instances, instance);
        };
        let own = arguments
            .iter()
            .map(|argument| (argument.name, self.instance_index(argument.index)));
        let all: Vec<_> = own
            .chain([(MODULE, memory)])
            .map(|(name, index)| (name, ModuleArg::Instance(index)))
            .collect();
        instances.instantiate(self.module_index(module), all);
        Ok(())
    }
}

/// Rewrites a module to import its memory. Names of functions go: nothing reads them.
fn without_memory(module: &[u8], kind: MemoryType) -> Result<Vec<u8>, Error> {
    let mut rewritten = Module::new();
    let mut is_imported = false;
    let left_out = [SectionId::Memory, SectionId::Data, SectionId::DataCount].map(u8::from);
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        let Some((id, data)) = section(&payload, module) else {
            continue;
        };
        if let Payload::CustomSection(_) = payload {
            continue;
        }
        if !is_imported && id > u8::from(SectionId::Type) {
            let mut imports = ImportSection::new();
            if let Payload::ImportSection(section) = payload {
                utils::parse_import_section(&mut RoundtripReencoder, &mut imports, section)?;
            }
            imports.import(MODULE, MEMORY, EntityType::Memory(kind));
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
