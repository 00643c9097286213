//! Removes the `post-return` of `mutate` and `validate`.
//!
//! A plugin frees the memory of its answer there. An instance serves one call, or is put back before the next, so nobody uses
//! what was freed. Such a function can call nothing of the host, and change nothing that the host has read. Without it, the
//! host enters the plugin once for a call, not twice, and the plugin needs less fuel.
//!
//! `describe` and `configure` keep theirs, until the component is trimmed: what `configure` frees is used by the calls.

use std::collections::HashSet;

use wasm_encoder::reencode::{Error, Reencode, ReencodeComponent, component_utils};
use wasm_encoder::{CanonicalFunctionSection, Component, ComponentSectionId, RawSection};
use wasmparser::{CanonicalFunction, CanonicalOption};

use super::outline::Outline;
use super::trim::{Missing, Piece, is_lifecycle, pieces};

/// Removes `post-return` from the functions that this selects by the index of the core function.
pub(super) struct WithoutPostReturn<F>(pub(super) F);

/// Removes the `post-return` of each function that is not one of `lifecycle`.
pub fn without_post_return(component: &[u8]) -> Result<Vec<u8>, Error<Missing>> {
    let outline = Outline::read(component)?;
    let lifecycle = outline.aliases.iter();
    let lifecycle = lifecycle.filter(|alias| alias.is_function() && is_lifecycle(alias.name));
    let lifecycle: HashSet<u32> = lifecycle.map(|alias| alias.function).collect();
    let mut without = WithoutPostReturn(|function| !lifecycle.contains(&function));
    let mut rest = Component::new();
    for piece in pieces(component)? {
        match piece {
            Piece::Module(data) => rest.section(&RawSection {
                id: ComponentSectionId::CoreModule.into(),
                data,
            }),
            Piece::Canonical(section) => {
                let mut functions = CanonicalFunctionSection::new();
                without.parse_component_canonical_section(&mut functions, section)?;
                rest.section(&functions)
            }
            Piece::Other { id, data } => rest.section(&RawSection { id, data }),
        };
    }
    Ok(rest.finish())
}

// === impl WithoutPostReturn ===

impl<F> Reencode for WithoutPostReturn<F> {
    type Error = Missing;
}

impl<F: Fn(u32) -> bool> ReencodeComponent for WithoutPostReturn<F> {
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
            && self.0(*core_func_index)
        {
            let others = options.iter().copied();
            *options = others
                .filter(|option| !matches!(option, CanonicalOption::PostReturn(_)))
                .collect();
        }
        component_utils::parse_component_canonical(self, section, function)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use wasmparser::{Parser, Payload};

    use super::*;

    fn component(names: [&str; 2]) -> Vec<u8> {
        let function = |name: &str| {
            format!(
                r#"(func (export "{name}") (result i32) i32.const 8) (func (export "cabi_post_{name}") (param i32))"#
            )
        };
        let lifted = |name: &str| {
            format!(
                r#"(func (result string) (canon lift (core func $i "{name}") (memory (core memory $i "memory"))
                    string-encoding=utf16 (post-return (core func $i "cabi_post_{name}"))))"#
            )
        };
        let [functions, lifted] = [names.map(function).concat(), names.map(lifted).concat()];
        wat::parse_str(format!(
            r#"(component (core module $m (memory (export "memory") 1) {functions}) (core instance $i (instantiate $m))
                {lifted})"#
        ))
        .expect("the text is a component")
    }

    /// The options of each lifted function.
    pub(crate) fn options(component: &[u8]) -> Vec<Vec<CanonicalOption>> {
        let mut all = Vec::new();
        for payload in Parser::new(0).parse_all(component) {
            if let Payload::ComponentCanonicalSection(section) = payload.expect("it is valid") {
                for function in section {
                    if let CanonicalFunction::Lift { options, .. } = function.expect("it is valid")
                    {
                        all.push(options.into_vec());
                    }
                }
            }
        }
        all
    }

    #[test]
    fn only_lifecycle_keeps_post_return() {
        let plugin = component([
            "tollgate:admission/lifecycle@0.1.0#configure",
            "tollgate:admission/validating@0.1.0#validate",
        ]);
        let before = options(&plugin);
        let after = without_post_return(&plugin).expect("it can be rewritten");
        wasmparser::validate(&after).expect("the result is valid");
        assert_eq!(
            options(&after),
            [before[0].clone(), before[1][..2].to_vec()]
        );
        assert!(matches!(before[1][2..], [CanonicalOption::PostReturn(_)]));
        // A second time, there is nothing to remove.
        assert_eq!(
            without_post_return(&after).expect("it can be rewritten"),
            after
        );
    }

    #[test]
    fn refuses_truncated_component() {
        let plugin = component(["a", "b"]);
        for length in 9..plugin.len() {
            // The result does not matter: the function must neither panic nor run for ever.
            let _ = without_post_return(&plugin[..length]);
        }
        assert!(without_post_return(&plugin[..plugin.len() / 2]).is_err());
    }
}
