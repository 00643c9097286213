//! Shows the changes of the mutators to a person: YAML, as a unified diff.

use std::sync::Arc;

use serde_json::Value;
use similar::{ChangeTag, TextDiff};
use tollgate_engine::is_content;
use tollgate_json::document::Json;

use crate::terminal::{BAD, FAINT, GOOD};

/// Unchanged lines around a change.
const CONTEXT: usize = 3;
/// Maximum number of lines. A longer diff is cut.
const MOST_LINES: usize = 400;

/// Returns the lines of the diff, in colours.
pub(crate) fn lines(before: &Json, after: &Json, is_secret: bool) -> Vec<String> {
    let (before, after) = if is_secret {
        let shown = masked(after, Some(before), "");
        (yaml(&masked(before, None, "")), yaml(&shown))
    } else {
        (yaml(before), yaml(after))
    };
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
            "{FAINT}… {more} more lines; the whole patch is in the output of -o json{FAINT:#}"
        ));
    }
    lines
}

fn yaml(object: &Json) -> String {
    let value: Value = serde_json::from_str(&object.to_text()).unwrap_or_default();
    serde_saphyr::to_string(&value).unwrap_or_else(|_| format!("{value:#}\n"))
}

/// Replaces every value in a Secret's content. Lengths and hashes are hidden too, because both reveal a short secret.
/// `old` is the previous value at the same place.
fn masked(json: &Json, old: Option<&Json>, pointer: &str) -> Json {
    match json {
        Json::Object(members) => {
            let members = members.iter().map(|(name, value)| {
                let pointer = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
                let old = old.and_then(|old| old.member(name));
                (name.clone(), masked(value, old, &pointer))
            });
            Json::Object(Arc::new(members.collect()))
        }
        Json::Array(elements) => {
            let old = |index: usize| old.and_then(Json::as_array)?.get(index);
            let elements = elements.iter().enumerate();
            let elements = elements
                .map(|(index, value)| masked(value, old(index), &format!("{pointer}/{index}")));
            Json::Array(Arc::new(elements.collect()))
        }
        other if !is_content(pointer) => other.clone(),
        other if old.is_some_and(|old| old != other) => Json::text("[withheld: changed]"),
        _ => Json::text("[withheld]"),
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
    fn shows_changes_with_context() {
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
    fn withholds_content_of_secrets() {
        let before = json!({"metadata": {"name": "s"}, "data": {"password": "bWFya2Vy", "pin": 1234, "same": true, "list": [5, null]}});
        let after = json!({
            "metadata": {"name": "s", "labels": {"a": "b"}, "annotations": {"pin": "1234"}},
            "data": {"password": "bWFya2VyMg==", "pin": 4321, "same": true, "list": [5, 6], "new": {"deep": 7}},
        });
        insta::assert_snapshot!(plain(before, after, true), @r#"
          data:
            list:
            - "[withheld]"
        -   - "[withheld]"
        -   password: "[withheld]"
        -   pin: "[withheld]"
        +   - "[withheld: changed]"
        +   new:
        +     deep: "[withheld]"
        +   password: "[withheld: changed]"
        +   pin: "[withheld: changed]"
            same: "[withheld]"
          metadata:
        +   annotations:
        +     pin: "[withheld]"
        +   labels:
        +     a: b
            name: s
        "#);
    }
}
