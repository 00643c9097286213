//! The description of a plugin, as annotations of the artifact's manifest.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Args;
use serde_json::Value;
use tollgate_gate::plugin::Manifest;

/// Annotations of the OCI image specification.
pub(crate) const TITLE: &str = "org.opencontainers.image.title";
pub(crate) const DESCRIPTION: &str = "org.opencontainers.image.description";
pub(crate) const VERSION: &str = "org.opencontainers.image.version";
pub(crate) const LICENCES: &str = "org.opencontainers.image.licenses";
pub(crate) const SOURCE: &str = "org.opencontainers.image.source";
pub(crate) const REVISION: &str = "org.opencontainers.image.revision";
/// Tollgate's own annotations. The first two are JSON.
pub(crate) const RULES: &str = "dev.tollgate.rules";
pub(crate) const SETTINGS_SCHEMA: &str = "dev.tollgate.settings-schema";
/// Words such as `mutate,validate`.
pub(crate) const PHASES: &str = "dev.tollgate.phases";
/// Names such as `clock`, separated by commas. Empty if the plugin needs none.
pub(crate) const CAPABILITIES: &str = "dev.tollgate.capabilities";

/// Registries accept manifests of 4 MiB, and every pull reads the manifest.
const LONGEST_ANNOTATION_BYTES: usize = 256 << 10;
/// Interfaces that a plugin may import only with a capability, and the capability.
const CAPABILITY_INTERFACES: [(&str, &str); 3] = [
    ("tollgate:admission/clock@", "clock"),
    ("tollgate:admission/access@", "access"),
    ("tollgate:admission/images@", "images"),
];
const INTERFACES: [(&str, &str); 2] = [
    ("tollgate:admission/mutating@", "mutate"),
    ("tollgate:admission/validating@", "validate"),
];

/// What the artifact says about the plugin. The rest comes from the plugin itself, and from its project.
#[derive(Args, Debug, Default)]
pub(super) struct About {
    /// Title [default: the plugin's name]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Description [default: the plugin's description]
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Licence, as an SPDX expression [default: that in Cargo.toml, package.json or pyproject.toml of the project]
    #[arg(long, visible_alias = "licence", value_name = "SPDX")]
    license: Option<String>,
    /// Address of the source code [default: the repository in Cargo.toml or package.json of the project]
    #[arg(long, value_name = "URL")]
    source: Option<String>,
    /// Revision of the source code, such as a commit.
    #[arg(long, value_name = "TEXT")]
    revision: Option<String>,
    /// Further annotation. May be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = annotation)]
    annotation: Vec<(String, String)>,
    /// Do not run the plugin's `describe`, so that the artifact says nothing that the plugin says about itself.
    #[arg(long)]
    pub(super) no_describe: bool,
}

/// The metadata of a plugin's project.
#[derive(Debug, Default, PartialEq, Eq)]
struct Project {
    licence: Option<String>,
    source: Option<String>,
}

// === impl About ===

impl About {
    /// Collects the annotations of a plugin. Flags go over the plugin's own words, and these over its project's.
    pub(super) fn annotations(
        &self,
        file: &Path,
        (exports, imports): (&[String], &[String]),
        described: Option<&Manifest>,
    ) -> BTreeMap<String, String> {
        let project = Project::of(file);
        let own = |text: fn(&Manifest) -> &String| {
            described.map(text).filter(|text| !text.is_empty()).cloned()
        };
        let rules =
            described.map(|manifest| serde_json::to_string(&manifest.rules).unwrap_or_default());
        let schema = described.and_then(|manifest| manifest.settings_schema.clone());
        let capabilities = names(&CAPABILITY_INTERFACES, imports);
        let phases = names(&INTERFACES, exports);
        let known = [
            (
                TITLE,
                self.title
                    .clone()
                    .or_else(|| own(|manifest| &manifest.name)),
            ),
            (
                DESCRIPTION,
                self.description
                    .clone()
                    .or_else(|| own(|manifest| &manifest.description)),
            ),
            (VERSION, own(|manifest| &manifest.version)),
            (LICENCES, self.license.clone().or(project.licence)),
            (SOURCE, self.source.clone().or(project.source)),
            (REVISION, self.revision.clone()),
            (RULES, rules),
            (SETTINGS_SCHEMA, schema),
            (CAPABILITIES, Some(capabilities)),
            (PHASES, Some(phases)),
        ];
        let known = known
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)));
        let mut annotations: BTreeMap<String, String> = known.collect();
        annotations.extend(self.annotation.iter().cloned());
        annotations.retain(|_, value| value.len() <= LONGEST_ANNOTATION_BYTES);
        annotations
    }
}

/// Reads an annotation.
fn annotation(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE, such as com.example.team=platform".to_owned()),
    }
}

/// Returns the words for the interfaces in a list of imports or exports.
fn names(known: &[(&str, &str)], interfaces: &[String]) -> String {
    let is_there = |prefix: &str| interfaces.iter().any(|name| name.starts_with(prefix));
    let words = known.iter().filter(|(prefix, _)| is_there(prefix));
    let words: Vec<&str> = words.map(|(_, word)| *word).collect();
    words.join(",")
}

// === impl Project ===

impl Project {
    /// Reads the project that a plugin's file belongs to: in the file's folder, or above its folder `dist`.
    fn of(file: &Path) -> Self {
        let folder = match file.parent() {
            Some(folder) if folder.ends_with("dist") => folder.parent().unwrap_or(folder),
            Some(folder) => folder,
            None => return Self::default(),
        };
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
        if let Some(text) = read("package.json") {
            return Self::of_package(&text);
        }
        if let Some(text) = read("Cargo.toml") {
            return Self::of_toml(&text, "[package]");
        }
        read("pyproject.toml").map_or_else(Self::default, |text| Self::of_toml(&text, "[project]"))
    }

    fn of_package(text: &str) -> Self {
        let package: Value = serde_json::from_str(text).unwrap_or_default();
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let repository = &package["repository"];
        let source = text(repository).or_else(|| text(&repository["url"]));
        Self {
            licence: text(&package["license"]),
            source: source.filter(|source| source.contains("://")),
        }
    }

    /// Reads plain strings of a section. Values of other forms are not known.
    fn of_toml(text: &str, section: &str) -> Self {
        let lines = text
            .lines()
            .skip_while(|line| line.trim() != section)
            .skip(1);
        let lines: Vec<&str> = lines.take_while(|line| !line.starts_with('[')).collect();
        let value = |key: &str| {
            lines.iter().find_map(|line| {
                let value = line
                    .trim()
                    .strip_prefix(key)?
                    .trim_start()
                    .strip_prefix('=')?
                    .trim();
                let value = value.strip_prefix('"')?.split_once('"')?.0;
                (!value.is_empty()).then(|| value.to_owned())
            })
        };
        Self {
            licence: value("license"),
            source: value("repository"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        serde_json::from_value(serde_json::json!({
            "name": "replicas", "version": "1.2.0", "description": "Limits replicas",
            "settingsSchema": "{\"type\":\"object\"}", "rules": [], "labels": [],
        }))
        .unwrap()
    }

    #[test]
    fn flags_go_over_plugin_and_plugin_over_project() {
        let folder = tempfile::tempdir().unwrap();
        let project = "[package]\nname = \"x\"\nlicense = \"MIT\"\nrepository = \"https://example.com/x\"\n[lib]\n";
        std::fs::write(folder.path().join("Cargo.toml"), project).unwrap();
        let file = folder.path().join("dist/x.wasm");
        let exports = ["tollgate:admission/validating@0.1.0".to_owned()];
        let imports = ["tollgate:admission/clock@0.1.0".to_owned()];
        let about = About {
            title: Some("Replicas".to_owned()),
            annotation: vec![("com.example.team".to_owned(), "a=b".to_owned())],
            ..About::default()
        };
        let annotations = about.annotations(&file, (&exports, &imports), Some(&manifest()));
        for (key, value) in [
            (TITLE, "Replicas"),
            (DESCRIPTION, "Limits replicas"),
            (VERSION, "1.2.0"),
            (LICENCES, "MIT"),
            (SOURCE, "https://example.com/x"),
            (RULES, "[]"),
            (SETTINGS_SCHEMA, "{\"type\":\"object\"}"),
            (CAPABILITIES, "clock"),
            (PHASES, "validate"),
            ("com.example.team", "a=b"),
        ] {
            assert_eq!(annotations[key], value, "{key}");
        }
        assert!(!annotations.contains_key(REVISION));
    }

    #[test]
    fn unknown_facts_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.wasm");
        let annotations = About::default().annotations(&file, (&[], &[]), None);
        let keys: Vec<&String> = annotations.keys().collect();
        assert_eq!(keys, [CAPABILITIES, PHASES]);
        let mut long = manifest();
        long.settings_schema = Some("x".repeat(LONGEST_ANNOTATION_BYTES + 1));
        let annotations = About::default().annotations(&file, (&[], &[]), Some(&long));
        assert!(!annotations.contains_key(SETTINGS_SCHEMA));
    }

    #[test]
    fn reads_projects_of_other_languages() {
        let package = r#"{"license": "ISC", "repository": {"type": "git", "url": "git+https://example.com/x"}}"#;
        let read = Project::of_package(package);
        assert_eq!(read.licence.as_deref(), Some("ISC"));
        assert_eq!(read.source.as_deref(), Some("git+https://example.com/x"));
        let read = Project::of_toml("[project]\nlicense = { text = \"MIT\" }\n", "[project]");
        assert_eq!(read, Project::default());
    }

    #[test]
    fn annotation_has_key_and_value() {
        assert_eq!(annotation("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(annotation("=b").is_err() && annotation("a").is_err());
    }
}
