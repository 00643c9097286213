//! Turns the core module with embedded WIT that a plain `cargo build` produces into a component.

use wasmparser::{Encoding, Parser, Payload};

use super::outline::own_payloads;

/// Why a file cannot be made into a component.
#[derive(Debug, thiserror::Error)]
pub enum ComponentizeError {
    /// The file does not begin like WebAssembly.
    #[error(
        "it is not WebAssembly: it does not start with `\\0asm`; expected a component, or a core module with its \
         WIT embedded"
    )]
    NotWasm,
    /// The core module has no WIT world embedded.
    #[error(
        "it is a core module without an embedded WIT world (no `component-type` section); build it with \
         wit-bindgen or the SDK, or run `wasm-tools component embed` and `component new`"
    )]
    NoWorld,
    /// The bytes end early or break the format.
    #[error("the file is damaged or cut off")]
    Malformed(#[source] wasmparser::BinaryReaderError),
    /// The core module does not fit its WIT world.
    #[error("the core module cannot be made into a component")]
    Encode(#[source] anyhow::Error),
}

/// Returns a component unchanged, or makes one from a core module.
pub fn componentize(bytes: Vec<u8>) -> Result<Vec<u8>, ComponentizeError> {
    let encoding = match Parser::new(0).parse_all(&bytes).next() {
        Some(Ok(Payload::Version { encoding, .. })) => encoding,
        _ => return Err(ComponentizeError::NotWasm),
    };
    if encoding == Encoding::Component {
        return Ok(bytes);
    }
    if !has_world(&bytes)? {
        return Err(ComponentizeError::NoWorld);
    }
    let encode = || -> anyhow::Result<Vec<u8>> {
        wit_component::ComponentEncoder::default()
            .validate(true)
            .module(&bytes)?
            .encode()
    };
    encode().map_err(ComponentizeError::Encode)
}

/// Names of a component's imports, in order.
pub fn imports(component: &[u8]) -> Vec<String> {
    names(component, |payload| match payload {
        Payload::ComponentImportSection(section) => {
            let imports = section.into_iter().filter_map(Result::ok);
            imports.map(|import| import.name.name.to_owned()).collect()
        }
        _ => Vec::new(),
    })
}

/// Names of a component's exports, in order.
pub fn exports(component: &[u8]) -> Vec<String> {
    names(component, |payload| match payload {
        Payload::ComponentExportSection(section) => {
            let exports = section.into_iter().filter_map(Result::ok);
            exports.map(|export| export.name.name.to_owned()).collect()
        }
        _ => Vec::new(),
    })
}

/// Collects names from the component's own sections, without those of nested modules and components.
fn names(component: &[u8], read: impl Fn(Payload<'_>) -> Vec<String>) -> Vec<String> {
    let payloads = own_payloads(component).filter_map(Result::ok);
    payloads.flat_map(read).collect()
}

fn has_world(module: &[u8]) -> Result<bool, ComponentizeError> {
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload.map_err(ComponentizeError::Malformed)?;
        if matches!(payload, Payload::CustomSection(section) if section.name().starts_with("component-type"))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explains_why_file_is_no_plugin() {
        let refused = |bytes: &[u8]| componentize(bytes.to_vec()).unwrap_err().to_string();
        assert!(refused(b"#!/bin/sh").starts_with("it is not WebAssembly"));
        assert!(refused(b"").starts_with("it is not WebAssembly"));
        assert!(
            refused(&wat::parse_str("(module)").unwrap()).contains("without an embedded WIT world")
        );
    }

    #[test]
    fn leaves_component_unchanged() {
        let component = wat::parse_str("(component)").unwrap();
        assert_eq!(componentize(component.clone()).unwrap(), component);
    }
}
