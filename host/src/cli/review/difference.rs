//! The difference that the mutators made, for a person: YAML, as a unified diff.

use std::sync::Arc;

use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use crate::cli::terminal::{BAD, FAINT, GOOD};
use crate::decision::Text;
use crate::document::{Json, Object};
use crate::engine::is_content;

/// Lines around a change.
const CONTEXT: usize = 3;
/// A longer difference is cut.
const MOST_LINES: usize = 400;

/// The lines of the difference, in colours.
pub(in crate::cli) fn lines(before: &Json, after: &Json, is_secret: bool) -> Vec<String> {
    let (before, after) = (yaml(before, is_secret), yaml(after, is_secret));
    let difference = TextDiff::from_lines(&before, &after);
    let mut lines = Vec::new();
    for (index, group) in difference.grouped_ops(CONTEXT).iter().enumerate() {
        if index > 0 {
            lines.push(format!("{FAINT}…{FAINT:#}"));
        }
        for operation in group {
            for change in difference.iter_changes(operation) {
                let line = change.value().trim_end_matches('\n');
                lines.push(match change.tag() {
                    ChangeTag::Delete => format!("{BAD}- {line}{BAD:#}"),
                    ChangeTag::Insert => format!("{GOOD}+ {line}{GOOD:#}"),
                    ChangeTag::Equal => format!("{FAINT}  {line}{FAINT:#}"),
                });
            }
        }
    }
    if let Some(more) = lines.len().checked_sub(MOST_LINES).filter(|more| *more > 0) {
        lines.truncate(MOST_LINES);
        lines.push(format!(
            "{FAINT}… {more} more lines: -o json has the patch{FAINT:#}"
        ));
    }
    lines
}

fn yaml(object: &Json, is_secret: bool) -> String {
    let shown = if is_secret {
        masked(object, "")
    } else {
        object.clone()
    };
    let value: Value = serde_json::from_str(&shown.to_text()).unwrap_or_default();
    serde_saphyr::to_string(&value).unwrap_or_else(|_| format!("{value:#}\n"))
}

/// The object of a Secret with every text of its content replaced by what tells it from others.
fn masked(json: &Json, pointer: &str) -> Json {
    match json {
        Json::Object(members) => {
            let members = members.iter().map(|(name, value)| {
                let pointer = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
                (name.clone(), masked(value, &pointer))
            });
            Json::Object(Arc::new(members.collect::<Object>()))
        }
        Json::Text(text) if is_content(pointer) => {
            let Text { bytes, sha256 } = Text::of(text);
            Json::text(&format!("[withheld: {bytes} bytes, SHA-256 {sha256}…]"))
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plain(before: Value, after: Value, is_secret: bool) -> String {
        let lines = lines(&Json::from(before), &Json::from(after), is_secret);
        anstream::adapter::strip_str(&lines.join("\n")).to_string()
    }

    #[test]
    fn a_change_is_shown_with_what_is_around_it() {
        let before = json!({"spec": {"image": "a", "name": "x"}});
        let after = json!({"spec": {"image": "b", "name": "x"}});
        insta::assert_snapshot!(plain(before, after, false), @"
          spec:
        -   image: a
        +   image: b
            name: x
        ");
    }

    #[test]
    fn the_content_of_a_secret_is_not_shown() {
        let before = json!({"data": {"password": "bWFya2Vy"}, "metadata": {"name": "s"}});
        let after = json!({"data": {"password": "bWFya2VyMg=="}, "metadata": {"name": "s", "labels": {"a": "b"}}});
        let shown = plain(before, after, true);
        assert!(!shown.contains("bWFya2Vy"), "{shown}");
        assert!(
            shown.contains("withheld: 8 bytes") && shown.contains("a: b"),
            "{shown}"
        );
    }
}
