//! Turns a core module into a component.

use wasmparser::{Encoding, Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};

use crate::contract::{self, CONTRACT_VERSION, Used};
use crate::wasi;

/// The reason why a module cannot become a component.
#[derive(Debug, thiserror::Error)]
pub enum ComponentizeError {
    /// The bytes are not a module or component.
    #[error(
        "it is not WebAssembly: it does not start with `\\0asm`, and is not the text of a module"
    )]
    NotWasm,
    /// The module cannot be read to its end.
    #[error("the file is damaged or cut off: {0}")]
    Malformed(String),
    /// The module exports nothing of the contract.
    #[error(
        "it exports nothing of tollgate:admission@{CONTRACT_VERSION}: call the SDK's export (`validator`, `mutator` or \
         `plugin`), and build the module as a library (a \"reactor\"), not as a command"
    )]
    NotAPlugin,
    /// The module was built for another version of the contract.
    #[error(
        "it was built for tollgate:admission@{0}, but this tool builds components for {CONTRACT_VERSION}: rebuild it"
    )]
    OtherVersion(String),
    /// The module imports an interface that no host has.
    #[error(
        "it imports from `{0}`, which is neither in tollgate:admission@{CONTRACT_VERSION} nor in WASI's first preview"
    )]
    UnknownImport(String),
    /// The module does not fit the interfaces that it names.
    #[error("the module cannot be made into a component: {0}")]
    Encode(String),
}

/// Turns a core module, as binary or as text, into a component. A component stays unchanged.
///
/// # Errors
/// If the bytes are not a plugin for this version of the contract.
pub fn componentize(bytes: &[u8]) -> Result<Vec<u8>, ComponentizeError> {
    let bytes = &*wat::parse_bytes(bytes)
        .map_err(|error| ComponentizeError::Malformed(error.to_string()))?;
    match Parser::new(0).parse_all(bytes).next() {
        Some(Ok(Payload::Version {
            encoding: Encoding::Component,
            ..
        })) => return Ok(bytes.to_vec()),
        Some(Ok(Payload::Version { .. })) => {}
        Some(Err(error)) if bytes.starts_with(b"\0asm") => {
            return Err(ComponentizeError::Malformed(error.to_string()));
        }
        _ => return Err(ComponentizeError::NotWasm),
    }
    let module = inspect(bytes)?;
    if module.used.exports.is_empty() {
        return Err(ComponentizeError::NotAPlugin);
    }
    let mut resolve = contract::resolve();
    let mut encoder = ComponentEncoder::default().validate(true);
    if module.has_world {
        encoder = encoder.module(bytes).map_err(ComponentizeError::encode)?;
    } else {
        let world = contract::world(&mut resolve, "module", &module.used);
        let mut bytes = bytes.to_vec();
        embed_component_metadata(&mut bytes, &resolve, world, StringEncoding::UTF8)
            .map_err(ComponentizeError::encode)?;
        encoder = encoder.module(&bytes).map_err(ComponentizeError::encode)?;
    }
    if module.uses_wasi {
        let stub = wasi::stub(&contract::resolve())?;
        encoder = encoder
            .adapter(wasi::MODULE, &stub)
            .map_err(ComponentizeError::encode)?;
    }
    encoder.encode().map_err(ComponentizeError::encode)
}

/// The interfaces that a module uses.
#[derive(Default)]
struct Module {
    used: Used,
    uses_wasi: bool,
    has_world: bool,
}

fn inspect(bytes: &[u8]) -> Result<Module, ComponentizeError> {
    let malformed =
        |error: wasmparser::BinaryReaderError| ComponentizeError::Malformed(error.to_string());
    let mut module = Module::default();
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(malformed)? {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import.map_err(malformed)?;
                    match import.module {
                        wasi::MODULE => module.uses_wasi = true,
                        other => module.used.import(other)?,
                    }
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    module.used.export(export.map_err(malformed)?.name)?;
                }
            }
            Payload::CustomSection(section) if section.name().starts_with("component-type") => {
                module.has_world = true;
            }
            _ => {}
        }
    }
    Ok(module)
}

// === impl ComponentizeError ===

impl ComponentizeError {
    pub(crate) fn encode(error: anyhow::Error) -> Self {
        Self::Encode(format!("{error:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plugin in docs/guides/languages/no-sdk.md, with additional text at its end.
    fn plugin(more: &str) -> Vec<u8> {
        let page = include_str!("../../../docs/guides/languages/no-sdk.md");
        let (_, text) = page.split_once("```wat\n").unwrap();
        let (text, _) = text.split_once("```").unwrap();
        let text = text.trim_end().strip_suffix(')').unwrap();
        // Imports come first in a module.
        let text = text.replacen("(module", &format!("(module {more}"), 1);
        format!("{text})").into_bytes()
    }

    fn refused(module: &[u8]) -> String {
        componentize(module).unwrap_err().to_string()
    }

    /// The names of a component's imports.
    fn imports(component: &[u8]) -> Vec<String> {
        let mut names = Vec::new();
        let mut depth = 0;
        for payload in Parser::new(0).parse_all(component) {
            match payload.unwrap() {
                Payload::Version { .. } => depth += 1,
                Payload::End(_) => depth -= 1,
                Payload::ComponentImportSection(section) if depth == 1 => {
                    names.extend(
                        section
                            .into_iter()
                            .map(|import| import.unwrap().name.name.to_owned()),
                    );
                }
                _ => {}
            }
        }
        names
    }

    #[test]
    fn documented_plugin_becomes_component() {
        let component = componentize(&plugin("")).unwrap();
        assert_eq!(componentize(&component).unwrap(), component);
        // The component imports types, which grants nothing.
        assert_eq!(imports(&component), ["tollgate:admission/types@0.1.0"]);
    }

    #[test]
    fn component_imports_only_used_interfaces() {
        let import = r#"(import "tollgate:admission/clock@0.1.0" "now" (func (param i32)))"#;
        let component = componentize(&plugin(import)).unwrap();
        assert!(imports(&component).contains(&"tollgate:admission/clock@0.1.0".to_owned()));
        assert!(!imports(&component).contains(&"tollgate:admission/review@0.1.0".to_owned()));
    }

    #[test]
    fn component_imports_lookups_only_when_used() {
        let import = r#"(import "tollgate:admission/cluster@0.1.0" "get"
            (func (param i32 i32 i32 i32 i32 i32 i32 i32)))"#;
        let name = "tollgate:admission/cluster@0.1.0".to_owned();
        assert!(imports(&componentize(&plugin(import)).unwrap()).contains(&name));
        assert!(!imports(&componentize(&plugin("")).unwrap()).contains(&name));
    }

    #[test]
    fn component_does_not_import_wasi() {
        let import = r#"
            (import "wasi_snapshot_preview1" "proc_exit" (func (param i32)))
            (import "wasi_snapshot_preview1" "clock_time_get" (func (param i32 i64 i32) (result i32)))
            (import "wasi_snapshot_preview1" "path_open"
                (func (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))"#;
        let component = componentize(&plugin(import)).unwrap();
        let wasi: Vec<String> = imports(&component)
            .into_iter()
            .filter(|name| name.contains("wasi"))
            .collect();
        assert!(wasi.is_empty(), "{wasi:?}");
    }

    #[test]
    fn refuses_other_modules_with_reason() {
        assert!(refused(b"(module)").starts_with("it exports nothing of tollgate:admission@0.1.0"));
        assert!(
            refused(&plugin(r#"(import "env" "now" (func))"#)).starts_with("it imports from `env`")
        );
        let other = r#"(module (func (export "tollgate:admission/validating@0.2.0#validate")))"#;
        assert!(refused(other.as_bytes()).starts_with("it was built for tollgate:admission@0.2.0"));
        let cut = refused(b"\0asm\x01\0\0");
        assert!(cut.starts_with("the file is damaged or cut off"), "{cut}");
        let unknown = r#"(import "tollgate:admission/review@0.1.0" "delete" (func))"#;
        assert!(
            refused(&plugin(unknown)).starts_with("the module cannot be made into a component")
        );
    }
}
