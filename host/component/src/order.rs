//! Puts modules that a tool wrote in a random order into one order.
//!
//! componentize-py writes a small module for each interface of WASI, with functions that do nothing but trap. The order
//! of the modules changes from build to build, and so does the order of the functions in them. Two builds of one policy then differ not only in their data. In a fixed order they do not, and share code.
//!
//! The order of such modules changes nothing for the plugin: they have neither imports nor state nor a start function.
//! Each has one instance, which is created without arguments. The modules change places among themselves, and so do
//! their instances. Functions of a module change places only if all of them trap at once, so that nothing refers to
//! them by their numbers. Everything else in the component keeps its place, and refers to the new numbers.

use std::collections::HashMap;
use std::convert::Infallible;

use wasm_encoder::reencode::{Error, Reencode, ReencodeComponent};
use wasm_encoder::{
    CodeSection, Component, ComponentAliasSection, ExportKind, ExportSection, FunctionSection,
    InstanceSection, Module, RawSection, TypeSection,
};
use wasmparser::{BinaryReaderError, Instance, Parser, Payload};

use super::outline::{Outline, is_function, own_payloads};

/// A function body with no locals and only `unreachable`.
const UNREACHABLE: &[u8] = &[0x00, 0x00, 0x0b];

/// The change of places. Modules and instances are named by their old indices.
struct Moves {
    /// For each place of a module, the module that goes there.
    modules: HashMap<u32, u32>,
    /// For each instance, its new index.
    instances: HashMap<u32, u32>,
}

/// Orders the modules of a component that have no state. Returns `None` if they are in order.
///
/// # Errors
/// When the component cannot be read.
pub fn ordered(component: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let mut outline = Outline::read(component)?;
    let stubs: Vec<_> = outline.modules.iter().map(|module| stubs(module)).collect();
    let mut is_in_order = true;
    for (module, stubs) in outline.modules.iter_mut().zip(&stubs) {
        if let Some(stubs) = stubs {
            is_in_order &= *module == stubs;
            *module = stubs;
        }
    }
    let Some(mut moves) = Moves::new(&outline)? else {
        return Ok(None);
    };
    is_in_order &= moves.instances.iter().all(|(from, to)| from == to);
    if is_in_order {
        return Ok(None);
    }
    let mut ordered = Component::new();
    let mut module = 0;
    for payload in own_payloads(component) {
        let payload = payload?;
        let Some((id, range)) = payload.as_section() else {
            continue;
        };
        // If the bytes are cut short, the parser reaches their end and reports it.
        let mut data = component.get(range).unwrap_or_default();
        match payload {
            Payload::ModuleSection { .. } => {
                let moved = moves.modules.get(&module).copied().unwrap_or(module);
                data = outline.modules.get(moved as usize).copied().unwrap_or(data);
                module += 1;
                ordered.section(&RawSection { id, data })
            }
            Payload::InstanceSection(section) => {
                let mut instances = InstanceSection::new();
                moves.parse_instance_section(&mut instances, section)?;
                ordered.section(&instances)
            }
            Payload::ComponentAliasSection(section) => {
                let mut aliases = ComponentAliasSection::new();
                moves.parse_component_alias_section(&mut aliases, section)?;
                ordered.section(&aliases)
            }
            _ => ordered.section(&RawSection { id, data }),
        };
    }
    Ok(Some(ordered.finish()))
}

// === impl Moves ===

impl Moves {
    fn new(outline: &Outline<'_>) -> Result<Option<Self>, BinaryReaderError> {
        if outline.is_unusual || outline.imports_modules {
            return Ok(None);
        }
        let mut instances_of = HashMap::new();
        for (_, module) in outline.instantiated() {
            *instances_of.entry(module).or_insert(0_u32) += 1;
        }
        // Pairs of an instance and its module.
        let mut plain = Vec::new();
        for (number, instance) in (0..).zip(&outline.instances) {
            if let Instance::Instantiate { module_index, args } = instance
                && args.is_empty()
                && instances_of.get(module_index) == Some(&1)
                && let Some(module) = outline.modules.get(*module_index as usize)
                && is_plain(module)?
            {
                plain.push((number, *module_index));
            }
        }
        let (Some(first), Some(last)) = (plain.first(), plain.last()) else {
            return Ok(None);
        };
        // No use of an instance may come before all of them exist.
        let run = first.0..=last.0;
        let is_used_early = outline
            .aliases
            .iter()
            .any(|alias| run.contains(&alias.instance) && alias.behind <= last.0 as usize);
        let is_one_run = run.clone().count() == plain.len() && !is_used_early;
        let bytes = |module: u32| outline.modules.get(module as usize).copied();
        if !is_one_run {
            return Ok(None);
        }
        let mut sorted = plain.clone();
        sorted.sort_by_key(|(_, module)| bytes(*module));
        let places = || plain.iter().zip(&sorted);
        Ok(Some(Self {
            modules: places().map(|(to, from)| (to.1, from.1)).collect(),
            instances: places().map(|(to, from)| (from.0, to.0)).collect(),
        }))
    }
}

impl Reencode for Moves {
    type Error = Infallible;
}

impl ReencodeComponent for Moves {
    fn instance_index(&mut self, instance: u32) -> u32 {
        self.instances.get(&instance).copied().unwrap_or(instance)
    }
}

/// Writes a module whose functions all trap at once, with its functions in the order of their names. Returns `None` for
/// other modules. Errors count as other modules: the compiler reports them.
fn stubs(module: &[u8]) -> Option<Vec<u8>> {
    let (mut types, mut functions, mut exports, mut bodies) = (vec![], vec![], vec![], 0_usize);
    for payload in Parser::new(0).parse_all(module) {
        match payload.ok()? {
            Payload::Version { .. } | Payload::CodeSectionStart { .. } | Payload::End(_) => {}
            Payload::TypeSection(section) => {
                let read = section.into_iter_err_on_gc_types();
                types = read.collect::<Result<_, _>>().ok()?;
            }
            Payload::FunctionSection(section) => {
                functions = section.into_iter().collect::<Result<_, _>>().ok()?;
            }
            Payload::ExportSection(section) => {
                exports = section.into_iter().collect::<Result<Vec<_>, _>>().ok()?;
            }
            Payload::CodeSectionEntry(body) if body.as_bytes() == UNREACHABLE => bodies += 1,
            _ => return None,
        }
    }
    if bodies != functions.len() || exports.len() != functions.len() {
        return None;
    }
    exports.sort_unstable_by_key(|export| (export.index, export.name));
    let numbers = exports.iter().zip(0..);
    if !numbers
        .clone()
        .all(|(export, number)| is_function(export.kind) && export.index == number)
    {
        return None;
    }
    exports.sort_unstable_by_key(|export| export.name);

    let (mut type_section, mut function_section) = (TypeSection::new(), FunctionSection::new());
    let (mut export_section, mut code) = (ExportSection::new(), CodeSection::new());
    for (number, export) in (0..).zip(&exports) {
        let of = *functions.get(export.index as usize)?;
        let kind: &wasmparser::FuncType = types.get(of as usize)?;
        let kind = wasm_encoder::FuncType::try_from(kind.clone()).ok()?;
        type_section.ty().func_type(&kind);
        function_section.function(number);
        export_section.export(export.name, ExportKind::Func, number);
        code.raw(UNREACHABLE);
    }
    let mut ordered = Module::new();
    ordered
        .section(&type_section)
        .section(&function_section)
        .section(&export_section)
        .section(&code);
    Some(ordered.finish())
}

/// Whether a module consists of exported functions only.
fn is_plain(module: &[u8]) -> Result<bool, BinaryReaderError> {
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::Version { .. }
            | Payload::TypeSection(_)
            | Payload::FunctionSection(_)
            | Payload::ExportSection(_)
            | Payload::CodeSectionStart { .. }
            | Payload::CodeSectionEntry(_)
            | Payload::End(_) => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use wasmparser::Validator;

    use super::*;

    /// A component with modules that return numbers, in this order, and a module that imports one of them. It has no
    /// names, which would tell the order.
    fn component(numbers: &[u32], state: &str) -> Vec<u8> {
        use std::fmt::Write as _;
        let at = |number| numbers.iter().position(|other| *other == number).unwrap();
        let mut text = String::from("(component\n");
        for number in numbers {
            let _ = writeln!(
                text,
                r#"(core module {state} (func (export "f{number}") (result i32) i32.const {number}))"#
            );
        }
        text.push_str(
            r#"(core module (import "a" "f3" (func (result i32))) (export "g" (func 0)))"#,
        );
        for place in 0..numbers.len() {
            let _ = writeln!(text, "(core instance (instantiate {place}))");
        }
        let user = numbers.len();
        let _ = write!(
            text,
            r#"(core instance (instantiate {user} (with "a" (instance {third}))))
               (alias core export {first} "f1" (core func))
               (alias core export {user} "g" (core func))
               (type (func (result u32)))
               (func (type 0) (canon lift (core func 1)))
               (export "g" (func 0)))"#,
            first = at(1),
            third = at(3),
        );
        wat::parse_str(text).unwrap()
    }

    fn in_order(component: Vec<u8>) -> Vec<u8> {
        let ordered = ordered(&component).unwrap().unwrap_or(component);
        Validator::new().validate_all(&ordered).unwrap();
        ordered
    }

    #[test]
    fn modules_in_any_order_give_the_same_component() {
        let first = in_order(component(&[1, 2, 3], ""));
        for numbers in [[1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]] {
            let component = component(&numbers, "");
            assert!(in_order(component) == first, "{numbers:?}");
        }
        assert!(ordered(&first).unwrap().is_none());
    }

    #[test]
    fn functions_that_trap_are_in_the_order_of_their_names() {
        let component = |first: &str, second: &str| {
            let text = format!(
                r#"(component
                    (core module {first} {second})
                    (core instance (instantiate 0))
                    (alias core export 0 "a" (core func)))"#
            );
            in_order(wat::parse_str(text).unwrap())
        };
        let [a, b] = [
            r#"(func (export "a") (param i32) unreachable)"#,
            r#"(func (export "b") (result i64) unreachable)"#,
        ];
        assert!(component(a, b) == component(b, a));
        let other = a.replace("unreachable", "nop");
        assert!(component(&other, b) != component(b, &other));
    }

    #[test]
    fn modules_with_state_keep_their_places() {
        for state in [
            "(memory 1)",
            "(global (mut i32) (i32.const 0))",
            "(func) (start 0)",
        ] {
            let component = component(&[3, 2, 1], state);
            assert!(ordered(&component).unwrap().is_none(), "{state}");
        }
    }

    #[test]
    fn instances_that_are_used_at_once_keep_their_places() {
        let component = wat::parse_str(
            r#"(component
                (core module $b (func (export "b") nop nop))
                (core module $a (func (export "a")))
                (core instance $b (instantiate $b))
                (alias core export $b "b" (core func))
                (core instance $a (instantiate $a))
                (alias core export $a "a" (core func)))"#,
        );
        assert!(ordered(&component.unwrap()).unwrap().is_none());
    }

    #[test]
    fn reports_truncated_component() {
        let component = component(&[3, 2, 1], "");
        for end in [10, component.len() / 2, component.len() - 1] {
            assert!(ordered(&component[..end]).is_err(), "{end}");
        }
    }
}
