//! Writes differences as cases of `tollgate test`.
//!
//! A case holds the whole review and expects the old answer, so it fails with the new configuration and passes when that
//! configuration is corrected. A case goes through both endpoints, and a recorded review came to one. Each chosen
//! review is therefore sent through both endpoints here, and is left out if both configurations agree then.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::str::FromStr;

use anyhow::Context as _;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tollgate_recording::{Entry, Recording};

use super::Kind;
use super::run::{Baseline, Lab};
use super::side::{Category, Side};
use super::tally::{Difference, Tally, differing};

/// A choice of differences that become cases.
#[derive(Clone, Copy, Debug)]
pub(super) enum Choice {
    /// The review with this number.
    Number(u64),
    /// All differences of a kind.
    Kind(Kind),
}

/// The result of writing a suite.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) cases: usize,
    /// The numbers of the reviews that a case cannot show.
    pub(super) left_out: Vec<u64>,
}

/// Number of cases if nothing is chosen.
const FIRST: usize = 20;

// === impl Choice ===

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim_start_matches('#').parse() {
            Ok(number) => Ok(Self::Number(number)),
            Err(_) => text
                .parse()
                .map(Self::Kind)
                .map_err(|error| format!("{error}, or the number of a review")),
        }
    }
}

/// Returns the chosen differences.
pub(super) fn choose<'t>(tally: &'t Tally, choices: &[Choice]) -> Vec<&'t Difference> {
    if choices.is_empty() {
        let all = tally.differences.iter();
        let all = all.filter(|difference| difference.category != Category::Reworded);
        return all.take(FIRST).collect();
    }
    let is_chosen = |difference: &&Difference| {
        choices.iter().any(|choice| match choice {
            Choice::Number(number) => difference.about.number == *number,
            Choice::Kind(kind) => difference.category == kind.category(),
        })
    };
    tally.differences.iter().filter(is_chosen).collect()
}

/// Writes the cases of the chosen differences.
pub(super) async fn write(
    file: &Path,
    config: &Path,
    recording: &Recording,
    chosen: &[&Difference],
    new: &Lab,
    baseline: &Baseline,
) -> anyhow::Result<Written> {
    let numbers: BTreeSet<u64> = chosen.iter().map(|one| one.about.number).collect();
    let mut written = Written::default();
    let mut cases = Vec::new();
    let last = numbers.last().copied().unwrap_or_default();
    let entries = recording
        .records()
        .take_while(|entry| entry.number <= last)
        .filter(|entry| numbers.contains(&entry.number));
    let mut by_number: BTreeMap<u64, &Difference> = BTreeMap::new();
    for difference in chosen {
        by_number.insert(difference.about.number, difference);
    }
    for entry in entries {
        let Some(difference) = by_number.get(&entry.number) else {
            continue;
        };
        let is = new.both(&entry).await?;
        let expected = match baseline {
            Baseline::Config(old) => expected(&old.both(&entry).await?, &is),
            Baseline::Recorded => {
                let was = Side::recorded(&entry.record, entry.header.origin.is_approximate());
                by_record(&was, &is, difference)
            }
        };
        match expected {
            Some(expected) => cases.push(case(&entry, difference, &expected)),
            None => written.left_out.push(entry.number),
        }
    }
    written.cases = cases.len();
    let suite = json!({ "config": relative(config, file)?, "cases": cases });
    let mut text = String::from(
        "# Written by `tollgate replay`. Each case expects the answer from before the change: it fails with the\n\
         # configuration that was replayed, and passes once that configuration is corrected.\n",
    );
    text.push_str(&serde_saphyr::to_string(&suite).context("cannot write the suite as YAML")?);
    if !text.ends_with('\n') {
        text.push('\n');
    }
    super::write(file, &text)?;
    Ok(written)
}

fn case(entry: &Entry, difference: &Difference, expected: &Value) -> Value {
    let about = &difference.about;
    let time = OffsetDateTime::from(entry.record.time)
        .format(&Rfc3339)
        .unwrap_or_default();
    let review: Value = serde_json::from_str(&entry.record.review.to_text()).unwrap_or_default();
    json!({
        "name": format!("{}: {}", difference.category.title(), about.line()),
        "object": review,
        "now": time,
        "expect": expected,
    })
}

/// Returns the expectation that the old answer meets and the new one does not.
fn expected(old: &Side, new: &Side) -> Option<Value> {
    let (was, is) = (verdict(old), verdict(new));
    let has_new_fault = new.calls.iter().any(|call| call.fault.is_some())
        && old.calls.iter().all(|call| call.fault.is_none());
    if was != is || has_new_fault && was != "fault" {
        return Some(was.into());
    }
    if was != "allow" {
        return None;
    }
    let (Some(before), Some(after)) = (&old.after, &new.after) else {
        return None;
    };
    let mut places = BTreeMap::new();
    differing(Some(before), Some(after), String::new(), &mut places);
    let fields = places.into_iter().map(|(place, (old, _))| (place, old));
    let fields: serde_json::Map<String, Value> = fields.collect();
    (!fields.is_empty()).then(|| json!({ "verdict": was, "fields": fields }))
}

/// Like [`expected`], if only the recorded answer is known: that of one endpoint.
fn by_record(old: &Side, new: &Side, difference: &Difference) -> Option<Value> {
    let others_are_called = new
        .calls
        .iter()
        .any(|call| !difference.plugins.contains_key(&call.plugin));
    let was = match old.verdict() {
        "allow" if old.knows_calls && old.calls.is_empty() && !others_are_called => "not-called",
        verdict => verdict,
    };
    let has_new_fault = difference.category == Category::Faulted && was != "fault";
    if was != verdict(new) || has_new_fault {
        return Some(was.into());
    }
    if difference.category != Category::Patched || was != "allow" {
        return None;
    }
    // Only what a mutator made in this review is known. A difference elsewhere may come from the other endpoint.
    let fields = difference.old["fields"].as_object()?;
    (!fields.is_empty()).then(|| json!({ "verdict": was, "fields": fields }))
}

fn verdict(side: &Side) -> &'static str {
    match side.verdict() {
        "allow" if side.calls.is_empty() => "not-called",
        verdict => verdict,
    }
}

/// Returns the path of the configuration for a suite in `file`.
fn relative(config: &Path, file: &Path) -> anyhow::Result<String> {
    let config = std::path::absolute(config).context("cannot find the configuration")?;
    let file = std::path::absolute(file).context("cannot find the folder of the suite")?;
    let path = match file.parent().map(|folder| config.strip_prefix(folder)) {
        Some(Ok(path)) => path,
        _ => &config,
    };
    Ok(path.display().to_string())
}
