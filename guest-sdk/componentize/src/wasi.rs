//! A stand-in for WASI's first preview, for compilers that cannot be kept from importing it.
//!
//! Nothing is behind it and nothing of it reaches the host: the clock is a counter, randomness comes from a fixed seed,
//! there are no files and no arguments. A call of the real one would be a call of the host from within the allocator,
//! which the component model forbids (Go's collector reads the clock), and would make the same plugin judge the same
//! request differently.

use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::component::ComponentizeError;
use crate::contract::{self, Used};

/// What such modules import from.
pub(crate) const MODULE: &str = "wasi_snapshot_preview1";

/// The stub, with the part of the contract that it uses itself: what a program writes to its standard error before it
/// exits becomes the reason of the fault.
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
