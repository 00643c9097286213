//! The plugins of a case. All of them are real sample plugins, and every copy is a separate module.

use std::borrow::Cow;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Value, json};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::{guests, languages};

use crate::documents::CONTAINERS;

/// The work that a plugin does on the object.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Work {
    /// `required-labels`: reads three fields and matches a pattern.
    ReadsFields,
    /// `forbidden-text`: gets the whole object as JSON, parses it and checks every string.
    ParsesEverything,
    /// `image-rewrite`: reads five images and rewrites one.
    Mutates,
    /// `trusted-registries`, which exists in every language: selects the images and reads them.
    Images,
}

/// A language that plugins are written in, by the name of its folder in `languages/`.
#[derive(Clone, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Language {
    name: Cow<'static, str>,
}

/// The language of the sample plugins.
pub const RUST: Language = Language {
    name: Cow::Borrowed("rust"),
};

/// The custom section that makes copies differ.
const SECTION: &str = "tollgate-bench-copy";

// === impl Language ===

impl Language {
    /// Returns all languages, in order.
    ///
    /// # Panics
    /// Panics if the workspace cannot be read.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let names = languages::names().into_iter();
        names.map(|name| Self { name: name.into() }).collect()
    }

    /// The name of the language.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its plugins have been built. Plugins in Rust are built when they are needed.
    #[must_use]
    pub fn is_built(&self) -> bool {
        *self == RUST || self.component().is_file()
    }

    fn plugin(&self) -> PathBuf {
        if *self == RUST {
            guests::build(Work::Images.package())
        } else {
            self.component()
        }
    }

    /// The plugin that the language's build creates.
    fn component(&self) -> PathBuf {
        let file = format!("{}.wasm", Work::Images.package());
        languages::output(&self.name).join(file)
    }
}

// === impl Work ===

impl Work {
    /// The path at which its plugins are called.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::ReadsFields | Self::ParsesEverything | Self::Images => "/validate",
            Self::Mutates => "/mutate",
        }
    }

    /// The name in a table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadsFields => "reads fields",
            Self::ParsesEverything => "parses everything",
            Self::Mutates => "mutates",
            Self::Images => "images",
        }
    }

    /// The number of operations in the patch of this many plugins. Each plugin rewrites the image of one container,
    /// while there are containers.
    #[must_use]
    pub fn operations(self, plugins: usize) -> usize {
        match self {
            Self::ReadsFields | Self::ParsesEverything | Self::Images => 0,
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
            Self::Images => "trusted-registries",
        }
    }

    /// The settings of the plugin with this index. Each plugin has different settings.
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
            Self::Images => {
                let registry = |index| format!("registry-{index}.example.com");
                let allowed: Vec<String> = (0..=CONTAINERS + index).map(registry).collect();
                json!({ "allowed": allowed })
            }
        }
    }

    /// Adds this many plugins to a configuration. They are distinct modules with distinct settings.
    ///
    /// # Panics
    /// Panics if the plugin's build fails, or if it has not been built in that language.
    pub fn configure(self, language: &Language, plugins: usize, configuration: &mut Configuration) {
        let file = match self {
            Self::ReadsFields | Self::ParsesEverything | Self::Mutates => {
                guests::build(self.package())
            }
            Self::Images => language.plugin(),
        };
        let module =
            std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for index in 0..plugins {
            // The native control reads the name of the file up to the `-`.
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
