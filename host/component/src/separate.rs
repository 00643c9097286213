//! Separates the contents of a component's memories from its code.
//!
//! Two snapshots of one plugin with different settings have the same code and differ in the contents of their memories.
//! The same holds for two versions of a policy in an interpreted language. Compiling is slow, and the compiler copies
//! the contents of memories without looking at them. So the contents of each memory become an image, and a placeholder
//! of the same size takes their place in the component. The compiled component has the placeholders at page boundaries.
//! The host fills images into code of a separated component. The result is the code of the original component.
//!
//! Images begin and end at pages of WebAssembly, and large ones end at coarser boundaries, so that contents of slightly
//! different sizes have the same place. Zeros that nobody reads cost disk space only. The component otherwise stays as it is, with the size of its memories, its globals and its tables.

mod image;
mod slots;

use std::sync::Arc;

use wasm_encoder::{
    Component, ComponentSectionId, ConstExpr, DataCountSection, DataSection, Module, RawSection,
    SectionId,
};
use wasmparser::{BinaryReaderError, Parser, Payload};

use super::lend::LentMemory;
use super::outline::own_payloads;
pub(super) use image::Memory;
pub(super) use slots::placeholder;
pub use slots::{SlotError, slots};

/// A component without the contents of its memories.
#[derive(Debug)]
pub struct Separated {
    /// The component, with a placeholder in place of each image.
    pub component: Vec<u8>,
    /// The contents of memories, in the order of their modules.
    pub images: Vec<Vec<u8>>,
    /// The memories that the component imports.
    pub memories: Vec<Arc<LentMemory>>,
}

/// Separates the contents of memories from a component. Memories stay as they are if the host would not initialise them
/// from an image, or if code may refer to their data.
///
/// # Errors
/// When the component cannot be read.
pub fn separate(component: &[u8]) -> Result<Separated, BinaryReaderError> {
    let mut images = Vec::new();
    let mut separated = Component::new();
    for payload in own_payloads(component) {
        let payload = payload?;
        if let Payload::CustomSection(_) = payload {
            // Names of modules and instances. Nothing reads them, and tools write them in any order.
            continue;
        }
        // If the bytes are cut short, the parser reaches their end and reports it.
        let Some((id, data)) = section(&payload, component) else {
            continue;
        };
        let module = match id == u8::from(ComponentSectionId::CoreModule) {
            true => separate_module(data, &mut images)?,
            false => None,
        };
        let data = module.as_deref().unwrap_or(data);
        separated.section(&RawSection { id, data });
    }
    Ok(Separated {
        component: separated.finish(),
        images,
        memories: Vec::new(),
    })
}

/// The number and the content of a section.
pub(super) fn section<'c>(payload: &Payload<'_>, bytes: &'c [u8]) -> Option<(u8, &'c [u8])> {
    let (id, range) = payload.as_section()?;
    Some((id, bytes.get(range)?))
}

/// Moves the contents of the module's memory to `images`. Returns `None` if the module stays as it is.
fn separate_module(
    module: &[u8],
    images: &mut Vec<Vec<u8>>,
) -> Result<Option<Vec<u8>>, BinaryReaderError> {
    let Some(image) = Memory::read(module)?.and_then(|memory| memory.image()) else {
        return Ok(None);
    };
    let mut separated = Module::new();
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        let Some((id, data)) = section(&payload, module) else {
            continue;
        };
        if id == u8::from(SectionId::Data) {
            let mut segments = DataSection::new();
            let placeholder = slots::placeholder(images.len(), image.content.len());
            segments.active(0, &ConstExpr::i32_const(image.offset), placeholder);
            separated.section(&segments);
        } else if id == u8::from(SectionId::DataCount) {
            separated.section(&DataCountSection { count: 1 });
        } else {
            separated.section(&RawSection { id, data });
        }
    }
    images.push(image.content);
    Ok(Some(separated.finish()))
}

#[cfg(test)]
mod tests;
