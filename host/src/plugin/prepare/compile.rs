//! The child that compiles a component to machine code. This child runs no guest code.

use std::io::Write;

use super::{Outcome, Refusal, Teller, Workshop, caught};
use crate::plugin::protocol::{Line, Order, Stage};

pub(super) fn compile(
    order: &Order,
    stage: Stage,
    component: &[u8],
    teller: &mut Teller<impl Write>,
) -> Result<Outcome, Refusal> {
    let _ = teller.stage(stage);
    let workshop = Workshop::open(order, order.tier)?;
    let bytes = caught(|| {
        let guest = workshop
            .link(component)
            .map_err(|error| error.to_string())?;
        guest.code().map_err(|error| format!("{error:#}"))
    })
    .map_err(|reason| stage.refuses(reason))?;
    let line = Line::Compiled {
        code_bytes: bytes.len() as u64,
    };
    Ok(Outcome { line, bytes })
}
