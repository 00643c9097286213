//! Removes the shim from a component: the module that wit-component puts between a plugin and its host.
//!
//! A plugin's imports need the plugin's memory, which exists only after the plugin is instantiated. The plugin,
//! however, cannot be instantiated before its imports exist. A component therefore has three core modules, and every
//! call instantiates all three:
//!
//! 1. The shim, whose functions call entries of a table.
//! 2. The plugin, which imports the shim's functions.
//! 3. The filler, which fills the table last.
//!
//! The plugin's own module can hold the table and the functions instead. Tollgate leaves a component unchanged if it
//! differs from this pattern, for example:
//!
//! - The shim does anything else.
//! - More than one module uses the shim.
//! - The component needs the shim's table before the plugin exists.
//!
//! Modules and instances keep their indices: an empty module and an empty instance replace those of the shim.
//!
//! ```text
//! before: shim (table, functions) ← plugin         after: plugin (with the table and the functions)
//!         shim's table ← filler ← the host                plugin's table ← filler ← the host
//! ```

use std::collections::{HashMap, HashSet};

use wasm_encoder::reencode::{Error, Reencode, ReencodeComponent, component_utils, utils};
use wasm_encoder::{
    CodeSection, Component, ComponentAliasSection, ExportKind, ExportSection, Function,
    FunctionSection, ImportSection, InstanceSection, Module, ModuleSection, RawSection,
    TableSection,
};
use wasmparser::{
    BinaryReaderError, CodeSectionReader, ComponentAlias, ComponentAliasSectionReader,
    CustomSectionReader, ExportSectionReader, ExternalKind, FunctionBody, FunctionSectionReader,
    ImportSectionReader, Instance, Operator, Parser, Payload, TableInit, TableSectionReader,
    TableType, TypeRef, TypeSectionReader,
};

use super::outline::{Outline, is_function};
use super::trim::Missing;

/// A module that contains only a table, and functions that call the table's entries.
struct Shim<'c> {
    table: TableType,
    /// Name under which the shim exports the table.
    table_name: &'c str,
    /// Table index that each exported function calls, by the function's name.
    places: HashMap<&'c str, u32>,
}

/// A plan to remove the shim from a component.
struct Plan<'c> {
    shim: Shim<'c>,
    shim_module: u32,
    shim_instance: u32,
    /// Index of the plugin's module.
    module: u32,
    instance: u32,
    /// Component indices of the shim's functions, in ascending order.
    functions: Vec<u32>,
    /// Table index of each function that the plugin imports from the shim, by module and name.
    imports: HashMap<(&'c str, &'c str), u32>,
}

/// Indices in the plugin's module, before and after the rewrite.
#[derive(Default)]
struct Layout<'c> {
    /// Number of parameters of each function type.
    parameters: Vec<u32>,
    /// New function indices, by the old ones.
    numbers: Vec<u32>,
    /// Type and table index of each function that the plugin imported from the shim.
    called: Vec<(u32, u32)>,
    tables: u32,
    has_tables: bool,
    exports: HashSet<&'c str>,
}

/// Rewrites the component.
struct Rewrite<'p, 'c> {
    plan: &'p Plan<'c>,
    layout: &'p Layout<'c>,
    modules: u32,
    instances: u32,
}

/// Rewrites the plugin's module.
struct Join<'p, 'c> {
    plan: &'p Plan<'c>,
    layout: &'p Layout<'c>,
}

/// Removes the shim from a component. Returns `None` if there is no shim, or if it is made or used in another way.
///
/// # Errors
/// When the component is not well-formed, or needs one of the shim's functions for anything but the plugin's imports.
pub fn without_shim(component: &[u8]) -> Result<Option<Vec<u8>>, Error<Missing>> {
    let outline = Outline::read(component)?;
    let Some(plan) = outline.plan()? else {
        return Ok(None);
    };
    let Some(module) = outline.modules.get(plan.module as usize) else {
        return Ok(None);
    };
    let layout = Layout::read(module, &plan)?;
    if !layout.has_tables || layout.exports.contains(plan.shim.table_name) {
        return Ok(None);
    }
    let mut rewritten = Component::new();
    let mut rewrite = Rewrite {
        plan: &plan,
        layout: &layout,
        modules: 0,
        instances: 0,
    };
    rewrite.parse_component(&mut rewritten, Parser::new(0), component)?;
    Ok(Some(rewritten.finish()))
}

/// Number of parameters of each function type.
fn parameters(section: TypeSectionReader<'_>) -> Result<Vec<u32>, BinaryReaderError> {
    let types = section.into_iter_err_on_gc_types();
    types
        .map(|kind| Ok(u32::try_from(kind?.params().len()).unwrap_or(u32::MAX)))
        .collect()
}

// === impl Outline ===

impl<'c> Outline<'c> {
    fn plan(&self) -> Result<Option<Plan<'c>>, BinaryReaderError> {
        if self.is_unusual || self.imports_modules {
            return Ok(None);
        }
        for (instance, shim_module) in self.instantiated() {
            if self.is_alone(shim_module)
                && let Some(module) = self.modules.get(shim_module as usize)
                && let Some(shim) = Shim::read(module)?
            {
                return Ok(self.plan_without(shim, shim_module, instance));
            }
        }
        Ok(None)
    }

    fn plan_without(
        &self,
        shim: Shim<'c>,
        shim_module: u32,
        shim_instance: u32,
    ) -> Option<Plan<'c>> {
        let of_shim = || {
            let aliases = self.aliases.iter();
            aliases.filter(|alias| alias.instance == shim_instance)
        };
        let mut places = HashMap::new();
        for alias in of_shim().filter(|alias| alias.is_function()) {
            places.insert(alias.function, *shim.places.get(alias.name)?);
        }
        // Bundles of imports, each with its exports that come from the shim.
        let bundles: HashMap<u32, Vec<(&str, u32)>> = (0..)
            .zip(&self.instances)
            .filter_map(|(number, instance)| {
                let Instance::FromExports(exports) = instance else {
                    return None;
                };
                let functions = exports.iter().filter(|export| is_function(export.kind));
                let shims: Vec<_> = functions
                    .filter_map(|export| Some((export.name, *places.get(&export.index)?)))
                    .collect();
                (!shims.is_empty()).then_some((number, shims))
            })
            .collect();
        let mut users = (0..).zip(&self.instances).filter_map(|(number, instance)| {
            let Instance::Instantiate { module_index, args } = instance else {
                return None;
            };
            let is_user = |instance| instance == shim_instance || bundles.contains_key(&instance);
            let uses = args.iter().any(|arg| is_user(arg.index));
            uses.then_some((number, *module_index, args))
        });
        let (instance, module, args) = users.next()?;
        let is_only_user = users.next().is_none() && self.is_alone(module);
        let is_whole = args.iter().all(|arg| arg.index != shim_instance);
        let is_taken_apart = self
            .aliases
            .iter()
            .any(|alias| bundles.contains_key(&alias.instance));
        let is_in_time = of_shim().all(|alias| match alias.kind {
            ExternalKind::Table => alias.behind > instance as usize,
            _ => alias.is_function(),
        });
        if !(is_only_user && is_whole && is_in_time) || is_taken_apart {
            return None;
        }
        let mut imports = HashMap::new();
        for arg in args {
            for (name, place) in bundles.get(&arg.index).into_iter().flatten() {
                imports.insert((arg.name, *name), *place);
            }
        }
        Some(Plan {
            shim,
            shim_module,
            shim_instance,
            module,
            instance,
            functions: of_shim()
                .filter(|alias| alias.is_function())
                .map(|alias| alias.function)
                .collect(),
            imports,
        })
    }
}

// === impl Shim ===

impl<'c> Shim<'c> {
    /// Reads a shim. Returns `None` if the module is anything else.
    fn read(module: &'c [u8]) -> Result<Option<Self>, BinaryReaderError> {
        let mut parameters_of = Vec::new();
        let mut types = Vec::new();
        let mut tables = Vec::new();
        let mut table_name = None;
        let mut exported = Vec::new();
        let mut places = Vec::new();
        for payload in Parser::new(0).parse_all(module) {
            match payload? {
                Payload::TypeSection(section) => parameters_of = parameters(section)?,
                Payload::FunctionSection(section) => {
                    types = section.into_iter().collect::<Result<_, _>>()?;
                }
                Payload::TableSection(section) => {
                    for table in section {
                        let table = table?;
                        if !matches!(table.init, TableInit::RefNull) {
                            return Ok(None);
                        }
                        tables.push(table.ty);
                    }
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        let export = export?;
                        match export.kind {
                            ExternalKind::Func => exported.push((export.name, export.index)),
                            ExternalKind::Table if table_name.is_none() => {
                                table_name = Some(export.name);
                            }
                            _ => return Ok(None),
                        }
                    }
                }
                Payload::CodeSectionEntry(body) => {
                    let Some(kind) = types.get(places.len()) else {
                        return Ok(None);
                    };
                    let Some(place) = called_place(&body, *kind, &parameters_of)? else {
                        return Ok(None);
                    };
                    places.push(place);
                }
                Payload::Version { .. }
                | Payload::CodeSectionStart { .. }
                | Payload::CustomSection(_)
                | Payload::End(_) => {}
                // The step that takes the snapshot writes an empty data section.
                Payload::DataSection(section) if section.count() == 0 => {}
                _ => return Ok(None),
            }
        }
        let ([table], Some(table_name)) = (tables.as_slice(), table_name) else {
            return Ok(None);
        };
        let places = exported
            .into_iter()
            .map(|(name, function)| Some((name, *places.get(function as usize)?)))
            .collect::<Option<_>>();
        Ok(places.map(|places| Self {
            table: *table,
            table_name,
            places,
        }))
    }
}

/// Returns the index in the first table that a function calls with its own parameters.
///
/// Returns `None` if the function does anything else.
fn called_place(
    body: &FunctionBody<'_>,
    kind: u32,
    parameters_of: &[u32],
) -> Result<Option<u32>, BinaryReaderError> {
    let Some(parameters) = parameters_of.get(kind as usize) else {
        return Ok(None);
    };
    if body.get_locals_reader()?.get_count() != 0 {
        return Ok(None);
    }
    let mut operators = body.get_operators_reader()?.into_iter();
    for parameter in 0..*parameters {
        match operators.next().transpose()? {
            Some(Operator::LocalGet { local_index }) if local_index == parameter => {}
            _ => return Ok(None),
        }
    }
    let Some(Operator::I32Const { value }) = operators.next().transpose()? else {
        return Ok(None);
    };
    let is_call = matches!(
        operators.next().transpose()?,
        Some(Operator::CallIndirect { type_index, table_index: 0 }) if type_index == kind
    );
    let is_all = matches!(operators.next().transpose()?, Some(Operator::End))
        && operators.next().transpose()?.is_none();
    Ok((is_call && is_all).then_some(value.cast_unsigned()))
}

// === impl Layout ===

impl<'c> Layout<'c> {
    fn read(module: &'c [u8], plan: &Plan<'_>) -> Result<Self, BinaryReaderError> {
        let mut layout = Self::default();
        // For each imported function, whether it stays an import.
        let mut stays = Vec::new();
        let mut own = 0;
        for payload in Parser::new(0).parse_all(module) {
            match payload? {
                Payload::TypeSection(section) => layout.parameters = parameters(section)?,
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import?;
                        let place = plan.imports.get(&(import.module, import.name));
                        match (import.ty, place) {
                            (TypeRef::Func(kind), Some(place)) => {
                                layout.called.push((kind, *place));
                                stays.push(false);
                            }
                            (TypeRef::Func(_) | TypeRef::FuncExact(_), _) => stays.push(true),
                            (TypeRef::Table(_), _) => layout.tables += 1,
                            _ => {}
                        }
                    }
                }
                Payload::FunctionSection(section) => own = section.count(),
                Payload::TableSection(section) => {
                    layout.has_tables = true;
                    layout.tables += section.count();
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        layout.exports.insert(export?.name);
                    }
                }
                _ => {}
            }
        }
        let left = u32::try_from(stays.iter().filter(|stays| **stays).count()).unwrap_or(u32::MAX);
        let (mut imported, mut called) = (0.., left.saturating_add(own)..);
        let imports = stays.into_iter().filter_map(|stays| {
            if stays {
                imported.next()
            } else {
                called.next()
            }
        });
        let own = left..left.saturating_add(own);
        layout.numbers = imports.chain(own).collect();
        Ok(layout)
    }
}

// === impl Rewrite ===

impl Reencode for Rewrite<'_, '_> {
    type Error = Missing;

    /// Maps the component's core function indices.
    fn function_index(&mut self, function: u32) -> Result<u32, Error<Missing>> {
        match self.plan.functions.binary_search(&function) {
            Ok(_) => Err(Error::UserError(Missing)),
            Err(gone) => Ok(function.saturating_sub(u32::try_from(gone).unwrap_or(u32::MAX))),
        }
    }
}

impl ReencodeComponent for Rewrite<'_, '_> {
    fn parse_component_payload(
        &mut self,
        component: &mut Component,
        payload: Payload<'_>,
        whole: &[u8],
    ) -> Result<(), Error<Missing>> {
        match payload {
            Payload::ModuleSection { .. }
            | Payload::InstanceSection(_)
            | Payload::ComponentAliasSection(_)
            | Payload::ComponentCanonicalSection(_) => {
                component_utils::parse_component_payload(self, component, payload, whole)?;
            }
            // Drop custom sections: their names refer to the old function indices.
            Payload::CustomSection(_) => {}
            other => {
                if let Some((id, range)) = other.as_section() {
                    let data = whole.get(range).ok_or(Error::UserError(Missing))?;
                    component.section(&RawSection { id, data });
                }
            }
        }
        Ok(())
    }

    fn parse_component_submodule(
        &mut self,
        component: &mut Component,
        parser: Parser,
        data: &[u8],
    ) -> Result<(), Error<Missing>> {
        let number = self.modules;
        self.modules += 1;
        if number == self.plan.shim_module {
            component.section(&ModuleSection(&Module::new()));
            return Ok(());
        }
        if number != self.plan.module {
            let id = wasm_encoder::ComponentSectionId::CoreModule.into();
            component.section(&RawSection { id, data });
            return Ok(());
        }
        let mut join = Join {
            plan: self.plan,
            layout: self.layout,
        };
        let mut module = Module::new();
        join.parse_core_module(&mut module, parser, data)?;
        component.section(&ModuleSection(&module));
        Ok(())
    }

    fn parse_instance(
        &mut self,
        instances: &mut InstanceSection,
        instance: Instance<'_>,
    ) -> Result<(), Error<Missing>> {
        let number = self.instances;
        self.instances += 1;
        // An empty instance keeps the indices of the other instances valid.
        let instance = match instance {
            _ if number == self.plan.shim_instance => Instance::FromExports(Box::default()),
            Instance::FromExports(exports) => {
                let functions = &self.plan.functions;
                let is_shims = |kind, function| {
                    is_function(kind) && functions.binary_search(&function).is_ok()
                };
                let exports = exports.into_iter();
                let left = exports.filter(|export| !is_shims(export.kind, export.index));
                Instance::FromExports(left.collect())
            }
            other => other,
        };
        component_utils::parse_instance(self, instances, instance)
    }

    fn parse_component_alias_section(
        &mut self,
        aliases: &mut ComponentAliasSection,
        section: ComponentAliasSectionReader<'_>,
    ) -> Result<(), Error<Missing>> {
        for alias in section {
            let mut alias = alias?;
            if let ComponentAlias::CoreInstanceExport {
                kind,
                instance_index,
                ..
            } = &mut alias
                && *instance_index == self.plan.shim_instance
            {
                if is_function(*kind) {
                    continue;
                }
                *instance_index = self.plan.instance;
            }
            aliases.alias(self.component_alias(alias)?);
        }
        Ok(())
    }
}

// === impl Join ===

impl Reencode for Join<'_, '_> {
    type Error = Missing;

    fn function_index(&mut self, function: u32) -> Result<u32, Error<Missing>> {
        let number = self.layout.numbers.get(function as usize).copied();
        number.ok_or(Error::UserError(Missing))
    }

    fn parse_import_section(
        &mut self,
        imports: &mut ImportSection,
        section: ImportSectionReader<'_>,
    ) -> Result<(), Error<Missing>> {
        for import in section.into_imports() {
            let import = import?;
            let name = (import.module, import.name);
            let is_shims =
                matches!(import.ty, TypeRef::Func(_)) && self.plan.imports.contains_key(&name);
            if !is_shims {
                self.parse_import(imports, import)?;
            }
        }
        Ok(())
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: FunctionSectionReader<'_>,
    ) -> Result<(), Error<Missing>> {
        utils::parse_function_section(self, functions, section)?;
        for (kind, _) in &self.layout.called {
            functions.function(*kind);
        }
        Ok(())
    }

    fn parse_table_section(
        &mut self,
        tables: &mut TableSection,
        section: TableSectionReader<'_>,
    ) -> Result<(), Error<Missing>> {
        utils::parse_table_section(self, tables, section)?;
        tables.table(self.table_type(self.plan.shim.table)?);
        Ok(())
    }

    fn parse_export_section(
        &mut self,
        exports: &mut ExportSection,
        section: ExportSectionReader<'_>,
    ) -> Result<(), Error<Missing>> {
        utils::parse_export_section(self, exports, section)?;
        let name = self.plan.shim.table_name;
        exports.export(name, ExportKind::Table, self.layout.tables);
        Ok(())
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: CodeSectionReader<'_>,
    ) -> Result<(), Error<Missing>> {
        utils::parse_code_section(self, code, section)?;
        for (kind, place) in &self.layout.called {
            let parameters = self.layout.parameters.get(*kind as usize);
            let mut function = Function::new([]);
            let mut write = function.instructions();
            for parameter in 0..*parameters.ok_or(Error::UserError(Missing))? {
                write.local_get(parameter);
            }
            write.i32_const(place.cast_signed());
            write.call_indirect(self.layout.tables, *kind);
            write.end();
            code.function(&function);
        }
        Ok(())
    }

    fn parse_custom_section(
        &mut self,
        _module: &mut Module,
        _section: CustomSectionReader<'_>,
    ) -> Result<(), Error<Missing>> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const COMPONENT: &str = r#"(component
        (import "host" (instance $host
            (export "count" (func (result u32)))
            (export "length" (func (param "of" string) (result u32)))
            (export "bytes" (func (param "of" string) (param "times" u32) (result u32)))
            (export "last" (func (result u32)))))
        (core module $plugin
            (type $binary (func (param i32 i32) (result i32)))
            (import "host" "count" (func $count (result i32)))
            (import "host" "length" (func $length (type $binary)))
            (import "other" "bytes" (func $bytes (param i32 i32 i32) (result i32)))
            (import "host" "last" (func $last (result i32)))
            (table $own 2 funcref)
            (elem (i32.const 0) $twice $length)
            (memory (export "memory") 1)
            (data (i32.const 16) "abcdefg")
            (global $begun (mut i32) (i32.const 0))
            (start $start)
            (func $start (global.set $begun (i32.const 1000000)))
            (func $twice (type $binary) (i32.mul (local.get 0) (i32.const 2)))
            (func (export "check") (result i32)
                (i32.mul (call $count) (i32.const 1))
                (i32.mul (call $length (i32.const 16) (i32.const 3)) (i32.const 10)) i32.add
                (i32.mul (call $bytes (i32.const 16) (i32.const 4) (i32.const 2)) (i32.const 100)) i32.add
                (i32.mul (call $last) (i32.const 1000)) i32.add
                (i32.mul (call_indirect $own (type $binary) (i32.const 3) (i32.const 0) (i32.const 0)) (i32.const 10000))
                i32.add
                (i32.mul (call_indirect $own (type $binary) (i32.const 16) (i32.const 5) (i32.const 1)) (i32.const 100000))
                i32.add
                global.get $begun i32.add))
        (core module $shim
            (type $length (func (param i32 i32) (result i32)))
            (type $bytes (func (param i32 i32 i32) (result i32)))
            (table (export "$imports") 2 2 funcref)
            (func (export "0") (type $length) local.get 0 local.get 1 i32.const 0 call_indirect (type $length))
            (func (export "1") (type $bytes)
                local.get 0 local.get 1 local.get 2 i32.const 1 call_indirect (type $bytes)))
        (core module $filler
            (import "" "0" (func $length (param i32 i32) (result i32)))
            (import "" "1" (func $bytes (param i32 i32 i32) (result i32)))
            (import "" "$imports" (table 2 2 funcref))
            (elem (i32.const 0) $length $bytes))
        (core instance $s (instantiate $shim))
        (core func $count (canon lower (func $host "count")))
        (alias core export $s "0" (core func $shims_length))
        (core func $last (canon lower (func $host "last")))
        (alias core export $s "1" (core func $shims_bytes))
        (core instance $imports
            (export "last" (func $last)) (export "length" (func $shims_length)) (export "count" (func $count)))
        (core instance $others (export "bytes" (func $shims_bytes)))
        (; before the plugin ;)
        (core instance $p (instantiate $plugin (with "host" (instance $imports)) (with "other" (instance $others))))
        (alias core export $p "memory" (core memory $memory))
        (alias core export $s "$imports" (core table $table))
        (core func $length (canon lower (func $host "length") (memory $memory)))
        (core func $bytes (canon lower (func $host "bytes") (memory $memory)))
        (core instance $filled
            (export "0" (func $length)) (export "1" (func $bytes)) (export "$imports" (table $table)))
        (core instance $f (instantiate $filler (with "" (instance $filled))))
        (; behind all ;)
        (func (export "check") (result u32) (canon lift (core func $p "check"))))"#;

    fn component(text: &str) -> Vec<u8> {
        wat::parse_str(text).expect("the text is a component")
    }

    /// A host for both the component and its rewritten form.
    fn linker(engine: &wasmtime::Engine) -> wasmtime::component::Linker<()> {
        let mut linker = wasmtime::component::Linker::new(engine);
        let mut host = linker
            .instance("host")
            .expect("the linker has no `host` yet");
        let bytes = |of: &str, times: u32| of.bytes().map(u32::from).sum::<u32>() % 5 * times;
        let linked = [
            host.func_wrap("count", |_, (): ()| Ok((7_u32,))),
            host.func_wrap("length", |_, (of,): (String,)| Ok((of.len() as u32,))),
            host.func_wrap("bytes", move |_, (of, times): (String, u32)| {
                Ok((bytes(&of, times),))
            }),
            host.func_wrap("last", |_, (): ()| Ok((9_u32,))),
        ];
        assert!(linked.iter().all(Result::is_ok));
        linker
    }

    /// Calls `check` and returns its answer.
    fn checked(component: &[u8]) -> u32 {
        let engine = wasmtime::Engine::default();
        let component = wasmtime::component::Component::new(&engine, component);
        let component = component.expect("the component is valid");
        let mut store = wasmtime::Store::new(&engine, ());
        let instance = linker(&engine).instantiate(&mut store, &component);
        let instance = instance.expect("the component can be instantiated");
        let check = instance.get_typed_func::<(), (u32,)>(&mut store, "check");
        let check = check.expect("`check` is exported");
        check.call(&mut store, ()).expect("`check` returns").0
    }

    #[test]
    fn plugin_without_shim_answers_as_before() {
        let before = component(COMPONENT);
        let after = without_shim(&before).unwrap();
        let after = after.expect("the component has a shim");
        // `bytes("abcd", 2)`: (a + b + c + d) % 5 * 2 = 8
        assert_eq!(
            checked(&before),
            7 + 30 + 800 + 9_000 + 60_000 + 500_000 + 1_000_000
        );
        assert_eq!(checked(&after), checked(&before));
        let outline = Outline::read(&after).unwrap();
        assert_eq!(outline.instantiated().count(), 2);
    }

    /// Takes a snapshot of a component from wit-component, as in the preparation of a plugin.
    fn snapshot() -> Vec<u8> {
        let mut resolve = wit_parser::Resolve::default();
        let package = resolve.push_str(
            "plugin.wit",
            "package p:p;
             world plugin {
                import host: interface { length: func(of: string) -> u32; }
                export check: func() -> u32;
             }",
        );
        let world = package.and_then(|package| resolve.select_world(&[package], None));
        let mut module = component(
            "(module
                (import \"host\" \"length\" (func $length (param i32 i32) (result i32)))
                (table 1 funcref)
                (memory (export \"memory\") 1)
                (data (i32.const 16) \"abcdefg\")
                (func (export \"check\") (result i32) (call $length (i32.const 16) (i32.const 7))))",
        );
        let encoding = wit_component::StringEncoding::UTF8;
        let world = world.expect("the world is well-formed");
        wit_component::embed_component_metadata(&mut module, &resolve, world, encoding)
            .expect("the module fits the world");
        let plugin = crate::componentize(module).expect("the module becomes a component");
        let wizer = wasmtime_wizer::Wizer::new();
        let (context, instrumented) = wizer
            .instrument_component(&plugin)
            .expect("the component can be instrumented");
        let engine = wasmtime::Engine::default();
        let instrumented = wasmtime::component::Component::new(&engine, instrumented);
        let mut store = wasmtime::Store::new(&engine, ());
        let instance = linker(&engine).instantiate(&mut store, &instrumented.expect("it is valid"));
        let mut source = wasmtime_wizer::WasmtimeWizerComponent {
            instance: instance.expect("it can be instantiated"),
            store: &mut store,
        };
        let snapshot = wizer
            .snapshot_component(&context, &mut source)
            .now_or_never();
        snapshot
            .expect("taking the snapshot does not wait")
            .expect("the snapshot is taken")
    }

    #[test]
    fn finds_shim_in_snapshots_from_wit_component() {
        let snapshot = snapshot();
        let before = Outline::read(&snapshot).unwrap();
        let after = without_shim(&snapshot).unwrap();
        let after = after.expect("the component has a shim");
        assert_eq!(checked(&after), 7);
        let after = Outline::read(&after).unwrap();
        assert_eq!(
            (before.instantiated().count(), after.instantiated().count()),
            (3, 2)
        );
    }

    #[test]
    fn leaves_other_patterns_unchanged() {
        let with = |instead: &[(&str, &str)]| {
            let mut text = COMPONENT.to_owned();
            for (before, after) in instead {
                assert!(text.contains(before), "{before}");
                text = text.replacen(before, after, 1);
            }
            component(&text)
        };
        let early = [
            (
                "(alias core export $s \"$imports\" (core table $table))",
                "",
            ),
            (
                "(; before the plugin ;)",
                "(alias core export $s \"$imports\" (core table $table))",
            ),
        ];
        for (what, instead) in [
            (
                "a function that does more",
                [("(type $length) local.get 0", "(type $length) nop local.get 0")].as_slice(),
            ),
            (
                "a function that does more behind the call",
                &[("call_indirect (type $length)", "call_indirect (type $length) nop")],
            ),
            (
                "parameters in another order",
                &[("local.get 0 local.get 1 i32.const 0", "local.get 1 local.get 0 i32.const 0")],
            ),
            (
                "locals of its own",
                &[("(type $length) local.get 0", "(type $length) (local i32) local.get 0")],
            ),
            (
                "a memory of its own",
                &[("(table (export \"$imports\")", "(memory 1) (table (export \"$imports\")")],
            ),
            (
                "a table of its own",
                &[("(func (export \"0\")", "(table 1 funcref) (func (export \"0\")")],
            ),
            (
                "two instances of the shim",
                &[("(; behind all ;)", "(core instance (instantiate $shim))")],
            ),
            (
                "two instances of the plugin",
                &[(
                    "(; behind all ;)",
                    "(core instance (instantiate $plugin
                        (with \"host\" (instance $imports)) (with \"other\" (instance $others))))",
                )],
            ),
            (
                "another module that imports from it",
                &[(
                    "(; behind all ;)",
                    "(core module $second (import \"host\" \"length\" (func (param i32 i32) (result i32))))
                     (core instance (instantiate $second (with \"host\" (instance $imports))))",
                )],
            ),
            (
                "another module that has all of it",
                &[(
                    "(; behind all ;)",
                    "(core module $second (import \"shim\" \"0\" (func (param i32 i32) (result i32))))
                     (core instance (instantiate $second (with \"shim\" (instance $s))))",
                )],
            ),
            (
                "imports that are taken apart again",
                &[("(; behind all ;)", "(alias core export $imports \"length\" (core func))")],
            ),
            (
                "another instance of the plugin, with other functions",
                &[(
                    "(; behind all ;)",
                    "(core instance $same
                        (export \"last\" (func $last)) (export \"length\" (func $length)) (export \"count\" (func $count)))
                     (core instance $alike (export \"bytes\" (func $bytes)))
                     (core instance (instantiate $plugin (with \"host\" (instance $same)) (with \"other\" (instance $alike))))",
                )],
            ),
            (
                "a plugin that is given all of it as well",
                &[("(with \"host\" (instance $imports))", "(with \"all\" (instance $s)) (with \"host\" (instance $imports))")],
            ),
            (
                "a plugin without a table",
                &[
                    ("(table $own 2 funcref)", ""),
                    ("(elem (i32.const 0) $twice $length)", ""),
                    ("(i32.mul (call_indirect $own (type $binary) (i32.const 3) (i32.const 0) (i32.const 0)) (i32.const 10000))
                i32.add", ""),
                    ("(i32.mul (call_indirect $own (type $binary) (i32.const 16) (i32.const 5) (i32.const 1)) (i32.const 100000))
                i32.add", ""),
                ],
            ),
            (
                "a resource with a destructor",
                &[("(; behind all ;)", "(type (resource (rep i32) (dtor (core func $p \"dispose\"))))"),
                  ("(func $twice", "(func (export \"dispose\") (param i32)) (func $twice")],
            ),
            (
                "a module that it exports",
                &[("(; behind all ;)", "(export \"module\" (core module $filler))")],
            ),
            ("its table taken before the plugin is there", &early),
            (
                "a plugin with another table of that name",
                &[("(table $own 2 funcref)", "(table $own (export \"$imports\") 2 funcref)")],
            ),
        ] {
            assert!(without_shim(&with(instead)).unwrap().is_none(), "{what}");
        }
        let lifted = "(func (export \"length\") (param \"a\" u32) (param \"b\" u32) (result u32)
            (canon lift (core func $shims_length)))";
        let lifted = without_shim(&with(&[("(; behind all ;)", lifted)]));
        assert!(lifted.is_err(), "its function is needed for something else");
    }

    #[test]
    fn leaves_component_without_shim_unchanged() {
        let plain =
            "(component (core module $m (func (export \"f\"))) (core instance (instantiate $m)))";
        assert!(without_shim(&component(plain)).unwrap().is_none());
    }

    #[test]
    fn truncated_component_is_an_error() {
        let whole = component(COMPONENT);
        for length in [9, whole.len() / 2, whole.len() - 1] {
            assert!(without_shim(&whole[..length]).is_err(), "{length}");
        }
    }
}
