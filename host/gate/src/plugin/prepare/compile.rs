//! The children that compile: a plugin or a component becomes machine code. No guest code runs here.

use std::io::Write;

use tollgate_admission::chain;
use tollgate_component::{Separated, separate, slots, wanted};
use wasmtime_wizer::Wizer;

use super::{Outcome, Refusal, Reporter, Workshop, attempted, caught, component_of, sizes};
use crate::plugin::protocol::{Line, MemoryLine, Order, Stage};

/// Compiles a component, and before it the modules of memories. `images` are the sizes of the images that were separated
/// from the component.
pub(super) fn compile(
    order: &Order,
    stage: Stage,
    images: &[u64],
    memories: &[MemoryLine],
    component: &[u8],
    reporter: &mut Reporter<impl Write>,
) -> Result<Outcome, Refusal> {
    let _ = reporter.stage(stage);
    for memory in memories {
        let (code, places) = memory_code(&order.to_lay_out(*memory), stage, *memory)?;
        let [place] = places[..] else {
            return Err(stage.refuses("the content of a memory is not in its code once"));
        };
        // If the host is gone, the next write ends this process.
        let _ = reporter.laid_out(&code, place);
    }
    let workshop = Workshop::open(order, order.tier)?;
    compiled(stage, images, || {
        let wanted = wanted(component).map_err(|error| chain(&error))?;
        // There is no content to link it with, only what the component asks for.
        let memories = wanted.map(|wanted| wanted.memories).unwrap_or_default();
        let guest = workshop.link_lent(component, &memories);
        let guest = guest.map_err(|error| chain(&error))?;
        guest.code().map_err(|error| format!("{error:#}"))
    })
    .map(outcome)
}

/// Compiles the module of a memory, with a placeholder for its content.
pub(super) fn laid_out(
    order: &Order,
    memory: MemoryLine,
    reporter: &mut Reporter<impl Write>,
) -> Result<Outcome, Refusal> {
    let stage = Stage::CompileSnapshot;
    let _ = reporter.stage(stage);
    memory_code(order, stage, memory).map(outcome)
}

/// The code of a memory's module, and the place of its content.
fn memory_code(
    order: &Order,
    stage: Stage,
    memory: MemoryLine,
) -> Result<(Vec<u8>, Vec<u64>), Refusal> {
    let workshop = Workshop::open(order, order.tier)?;
    let size = usize::try_from(memory.bytes).map_err(|error| stage.refuses(error))?;
    let lent = memory.with(Vec::new()).with_placeholder(size);
    compiled(stage, &[memory.bytes], || {
        let code = workshop.engine.memory_code(&lent);
        code.map_err(|error| format!("{error:#}"))
    })
}

/// Compiles something, and finds the places of its images in the code.
fn compiled(
    stage: Stage,
    images: &[u64],
    compile: impl FnOnce() -> Result<Vec<u8>, String>,
) -> Result<(Vec<u8>, Vec<u64>), Refusal> {
    let code = caught(compile).map_err(|reason| stage.refuses(reason))?;
    let places = slots(&code, images).map_err(|error| stage.refuses(error))?;
    Ok((code, places))
}

/// The result of a child that compiled: code, and the places of images in it.
fn outcome((bytes, places): (Vec<u8>, Vec<u64>)) -> Outcome {
    let line = Line::Compiled {
        code_bytes: bytes.len() as u64,
        fallback: None,
        places,
    };
    Outcome {
        line,
        bytes,
        contents: Vec::new(),
    }
}

/// Makes a component of a plugin, and separates the contents of its memories from it. There are no images if the
/// component cannot be instrumented or separated.
pub(super) fn separated(
    instrument: bool,
    plugin: Vec<u8>,
    reporter: &mut Reporter<impl Write>,
) -> Result<Outcome, Refusal> {
    let component = component_of(plugin, reporter)?;
    let _ = reporter.stage(Stage::Compile);
    let component = match instrument {
        true => attempted(|| Wizer::new().instrument_component(&component))
            .map(|(_, instrumented)| instrumented),
        false => Some(component),
    };
    let separated = component.and_then(|component| attempted(|| separate(&component)));
    let (component, images) = match separated {
        Some(Separated {
            component, images, ..
        }) if !images.is_empty() => (component, images),
        _ => (Vec::new(), Vec::new()),
    };
    let line = Line::Separated {
        component_bytes: component.len() as u64,
        images: sizes(&images),
    };
    Ok(Outcome {
        line,
        bytes: component,
        contents: images,
    })
}
