//! Encoding: one module in, one component out.

use wasmparser::{Encoding, Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};

use crate::contract::{self, CONTRACT_VERSION, Used};
use crate::wasi;

/// Why there is no component.
#[derive(Debug, thiserror::Error)]
pub enum ComponentizeError {
    /// The bytes are something else.
    #[error("it is not WebAssembly: it does not start with `\\0asm`")]
    NotWasm,
    /// The module cannot be read to its end.
    #[error("the file is damaged or cut off: {0}")]
    Malformed(String),
    /// The module exports nothing of the contract.
    #[error(
        "it exports nothing of tollgate:admission@{CONTRACT_VERSION}: is the SDK's export (`validator`, `mutator` or \
         `plugin`) called, and the module built as a library (a \"reactor\"), not as a command?"
    )]
    NotAPlugin,
    /// The module was built with an SDK of another version.
    #[error(
        "it was built for tollgate:admission@{0}, and this tool makes components of {CONTRACT_VERSION}: rebuild it"
    )]
    OtherVersion(String),
    /// The module imports what no host has.
    #[error(
        "it imports from `{0}`, which is neither in tollgate:admission@{CONTRACT_VERSION} nor in WASI's first preview"
    )]
    UnknownImport(String),
    /// The module does not fit the interfaces that it names.
    #[error("the module cannot be made into a component: {0}")]
    Encode(String),
}

/// Makes a component of a core module. A component stays as it is.
///
/// # Errors
/// When the bytes are not a plugin of this version of the contract.
pub fn componentize(bytes: &[u8]) -> Result<Vec<u8>, ComponentizeError> {
    match Parser::new(0).parse_all(bytes).next() {
        Some(Ok(Payload::Version {
            encoding: Encoding::Component,
            ..
        })) => return Ok(bytes.to_vec()),
        Some(Ok(Payload::Version { .. })) => {}
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

/// What there is to know of a module.
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
