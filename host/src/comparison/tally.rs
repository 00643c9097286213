//! What has been compared so far, for as long as plugin and candidate are the same.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Difference, Verdict};
use crate::config::{Limits, format_count};
use crate::document::Json;
use crate::pipeline::text::{Limit, one_line};

/// Counts, and the last differences.
#[derive(Debug)]
pub struct Tally(Mutex<State>);

#[derive(Debug)]
struct State {
    since: OffsetDateTime,
    /// Calls that both came to an end of their own.
    compared: u64,
    differed: u64,
    /// The candidate's calls that the clock ended.
    unfinished: u64,
    /// Calls of the plugin that there was no room to repeat.
    dropped: u64,
    /// The candidate's, by name.
    faults: BTreeMap<&'static str, u64>,
    /// Calls that came near the limit of fuel, and past it.
    near: u64,
    most_fuel: u64,
    fuel: Mean,
    live_fuel: Mean,
    /// The newest last.
    differences: VecDeque<Kept>,
}

#[derive(Debug, Default)]
struct Mean {
    sum: u64,
    of: u64,
}

#[derive(Debug)]
struct Kept {
    uid: String,
    phase: &'static str,
    time: OffsetDateTime,
    difference: Difference,
}

/// One request, as both of them had it.
#[derive(Debug)]
pub struct Call<'c> {
    /// The review's.
    pub uid: &'c str,
    /// `mutate` or `validate`.
    pub phase: &'static str,
    /// The object as the user sent it.
    pub user: Option<&'c Json>,
    /// What the plugin made of it, and its fuel.
    pub live: (&'c Verdict, u64),
    /// Likewise, the candidate.
    pub candidate: (&'c Verdict, u64),
}

/// What comparing one request came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// Where the two differ.
    pub difference: Option<Difference>,
    /// The clock ended the candidate's call: nothing was compared.
    pub unfinished: bool,
    /// The candidate came near its limit of fuel, or past it, for so many times now.
    pub near: Option<u64>,
}

/// Differences that are kept of one candidate.
const MOST_DIFFERENCES: usize = 100;
/// Longer than any uid that kube-apiserver makes.
const UID_BYTES: usize = 64;
/// More of the fuel that it may have is near the limit.
const NEAR_PERCENT: u64 = 80;
const OUT_OF_FUEL: &str = "out-of-fuel";

// === impl Tally ===

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

impl Tally {
    /// Nothing has been compared yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Mutex::new(State {
            since: OffsetDateTime::now_utc(),
            compared: 0,
            differed: 0,
            unfinished: 0,
            dropped: 0,
            faults: BTreeMap::new(),
            near: 0,
            most_fuel: 0,
            fuel: Mean::default(),
            live_fuel: Mean::default(),
            differences: VecDeque::new(),
        }))
    }

    /// There was no room to repeat a call.
    pub fn dropped(&self) {
        self.lock().dropped += 1;
    }

    /// Takes note of a call that was repeated, under these limits.
    pub fn take(&self, call: &Call<'_>, limits: &Limits) -> Compared {
        let (live, live_fuel) = call.live;
        let (candidate, fuel) = call.candidate;
        let unfinished = candidate.is_unfinished();
        let difference = (!unfinished)
            .then(|| live.against(candidate, call.user))
            .flatten();
        let near_fuel = limits.fuel.saturating_mul(NEAR_PERCENT) / 100;
        let is_near = fuel > near_fuel || candidate.fault() == Some(OUT_OF_FUEL);
        let mut state = self.lock();
        if let Some(kind) = candidate.fault() {
            *state.faults.entry(kind).or_default() += 1;
        }
        if unfinished {
            state.unfinished += 1;
        } else {
            state.compared += 1;
            state.fuel.add(fuel);
            state.live_fuel.add(live_fuel);
        }
        state.most_fuel = state.most_fuel.max(fuel);
        if is_near {
            state.near += 1;
        }
        if let Some(difference) = &difference {
            state.differed += 1;
            if state.differences.len() >= MOST_DIFFERENCES {
                state.differences.pop_front();
            }
            state.differences.push_back(Kept {
                uid: one_line(call.uid, Limit::Bytes(UID_BYTES)),
                phase: call.phase,
                time: OffsetDateTime::now_utc(),
                difference: difference.clone(),
            });
        }
        Compared {
            difference,
            unfinished,
            near: is_near.then_some(state.near),
        }
    }

    /// The counts.
    #[must_use]
    pub fn summary(&self, limits: &Limits) -> Value {
        let state = self.lock();
        let stopped: u64 = state.faults.values().sum::<u64>() - state.unfinished;
        json!({
            "since": timestamp(state.since),
            "compared": state.compared,
            "differed": state.differed,
            "dropped": state.dropped,
            "unfinished": state.unfinished,
            "faults": state.faults,
            "wouldHaveStopped": format!("{stopped} of {}", state.compared),
            "fuel": {
                "limit": format_count(limits.fuel),
                "mean": state.fuel.value(),
                "meanOfLive": state.live_fuel.value(),
                "most": state.most_fuel,
                "above80Percent": state.near,
            },
        })
    }

    /// The last differences, the newest first.
    #[must_use]
    pub fn differences(&self) -> Vec<Value> {
        let state = self.lock();
        state.differences.iter().rev().map(Kept::tell).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Kept ===

impl Kept {
    fn tell(&self) -> Value {
        let mut told = self.difference.tell();
        told["uid"] = self.uid.as_str().into();
        told["phase"] = self.phase.into();
        told["time"] = timestamp(self.time).into();
        told
    }
}

// === impl Mean ===

impl Mean {
    fn add(&mut self, value: u64) {
        self.sum = self.sum.saturating_add(value);
        self.of += 1;
    }

    fn value(&self) -> u64 {
        self.sum.checked_div(self.of).unwrap_or_default()
    }
}

fn timestamp(time: OffsetDateTime) -> String {
    let time = time.replace_nanosecond(0).unwrap_or(time);
    time.format(&Rfc3339).unwrap_or_default()
}
