//! The leader's part of the status: it removes the entries of replicas that are gone, and says which plugins are
//! registered.

use std::collections::BTreeSet;

use tokio::time::Instant;
use tollgate_config::Serving;

use super::write::remove_entry;
use super::{AFTER_FAILURE, Desiring, Reports, Round};
use crate::desired::Verdict;
use crate::kinds::Resource;
use crate::lead::Management;
use crate::status::{self, Registration, ReplicaEntry};

// === impl Reports ===

impl Reports {
    /// Returns the replicas that are gone, if this replica leads.
    pub(super) fn gone(&mut self, plugins: &[Desiring], round: &mut Round) -> BTreeSet<String> {
        let Management::Own(lead) = self.management.borrow().clone() else {
            return BTreeSet::new();
        };
        let now = Instant::now();
        let entries = plugins.iter().map(|plugin| &plugin.resource);
        let entries: Vec<ReplicaEntry> = entries.flat_map(status::entries).collect();
        // Every replica looks, so that a new leader knows since when.
        let departed = self.departures.look(
            &entries,
            &self.installation,
            &lead.replicas.borrow(),
            lead.gone_after,
            now,
        );
        if let Some(next) = departed.next {
            round.by(next);
        }
        if lead.leads(now) {
            departed.names
        } else {
            BTreeSet::new()
        }
    }

    /// Removes the entries of replicas that are gone. Returns whether there was one.
    pub(super) async fn prune(
        &mut self,
        plugin: &mut Desiring,
        gone: &BTreeSet<String>,
        round: &mut Round,
    ) -> bool {
        let mut is_news = false;
        let own = self.installation.full_name();
        let Desiring {
            kind,
            name,
            resource,
        } = plugin;
        for entry in status::entries(resource) {
            // A replica of another installation can have the same name.
            if entry.installation != own || !gone.contains(&entry.name) {
                continue;
            }
            match remove_entry(&self.client, *kind, resource, &entry.name).await {
                Ok(written) => {
                    tracing::info!(
                        name,
                        replica = entry.name,
                        "removed the entry of a replica that is gone from a status"
                    );
                    self.store.apply(*kind, written.clone());
                    *resource = written;
                    is_news = true;
                }
                Err(reason) => {
                    tracing::debug!(
                        name,
                        replica = entry.name,
                        reason,
                        "cannot remove the entry of a replica that is gone"
                    );
                    round.by(Instant::now() + AFTER_FAILURE);
                }
            }
        }
        is_news
    }

    /// Returns what this replica's entry says about the registration of a plugin. Words that may right themselves in a
    /// moment wait.
    pub(super) fn registration(
        &mut self,
        name: &str,
        resource: &Resource,
        verdict: &Verdict,
        serving: &Serving,
        round: &mut Round,
    ) -> Option<Registration> {
        let entries = status::entries(resource);
        let written = entries.into_iter().find(|entry| {
            entry.name == self.installation.replica && entry.generation == resource.generation
        });
        let written = written.and_then(|entry| entry.registration);
        let said = match &*self.management.borrow() {
            Management::Unknown => return written,
            Management::Others => Registration::not_managed(),
            Management::Own(lead) => {
                let report = lead.report.borrow();
                if !report.leads {
                    return None;
                }
                let served = serving.get(name);
                Registration::of_leader(name, verdict, served, &report)
            }
        };
        let is_settled = said.is_settled();
        round.patient(&mut self.unregistered, name, written, said, is_settled)
    }
}
