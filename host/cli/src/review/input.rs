//! Reads the documents to review from files.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use serde::de::IgnoredAny;
use tollgate_json::document::{Json, ParseErrorKind, parse_up_to};

use super::yaml;

/// A document and its position.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    /// The file's name. `-` is standard input.
    pub(crate) file: String,
    /// The position in the file, counted from 1. An item of a list counts as a document.
    pub(crate) number: usize,
    pub(crate) content: Json,
}

/// Maximum nesting depth of a document. A document that is deeper than `requests.maxDepth` but within this limit gets
/// the server's answer.
pub(super) const MAX_DEPTH: u32 = 1000;
/// Maximum size of a file. The dump of a whole cluster fits.
const LONGEST_FILE_BYTES: u64 = 256 << 20;
/// Maximum number of values in all documents of a file. A value takes some hundred bytes in memory.
pub(super) const MOST_VALUES: u32 = 20_000_000;

/// Reads a file with JSON or YAML documents, at least one. The items of lists become separate documents.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Document>> {
    let documents = read_any(path)?;
    if documents.is_empty() {
        bail!("{}: contains no document", path.display());
    }
    Ok(documents)
}

/// Reads a file with any number of JSON or YAML documents, such as a dump of objects of which there may be none.
pub(crate) fn read_any(path: &Path) -> anyhow::Result<Vec<Document>> {
    let file = path.display().to_string();
    let mut bytes = Vec::new();
    if file == "-" {
        std::io::stdin()
            .take(LONGEST_FILE_BYTES + 1)
            .read_to_end(&mut bytes)
            .context("cannot read standard input")?;
    } else {
        std::fs::File::open(path)
            .and_then(|opened| opened.take(LONGEST_FILE_BYTES + 1).read_to_end(&mut bytes))
            .with_context(|| format!("cannot read {file}"))?;
    }
    if bytes.len() as u64 > LONGEST_FILE_BYTES {
        let mebibytes = LONGEST_FILE_BYTES >> 20;
        bail!("{file}: longer than {mebibytes} MiB; review it in parts");
    }
    let text = std::str::from_utf8(&bytes).with_context(|| format!("{file}: not UTF-8 text"))?;
    let contents = documents(text).with_context(|| file.clone())?;
    let numbered = contents
        .into_iter()
        .enumerate()
        .map(|(index, content)| Document {
            file: file.clone(),
            number: index + 1,
            content,
        });
    Ok(numbered.collect())
}

fn documents(text: &str) -> anyhow::Result<Vec<Json>> {
    let is_json = text.trim_start().starts_with(['{', '[']);
    let contents = match is_json.then(|| json(text)) {
        Some(Ok(contents)) => contents,
        // A YAML document can begin like JSON.
        Some(Err(error)) => yaml::documents(text).map_err(|_| error)?,
        None => yaml::documents(text)?,
    };
    let mut documents = Vec::new();
    for content in contents {
        flatten(content, &mut documents);
    }
    Ok(documents)
}

/// Reads consecutive JSON documents. Numbers keep their text.
fn json(text: &str) -> anyhow::Result<Vec<Json>> {
    let mut documents = Vec::new();
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    let mut begin = 0;
    while let Some(result) = stream.next() {
        result.map_err(|error| {
            let said = error.to_string();
            let place = format!(" at line {} column {}", error.line(), error.column());
            let said = said.strip_suffix(&place).unwrap_or(&said);
            anyhow!(
                "line {}, column {}: not valid JSON: {said}",
                error.line(),
                error.column()
            )
        })?;
        let end = stream.byte_offset();
        let part = &text.as_bytes()[begin..end];
        let document = parse_up_to(part, MAX_DEPTH, MOST_VALUES).map_err(|error| {
            let at = place(text, begin + error.offset);
            match error.kind {
                ParseErrorKind::TooDeep { max_depth } => {
                    anyhow!("{at}: nested deeper than {max_depth} levels")
                }
                ParseErrorKind::TooMany { max_values } => {
                    anyhow!("{at}: more than {max_values} values; review it in parts")
                }
                ParseErrorKind::NoRoom(error) => anyhow!("{at}: {error}"),
                ParseErrorKind::Syntax(_) => anyhow!("{at}: not valid JSON"),
            }
        })?;
        documents.push(document);
        begin = end;
    }
    Ok(documents)
}

/// Returns the place of a byte in a text. Columns count characters.
fn place(text: &str, byte: usize) -> String {
    let before = String::from_utf8_lossy(&text.as_bytes()[..byte.min(text.len())]);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default();
    format!("line {line}, column {}", column.chars().count() + 1)
}

/// Replaces a list by its items. A list is a JSON array or a Kubernetes list.
fn flatten(content: Json, into: &mut Vec<Json>) {
    if let Json::Array(elements) = &content {
        for element in elements.iter() {
            flatten(element.clone(), into);
        }
        return;
    }
    let text = |member: &str| content.member(member).and_then(Json::as_text);
    let (kind, api_version) = (text("kind").unwrap_or_default(), text("apiVersion"));
    let items = content.member("items").and_then(Json::as_array);
    let (Some(kind), Some(items)) = (kind.strip_suffix("List"), items) else {
        into.push(content);
        return;
    };
    for item in items {
        flatten(of_list(item.clone(), kind, api_version), into);
    }
}

/// Completes an item of a typed list, such as a PodList. The item takes a missing kind and apiVersion from the list.
fn of_list(item: Json, kind: &str, api_version: Option<&str>) -> Json {
    let Json::Object(members) = &item else {
        return item;
    };
    if kind.is_empty() || members.contains_key("kind") {
        return item;
    }
    let mut members = (***members).clone();
    members.insert("kind".into(), Json::text(kind));
    if let Some(api_version) = api_version {
        members.insert("apiVersion".into(), Json::text(api_version));
    }
    Json::from(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        let documents = documents(text).unwrap();
        documents.iter().map(Json::to_text).collect()
    }

    #[test]
    fn reads_yaml_as_kubectl_does() {
        assert_eq!(
            texts("a: yes\nb: \"yes\"\nmode: 0644\nnone:\n---\n# nothing\n---\na: 2\n"),
            [
                r#"{"a":true,"b":"yes","mode":420,"none":null}"#,
                r#"{"a":2}"#
            ]
        );
    }

    #[test]
    fn reads_dump_of_whole_cluster() {
        let pod = |indent: &str| {
            let labels: String = (0..50).map(|n| format!("{indent}    l{n}: x\n")).collect();
            format!(
                "apiVersion: v1\n{indent}kind: Pod\n{indent}metadata:\n{indent}  labels:\n{labels}"
            )
        };
        let stream = format!("{}---\n", pod("")).repeat(1_100);
        assert_eq!(documents(&stream).unwrap().len(), 1_100);
        let items = format!("- {}", pod("  ")).repeat(5_000);
        let list = format!("apiVersion: v1\nkind: List\nitems:\n{items}");
        assert_eq!(documents(&list).unwrap().len(), 5_000);
        let values = vec!["1"; 3_000_000].join(",");
        let list = format!("{{\"kind\":\"List\",\"items\":[{{\"a\":[{values}]}}]}}");
        assert_eq!(documents(&list).unwrap().len(), 1);
    }

    #[test]
    fn reads_consecutive_json_documents_with_exact_numbers() {
        assert_eq!(
            texts("{\"a\": 1.50}\n{\"b\": 9007199254740993000}[{\"c\":1},{\"d\":2}]"),
            [
                r#"{"a":1.50}"#,
                r#"{"b":9007199254740993000}"#,
                r#"{"c":1}"#,
                r#"{"d":2}"#
            ]
        );
        assert_eq!(texts("{a: b}"), [r#"{"a":"b"}"#]);
    }

    #[test]
    fn splits_lists_into_documents() {
        let list = r#"{"kind":"List","apiVersion":"v1","items":[{"kind":"Pod"},
            {"kind":"PodList","apiVersion":"v1","items":[{"x":1},{"kind":"Other"}]}]}"#;
        assert_eq!(
            texts(list),
            [
                r#"{"kind":"Pod"}"#,
                r#"{"x":1,"kind":"Pod","apiVersion":"v1"}"#,
                r#"{"kind":"Other"}"#
            ]
        );
    }

    #[test]
    fn reports_errors_with_position() {
        let said = |text: &str| format!("{:#}", documents(text).unwrap_err());
        let unclosed = said("{\n\"a\": [1}");
        assert!(
            unclosed.starts_with("line 2, column 8: not valid JSON: ")
                && !unclosed.contains("line 2 column"),
            "{unclosed}"
        );
        assert_eq!(place("{\n\n  \"ä\": x", 10), "line 3, column 7");
        assert_eq!(place("x", 0), "line 1, column 1");
        assert!(
            said("a: 1\na: 2\n").starts_with("line 2, column 1"),
            "{}",
            said("a: 1\na: 2\n")
        );
    }
}
