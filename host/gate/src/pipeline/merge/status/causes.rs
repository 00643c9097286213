//! Summarises the causes of a denial, to add them to its message.
//!
//! For a Pod with twelve containers, a plugin can give dozens of causes that differ only in an index. Where kubectl
//! shows `details.causes`, the user reads each of them there. The message lists each finding once.

use tollgate_admission::Cause;
use tollgate_admission::text::{field_path, one_line};

use super::{MAX_CAUSE, MAX_CAUSES};

/// One finding, at one or more places.
struct Finding {
    /// The field path, with `*` for each index.
    pattern: Option<String>,
    pub text: String,
    /// The field paths, with their indexes.
    places: Vec<Option<String>>,
}

/// Up to this many findings are listed one by one, in their order.
const MOST_ALONE: usize = 6;
/// If there are more, up to this many places of one finding are still listed one by one.
const MOST_PLACES: usize = 3;
/// Most entries that a message lists.
const MOST_ENTRIES: usize = 8;

/// Returns the causes that the message does not contain yet. Empty if it contains all of them.
pub(super) fn words(message: &str, causes: &[Cause]) -> String {
    let findings = findings(message, causes);
    let places: usize = findings.iter().map(|finding| finding.places.len()).sum();
    let entries: Vec<String> = if places <= MOST_ALONE {
        in_order(message, causes)
    } else {
        findings.iter().flat_map(Finding::entries).collect()
    };
    let mut added = entries
        .iter()
        .take(MOST_ENTRIES)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    let more = entries.len().saturating_sub(MOST_ENTRIES) + causes.len().saturating_sub(MAX_CAUSES);
    if more > 0 && !added.is_empty() {
        added.push_str(&format!(", and {more} more"));
    }
    added
}

/// Returns each cause that the message does not contain, with its place.
fn unsaid<'c>(
    message: &'c str,
    causes: &'c [Cause],
) -> impl Iterator<Item = (Option<String>, String)> + 'c {
    causes.iter().take(MAX_CAUSES).filter_map(move |cause| {
        let text = one_line(&cause.message, MAX_CAUSE);
        let field = cause.field.as_deref().and_then(field_path);
        let is_said =
            message.contains(&text) && field.as_deref().is_none_or(|field| message.contains(field));
        (!text.is_empty() && !is_said).then_some((field, text))
    })
}

fn in_order(message: &str, causes: &[Cause]) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    for (field, text) in unsaid(message, causes) {
        let entry = entry(field.as_deref(), &text);
        // Where a Secret's content is withheld, many causes have the same text.
        if !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    entries
}

fn findings(message: &str, causes: &[Cause]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for (field, text) in unsaid(message, causes) {
        let pattern = field.as_deref().map(without_indexes);
        let same = |finding: &&mut Finding| finding.pattern == pattern && finding.text == text;
        match findings.iter_mut().find(same) {
            Some(finding) if finding.places.contains(&field) => {}
            Some(finding) => finding.places.push(field),
            None => findings.push(Finding {
                pattern,
                text,
                places: vec![field],
            }),
        }
    }
    findings
}

/// Turns `spec.containers[3].image` into `spec.containers[*].image`.
fn without_indexes(field: &str) -> String {
    let mut pattern = String::with_capacity(field.len());
    let mut rest = field;
    while let Some((before, after)) = rest.split_once('[') {
        pattern.push_str(before);
        pattern.push('[');
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits > 0 && after[digits..].starts_with(']') {
            pattern.push('*');
            rest = &after[digits..];
        } else {
            rest = after;
        }
    }
    pattern.push_str(rest);
    pattern
}

fn entry(field: Option<&str>, text: &str) -> String {
    match field {
        Some(field) => format!("{field}: {text}"),
        None => text.to_owned(),
    }
}

// === impl Finding ===

impl Finding {
    fn entries(&self) -> Vec<String> {
        match &self.pattern {
            Some(pattern) if self.places.len() > MOST_PLACES => {
                vec![format!(
                    "{pattern} ({} places): {}",
                    self.places.len(),
                    self.text
                )]
            }
            _ => self
                .places
                .iter()
                .map(|place| entry(place.as_deref(), &self.text))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(field: &str, message: &str) -> Cause {
        Cause {
            field: Some(field.to_owned()),
            message: message.to_owned(),
            reason: None,
        }
    }

    #[test]
    fn lists_few_causes_in_order() {
        let causes = [
            cause("/spec/containers/0/image", "has no digest"),
            cause("/spec/hostNetwork", "must not be true"),
            cause("/spec/containers/1/image", "has no digest"),
            cause("/spec/containers/1/image", "has no digest"),
        ];
        assert_eq!(
            words("no", &causes),
            "spec.containers[0].image: has no digest, spec.hostNetwork: must not be true, \
             spec.containers[1].image: has no digest"
        );
        assert_eq!(
            words("spec.hostNetwork must not be true", &causes[1..2]),
            ""
        );
    }

    #[test]
    fn groups_same_finding_in_many_containers() {
        let container = |index| {
            [
                cause(&format!("/spec/containers/{index}/image"), "has no digest"),
                cause(
                    &format!("/spec/containers/{index}/securityContext/privileged"),
                    "must not be true",
                ),
            ]
        };
        let mut causes: Vec<Cause> = (0..12).flat_map(container).collect();
        causes.push(cause("/spec/hostNetwork", "must not be true"));
        assert_eq!(
            words("12 containers are not as they should be", &causes),
            "spec.containers[*].image (12 places): has no digest, \
             spec.containers[*].securityContext.privileged (12 places): must not be true, \
             spec.hostNetwork: must not be true"
        );
    }

    #[test]
    fn counts_findings_beyond_limit() {
        let causes: Vec<Cause> = (0..30)
            .map(|index| {
                cause(
                    &format!("/spec/f{index}"),
                    &format!("is wrong in way {index}"),
                )
            })
            .collect();
        let words = words("no", &causes);
        assert!(words.starts_with("spec.f0: is wrong in way 0, "), "{words}");
        assert!(
            words.ends_with("spec.f7: is wrong in way 7, and 22 more"),
            "{words}"
        );
    }

    #[test]
    fn only_indexes_become_patterns() {
        assert_eq!(without_indexes("a[0].b[12].c"), "a[*].b[*].c");
        assert_eq!(
            without_indexes("metadata.labels[app].x"),
            "metadata.labels[app].x"
        );
        assert_eq!(without_indexes("a[1"), "a[1");
    }
}
