//! Code that serves until the optimised code is ready.
//!
//! The optimising compiler takes most of the time until a plugin can serve: ten seconds of processor time for an
//! interpreter. Without it, the same component is ready in less than half the time. The code answers the same, with the
//! same fuel, and takes longer.

use tollgate_component::Separated;
use tollgate_engine::{Compiled, Key, Tier};

use super::{Known, Order, Pace, PrepareError, Stage, Worker};

/// A plugin that has interim code, with all that is needed to compile it.
#[derive(Debug)]
pub(in crate::plugin) struct Unfinished {
    pub(super) order: Order,
    pub(super) stage: Stage,
    pub(super) component: Separated,
    pub(super) key: Option<Key>,
    pub(super) known: Known,
}

// === impl Unfinished ===

impl Unfinished {
    /// The name of the plugin.
    pub(in crate::plugin) fn plugin(&self) -> &str {
        &self.order.plugin
    }
}

// === impl Worker ===

impl Worker {
    /// Compiles a component without optimising. None if the optimised code is better: it is stored, the component is
    /// small, or this compilation fails.
    pub(super) async fn interim(
        &self,
        order: &Order,
        stage: Stage,
        component: &Separated,
        pace: &mut Pace<'_>,
    ) -> Option<Compiled> {
        if order.tier != Tier::Serving
            || code_bytes(component) < self.min_interim_bytes
            || self.has_code(order, stage, component)
        {
            return None;
        }
        let order = Order {
            tier: Tier::Interim,
            ..order.clone()
        };
        self.shared(&order, stage, component, pace).await.ok()
    }

    /// Compiles the optimised code of a plugin that has interim code, and stores it.
    pub(in crate::plugin) async fn finish(
        &self,
        unfinished: &Unfinished,
    ) -> Result<Compiled, PrepareError> {
        let Unfinished {
            order,
            stage,
            component,
            key,
            known,
        } = unfinished;
        let mut pace = self.lanes.enter_niced().await;
        let code = self.shared(order, *stage, component, &mut pace).await?;
        self.keep(key.clone(), known, &code).end().await;
        Ok(code)
    }
}

/// Size of a component without the places of its images.
fn code_bytes(separated: &Separated) -> usize {
    let images = separated.images.iter().map(Vec::len);
    separated.component.len().saturating_sub(images.sum())
}
