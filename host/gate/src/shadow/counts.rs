//! Counts comparisons and keeps the last differences. The counts start anew when the plugin or its shadow changes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tollgate_admission::text::{Limit, one_line};
use tollgate_config::{Limits, format_count};
use tollgate_json::document::Json;

use super::{Difference, Verdict};

/// The counts of a plugin and its shadow, and their last differences.
#[derive(Debug)]
pub struct Counts(Mutex<State>);

#[derive(Debug)]
struct State {
    since: OffsetDateTime,
    /// Repeated calls that the shadow finished in time.
    compared: u64,
    differed: u64,
    /// The shadow's calls that ran out of time.
    unfinished: u64,
    /// Calls of the plugin that were not repeated, for lack of room.
    dropped: u64,
    /// The shadow's faults, by kind.
    faults: BTreeMap<&'static str, u64>,
    /// The shadow's calls that came near the fuel limit or ran out of fuel.
    near: u64,
    most_fuel: u64,
    fuel: Mean,
    live_fuel: Mean,
    /// The kept differences, oldest first.
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

/// One request, as the plugin and its shadow answered it.
#[derive(Debug)]
pub struct Call<'c> {
    /// The uid of the review.
    pub uid: &'c str,
    /// The phase: `mutate` or `validate`.
    pub phase: &'static str,
    /// The object as the user sent it.
    pub user: Option<&'c Json>,
    /// The plugin's verdict, and the fuel that its call used.
    pub live: (&'c Verdict, u64),
    /// The shadow's verdict, and the fuel that its call used.
    pub shadow: (&'c Verdict, u64),
}

/// The result of comparing one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// The difference between the two verdicts, if any.
    pub difference: Option<Difference>,
    /// Whether the shadow's call ran out of time. If so, nothing was compared.
    pub unfinished: bool,
    /// If the shadow came near its fuel limit or ran out of fuel: how many of its calls have done so by now.
    pub near: Option<u64>,
}

/// Maximum number of differences kept of one shadow.
const MOST_DIFFERENCES: usize = 100;
/// Maximum length of a kept uid, in bytes: longer than any uid that kube-apiserver makes.
const UID_BYTES: usize = 64;
/// Percentage of the fuel limit above which a call counts as near the limit.
const NEAR_PERCENT: u64 = 80;
const OUT_OF_FUEL: &str = "out-of-fuel";

// === impl Counts ===

impl Default for Counts {
    fn default() -> Self {
        Self::new()
    }
}

impl Counts {
    /// Creates counts that start at zero now.
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

    /// Counts a call that was not repeated, for lack of room.
    pub fn dropped(&self) {
        self.lock().dropped += 1;
    }

    /// Compares the two verdicts of a repeated call and counts the result. `limits` are the limits of the shadow.
    pub fn take(&self, call: &Call<'_>, limits: &Limits) -> Compared {
        let (live, live_fuel) = call.live;
        let (shadow, fuel) = call.shadow;
        let unfinished = shadow.is_unfinished();
        let difference = (!unfinished)
            .then(|| live.against(shadow, call.user))
            .flatten();
        let near_fuel = limits.fuel.saturating_mul(NEAR_PERCENT) / 100;
        let is_near = fuel > near_fuel || shadow.fault() == Some(OUT_OF_FUEL);
        let mut state = self.lock();
        if let Some(kind) = shadow.fault() {
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

    /// The counts, as `/plugins` and `/shadows` show them.
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

    /// The kept differences, newest first.
    #[must_use]
    pub fn differences(&self) -> Vec<Value> {
        let state = self.lock();
        state.differences.iter().rev().map(Kept::to_json).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Kept ===

impl Kept {
    fn to_json(&self) -> Value {
        let mut value = self.difference.to_json();
        value["uid"] = self.uid.as_str().into();
        value["phase"] = self.phase.into();
        value["time"] = timestamp(self.time).into();
        value
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
