//! Finds an exported function in fresh instances, and compares its type with the contract's once.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wasmtime::component::{
    Component, ComponentExportIndex, ComponentNamedList, Instance, Lift, Lower, TypedFunc,
};
use wasmtime::{AsContextMut, Result, format_err};

/// A function that a component exports, such as `validate`.
///
/// The generated bindings compare the type for every instance, name by name. That takes as long as several small host
/// functions. All instances of a component have the same types, so [`Export::load`] compares them for the first only.
pub(super) struct Export<Params, Return> {
    /// The place of the function. It names the component too, so that it finds nothing in instances of others.
    index: ComponentExportIndex,
    /// Whether the type has been compared. Copies share it: they have the same index.
    is_checked: Arc<AtomicBool>,
    function: PhantomData<fn(Params) -> Return>,
}

// === impl Export ===

impl<Params, Return> Export<Params, Return>
where
    Params: ComponentNamedList + Lower,
    Return: ComponentNamedList + Lift,
{
    /// Finds a function of an interface by their names.
    ///
    /// # Errors
    /// When the component does not export it.
    pub(super) fn find(component: &Component, interface: &str, name: &str) -> Result<Self> {
        let of = component.get_export_index(None, interface);
        let index = of.and_then(|of| component.get_export_index(Some(&of), name));
        let index = index.ok_or_else(|| format_err!("`{interface}` has no function `{name}`"))?;
        Ok(Self {
            index,
            is_checked: Arc::default(),
            function: PhantomData,
        })
    }

    /// Returns the function of an instance.
    ///
    /// # Errors
    /// When the function has another type, or the instance is of another component.
    #[expect(
        unsafe_code,
        reason = "wasmtime has no safe way to compare the type once for all instances of a component"
    )]
    pub(super) fn load(
        &self,
        mut store: impl AsContextMut,
        instance: &Instance,
    ) -> Result<TypedFunc<Params, Return>> {
        let function = instance
            .get_func(&mut store, self.index)
            .ok_or_else(|| format_err!("the instance is of another component"))?;
        if self.is_checked.load(Ordering::Relaxed) {
            // SAFETY: `typed` has found that the function at this index has this type. The index finds a function in
            // instances of one component only, and their types are the component's.
            return Ok(unsafe { TypedFunc::new_unchecked(function) });
        }
        let typed = function.typed(&store)?;
        self.is_checked.store(true, Ordering::Relaxed);
        Ok(typed)
    }
}

impl<Params, Return> Clone for Export<Params, Return> {
    fn clone(&self) -> Self {
        Self {
            index: self.index,
            is_checked: self.is_checked.clone(),
            function: PhantomData,
        }
    }
}

#[cfg(test)]
mod tests {
    use wasmtime::component::Linker;
    use wasmtime::{Engine, Store};

    use super::*;

    /// A component whose interface `test:it/answers` exports the function `answer` with this result.
    fn component(engine: &Engine, result: &str) -> Component {
        let text = format!(
            r#"(component
                (core module $m (func (export "answer") (result i32) i32.const 7))
                (core instance $i (instantiate $m))
                (func $answer (result {result}) (canon lift (core func $i "answer")))
                (instance $answers (export "answer" (func $answer)))
                (export "test:it/answers" (instance $answers)))"#
        );
        Component::new(engine, wat::parse_str(text).unwrap()).unwrap()
    }

    fn find<R: ComponentNamedList + Lift>(component: &Component) -> Export<(), R> {
        Export::find(component, "test:it/answers", "answer").unwrap()
    }

    #[test]
    fn function_is_found_in_every_instance() {
        let engine = Engine::default();
        let component = component(&engine, "u32");
        let export = find::<(u32,)>(&component);
        let linker = Linker::<()>::new(&engine);
        for is_checked in [false, true, true] {
            assert_eq!(export.is_checked.load(Ordering::Relaxed), is_checked);
            let mut store = Store::new(&engine, ());
            let instance = linker.instantiate(&mut store, &component).unwrap();
            let answer = export.clone().load(&mut store, &instance).unwrap();
            assert_eq!(answer.call(&mut store, ()).unwrap(), (7,));
        }
    }

    #[test]
    fn other_type_is_refused_every_time() {
        let engine = Engine::default();
        let component = component(&engine, "u32");
        let export = find::<(bool,)>(&component);
        let linker = Linker::<()>::new(&engine);
        for _ in 0..2 {
            let mut store = Store::new(&engine, ());
            let instance = linker.instantiate(&mut store, &component).unwrap();
            assert!(export.load(&mut store, &instance).is_err());
        }
    }

    /// The check of one component says nothing about another one.
    #[test]
    fn instance_of_other_component_is_refused() {
        let engine = Engine::default();
        let (ours, other) = (component(&engine, "u32"), component(&engine, "s32"));
        let export = find::<(u32,)>(&ours);
        let linker = Linker::<()>::new(&engine);
        let mut store = Store::new(&engine, ());
        let instance = linker.instantiate(&mut store, &ours).unwrap();
        export.load(&mut store, &instance).unwrap();
        let mut store = Store::new(&engine, ());
        let instance = linker.instantiate(&mut store, &other).unwrap();
        assert!(export.load(&mut store, &instance).is_err());
    }

    #[test]
    fn missing_function_is_an_error() {
        let engine = Engine::default();
        let component = component(&engine, "u32");
        let find = |interface, name| Export::<(), (u32,)>::find(&component, interface, name);
        assert!(find("test:it/answers", "question").is_err());
        assert!(find("test:it/questions", "answer").is_err());
    }
}
