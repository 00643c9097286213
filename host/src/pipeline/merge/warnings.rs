//! Warnings that kube-apiserver keeps.
//!
//! It drops a warning with a control character. Once they are longer than 4096 characters together – over all webhooks of
//! a request –, it shortens all of them to 256, and then drops what is still too much. So the host does that by itself,
//! and says what it left out.

use std::collections::HashSet;

use super::{Weight, status};
use crate::pipeline::outcome::Report;
use crate::pipeline::text::{Limit, one_line};

/// What kube-apiserver shortens a warning to when they are too long together. Kubernetes advises 120.
const SHORT_CHARACTERS: usize = 256;
/// What kube-apiserver takes in all before it shortens.
const MAX_TOTAL_CHARACTERS: usize = 4096;
/// Room for the last one, which counts those that were left out.
const REST_CHARACTERS: usize = 64;
/// Warnings of one plugin that are looked at. Were they one character long each, more would not fit.
const MAX_PER_PLUGIN: usize = 512;

struct Warning {
    text: String,
    characters: usize,
    /// The how-manieth of its plugin it is.
    rank: usize,
}

/// Warnings ready to be sent, in plugin order; as they are, when all of them fit.
///
/// When they do not, they are shortened, and when that is not enough, every plugin's first comes before any plugin's
/// second: one that floods does not silence the others.
pub(super) fn merge(reports: &[&Report]) -> Vec<String> {
    let (mut warnings, mut left_out) = gather(reports, Limit::Characters(MAX_TOTAL_CHARACTERS));
    if left_out > 0 || total(&warnings) > MAX_TOTAL_CHARACTERS {
        (warnings, left_out) = gather(reports, Limit::Characters(SHORT_CHARACTERS));
    }
    if left_out > 0 || total(&warnings) > MAX_TOTAL_CHARACTERS {
        left_out += choose(&mut warnings);
    }
    let mut texts: Vec<String> = warnings.into_iter().map(|warning| warning.text).collect();
    match left_out {
        0 => {}
        1 => texts.push("tollgate: 1 more warning is left out".to_owned()),
        _ => texts.push(format!("tollgate: {left_out} more warnings are left out")),
    }
    texts
}

/// Every warning once, cut to the limit, and how many were not looked at.
fn gather(reports: &[&Report], limit: Limit) -> (Vec<Warning>, usize) {
    let mut seen = HashSet::new();
    let mut warnings = Vec::new();
    let mut left_out = 0;
    for report in reports {
        let plugin = report.plugin.as_str();
        let verdict = match Weight::of(report) {
            Weight::Warns(denial) => Some(status::words(denial, limit)),
            _ => None,
        };
        let existing = report.existing.as_ref().map(|denial| {
            let words = status::words(denial, limit);
            format!("not new, so let through: {words}")
        });
        let own = report
            .warnings
            .iter()
            .take(MAX_PER_PLUGIN)
            .map(|text| one_line(text, limit));
        left_out += report.warnings.len().saturating_sub(MAX_PER_PLUGIN);
        let texts = verdict
            .into_iter()
            .chain(existing)
            .chain(own)
            .filter(|text| !text.is_empty());
        for (rank, text) in texts.enumerate() {
            let text = one_line(&format!("{plugin}: {text}"), limit);
            if seen.insert(text.clone()) {
                warnings.push(Warning {
                    characters: text.chars().count(),
                    text,
                    rank,
                });
            }
        }
    }
    (warnings, left_out)
}

fn total(warnings: &[Warning]) -> usize {
    warnings.iter().map(|warning| warning.characters).sum()
}

/// Takes out what does not fit and says how many that were.
fn choose(warnings: &mut Vec<Warning>) -> usize {
    let before = warnings.len();
    let mut by_rank: Vec<usize> = (0..before).collect();
    by_rank.sort_by_key(|index| (warnings[*index].rank, *index));
    let mut room = MAX_TOTAL_CHARACTERS - REST_CHARACTERS;
    let mut keep = vec![false; before];
    for index in by_rank {
        let Some(less) = room.checked_sub(warnings[index].characters) else {
            break;
        };
        room = less;
        keep[index] = true;
    }
    let mut keep = keep.into_iter();
    warnings.retain(|_| keep.next().unwrap_or(false));
    before - warnings.len()
}
