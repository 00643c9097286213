//! Suggests the intended name for a name that does not exist.

use super::{Resource, resources};

/// Maximum number of edits. With more edits, it is another word.
const MOST_EDITS: usize = 2;

/// Returns the name that is closest to a text, if it is close enough.
pub(super) fn closest<'n>(text: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    // Short texts allow fewer edits: `ab` does not mean `cd`.
    let most = MOST_EDITS.min(text.len() / 3);
    let near = names.into_iter().filter_map(|name| {
        let edits = edits(text, name);
        (edits <= most).then_some((edits, name))
    });
    near.min().map(|(_, name)| name)
}

/// Finds Kubernetes' resources by another of their names: the kind, the singular, or a short name.
pub(super) fn by_other_name(text: &str) -> impl Iterator<Item = &'static Resource> {
    let text = text.to_lowercase();
    resources().iter().filter(move |resource| {
        resource.kind.to_lowercase() == text || resource.short_names.contains(&text.as_str())
    })
}

/// Counts the letters that have to be added, removed or exchanged to turn one text into the other.
fn edits(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other_letter) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other_letter);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_the_closest_word() {
        let groups = ["apps", "batch", "policy"];
        assert_eq!(closest("app", groups), Some("apps"));
        assert_eq!(closest("aps", groups), Some("apps"));
        assert_eq!(closest("bach", groups), Some("batch"));
        assert_eq!(closest("extensions", groups), None);
        assert_eq!(closest("v1", groups), None);
        assert_eq!(edits("kitten", "sitting"), 3);
        let found: Vec<&str> = by_other_name("svc").map(|resource| resource.name).collect();
        assert_eq!(found, ["services"]);
        let found: Vec<&str> = by_other_name("Event")
            .map(|resource| resource.group)
            .collect();
        assert_eq!(found, ["", "events.k8s.io"]);
    }
}
