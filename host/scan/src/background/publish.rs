//! Publishes the results of a scan: as policy reports, and as numbers for readers of the admin listener.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeSet;

use tollgate_cluster::InventoryError;

use super::counts::Counts;
use super::memory::Memory;
use super::round::Tally;
use super::share::Share;
use super::writer::{Outcome, Reports, Writer};
use crate::exceptions::Uses;
use crate::finding::{Finding, Results};
use crate::report::Layout;
use crate::state::Seen;

/// The results of a scan.
pub(crate) struct Published<'s, F> {
    pub(crate) memory: &'s Memory,
    pub(crate) tally: &'s Tally,
    /// Returns the results of the plugins that are the same as when an object was judged.
    pub(crate) findings: F,
}

/// What readers of the admin listener learn about the results.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) counts: Counts,
    /// What is known about exceptions.
    pub(crate) uses: Uses,
}

// === impl Published ===

impl<F: Fn(&Seen) -> Vec<Finding>> Published<'_, F> {
    /// Writes the reports of this replica's namespaces, and counts their results. The numbers are there also if no report
    /// can be written.
    pub(crate) async fn write<R: Reports>(
        &self,
        writer: &mut Writer,
        layout: &Layout,
        share: &mut Share,
        reports: &R,
    ) -> (Result<Outcome, InventoryError>, Numbers) {
        let remembered = self.memory.by_namespace();
        let with_results = remembered.keys().chain(self.tally.counted.keys());
        let with_results: BTreeSet<Option<String>> = with_results.cloned().collect();
        let numbers = RefCell::new(Numbers::default());
        let results = |namespace: &Option<String>| {
            let mut results = Results::default();
            for (resource, one) in remembered.get(namespace).into_iter().flatten() {
                let judged = one.judged(resource, &self.findings);
                results.add(one.place.clone(), judged);
            }
            if let Some(counted) = self.tally.counted.get(namespace) {
                results.counted.insert(namespace.clone(), *counted);
            }
            let plugins = self.tally.by_plugin(namespace, &results);
            let mut numbers = numbers.borrow_mut();
            numbers.counts.add(namespace.as_deref(), &plugins);
            numbers.uses.add(&results);
            results
        };
        let own = with_results.clone();
        let written = writer.write(reports, layout, share, own, &results).await;
        if written.is_err() {
            // The writer may have come to some of them, or to none.
            numbers.take();
            for namespace in &with_results {
                if share.owns(namespace.as_deref()) {
                    results(namespace);
                }
            }
        }
        (written, numbers.into_inner())
    }
}
