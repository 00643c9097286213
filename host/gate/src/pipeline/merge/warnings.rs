//! Builds warnings that kube-apiserver keeps.
//!
//! kube-apiserver drops a warning with a control character. If all warnings of a request together have more than 4096
//! characters, kube-apiserver shortens each one to 256 characters. It then drops those that still do not fit. The
//! host therefore shortens the warnings itself, and says how many it left out.

use std::collections::HashSet;

use tollgate_admission::text::{Limit, one_line};

use super::{Weight, status};
use crate::pipeline::outcome::Report;

/// Length to which kube-apiserver shortens warnings that are too long together. Kubernetes recommends at most 120.
const SHORT_CHARACTERS: usize = 256;
/// Total length up to which kube-apiserver shortens nothing.
const MAX_TOTAL_CHARACTERS: usize = 4096;
/// Room for the last warning, which says how many were left out.
const REST_CHARACTERS: usize = 64;
/// Most warnings of one plugin that are considered. Even with one character each, no more would fit.
const MAX_PER_PLUGIN: usize = 512;

struct Warning {
    text: String,
    characters: usize,
    /// Position among the warnings of its plugin.
    rank: usize,
}

/// Returns the warnings to send, in plugin order. If all of them fit, they stay unchanged.
///
/// Otherwise the host shortens them. If they still do not fit, the host takes the first warning of every plugin
/// before the second warning of any plugin. A plugin with many warnings therefore does not silence the others.
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

/// Returns every warning once, cut to the limit, and the number of warnings that were not considered.
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
            format!("existing violation, allowed: {words}")
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

/// Removes the warnings that do not fit, and returns their number.
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
