//! Recognises wasmtime's error for exhausted host-call fuel: the plugin handed over more than its output limit.
//!
//! wasmtime counts the bytes that it lifts, and ends the call with an error of a private type. The host therefore
//! provokes one such error itself and compares. For this it runs a component of a few bytes in a separate engine; the
//! component returns a text without any fuel left. An error that renders the same way has the same type.
//!
//! This code does not contain wasmtime's wording. A plugin's own text is never compared either: the caller handles bare
//! messages first.

use std::fmt;
use std::sync::{Arc, OnceLock};

use wasm_encoder::{
    Alias, CanonicalFunctionSection, CanonicalOption, CodeSection, Component,
    ComponentAliasSection, ComponentExportKind, ComponentExportSection, ComponentTypeSection,
    ConstExpr, DataSection, ExportKind, ExportSection, Function, FunctionSection, InstanceSection,
    MemorySection, MemoryType, Module, ModuleSection, PrimitiveValType, TypeSection, ValType,
};
use wasmtime::component::Linker;
use wasmtime::{Config, OptLevel, Store};

/// The reference error, rendered. The host provokes it on first use, which takes milliseconds. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Exhaustion(Arc<OnceLock<Option<String>>>);

/// Name of the exported function that returns a text.
const FUNCTION: &str = "text";
const MEMORY: &str = "memory";

// === impl Exhaustion ===

impl Exhaustion {
    /// Whether the error says that host-call fuel is used up.
    pub(super) fn is(&self, error: &wasmtime::Error) -> bool {
        let known = self.0.get_or_init(|| match provoke() {
            Ok(error) => Some(rendered(&error)),
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "failed to provoke wasmtime's error for host-call fuel: output that is too large is reported as \
                     engine-error, not as output-too-large"
                );
                None
            }
        });
        known
            .as_ref()
            .is_some_and(|known| *known == rendered(error))
    }
}

impl fmt::Debug for Exhaustion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Exhaustion").finish()
    }
}

fn rendered(error: &wasmtime::Error) -> String {
    let cause = error.root_cause();
    format!("{cause:?}: {cause}")
}

/// Returns the error of a call that has no fuel for its result.
fn provoke() -> wasmtime::Result<wasmtime::Error> {
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        .cranelift_opt_level(OptLevel::None)
        .concurrency_support(false);
    let engine = wasmtime::Engine::new(&config)?;
    let component = wasmtime::component::Component::from_binary(&engine, &component())?;
    let mut store = Store::new(&engine, ());
    store.set_hostcall_fuel(0);
    let instance = Linker::new(&engine).instantiate(&mut store, &component)?;
    let function = instance.get_typed_func::<(), (String,)>(&mut store, FUNCTION)?;
    match function.call(&mut store, ()) {
        Ok(_) => Err(wasmtime::Error::msg(
            "the call returned, although it had no host-call fuel",
        )),
        Err(error) => Ok(error),
    }
}

/// Builds a component with one function, which returns a text of one byte.
fn component() -> Vec<u8> {
    let mut types = TypeSection::new();
    types.ty().function([], [ValType::I32]);
    let mut functions = FunctionSection::new();
    functions.function(0);
    let mut memories = MemorySection::new();
    memories.memory(MemoryType {
        minimum: 1,
        maximum: Some(1),
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    let mut exports = ExportSection::new();
    exports.export(FUNCTION, ExportKind::Func, 0);
    exports.export(MEMORY, ExportKind::Memory, 0);
    let mut code = CodeSection::new();
    let mut body = Function::new([]);
    body.instructions().i32_const(0).end();
    code.function(&body);
    // The address of the text (0) is stored at 0, its length at 4.
    let mut data = DataSection::new();
    data.active(0, &ConstExpr::i32_const(4), [1]);
    let mut module = Module::new();
    module
        .section(&types)
        .section(&functions)
        .section(&memories)
        .section(&exports)
        .section(&code)
        .section(&data);

    let mut instances = InstanceSection::new();
    instances.instantiate::<_, &str>(0, []);
    let mut aliases = ComponentAliasSection::new();
    for (kind, name) in [(ExportKind::Func, FUNCTION), (ExportKind::Memory, MEMORY)] {
        aliases.alias(Alias::CoreInstanceExport {
            instance: 0,
            kind,
            name,
        });
    }
    let mut component_types = ComponentTypeSection::new();
    component_types
        .function()
        .params::<[(&str, PrimitiveValType); 0], _>([])
        .result(Some(PrimitiveValType::String.into()));
    let mut canonicals = CanonicalFunctionSection::new();
    canonicals.lift(0, 0, [CanonicalOption::UTF8, CanonicalOption::Memory(0)]);
    let mut component_exports = ComponentExportSection::new();
    component_exports.export(FUNCTION, ComponentExportKind::Func, 0, None);
    let mut component = Component::new();
    component
        .section(&ModuleSection(&module))
        .section(&instances)
        .section(&aliases)
        .section(&component_types)
        .section(&canonicals)
        .section(&component_exports);
    component.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_only_exhausted_host_call_fuel() {
        let exhaustion = Exhaustion::default();
        let error = provoke().expect("the component is valid and the call fails");
        assert!(
            !error.is::<&'static str>() && !error.is::<String>(),
            "{error:?}"
        );
        assert!(exhaustion.is(&error));
        for other in [
            wasmtime::Error::from(wasmtime::Trap::UnreachableCodeReached),
            wasmtime::Error::from(wasmtime::ThrownException),
            wasmtime::Error::new(std::fmt::Error),
        ] {
            assert!(!exhaustion.is(&other), "{other:?}");
        }
    }
}
