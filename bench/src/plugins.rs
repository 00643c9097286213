//! What the plugins of a case do, and where they come from: real sample plugins, every copy a module of its own.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Value, json};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;

use crate::documents::CONTAINERS;

/// What a plugin does with the object.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Work {
    /// `required-labels`: reads three fields and matches a pattern.
    ReadsFields,
    /// `forbidden-text`: asks for the whole object as JSON, parses it and looks at every string.
    ParsesEverything,
    /// `image-rewrite`: reads five images and rewrites one.
    Mutates,
}

/// A language that plugins are written in, and a plugin in it that does as `required-labels` does.
pub struct Language {
    /// Its name.
    pub name: &'static str,
    /// Builds the plugin and says where it is.
    build: fn() -> PathBuf,
}

/// The languages there are. One more is one more line: a validator with the settings of `required-labels`.
pub const LANGUAGES: [Language; 1] = [Language {
    name: RUST,
    build: || guests::build(Work::ReadsFields.package()),
}];

/// The language of the sample plugins.
pub const RUST: &str = "Rust";

/// The custom section that makes one copy differ from another.
const SECTION: &str = "tollgate-bench-copy";

// === impl Work ===

impl Work {
    /// The path that its plugins are called at.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::ReadsFields | Self::ParsesEverything => "/validate",
            Self::Mutates => "/mutate",
        }
    }

    /// For a table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadsFields => "reads fields",
            Self::ParsesEverything => "parses everything",
            Self::Mutates => "mutates",
        }
    }

    /// Operations in the patch of so many plugins: each rewrites the image of one container, as long as there are
    /// containers.
    #[must_use]
    pub fn operations(self, plugins: usize) -> usize {
        match self {
            Self::ReadsFields | Self::ParsesEverything => 0,
            Self::Mutates => plugins.min(CONTAINERS),
        }
    }

    /// The package that the plugin is built from.
    #[must_use]
    pub fn package(self) -> &'static str {
        match self {
            Self::ReadsFields => "required-labels",
            Self::ParsesEverything => "forbidden-text",
            Self::Mutates => "image-rewrite",
        }
    }

    /// The settings of one of several plugins, each with its own.
    #[must_use]
    pub fn settings(self, index: usize) -> Value {
        match self {
            Self::ReadsFields => {
                let pattern = format!("[a-z]{{1,{}}}", 10 + index);
                json!({ "labels": { "app.kubernetes.io/name": null, "team": pattern } })
            }
            Self::ParsesEverything => json!({ "text": format!("forbidden-{index}.example.com") }),
            Self::Mutates => {
                let from = format!("registry-{index}.example.com");
                let rule = json!({ "from": from, "to": "mirror.example.com" });
                json!({ "rewrite": [rule], "annotateOriginal": false })
            }
        }
    }

    /// Adds so many plugins to a configuration: distinct modules with distinct settings.
    ///
    /// # Panics
    /// When the plugin does not build, or there is none in that language.
    pub fn configure(self, language: &str, plugins: usize, configuration: &mut Configuration) {
        let file = match self {
            Self::ReadsFields => {
                let mut languages = LANGUAGES.iter();
                let language = languages.find(|known| known.name == language);
                (language.expect("a language of the list").build)()
            }
            Self::ParsesEverything | Self::Mutates => guests::build(self.package()),
        };
        let module =
            std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for index in 0..plugins {
            // The native control goes by the name of the file up to the `-`.
            let name = format!("{}-{index}.wasm", self.package().replace('-', "_"));
            let copy = configuration.folder().join(name);
            let bytes = guests::with_section(&module, SECTION, index.to_string().as_bytes());
            std::fs::write(&copy, bytes)
                .unwrap_or_else(|error| panic!("{}: {error}", copy.display()));
            let settings = json!({ "settings": self.settings(index) });
            configuration.plugin(&format!("plugin-{index}"), &copy, settings);
        }
    }
}
