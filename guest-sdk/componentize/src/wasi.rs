//! A stub of WASI's first preview, for compilers that always import it.
//!
//! The stub does not call the host. The clock is a counter, randomness comes from a fixed seed, and there are no files
//! and no arguments. A real implementation has two problems. It would call the host from within the allocator, because
//! Go's collector reads the clock, and the component model forbids that. And the same plugin would evaluate the same
//! request differently.

use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::component::ComponentizeError;
use crate::contract::{self, Used};

/// The module name of these imports.
pub(crate) const MODULE: &str = "wasi_snapshot_preview1";

/// The stub, with the part of the contract that the stub itself uses. If a program writes to standard error before it
/// exits, that text becomes the reason of the fault.
pub(crate) fn stub(resolve: &Resolve) -> Result<Vec<u8>, ComponentizeError> {
    let mut resolve = resolve.clone();
    let used = Used {
        imports: vec!["logging".to_owned()],
        exports: Vec::new(),
    };
    let world = contract::world(&mut resolve, "wasi-stub", &used);
    let mut module = wat::parse_str(include_str!("wasi.wat")).expect("the stub is valid text");
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
        .map_err(ComponentizeError::encode)?;
    Ok(module)
}
