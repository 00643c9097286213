//! Lets an instance be reset after a call, so that the next call can have it.
//!
//! Code that this step adds resets the instance, in the sandbox. It restores everything in the instance that a call can
//! change. A component with anything else stays as it is, and each of its calls has a new instance.
//!
//! ```text
//! before: memory ← plugin ← validate      after: memory ← plugin ← keeper ← validate
//!                                                                    └ hands the memory to the host
//! ```
//!
//! The *keeper* is one more module. Its `validate` and `mutate` do three things:
//!
//! 1. They set every mutable global of the plugin to the value that it began with. For that, the plugin's module exports its
//!    globals under names that only the keeper imports.
//! 2. They hand the plugin's memory to the host, which resets its pages.
//! 3. They call the plugin.
//!
//! # What a call can change
//!
//! | state | how the keeper and this step deal with it |
//! |---|---|
//! | the plugin's memory | The host restores the pages that were written. If the memory has grown, it drops the instance |
//! | mutable globals | The keeper sets them. A component with one that is imported or holds a reference stays as it is |
//! | tables, segments of elements and data | A component with an instruction that changes one stays as it is |
//! | what a start function changes | A component in which a module has one stays as it is |
//! | exceptions, garbage collection, threads, stacks | A component that uses them stays as it is |
//! | other modules of the component | If one has a memory or a mutable global, the component stays as it is |
//! | resources, and built-in functions of components | A component that has them stays as it is |

use std::convert::Infallible;

use wasm_encoder::reencode::{
    Error, Reencode, ReencodeComponent, RoundtripReencoder, component_utils, utils,
};
use wasm_encoder::{
    Alias, CanonicalFunctionSection, CodeSection, Component, ComponentAliasSection,
    ComponentImportSection, ComponentTypeRef, ComponentTypeSection, ComponentValType, EntityType,
    ExportKind, ExportSection, Function, FunctionSection, GlobalType, Ieee32, Ieee64,
    ImportSection, InstanceSection, InstructionSink, MemoryType, Module, ModuleArg, ModuleSection,
    PrimitiveValType, RawSection, TypeSection, ValType,
};
use wasmparser::{
    BinaryReaderError, CanonicalFunction, CanonicalOption, ComponentAlias, ComponentExternalKind,
    ComponentOuterAliasKind, ComponentType, ConstExpr, ExternalKind, FuncType, Instance, Operator,
    Parser, Payload, TypeRef, Validator, WasmFeatures,
};

use super::lend::{MEMORY, MODULE as MEMORY_MODULE};
use super::outline::{Outline, is_function, own_payloads};
use super::separate::section;
use super::trim::UNREACHABLE;

/// The function of the host that resets the plugin's memory. Its parameter is the whole memory, as a list of bytes.
pub const RESET: &str = "tollgate-reset";
/// Prefix of the names of the plugin's globals.
const GLOBAL: &str = "tollgate:global";
/// Ends of the names of the functions that reviews call.
const CALLED: [&str; 2] = ["#validate", "#mutate"];

/// The features of WebAssembly whose state this step knows. A component that needs others stays as it is.
const KNOWN: WasmFeatures = WasmFeatures::WASM2
    .union(WasmFeatures::TAIL_CALL)
    .union(WasmFeatures::EXTENDED_CONST);

/// A module of a component, as far as its state concerns the keeper.
#[derive(Default)]
struct Stateful<'m> {
    /// Its mutable globals.
    globals: Vec<Global>,
    /// Whether it has a memory of its own.
    has_memory: bool,
    /// Whether it imports a memory that is not lent.
    shares_memory: bool,
    /// The type of the memory that is lent to it.
    lent: Option<MemoryType>,
    /// The functions that reviews call.
    called: Vec<&'m str>,
    /// Exported functions that only trap. Nobody calls them any more.
    dead: Vec<&'m str>,
}

struct Global {
    index: u32,
    initial: Value,
}

/// The value that a global begins with. Floating-point numbers are bits.
#[derive(Clone, Copy)]
enum Value {
    I32(i32),
    I64(i64),
    F32(u32),
    F64(u64),
    V128(i128),
}

/// The numbers of a component's parts.
struct Place {
    /// The plugin's module, and its instance.
    module: u32,
    instance: u32,
    /// The instance of the plugin's memory.
    memory: u32,
}

/// Numbers of definitions so far.
#[derive(Clone, Copy, Default)]
struct Counts {
    types: u32,
    functions: u32,
    modules: u32,
    core_functions: u32,
    core_instances: u32,
    core_memories: u32,
}

/// Copies what comes behind the keeper. Definitions there have higher numbers than before.
struct Behind<'p> {
    /// The first numbers that are higher.
    from: Counts,
    place: &'p Place,
    /// The instance of the keeper.
    keeper: u32,
    /// Number of scopes around the current place.
    depth: u32,
}

/// Adds a keeper to a component that [`lent`](super::lent) made. Returns `None` if the component has state that a keeper does
/// not reset, or refers to its parts in ways that this step does not follow.
///
/// # Errors
/// When the component cannot be read.
pub fn kept(component: &[u8]) -> Result<Option<Vec<u8>>, Error<Infallible>> {
    let outline = Outline::read(component)?;
    if outline.is_unusual || !is_plain(component)? {
        return Ok(None);
    }
    let Some((place, plugin)) = Place::of(&outline)? else {
        return Ok(None);
    };
    if !calls_go_through_the_keeper(component, &outline, &place, &plugin)? {
        return Ok(None);
    }
    let mut kept = Component::new();
    let mut counts = Counts::default();
    let mut behind: Option<Behind<'_>> = None;
    for payload in own_payloads(component) {
        let payload = payload?;
        let Some((id, data)) = section(&payload, component) else {
            continue;
        };
        if let Some(behind) = &mut behind {
            behind.copy(&mut kept, payload, (id, data), component)?;
        } else if aliases_called(&payload, &place)? {
            let mut next = Behind::begin(&mut kept, counts, &place, &plugin);
            next.copy(&mut kept, payload, (id, data), component)?;
            behind = Some(next);
        } else {
            let is_plugin =
                matches!(payload, Payload::ModuleSection { .. }) && counts.modules == place.module;
            counts.add(payload)?;
            let with_globals = is_plugin.then(|| with_globals(data, &plugin)).transpose()?;
            let data = with_globals.as_deref().unwrap_or(data);
            kept.section(&RawSection { id, data });
        }
    }
    Ok(behind.is_some().then(|| kept.finish()))
}

/// Whether a component has nothing but what this step follows.
fn is_plain(component: &[u8]) -> Result<bool, BinaryReaderError> {
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(component) {
        let is_plain = match payload? {
            Payload::ComponentSection { .. } => {
                depth += 1;
                true
            }
            Payload::ModuleSection { .. } => {
                depth += 1;
                depth == 1
            }
            Payload::End(_) => {
                depth = depth.saturating_sub(1);
                true
            }
            Payload::InstanceSection(_) => depth == 0,
            Payload::ComponentStartSection { .. } => false,
            Payload::ComponentTypeSection(section) => {
                let kinds = section.into_iter().collect::<Result<Vec<_>, _>>()?;
                let has_resource =
                    |kind: &ComponentType<'_>| matches!(kind, ComponentType::Resource { .. });
                !kinds.iter().any(has_resource)
            }
            Payload::ComponentImportSection(section) => {
                let imports = section.into_iter().collect::<Result<Vec<_>, _>>()?;
                let mut names = imports.iter().map(|import| import.name.name);
                !names.any(|name| name.starts_with("wasi:") || name == RESET)
            }
            Payload::ComponentCanonicalSection(section) => {
                let functions = section.into_iter().collect::<Result<Vec<_>, _>>()?;
                depth == 0 && functions.iter().all(is_plain_function)
            }
            _ => true,
        };
        if !is_plain {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_plain_function(function: &CanonicalFunction) -> bool {
    let (CanonicalFunction::Lift { options, .. } | CanonicalFunction::Lower { options, .. }) =
        function
    else {
        return false;
    };
    options.iter().all(|option| {
        matches!(
            option,
            CanonicalOption::UTF8
                | CanonicalOption::UTF16
                | CanonicalOption::CompactUTF16
                | CanonicalOption::Memory(_)
                | CanonicalOption::Realloc(_)
                | CanonicalOption::PostReturn(_)
        )
    })
}

/// Whether reviews can call the plugin only through the keeper, and nothing else can call the keeper.
///
/// - Each function that the component lifts becomes one of the keeper, or only traps. Another one would run without anything
///   being reset.
/// - The component uses the functions that become the keeper's for nothing else. A plugin that calls its keeper would get
///   its fuel again.
fn calls_go_through_the_keeper(
    component: &[u8],
    outline: &Outline<'_>,
    place: &Place,
    plugin: &Stateful<'_>,
) -> Result<bool, BinaryReaderError> {
    let alias_of = |function: u32| {
        let mut aliases = outline.aliases.iter();
        aliases.find(|alias| alias.is_function() && alias.function == function)
    };
    let is_keepers = |function: u32| {
        alias_of(function)
            .is_some_and(|alias| alias.instance == place.instance && is_called(alias.name))
    };
    let is_dead = |function: u32| {
        alias_of(function).is_some_and(|alias| {
            alias.instance == place.instance && plugin.dead.contains(&alias.name)
        })
    };
    for instance in &outline.instances {
        if let Instance::FromExports(exports) = instance
            && exports
                .iter()
                .any(|export| is_function(export.kind) && is_keepers(export.index))
        {
            return Ok(false);
        }
    }
    for payload in own_payloads(component) {
        if let Payload::ComponentCanonicalSection(section) = payload? {
            for function in section {
                let function = function?;
                if let CanonicalFunction::Lift {
                    core_func_index, ..
                } = &function
                    && !is_keepers(*core_func_index)
                    && !is_dead(*core_func_index)
                {
                    return Ok(false);
                }
                let (CanonicalFunction::Lift { options, .. }
                | CanonicalFunction::Lower { options, .. }) = function
                else {
                    return Ok(false);
                };
                let helps = |option: &CanonicalOption| match option {
                    CanonicalOption::Realloc(function) | CanonicalOption::PostReturn(function) => {
                        is_keepers(*function)
                    }
                    _ => false,
                };
                if options.iter().any(helps) {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

fn is_called(name: &str) -> bool {
    CALLED.iter().any(|end| name.ends_with(end)) && !name.starts_with("cabi_post_")
}

/// Whether a section has the first alias of a function that reviews call.
fn aliases_called(payload: &Payload<'_>, place: &Place) -> Result<bool, BinaryReaderError> {
    let Payload::ComponentAliasSection(section) = payload else {
        return Ok(false);
    };
    for alias in section.clone() {
        if let ComponentAlias::CoreInstanceExport {
            instance_index,
            name,
            ..
        } = alias?
            && instance_index == place.instance
            && is_called(name)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Rewrites the plugin's module to export its mutable globals.
fn with_globals(module: &[u8], plugin: &Stateful<'_>) -> Result<Vec<u8>, Error<Infallible>> {
    let mut rewritten = Module::new();
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        let Some((id, data)) = section(&payload, module) else {
            continue;
        };
        if let Payload::ExportSection(section) = payload {
            let mut exports = ExportSection::new();
            utils::parse_export_section(&mut RoundtripReencoder, &mut exports, section)?;
            for (number, global) in plugin.globals.iter().enumerate() {
                exports.export(&global_name(number), ExportKind::Global, global.index);
            }
            rewritten.section(&exports);
        } else {
            rewritten.section(&RawSection { id, data });
        }
    }
    Ok(rewritten.finish())
}

fn global_name(number: usize) -> String {
    format!("{GLOBAL}{number}")
}

/// The type of functions that reviews call: they return the address of their result.
fn is_call(kind: Option<&FuncType>) -> bool {
    kind.is_some_and(|kind| {
        kind.params().is_empty() && kind.results() == [wasmparser::ValType::I32]
    })
}

// === impl Stateful ===

impl<'m> Stateful<'m> {
    /// Reads a module. Returns `None` if it has state that a keeper does not reset.
    fn read(module: &'m [u8]) -> Result<Option<Self>, BinaryReaderError> {
        let mut validator = Validator::new_with_features(KNOWN);
        if validator.validate_all(module).is_err() {
            return Ok(None);
        }
        let mut read = Self::default();
        let (mut types, mut functions, mut globals) = (Vec::new(), Vec::new(), 0);
        let (mut imported, mut exported, mut bodies) = (0, Vec::new(), Vec::new());
        for payload in Parser::new(0).parse_all(module) {
            match payload? {
                Payload::TypeSection(section) => {
                    for kind in section.into_iter_err_on_gc_types() {
                        types.push(kind?);
                    }
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import?;
                        match import.ty {
                            TypeRef::Func(kind) => {
                                functions.push(kind);
                                imported += 1;
                            }
                            TypeRef::Global(global) if global.mutable => return Ok(None),
                            TypeRef::Global(_) => globals += 1,
                            TypeRef::Memory(memory) if import.module == MEMORY_MODULE => {
                                read.lent = Some(MemoryType {
                                    minimum: memory.initial,
                                    maximum: memory.maximum,
                                    memory64: memory.memory64,
                                    shared: memory.shared,
                                    page_size_log2: memory.page_size_log2,
                                });
                            }
                            TypeRef::Memory(_) => read.shares_memory = true,
                            _ => {}
                        }
                    }
                }
                Payload::FunctionSection(section) => {
                    for kind in section {
                        functions.push(kind?);
                    }
                }
                Payload::MemorySection(section) => read.has_memory |= section.count() > 0,
                Payload::GlobalSection(section) => {
                    for global in section {
                        let global = global?;
                        if global.ty.mutable {
                            let Some(initial) = Value::of(&global.init_expr)? else {
                                return Ok(None);
                            };
                            read.globals.push(Global {
                                index: globals,
                                initial,
                            });
                        }
                        globals += 1;
                    }
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        let export = export?;
                        if export.name.starts_with(GLOBAL) {
                            return Ok(None);
                        }
                        if is_function(export.kind) {
                            exported.push((export.name, export.index));
                        }
                        if is_function(export.kind) && is_called(export.name) {
                            let kind = functions.get(export.index as usize);
                            let kind = kind.and_then(|kind| types.get(*kind as usize));
                            if !is_call(kind) {
                                return Ok(None);
                            }
                            read.called.push(export.name);
                        }
                    }
                }
                // The keeper would restore what was there before it ran.
                Payload::StartSection { .. } => return Ok(None),
                Payload::CodeSectionEntry(body) => {
                    bodies.push(body.as_bytes());
                    for operator in body.get_operators_reader()? {
                        if changes_what_nobody_resets(&operator?) {
                            return Ok(None);
                        }
                    }
                }
                _ => {}
            }
        }
        read.dead = exported
            .into_iter()
            .filter(|(name, function)| {
                let body = function.checked_sub(imported);
                let body = body.and_then(|number| bodies.get(number as usize));
                !is_called(name) && body.is_some_and(|body| *body == UNREACHABLE)
            })
            .map(|(name, _)| name)
            .collect();
        Ok(Some(read))
    }
}

/// Whether an instruction changes a table, or a segment of elements or data.
fn changes_what_nobody_resets(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::TableSet { .. }
            | Operator::TableGrow { .. }
            | Operator::TableFill { .. }
            | Operator::TableCopy { .. }
            | Operator::TableInit { .. }
            | Operator::ElemDrop { .. }
            | Operator::MemoryInit { .. }
            | Operator::DataDrop { .. }
    )
}

// === impl Value ===

impl Value {
    /// The value of an expression that is one constant.
    fn of(expression: &ConstExpr<'_>) -> Result<Option<Self>, BinaryReaderError> {
        let mut operators = expression.get_operators_reader().into_iter();
        let value = match operators.next().transpose()? {
            Some(Operator::I32Const { value }) => Self::I32(value),
            Some(Operator::I64Const { value }) => Self::I64(value),
            Some(Operator::F32Const { value }) => Self::F32(value.bits()),
            Some(Operator::F64Const { value }) => Self::F64(value.bits()),
            Some(Operator::V128Const { value }) => Self::V128(value.i128()),
            _ => return Ok(None),
        };
        let ends = matches!(operators.next().transpose()?, Some(Operator::End));
        Ok(ends.then_some(value))
    }

    fn kind(self) -> ValType {
        match self {
            Self::I32(_) => ValType::I32,
            Self::I64(_) => ValType::I64,
            Self::F32(_) => ValType::F32,
            Self::F64(_) => ValType::F64,
            Self::V128(_) => ValType::V128,
        }
    }

    fn push(self, code: &mut InstructionSink<'_>) {
        match self {
            Self::I32(value) => code.i32_const(value),
            Self::I64(value) => code.i64_const(value),
            Self::F32(bits) => code.f32_const(Ieee32::new(bits)),
            Self::F64(bits) => code.f64_const(Ieee64::new(bits)),
            Self::V128(value) => code.v128_const(value),
        };
    }
}

// === impl Place ===

impl Place {
    /// Finds the plugin, and reads all modules. Returns `None` if one of them has state that a keeper does not reset.
    fn of<'m>(outline: &Outline<'m>) -> Result<Option<(Self, Stateful<'m>)>, BinaryReaderError> {
        let called = outline.aliases.iter();
        let mut called = called.filter(|alias| alias.is_function() && is_called(alias.name));
        let Some(instance) = called.next().map(|alias| alias.instance) else {
            return Ok(None);
        };
        if called.any(|alias| alias.instance != instance) {
            return Ok(None);
        }
        let Some(Instance::Instantiate { module_index, args }) =
            outline.instances.get(instance as usize)
        else {
            return Ok(None);
        };
        let module = *module_index;
        let memory = args.iter().find(|argument| argument.name == MEMORY_MODULE);
        let Some(memory) = memory.map(|argument| argument.index) else {
            return Ok(None);
        };
        let Some(Instance::Instantiate { module_index, .. }) =
            outline.instances.get(memory as usize)
        else {
            return Ok(None);
        };
        let memory_module = *module_index;
        let mut found = None;
        for (number, code) in (0_u32..).zip(&outline.modules) {
            if number == memory_module {
                if !code.is_empty() {
                    return Ok(None);
                }
                continue;
            }
            let Some(read) = Stateful::read(code)? else {
                return Ok(None);
            };
            if read.has_memory {
                return Ok(None);
            }
            if number == module {
                found = Some(read);
            } else if read.lent.is_some() || !read.globals.is_empty() {
                return Ok(None);
            }
        }
        let plugin = found
            .filter(|read| read.lent.is_some() && !read.shares_memory && !read.called.is_empty());
        let place = Self {
            module,
            instance,
            memory,
        };
        let is_alone = outline.is_alone(module) && outline.is_alone(memory_module);
        Ok(plugin.filter(|_| is_alone).map(|plugin| (place, plugin)))
    }
}

// === impl Counts ===

impl Counts {
    fn add(&mut self, payload: Payload<'_>) -> Result<(), BinaryReaderError> {
        match payload {
            Payload::ModuleSection { .. } => self.modules += 1,
            Payload::InstanceSection(section) => self.core_instances += section.count(),
            Payload::ComponentTypeSection(section) => self.types += section.count(),
            Payload::ComponentImportSection(section) => {
                for import in section {
                    match import?.ty {
                        wasmparser::ComponentTypeRef::Module(_) => self.modules += 1,
                        wasmparser::ComponentTypeRef::Func(_) => self.functions += 1,
                        wasmparser::ComponentTypeRef::Type(_) => self.types += 1,
                        _ => {}
                    }
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section {
                    self.add_external(export?.kind);
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section {
                    match alias? {
                        ComponentAlias::InstanceExport { kind, .. } => self.add_external(kind),
                        ComponentAlias::CoreInstanceExport { kind, .. } if is_function(kind) => {
                            self.core_functions += 1;
                        }
                        ComponentAlias::CoreInstanceExport {
                            kind: ExternalKind::Memory,
                            ..
                        } => self.core_memories += 1,
                        ComponentAlias::Outer {
                            kind: ComponentOuterAliasKind::Type,
                            ..
                        } => self.types += 1,
                        _ => {}
                    }
                }
            }
            Payload::ComponentCanonicalSection(section) => {
                for function in section {
                    match function? {
                        CanonicalFunction::Lift { .. } => self.functions += 1,
                        _ => self.core_functions += 1,
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add_external(&mut self, kind: ComponentExternalKind) {
        match kind {
            ComponentExternalKind::Func => self.functions += 1,
            ComponentExternalKind::Type => self.types += 1,
            ComponentExternalKind::Module => self.modules += 1,
            _ => {}
        }
    }
}

// === impl Behind ===

impl<'p> Behind<'p> {
    /// Adds the keeper, with what it needs.
    fn begin(kept: &mut Component, from: Counts, place: &'p Place, plugin: &Stateful<'_>) -> Self {
        let mut types = ComponentTypeSection::new();
        types
            .defined_type()
            .list(ComponentValType::Primitive(PrimitiveValType::U8));
        types
            .function()
            .params([("memory", ComponentValType::Type(from.types))])
            .result(None);
        let mut imports = ComponentImportSection::new();
        imports.import(RESET, ComponentTypeRef::Func(from.types + 1));
        let mut aliases = ComponentAliasSection::new();
        aliases.alias(Alias::CoreInstanceExport {
            instance: place.memory,
            kind: ExportKind::Memory,
            name: MEMORY,
        });
        let mut functions = CanonicalFunctionSection::new();
        let options = [wasm_encoder::CanonicalOption::Memory(from.core_memories)];
        functions.lower(from.functions, options);
        let mut instances = InstanceSection::new();
        instances.export_items([("reset", ExportKind::Func, from.core_functions)]);
        instances.instantiate(
            from.modules,
            [
                (MEMORY_MODULE, place.memory),
                ("host", from.core_instances),
                ("plugin", place.instance),
            ]
            .map(|(name, instance)| (name, ModuleArg::Instance(instance))),
        );
        let keeper = keeper(plugin);
        kept.section(&types)
            .section(&imports)
            .section(&aliases)
            .section(&functions)
            .section(&ModuleSection(&keeper))
            .section(&instances);
        Self {
            from,
            place,
            keeper: from.core_instances + 1,
            depth: 0,
        }
    }

    fn copy(
        &mut self,
        kept: &mut Component,
        payload: Payload<'_>,
        (id, data): (u8, &[u8]),
        component: &[u8],
    ) -> Result<(), Error<Infallible>> {
        match payload {
            Payload::ModuleSection { .. } => {
                kept.section(&RawSection { id, data });
                Ok(())
            }
            // Names have the old numbers, and nothing reads them.
            Payload::CustomSection(_) => Ok(()),
            payload => self.parse_component_payload(kept, payload, component),
        }
    }

    /// The new number of a definition of the component. Definitions of nested scopes keep theirs.
    fn moved(&self, number: u32, from: u32, added: u32) -> u32 {
        self.moved_out(self.depth, 0, number, from, added)
    }

    fn moved_out(&self, depth: u32, count: u32, number: u32, from: u32, added: u32) -> u32 {
        match depth == count && number >= from {
            true => number + added,
            false => number,
        }
    }
}

impl Reencode for Behind<'_> {
    type Error = Infallible;

    fn function_index(&mut self, function: u32) -> Result<u32, Error<Infallible>> {
        Ok(self.moved(function, self.from.core_functions, 1))
    }

    fn memory_index(&mut self, memory: u32) -> Result<u32, Error<Infallible>> {
        Ok(self.moved(memory, self.from.core_memories, 1))
    }
}

impl ReencodeComponent for Behind<'_> {
    fn push_depth(&mut self) {
        self.depth += 1;
    }

    fn pop_depth(&mut self) {
        self.depth -= 1;
    }

    fn component_type_index(&mut self, kind: u32) -> u32 {
        self.moved(kind, self.from.types, 2)
    }

    fn component_func_index(&mut self, function: u32) -> u32 {
        self.moved(function, self.from.functions, 1)
    }

    fn module_index(&mut self, module: u32) -> u32 {
        self.moved(module, self.from.modules, 1)
    }

    fn instance_index(&mut self, instance: u32) -> u32 {
        self.moved(instance, self.from.core_instances, 2)
    }

    fn outer_component_type_index(&mut self, count: u32, kind: u32) -> u32 {
        self.moved_out(self.depth, count, kind, self.from.types, 2)
    }

    fn outer_module_index(&mut self, count: u32, module: u32) -> u32 {
        self.moved_out(self.depth, count, module, self.from.modules, 1)
    }

    fn outer_component_index(&mut self, _count: u32, component: u32) -> u32 {
        component
    }

    fn outer_type_index(&mut self, _count: u32, kind: u32) -> Result<u32, Error<Infallible>> {
        Ok(kind)
    }

    /// Gives the component the keeper's functions in place of the plugin's.
    fn component_alias<'a>(
        &mut self,
        alias: ComponentAlias<'a>,
    ) -> Result<Alias<'a>, Error<Infallible>> {
        match alias {
            ComponentAlias::CoreInstanceExport {
                kind,
                instance_index,
                name,
            } if self.depth == 0
                && instance_index == self.place.instance
                && is_function(kind)
                && is_called(name) =>
            {
                Ok(Alias::CoreInstanceExport {
                    instance: self.keeper,
                    kind: ExportKind::Func,
                    name,
                })
            }
            alias => component_utils::component_alias(self, alias),
        }
    }
}

/// Writes the module that resets the plugin before it calls it.
fn keeper(plugin: &Stateful<'_>) -> Module {
    const RESET: u32 = 0;
    const MEMORY_INDEX: u32 = 0;
    /// Size of a page of WebAssembly, as a number of bits.
    const PAGE_BITS: i32 = 16;
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32, ValType::I32], []);
    types.ty().function([], [ValType::I32]);
    let mut imports = ImportSection::new();
    if let Some(memory) = plugin.lent {
        imports.import(MEMORY_MODULE, MEMORY, EntityType::Memory(memory));
    }
    imports.import("host", "reset", EntityType::Function(0));
    for name in &plugin.called {
        imports.import("plugin", name, EntityType::Function(1));
    }
    for (number, global) in plugin.globals.iter().enumerate() {
        let kind = GlobalType {
            val_type: global.initial.kind(),
            mutable: true,
            shared: false,
        };
        imports.import("plugin", &global_name(number), EntityType::Global(kind));
    }
    let (mut functions, mut exports, mut code) = (
        FunctionSection::new(),
        ExportSection::new(),
        CodeSection::new(),
    );
    let imported = 1 + u32::try_from(plugin.called.len()).unwrap_or(u32::MAX);
    for (number, name) in (0..).zip(&plugin.called) {
        functions.function(1);
        exports.export(name, ExportKind::Func, imported + number);
        let mut function = Function::new([]);
        let mut body = function.instructions();
        for (global, number) in plugin.globals.iter().zip(0..) {
            global.initial.push(&mut body);
            body.global_set(number);
        }
        body.i32_const(0)
            .memory_size(MEMORY_INDEX)
            .i32_const(PAGE_BITS)
            .i32_shl()
            .call(RESET)
            .call(1 + number)
            .end();
        code.function(&function);
    }
    let mut keeper = Module::new();
    keeper
        .section(&types)
        .section(&imports)
        .section(&functions)
        .section(&exports)
        .section(&code);
    keeper
}

#[cfg(test)]
mod tests;
