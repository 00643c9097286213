//! Rollouts that the leader of the replicas decides about: this replica follows the common state, goes back by itself, and
//! reports what it sees.

use std::sync::Arc;

use tokio::sync::watch;
use tollgate_config::PluginName;
use tollgate_rollout::{Commons, Heard, Observations, Report, Reports, State, Told, obeys};

use super::Rollouts;
use super::running::Running;

/// The connection between the rollouts of this replica and the cluster.
#[derive(Clone, Debug)]
pub struct Link {
    /// What the cluster says.
    pub commons: watch::Receiver<Arc<Commons>>,
    /// Receives the reports of this replica.
    pub reports: watch::Sender<Arc<Reports>>,
}

// === impl Link ===

impl Link {
    /// Whether the leader of the replicas decides about the rollout of a plugin.
    pub(super) fn decides(&self, name: &PluginName) -> bool {
        self.commons.borrow().decides(name.as_str())
    }

    fn heard(&self, name: &PluginName) -> Option<Heard> {
        self.commons.borrow().plugins.get(name.as_str()).cloned()
    }

    /// Returns what this replica reported about the step of a state, before a restart.
    pub(super) fn reported(&self, name: &PluginName, state: &State) -> Observations {
        let own = self.heard(name).and_then(|heard| heard.own);
        let own = own.filter(|own| own.is_about(state));
        own.map(|own| own.observed).unwrap_or_default()
    }
}

// === impl Rollouts ===

impl Rollouts {
    /// Whether the leader of the replicas decides about the rollout of a plugin.
    pub(super) fn is_common(&self, name: &PluginName) -> bool {
        self.link.as_ref().is_some_and(|link| link.decides(name))
    }

    /// Follows what the cluster says. Returns whether requests are to be treated differently.
    pub(super) fn obey(&mut self, name: &PluginName, now: u64) -> bool {
        let Some(heard) = self.link.as_ref().and_then(|link| link.heard(name)) else {
            return false;
        };
        let common = heard.state.clone();
        let has_obeyed = common.is_some_and(|common| self.take_over(name, &common, &heard));
        let asked = heard.asked;
        let own = self.running.get(name).and_then(Running::seen);
        let back = own
            .filter(|own| asked.is_some_and(|asked| asked.rolls_back(own)))
            .and_then(|own| own.rolled_back(now).ok());
        match back {
            Some(back) => {
                self.enter(name, back);
                true
            }
            None => has_obeyed,
        }
    }

    fn take_over(&mut self, name: &PluginName, common: &State, heard: &Heard) -> bool {
        let Some(running) = self.running.get_mut(name) else {
            return false;
        };
        if !running.identity.may_be(&common.identity) {
            return false;
        }
        // Without the bytes of the new version, a state of other bytes counts only until the leader has another one.
        let seen = running.seen();
        let is_other = seen
            .as_ref()
            .is_some_and(|own| !own.identity.may_be(&common.identity));
        let own = seen.filter(|_| !is_other);
        // A watch that begins again may show an older status.
        let point = (common.run, common.revision);
        let obeyed = running.obeyed.filter(|_| !is_other);
        if obeyed.is_some_and(|obeyed| point < obeyed) {
            return false;
        }
        running.obeyed = Some(point);
        if !obeys(own.as_ref(), common) {
            return false;
        }
        let observed = match own {
            Some(own) if own.run == common.run && own.step == common.step => own.observed,
            Some(own) if own.run == common.run => Observations {
                old_time: own.observed.old_time,
                ..Observations::default()
            },
            Some(_) => Observations::default(),
            None => {
                let reported = heard.own.as_ref().filter(|own| own.is_about(common));
                reported.map(|own| own.observed).unwrap_or_default()
            }
        };
        let state = State {
            observed,
            ..common.clone()
        };
        self.enter(name, state);
        true
    }

    /// Tells the cluster what this replica sees. Counts alone are told only when `is_time`.
    pub(super) fn tell(&self, now: u64, is_time: bool) {
        let Some(link) = &self.link else { return };
        let common = self.running.iter().filter(|(name, _)| link.decides(name));
        let told = common.map(|(name, running)| (name.as_str().to_owned(), told(running, now)));
        let told: Reports = told.collect();
        link.reports.send_if_modified(|before| {
            let is_same = before.len() == told.len()
                && before
                    .iter()
                    .zip(&told)
                    .all(|((one, before), (other, now))| {
                        one == other && !is_news(before, now, is_time)
                    });
            if !is_same {
                *before = Arc::new(told);
            }
            !is_same
        });
    }
}

fn told(running: &Running, now: u64) -> Told {
    let blocked = running.blocked.as_deref();
    let report = match running.seen() {
        None => {
            let identity = Some(running.identity.clone());
            Report::stateless(identity.filter(|one| one.has_bytes()), blocked)
        }
        Some(state) => Report::of(&running.plan, &state, blocked, now),
    };
    let digest = |digest: Option<&Arc<str>>| digest.map(|digest| digest.to_string());
    let new = running.new.as_ref();
    Told {
        report: Report {
            asks_for_promotion: running.asks_for_promotion,
            ..report
        },
        plan: running.plan.clone(),
        from: digest(running.old.digest.as_ref()),
        to: digest(new.and_then(|new| new.digest.as_ref())),
    }
}

fn is_news(before: &Told, now: &Told, is_time: bool) -> bool {
    now.report.is_news_after(&before.report)
        || (is_time && now.report != before.report)
        || (&before.from, &before.to) != (&now.from, &now.to)
        || before.plan != now.plan
}
