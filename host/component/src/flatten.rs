//! Dissolves a composition whose other parts do nothing but trap.
//!
//! componentize-qjs makes a component that imports WASI. It then puts the component into an outer one, beside a component
//! with a trap in place of each function of WASI. wizer takes no snapshot of nested components, so a plugin in JavaScript
//! would read its settings in every call. This module takes the plugin's own component out, and replaces each imported
//! function that traps by a function that traps.
//!
//! This changes nothing that the plugin can see:
//!
//! - A part counts as trapping only if it imports nothing, and each function that it exports is `unreachable`. A call of
//!   it never returns. So the plugin never gets a resource of its types, and to drop one traps, too.
//! - The plugin's component has the same imports and exports as the outer one, under the same names.
//! - Everything else stays as it is: modules, their instances, and the functions between them.
//!
//! A component of any other form stays as it is.

mod composition;
mod dissolve;
mod traps;

use std::convert::Infallible;

use wasm_encoder::reencode::Error;
use wasmparser::types::Types;
use wasmparser::{BinaryReaderError, Parser, ValidPayload, Validator};

use composition::Composition;
use dissolve::Dissolving;

/// Number of compositions within each other that are dissolved. componentize-qjs writes two.
const MAX_DEPTH: u32 = 4;

/// Dissolves a composition. Returns `None` if the component has another form.
///
/// # Errors
/// When the component cannot be read.
pub fn flattened(component: &[u8]) -> Result<Option<Vec<u8>>, Error<Infallible>> {
    let flat = flattened_to(component, MAX_DEPTH)?;
    Ok(flat.filter(|flat| types(flat).is_ok()))
}

fn flattened_to(component: &[u8], depth: u32) -> Result<Option<Vec<u8>>, Error<Infallible>> {
    if depth == 0 {
        return Ok(None);
    }
    let Some(composition) = Composition::read(component)? else {
        return Ok(None);
    };
    let within = flattened_to(composition.part, depth - 1)?;
    let part = within.as_deref().unwrap_or(composition.part);
    let Some(types) = types(part)? else {
        return Ok(None);
    };
    Dissolving::new(&composition, &types).run(part)
}

/// Returns the types of a component. The bodies of functions are not checked: the compiler does this.
fn types(component: &[u8]) -> Result<Option<Types>, BinaryReaderError> {
    let mut validator = Validator::new();
    let mut types = None;
    for payload in Parser::new(0).parse_all(component) {
        // The last end is that of the component itself.
        if let ValidPayload::End(of) = validator.payload(&payload?)? {
            types = Some(of);
        }
    }
    Ok(types)
}

#[cfg(test)]
mod tests;
