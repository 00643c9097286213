//! The children that compile: a plugin or a component becomes machine code. No guest code runs here.

use std::io::Write;

use tollgate_admission::chain;
use tollgate_component::{Separated, Slot, lent, separate, slots};
use tollgate_engine::{Guest, GuestError, Tier};
use wasmtime_wizer::Wizer;

use super::{Outcome, Refusal, Reporter, Workshop, attempted, caught, component_of, sizes};
use crate::plugin::protocol::{Line, Order, Place, Stage};

/// Compiles a component. `images` are the sizes of the images that were separated from it.
pub(super) fn compile(
    order: &Order,
    stage: Stage,
    images: &[u64],
    component: &[u8],
    reporter: &mut Reporter<impl Write>,
) -> Result<Outcome, Refusal> {
    let _ = reporter.stage(stage);
    let workshop = Workshop::open(order, order.tier)?;
    let lent = match order.tier {
        Tier::Serving | Tier::Portable | Tier::Interim => attempted(|| lent(component)).flatten(),
        // Another child runs the code, and takes it in one piece.
        Tier::Once | Tier::Baseline => None,
    };
    let lent = lent.and_then(|lent| compiled(|| workshop.link_lent(&lent)).ok());
    let compiled = match lent {
        Some(parts) => Ok(parts),
        None => compiled(|| workshop.link(component)),
    };
    let parts = compiled.map_err(|reason| stage.refuses(reason))?;
    let slots = slots(&parts, images).map_err(|error| stage.refuses(error))?;
    let places = slots
        .into_iter()
        .map(|Slot { part, offset }| Place { part, offset });
    let places = places.collect();
    let mut parts = parts.into_iter();
    let bytes = parts.next().unwrap_or_default();
    let memories: Vec<_> = parts.collect();
    let line = Line::Compiled {
        code_bytes: bytes.len() as u64,
        memories: sizes(&memories),
        fallback: None,
        places,
    };
    Ok(Outcome {
        line,
        bytes,
        images: memories,
    })
}

/// Compiles a plugin, and returns the parts of its code.
fn compiled(link: impl FnOnce() -> Result<Guest, GuestError>) -> Result<Vec<Vec<u8>>, String> {
    caught(|| {
        let guest = link().map_err(|error| chain(&error))?;
        guest.code().map_err(|error| format!("{error:#}"))
    })
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
        Some(Separated { component, images }) if !images.is_empty() => (component, images),
        _ => (Vec::new(), Vec::new()),
    };
    let line = Line::Separated {
        component_bytes: component.len() as u64,
        images: sizes(&images),
    };
    Ok(Outcome {
        line,
        bytes: component,
        images,
    })
}
