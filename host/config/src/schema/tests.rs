use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;
use serde_json::{Value, json};

use super::trace::Shape;
use super::*;
use crate::problem::Collector;
use crate::{LIMITS, read_config, yaml};

fn repository() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Lists the problems that the reader finds.
fn problems(document: &Value) -> Vec<String> {
    let collector = Collector::default();
    let config = read_config(document, Path::new("/"), true, &collector);
    match collector.finish(config) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

/// Compares the published file with the code. With `TOLLGATE_WRITE=1`, writes the file.
#[test]
fn published_schema_is_that_of_the_reader() {
    let path = repository().join("docs/schemas/config.json");
    if std::env::var_os("TOLLGATE_WRITE").is_some() {
        std::fs::write(&path, format!("{:#}\n", config())).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    let published: Value = serde_json::from_str(&published).unwrap_or_default();
    assert!(
        published == config(),
        "docs/schemas/config.json differs from the code: run TOLLGATE_WRITE=1 cargo test -p tollgate-config schema"
    );
}

/// A key that the reader asks for only beside a value that no document of `derive` has would be missing.
#[test]
fn schema_has_every_key_that_the_sources_name() {
    let paths = config::trace().paths();
    let has = |key: &str| {
        paths
            .iter()
            .any(|path| path.rsplit('.').next() == Some(key))
    };
    let asks = Regex::new(
        r#"\b(?:optional|required|section|has|read_names|read_namespaces)\(\s*(?:fields,|&mut fields,)?\s*"(\w+)""#,
    );
    let asks = asks.unwrap();
    // A PluginException is not part of the file.
    let elsewhere = ["plugins", "expires"];
    let mut named = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("tests.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                named.extend(asks.captures_iter(&text).map(|found| found[1].to_owned()));
            }
        }
    }
    assert!(named.len() > 60, "{named:?}");
    named.retain(|key| !elsewhere.contains(&key.as_str()) && !has(key));
    assert!(named.is_empty(), "not in the schema: {named:?}");
    for limit in LIMITS {
        assert!(
            paths.contains(limit.key),
            "{} is not in the schema",
            limit.key
        );
    }
}

/// The reader knows a form for every key: a reader that looks at the value itself has to note the form.
#[test]
fn every_key_has_a_form_and_a_description() {
    let trace = config::trace();
    for path in trace.paths() {
        assert_ne!(trace.place(&path).shapes, [], "{path} has no form");
    }
    let (missing, unused) = described(&trace, &[CONFIG_DESCRIPTIONS]);
    assert!(missing.is_empty(), "no description: {missing:?}");
    assert!(unused.is_empty(), "describe no key: {unused:?}");
}

/// The reader and the schema refuse the same keys, at every place where there can be keys.
#[test]
fn reader_and_schema_refuse_an_unknown_key_everywhere() {
    let schema = config();
    let trace = config::trace();
    let mut places = trace.paths();
    places.insert(String::new());
    for path in places {
        if !trace.place(&path).shapes.contains(&Shape::Object) {
            continue;
        }
        let mut document = config::base();
        *trace::place_in(&mut document, &trace::below(&path, "surprise")) = json!(1);
        let place = trace::below(&path.replace("[]", "[0]"), "surprise");
        let expected = format!("{place}: unknown key");
        let has = |found: &[String]| found.iter().any(|line| line.starts_with(&expected));
        assert!(has(&problems(&document)), "the reader accepts {place}");
        let found = violations(&schema, &document);
        // An object beside another form is refused as a whole.
        assert!(
            has(&found) || !found.is_empty(),
            "the schema accepts {place}"
        );
    }
}

#[test]
fn examples_of_the_repository_are_valid() {
    let schema = config();
    let mut count = 0;
    for example in crate::tests::examples() {
        let document = yaml::read(&example, &Collector::default()).unwrap();
        let mut found = violations(&schema, &document);
        // A fragment may have no plugins.
        found.retain(|violation| violation != ": lacks plugins");
        assert!(found.is_empty(), "{found:#?}\n{example}");
        count += 1;
    }
    assert!(count > 20, "{count}");
}

#[test]
fn schema_finds_mistakes() {
    let schema = config();
    let plugin = |key: &str, value: Value| {
        let mut plugin = json!({ "name": "a", "source": "file:a.wasm" });
        plugin[key] = value;
        json!({ "plugins": [plugin] })
    };
    let table = [
        (
            json!({ "plugins": [{ "name": "a" }] }),
            "plugins[0]: none of 2 forms",
        ),
        (
            json!({ "plugins": [{ "source": "file:a.wasm" }] }),
            "plugins[0]: lacks name",
        ),
        (
            plugin("mode", json!("enfroce")),
            "plugins[0].mode: expected another word",
        ),
        (
            plugin("limits", json!({ "fuel": true })),
            "plugins[0].limits.fuel: none of 2 forms",
        ),
        (
            plugin("limits", json!({ "timeout": 5 })),
            "plugins[0].limits.timeout: none of 2 forms",
        ),
        (
            plugin("limits", json!({ "memory": "5 MB" })),
            "plugins[0].limits.memory: none of 2 forms",
        ),
        (
            plugin("limits", json!({ "warnings": 101 })),
            "plugins[0].limits.warnings: none of 2 forms",
        ),
        (
            plugin("capabilities", json!(["clok"])),
            "plugins[0].capabilities[0]: expected another word",
        ),
        (
            plugin("settings", json!([])),
            "plugins[0].settings: expected object",
        ),
        (
            json!({ "allowEmpty": "yes" }),
            "allowEmpty: expected boolean",
        ),
        (
            json!({ "startupGrace": "always" }),
            "startupGrace: none of 2 forms",
        ),
    ];
    for (document, expected) in table {
        assert_eq!(violations(&schema, &document), [expected]);
        assert!(
            !problems(&document).is_empty(),
            "the reader accepts {document}"
        );
    }
    for limits in [
        json!({ "fuel": "1.5G", "memory": "64Mi", "timeout": "1.5s", "cpuTime": "100ms" }),
        json!({ "fuel": 5000, "memory": 65536, "output": "10M" }),
    ] {
        let document = plugin("limits", limits);
        assert_eq!(violations(&schema, &document), [""; 0]);
        assert!(problems(&document).is_empty());
    }
    let grace = json!({ "startupGrace": "never", "allowEmpty": true });
    assert_eq!(violations(&schema, &grace), [""; 0]);
}

/// The reference has a row or a word for every key, so that nobody finds a key in an editor alone.
#[test]
fn reference_names_every_key() {
    let page = repository().join("docs/reference/configuration.md");
    let page = std::fs::read_to_string(page).unwrap();
    for path in config::trace().paths() {
        let key = path
            .trim_end_matches("[]")
            .rsplit('.')
            .next()
            .unwrap_or(&path);
        let is_named = page
            .split('`')
            .any(|text| text.split(['.', ':', ' ', '[']).any(|word| word == key))
            || page.contains(&format!("{key}:"));
        assert!(
            is_named,
            "docs/reference/configuration.md does not name `{key}` ({path})"
        );
    }
}
