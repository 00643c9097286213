//! Removes code from a snapshot that only `describe` and `configure` need.
//!
//! Before the snapshot is taken, these functions parse settings, compile patterns and describe mistakes. Afterwards
//! they never run again. In many plugins they are the larger half of the code, which would be compiled, kept and mapped
//! for nothing.
//!
//! A function counts as reachable if it can be reached from any of these, directly or through calls:
//!
//! - An export, except the `lifecycle` functions that will never be called again.
//! - The start function.
//! - An element of a table.
//! - Any other reference to a function.
//!
//! The remaining functions are ordered as they are reached. The functions that exports call come first, so the code
//! that a review runs lies together in few pages of memory. Functions that only a table leads to follow; most of them
//! report errors.
//!
//! The component names the functions of `lifecycle`, so they stay, but their bodies become `unreachable`. These
//! functions no longer need `post-return`, which would be looked up for every instance. Names and other custom sections
//! are removed, because they refer to the old function indices.

use std::collections::{HashMap, HashSet};

use wasm_encoder::reencode::{Error, Reencode, ReencodeComponent, component_utils};
use wasm_encoder::{
    CanonicalFunctionSection, CodeSection, Component, ComponentSectionId, FunctionSection, Module,
    RawSection,
};
use wasmparser::{
    BinaryReaderError, CanonicalFunction, CanonicalOption, CodeSectionReader,
    ComponentCanonicalSectionReader, ConstExpr, CustomSectionReader, ElementItems, FunctionBody,
    FunctionSectionReader, Operator, OperatorsReader, Parser, Payload, TableInit, TypeRef,
};

use super::outline::{Outline, is_function, own_payloads};

/// Prefix of the names of `lifecycle` functions in a core module. `POST_RETURN` comes before it in the names of
/// functions that run after a call.
const LIFECYCLE: &str = "tollgate:admission/lifecycle@";
const POST_RETURN: &str = "cabi_post_";

/// A function body with no locals and only `unreachable`.
pub(super) const UNREACHABLE: &[u8] = &[0x00, 0x00, 0x0b];

/// A section of a component.
enum Piece<'c> {
    /// The bytes of a core module.
    Module(&'c [u8]),
    /// Functions that are lifted and lowered.
    Canonical(ComponentCanonicalSectionReader<'c>),
    /// Any other section, which stays unchanged.
    Other { id: u8, data: &'c [u8] },
}

/// The parts of a core module that decide which functions are reachable.
#[derive(Default)]
struct Code<'m> {
    imported_functions: u32,
    bodies: Vec<FunctionBody<'m>>,
    lifecycle: Vec<(&'m str, u32)>,
    /// Functions that are exported under other names, or run at the start.
    exported: Vec<u32>,
    /// Functions that elements of tables, tables' initial values and globals refer to.
    referred: Vec<u32>,
}

/// Renumbers the functions of a core module.
struct Renumber<'k> {
    imported_functions: u32,
    /// Functions that stay, in their new order, with their old indices.
    kept: &'k [Kept],
    numbers: HashMap<u32, u32>,
}

/// Functions of `lifecycle` that will never be called again.
#[derive(Default)]
struct Done<'c> {
    names: HashSet<&'c str>,
    /// Indices of the functions in the component.
    functions: HashSet<u32>,
}

/// Removes `post-return` from lifted functions.
struct WithoutPostReturn<'d> {
    of: &'d HashSet<u32>,
}

/// Error: the code refers to a function that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("the code refers to a function that does not exist")]
pub struct Missing;

/// A function that stays in the module.
#[derive(Clone, Copy)]
struct Kept {
    function: u32,
    /// Whether the function can be called.
    is_reached: bool,
}

/// Removes the code that nothing can call once the component is configured.
pub fn trim(component: &[u8]) -> Result<Vec<u8>, Error<Missing>> {
    let pieces = pieces(component)?;
    let done = only_lifted(&Outline::read(component)?)?;
    let mut trimmed = Component::new();
    for piece in pieces {
        match piece {
            Piece::Module(module) => trimmed.section(&RawSection {
                id: ComponentSectionId::CoreModule.into(),
                data: &trim_module(module, &done.names)?,
            }),
            Piece::Canonical(section) => {
                let mut functions = CanonicalFunctionSection::new();
                let mut without = WithoutPostReturn {
                    of: &done.functions,
                };
                without.parse_component_canonical_section(&mut functions, section)?;
                trimmed.section(&functions)
            }
            Piece::Other { id, data } => trimmed.section(&RawSection { id, data }),
        };
    }
    Ok(trimmed.finish())
}

fn pieces(component: &[u8]) -> Result<Vec<Piece<'_>>, BinaryReaderError> {
    let mut pieces = Vec::new();
    for payload in own_payloads(component) {
        let payload = payload?;
        if let Some((id, range)) = payload.as_section()
            // If the bytes are cut short, the parser reaches their end and reports it.
            && let Some(data) = component.get(range)
        {
            pieces.push(match payload {
                Payload::ModuleSection { .. } => Piece::Module(data),
                Payload::ComponentCanonicalSection(section) => Piece::Canonical(section),
                _ => Piece::Other { id, data },
            });
        }
    }
    Ok(pieces)
}

/// The functions of `lifecycle` that may lose their bodies.
///
/// The component aliases each of them exactly once, as component tools do to lift a function, and no core module
/// imports it.
fn only_lifted<'c>(outline: &Outline<'c>) -> Result<Done<'c>, BinaryReaderError> {
    let mut once = HashMap::new();
    let mut others = HashSet::new();
    for alias in &outline.aliases {
        if is_lifecycle(alias.name) && once.insert(alias.name, alias.function).is_some() {
            others.insert(alias.name);
        }
    }
    for module in &outline.modules {
        for payload in Parser::new(0).parse_all(module) {
            if let Payload::ImportSection(section) = payload? {
                for import in section.into_imports() {
                    others.insert(import?.name);
                }
            }
        }
    }
    once.retain(|name, _| !others.contains(name));
    Ok(Done {
        names: once.keys().copied().collect(),
        functions: once.into_values().collect(),
    })
}

fn is_lifecycle(name: &str) -> bool {
    let name = name.strip_prefix(POST_RETURN).unwrap_or(name);
    name.starts_with(LIFECYCLE)
}

fn trim_module(module: &[u8], done: &HashSet<&str>) -> Result<Vec<u8>, Error<Missing>> {
    let code = Code::read(module)?;
    let kept = code.kept(done)?;
    if kept.len() == code.bodies.len() && kept.iter().all(|kept| kept.is_reached) {
        return Ok(module.to_owned());
    }
    let numbers = (code.imported_functions..)
        .zip(&kept)
        .map(|(number, kept)| (kept.function, number))
        .collect();
    let mut renumber = Renumber {
        imported_functions: code.imported_functions,
        kept: &kept,
        numbers,
    };
    let mut trimmed = Module::new();
    renumber.parse_core_module(&mut trimmed, Parser::new(0), module)?;
    Ok(trimmed.finish())
}

// === impl Renumber ===

impl Renumber<'_> {
    /// Looks up a section's entry for a function by the function's old index.
    fn own<'s, T>(&self, said: &'s [T], function: u32) -> Result<&'s T, Error<Missing>> {
        let own = function.checked_sub(self.imported_functions);
        own.and_then(|own| said.get(own as usize))
            .ok_or(Error::UserError(Missing))
    }
}

impl Reencode for Renumber<'_> {
    type Error = Missing;

    fn function_index(&mut self, function: u32) -> Result<u32, Error<Missing>> {
        if function < self.imported_functions {
            return Ok(function);
        }
        // A function that stays never names one that goes.
        let number = self.numbers.get(&function).copied();
        number.ok_or(Error::UserError(Missing))
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: FunctionSectionReader<'_>,
    ) -> Result<(), Error<Missing>> {
        let types = section.into_iter().collect::<Result<Vec<_>, _>>()?;
        for kept in self.kept {
            functions.function(*self.own(&types, kept.function)?);
        }
        Ok(())
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: CodeSectionReader<'_>,
    ) -> Result<(), Error<Missing>> {
        let bodies = section.into_iter().collect::<Result<Vec<_>, _>>()?;
        for kept in self.kept {
            if kept.is_reached {
                let body = self.own(&bodies, kept.function)?.clone();
                self.parse_function_body(code, body)?;
            } else {
                code.raw(UNREACHABLE);
            }
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

// === impl WithoutPostReturn ===

impl Reencode for WithoutPostReturn<'_> {
    type Error = Missing;
}

impl ReencodeComponent for WithoutPostReturn<'_> {
    fn parse_component_canonical(
        &mut self,
        section: &mut CanonicalFunctionSection,
        mut function: CanonicalFunction,
    ) -> Result<(), Error<Missing>> {
        if let CanonicalFunction::Lift {
            core_func_index,
            options,
            ..
        } = &mut function
            && self.of.contains(core_func_index)
        {
            let others = options.iter().copied();
            *options = others
                .filter(|option| !matches!(option, CanonicalOption::PostReturn(_)))
                .collect();
        }
        component_utils::parse_component_canonical(self, section, function)
    }
}

// === impl Code ===

impl<'m> Code<'m> {
    fn read(module: &'m [u8]) -> Result<Self, BinaryReaderError> {
        let mut code = Self::default();
        for payload in Parser::new(0).parse_all(module) {
            match payload? {
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        if matches!(import?.ty, TypeRef::Func(_) | TypeRef::FuncExact(_)) {
                            code.imported_functions += 1;
                        }
                    }
                }
                Payload::TableSection(section) => {
                    for table in section {
                        if let TableInit::Expr(expression) = table?.init {
                            code.refers(&expression)?;
                        }
                    }
                }
                Payload::GlobalSection(section) => {
                    for global in section {
                        code.refers(&global?.init_expr)?;
                    }
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        let export = export?;
                        if !is_function(export.kind) {
                            continue;
                        }
                        if is_lifecycle(export.name) {
                            code.lifecycle.push((export.name, export.index));
                        } else {
                            code.exported.push(export.index);
                        }
                    }
                }
                Payload::StartSection { func, .. } => code.exported.push(func),
                Payload::ElementSection(section) => {
                    for element in section {
                        code.elements(element?.items)?;
                    }
                }
                Payload::CodeSectionEntry(body) => code.bodies.push(body),
                _ => {}
            }
        }
        Ok(code)
    }

    fn elements(&mut self, items: ElementItems<'m>) -> Result<(), BinaryReaderError> {
        match items {
            ElementItems::Functions(functions) => {
                for function in functions {
                    self.referred.push(function?);
                }
            }
            ElementItems::Expressions(_, expressions) => {
                for expression in expressions {
                    self.refers(&expression?)?;
                }
            }
        }
        Ok(())
    }

    fn refers(&mut self, expression: &ConstExpr<'m>) -> Result<(), BinaryReaderError> {
        called(expression.get_operators_reader(), &mut self.referred)
    }

    /// The functions that stay when nothing calls the `lifecycle` functions in `done`.
    fn kept(&self, done: &HashSet<&str>) -> Result<Vec<Kept>, BinaryReaderError> {
        let mut kept = Vec::new();
        let mut seen = HashSet::new();
        let (over, called_yet): (Vec<_>, Vec<_>) = self
            .lifecycle
            .iter()
            .partition(|(name, _)| done.contains(name));
        let called_yet = called_yet.iter().map(|(_, function)| function);
        let roots = self.exported.iter().chain(called_yet);
        for root in roots.chain(&self.referred) {
            let mut waiting = vec![*root];
            while let Some(function) = waiting.pop() {
                let own = function.checked_sub(self.imported_functions);
                let Some(body) = own.and_then(|own| self.bodies.get(own as usize)) else {
                    continue;
                };
                if !seen.insert(function) {
                    continue;
                }
                kept.push(Kept {
                    function,
                    is_reached: true,
                });
                called(body.get_operators_reader()?, &mut waiting)?;
            }
        }
        for (_, function) in over {
            if function >= self.imported_functions && seen.insert(function) {
                kept.push(Kept {
                    function,
                    is_reached: false,
                });
            }
        }
        Ok(kept)
    }
}

/// Adds the functions that the operators call or take a reference to.
fn called(
    operators: OperatorsReader<'_>,
    functions: &mut Vec<u32>,
) -> Result<(), BinaryReaderError> {
    for operator in operators {
        if let Operator::Call { function_index }
        | Operator::ReturnCall { function_index }
        | Operator::RefFunc { function_index } = operator?
        {
            functions.push(function_index);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a component from one module and further component text.
    fn component(module: &str, beside: &str) -> Vec<u8> {
        wat::parse_str(format!("(component (core module $m {module}) {beside})"))
            .expect("the text is a component")
    }

    /// The last constant in each function of the modules, which identifies it; -1 for a function without one.
    fn functions(component: &[u8]) -> Vec<i32> {
        let payloads = Parser::new(0).parse_all(component);
        let bodies = payloads.filter_map(|payload| match payload.expect("it is well-formed") {
            Payload::CodeSectionEntry(body) => Some(body),
            _ => None,
        });
        let number = |body: FunctionBody<'_>| {
            let operators = body.get_operators_reader().expect("it is well-formed");
            let last = operators.into_iter().filter_map(|operator| match operator {
                Ok(Operator::I32Const { value }) => Some(value),
                _ => None,
            });
            last.last().unwrap_or(-1)
        };
        bodies.map(number).collect()
    }

    const PLUGIN: &str = r#"
        (import "host" "get" (func $get))
        (table 3 funcref)
        (elem (i32.const 0) $in_a_table)
        (global $kept funcref (ref.func $in_a_global))
        (global $begun (mut i32) (i32.const 0))
        (export "tollgate:admission/lifecycle@0.1.0#configure" (func $configure))
        (export "cabi_post_tollgate:admission/lifecycle@0.1.0#configure" (func $cleared))
        (export "tollgate:admission/validating@0.1.0#validate" (func $validate))
        (start $started)
        (func $in_a_table (result i32) i32.const 1)
        (func $configure (result i32) (drop (call $parse)) (drop (call $shared)) i32.const 2)
        (func $cleared (param i32) (drop (i32.const 3)))
        (func $parse (result i32) call $get (drop (call $parse_deeper)) i32.const 4)
        (func $parse_deeper (result i32) i32.const 5)
        (func $in_a_global (result i32) i32.const 6)
        (func $shared (result i32) i32.const 7)
        (func $check (result i32) call $get (i32.mul (call $shared) (i32.const 10)) i32.const 8 i32.add)
        (func $validate (result i32)
            (table.set (i32.const 1) (global.get $kept))
            (table.set (i32.const 2) (ref.func $referred))
            call $check
            (i32.mul (call_indirect (result i32) (i32.const 0)) (i32.const 1000)) i32.add
            (i32.mul (call_indirect (result i32) (i32.const 1)) (i32.const 10000)) i32.add
            (i32.mul (call_indirect (result i32) (i32.const 2)) (i32.const 1000000)) i32.add
            global.get $begun i32.add
            i32.const 9 i32.add)
        (func $started (global.set $begun (i32.const 10)))
        (func $referred (result i32) i32.const 11)
        (elem declare func $referred)
        (@custom "metadata.code.branch_hint" "")
    "#;

    const LIFTED: &str = r#"
        (core instance $i (instantiate $m))
        (alias core export $i "tollgate:admission/lifecycle@0.1.0#configure" (core func))
        (alias core export $i "cabi_post_tollgate:admission/lifecycle@0.1.0#configure" (core func))
        (alias core export $i "tollgate:admission/validating@0.1.0#validate" (core func))
    "#;

    /// Calls `validate` of a component's module and returns its result.
    fn evaluated(component: &[u8]) -> i32 {
        let pieces = pieces(component).expect("it is well-formed");
        let module = pieces.iter().find_map(|piece| match piece {
            Piece::Module(module) => Some(module),
            Piece::Canonical(_) | Piece::Other { .. } => None,
        });
        let engine = wasmtime::Engine::default();
        let module = wasmtime::Module::new(&engine, module.expect("it has a module"));
        let mut store = wasmtime::Store::new(&engine, ());
        let get = wasmtime::Func::wrap(&mut store, || {});
        let module = module.expect("the module is valid");
        let instance = wasmtime::Instance::new(&mut store, &module, &[get.into()]);
        let instance = instance.expect("it can be instantiated");
        let name = "tollgate:admission/validating@0.1.0#validate";
        let validate = instance.get_typed_func::<(), i32>(&mut store, name);
        let validate = validate.expect("it is exported");
        validate.call(&mut store, ()).expect("it returns")
    }

    #[test]
    fn removes_configure_code_and_groups_review_code() {
        let trimmed = trim(&component(PLUGIN, LIFTED)).unwrap();
        assert_eq!(functions(&trimmed), [9, 8, 7, 11, 10, 6, 1, -1, -1]);
    }

    #[test]
    fn trimmed_module_behaves_as_before() {
        let plugin = component(PLUGIN, LIFTED);
        // Nearly all functions have the same type. A function in another's place would be valid, but return something
        // else.
        assert_eq!(evaluated(&plugin), 11_061_097);
        assert_eq!(evaluated(&trim(&plugin).unwrap()), 11_061_097);
    }

    #[test]
    fn keeps_other_sections_byte_for_byte() {
        let plugin = component(
            r#"(memory 1) (data (i32.const 8) "state") (func (export "f") nop)"#,
            r#"(core instance $i (instantiate $m)) (alias core export $i "f" (core func)) (component)"#,
        );
        assert_eq!(trim(&plugin).unwrap(), plugin);
    }

    #[test]
    fn removes_post_return_only_from_lifecycle() {
        let function = |name: &str, number: u32| {
            format!(
                "(func (export \"{name}\") (result i32) i32.const {number})
                 (func (export \"cabi_post_{name}\") (param i32) (drop (i32.const 1{number})))"
            )
        };
        let lifted = |name: &str| {
            format!(
                "(func (result string) (canon lift (core func $i \"{name}\")
                    (memory (core memory $i \"memory\")) string-encoding=utf16
                    (post-return (core func $i \"cabi_post_{name}\"))))"
            )
        };
        let describe = "tollgate:admission/lifecycle@0.1.0#describe";
        let validate = "tollgate:admission/validating@0.1.0#validate";
        let plugin = wat::parse_str(format!(
            "(component
                (core module $m (memory (export \"memory\") 1) {} {})
                (core instance $i (instantiate $m))
                (type $r (resource (rep i32))) (core func (canon resource.drop $r))
                {} {})",
            function(validate, 8),
            function(describe, 9),
            lifted(describe),
            lifted(validate),
        ));
        let plugin = plugin.expect("the text is a component");
        let options = |component: &[u8]| {
            let sections = Parser::new(0).parse_all(component);
            let sections = sections.filter_map(|payload| match payload.unwrap() {
                Payload::ComponentCanonicalSection(section) => Some(section),
                _ => None,
            });
            let functions = sections.flat_map(|section| section.into_iter().map(Result::unwrap));
            let options = functions.filter_map(|function| match function {
                CanonicalFunction::Lift { options, .. } => Some(options.into_vec()),
                _ => None,
            });
            options.collect::<Vec<_>>()
        };
        let before = options(&plugin);
        let without = before[0].iter().copied();
        let without = without.filter(|option| !matches!(option, CanonicalOption::PostReturn(_)));
        let trimmed = trim(&plugin).unwrap();
        assert_eq!(options(&trimmed), [without.collect(), before[1].clone()]);
        assert_eq!(functions(&trimmed), [8, 18, -1, -1]);
    }

    #[test]
    fn keeps_lifecycle_function_with_another_caller() {
        let name = "tollgate:admission/lifecycle@0.1.0#configure";
        let module = format!(r#"(func (export "{name}") (drop (i32.const 1)))"#);
        let instance = "(core instance $i (instantiate $m))";
        let alias = format!(r#"(alias core export $i "{name}" (core func))"#);
        let once = component(&module, &format!("{instance} {alias}"));
        assert_eq!(functions(&trim(&once).unwrap()), [-1]);

        let twice = component(&module, &format!("{instance} {alias} {alias}"));
        let imported = format!(r#"(core module (import "i" "{name}" (func)))"#);
        let imported = component(&module, &format!("{instance} {alias} {imported}"));
        let never = component(&module, instance);
        for kept in [twice, imported, never] {
            assert_eq!(trim(&kept).unwrap(), kept);
        }
    }

    #[test]
    fn refuses_truncated_component() {
        let plugin = component(PLUGIN, LIFTED);
        for length in 9..plugin.len() {
            // The result does not matter: `trim` must neither panic nor run for ever.
            let _ = trim(&plugin[..length]);
        }
        assert!(trim(&plugin[..plugin.len() / 2]).is_err());
    }
}
