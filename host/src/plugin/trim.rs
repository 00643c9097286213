//! Takes the code out of a snapshot that has done its work: what only `describe` and `configure` need.
//!
//! Settings are parsed, patterns compiled and mistakes described before the snapshot is taken, and never again. For
//! many a plugin that is the larger half of its code, which would be compiled, kept and mapped for nothing.
//!
//! Functions stay where they are, so that no index changes: the body of one that cannot be reached any more becomes
//! `unreachable`. What can be reached is taken widely: from every other export, every element of a table, every
//! reference, and by every call from there.

use std::collections::HashSet;

use wasm_encoder::{CodeSection, Component, ComponentSectionId, Module, RawSection, SectionId};
use wasmparser::{
    BinaryReaderError, ComponentAlias, ConstExpr, ElementItems, ExternalKind, FunctionBody,
    Operator, OperatorsReader, Parser, Payload, TableInit, TypeRef,
};

/// What the functions of `lifecycle` are called in a core module, with and without what comes after a call.
const LIFECYCLE: &str = "tollgate:admission/lifecycle@";
const POST_RETURN: &str = "cabi_post_";

/// A body without locals that is `unreachable` and nothing else.
const UNREACHABLE: &[u8] = &[0x00, 0x00, 0x0b];

/// What is read of a component, section by section.
enum Piece<'c> {
    /// A core module, by its bytes.
    Module(&'c [u8]),
    /// Anything else, which stays as it is.
    Other { id: u8, data: &'c [u8] },
}

/// What is read of a core module.
#[derive(Default)]
struct Code<'m> {
    imported_functions: u32,
    bodies: Vec<FunctionBody<'m>>,
    lifecycle: Vec<(&'m str, u32)>,
    roots: Vec<u32>,
}

/// The same component without the code that nobody can call once it is configured.
pub(super) fn trim(component: &[u8]) -> Result<Vec<u8>, BinaryReaderError> {
    let pieces = pieces(component)?;
    let done = only_lifted(component, &pieces)?;
    let mut trimmed = Component::new();
    for piece in pieces {
        match piece {
            Piece::Module(module) => trimmed.section(&RawSection {
                id: ComponentSectionId::CoreModule.into(),
                data: &trim_module(module, &done)?,
            }),
            Piece::Other { id, data } => trimmed.section(&RawSection { id, data }),
        };
    }
    Ok(trimmed.finish())
}

fn pieces(component: &[u8]) -> Result<Vec<Piece<'_>>, BinaryReaderError> {
    let mut pieces = Vec::new();
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(component) {
        let payload = payload?;
        if depth == 0
            && let Some((id, range)) = payload.as_section()
            // Where there is less, the parser comes to the end of it and says so.
            && let Some(data) = component.get(range)
        {
            pieces.push(match payload {
                Payload::ModuleSection { .. } => Piece::Module(data),
                _ => Piece::Other { id, data },
            });
        }
        match payload {
            Payload::ComponentSection { .. } | Payload::ModuleSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(pieces)
}

/// The functions of `lifecycle` that the component takes from a core instance exactly once, which is to lift them, and
/// that no core module imports.
fn only_lifted<'c>(
    component: &'c [u8],
    pieces: &[Piece<'c>],
) -> Result<HashSet<&'c str>, BinaryReaderError> {
    let mut once = HashSet::new();
    let mut others = HashSet::new();
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(component) {
        match payload? {
            Payload::ComponentSection { .. } | Payload::ModuleSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentAliasSection(section) if depth == 0 => {
                for alias in section {
                    if let ComponentAlias::CoreInstanceExport { name, .. } = alias?
                        && is_lifecycle(name)
                        && !once.insert(name)
                    {
                        others.insert(name);
                    }
                }
            }
            _ => {}
        }
    }
    for piece in pieces {
        let Piece::Module(module) = piece else {
            continue;
        };
        for payload in Parser::new(0).parse_all(module) {
            if let Payload::ImportSection(section) = payload? {
                for import in section.into_imports() {
                    others.insert(import?.name);
                }
            }
        }
    }
    once.retain(|name| !others.contains(name));
    Ok(once)
}

fn is_lifecycle(name: &str) -> bool {
    let name = name.strip_prefix(POST_RETURN).unwrap_or(name);
    name.starts_with(LIFECYCLE)
}

fn trim_module(module: &[u8], done: &HashSet<&str>) -> Result<Vec<u8>, BinaryReaderError> {
    let code = Code::read(module)?;
    let reached = code.reached(done)?;
    let mut trimmed = Module::new();
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        match &payload {
            Payload::CodeSectionStart { .. } => {
                let mut section = CodeSection::new();
                for (index, body) in (code.imported_functions..).zip(&code.bodies) {
                    section.raw(if reached.contains(&index) {
                        &module[body.range()]
                    } else {
                        UNREACHABLE
                    });
                }
                trimmed.section(&section);
            }
            // What is said about code there is about places in it.
            Payload::CustomSection(custom) if custom.name().starts_with("metadata.code.") => {}
            payload => {
                if let Some((id, range)) = payload.as_section()
                    && id != u8::from(SectionId::Code)
                {
                    trimmed.section(&RawSection {
                        id,
                        data: &module[range],
                    });
                }
            }
        }
    }
    Ok(trimmed.finish())
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
                        if !matches!(export.kind, ExternalKind::Func | ExternalKind::FuncExact) {
                            continue;
                        }
                        if is_lifecycle(export.name) {
                            code.lifecycle.push((export.name, export.index));
                        } else {
                            code.roots.push(export.index);
                        }
                    }
                }
                Payload::StartSection { func, .. } => code.roots.push(func),
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
                    self.roots.push(function?);
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
        called(expression.get_operators_reader(), &mut self.roots)
    }

    /// The functions that can be called when nobody calls those of `lifecycle` that are done.
    fn reached(&self, done: &HashSet<&str>) -> Result<HashSet<u32>, BinaryReaderError> {
        let lifecycle = self.lifecycle.iter();
        let kept = lifecycle.filter(|(name, _)| !done.contains(name));
        let mut waiting: Vec<u32> = kept.map(|(_, index)| *index).collect();
        waiting.extend(&self.roots);
        let mut reached = HashSet::new();
        while let Some(function) = waiting.pop() {
            if !reached.insert(function) {
                continue;
            }
            let own = function.checked_sub(self.imported_functions);
            if let Some(body) = own.and_then(|own| self.bodies.get(own as usize)) {
                called(body.get_operators_reader()?, &mut waiting)?;
            }
        }
        Ok(reached)
    }
}

/// Adds the functions that operators call, or take a reference to.
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

    /// A component of one module, with what the component says beside it.
    fn component(module: &str, beside: &str) -> Vec<u8> {
        wat::parse_str(format!("(component (core module $m {module}) {beside})"))
            .expect("the text is a component")
    }

    /// Which functions of the modules do nothing but trap.
    fn stubs(component: &[u8]) -> Vec<bool> {
        let payloads = Parser::new(0).parse_all(component);
        let bodies = payloads.filter_map(|payload| match payload.expect("it is well-formed") {
            Payload::CodeSectionEntry(body) => Some(component[body.range()] == UNREACHABLE[..]),
            _ => None,
        });
        bodies.collect()
    }

    const PLUGIN: &str = r#"
        (import "host" "get" (func $get))
        (table funcref (elem $in_a_table))
        (global funcref (ref.func $in_a_global))
        (export "tollgate:admission/lifecycle@0.1.0#configure" (func $configure))
        (export "cabi_post_tollgate:admission/lifecycle@0.1.0#configure" (func $cleared))
        (export "tollgate:admission/validating@0.1.0#validate" (func $validate))
        (start $started)
        (func $configure (call $parse) (call $shared))
        (func $cleared nop)
        (func $parse (call $get) (call $parse_deeper))
        (func $parse_deeper nop)
        (func $shared nop)
        (func $validate (call $judge))
        (func $judge (call $get) (call $shared))
        (func $in_a_table nop)
        (func $in_a_global (drop (ref.func $referred)))
        (func $started nop)
        (func $referred nop)
        (elem declare func $referred)
    "#;

    const LIFTED: &str = r#"
        (core instance $i (instantiate $m))
        (alias core export $i "tollgate:admission/lifecycle@0.1.0#configure" (core func))
        (alias core export $i "cabi_post_tollgate:admission/lifecycle@0.1.0#configure" (core func))
        (alias core export $i "tollgate:admission/validating@0.1.0#validate" (core func))
    "#;

    #[test]
    fn takes_out_what_only_configure_calls() {
        let plugin = component(PLUGIN, LIFTED);
        let trimmed = trim(&plugin).unwrap();
        assert_eq!(
            stubs(&trimmed),
            [
                true, true, true, true, false, false, false, false, false, false, false
            ]
        );
        assert!(trimmed.len() < plugin.len());
    }

    #[test]
    fn leaves_everything_else_byte_for_byte() {
        let plugin = component(
            r#"(memory 1) (data (i32.const 8) "state") (func (export "f") nop)"#,
            r#"(core instance $i (instantiate $m)) (alias core export $i "f" (core func)) (component)"#,
        );
        assert_eq!(trim(&plugin).unwrap(), plugin);
    }

    #[test]
    fn keeps_a_function_of_the_lifecycle_that_somebody_else_may_call() {
        let name = "tollgate:admission/lifecycle@0.1.0#configure";
        let module = format!(r#"(func (export "{name}") nop)"#);
        let instance = "(core instance $i (instantiate $m))";
        let alias = format!(r#"(alias core export $i "{name}" (core func))"#);
        let once = component(&module, &format!("{instance} {alias}"));
        assert_eq!(stubs(&trim(&once).unwrap()), [true]);

        let twice = component(&module, &format!("{instance} {alias} {alias}"));
        let imported = format!(r#"(core module (import "i" "{name}" (func)))"#);
        let imported = component(&module, &format!("{instance} {alias} {imported}"));
        let never = component(&module, instance);
        for kept in [twice, imported, never] {
            assert_eq!(trim(&kept).unwrap(), kept);
        }
    }

    #[test]
    fn refuses_what_is_cut_off() {
        let plugin = component(PLUGIN, LIFTED);
        for length in 9..plugin.len() {
            // Whatever it says: it neither panics nor runs for ever.
            let _ = trim(&plugin[..length]);
        }
        assert!(trim(&plugin[..plugin.len() / 2]).is_err());
    }
}
