//! Tries to leak the content of a Secret, in every way that a plugin can write text or fail. The object's label `leak`
//! selects the way, so that one loaded plugin serves a whole suite.
//!
//! The plugin reads the content of any object, such as a ConfigMap. So the suite can tell whether the host or the
//! plugin keeps the content back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tollgate_sdk::bindings::imports::tollgate::admission::logging::{Location, abort};
use tollgate_sdk::prelude::*;

/// The policy.
struct Leaker {
    /// The place to read. Empty for the content, wherever it is.
    reads: String,
    /// A guess of the content.
    guess: String,
}

/// The settings as the configuration has them.
#[derive(serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct Settings {
    /// A pointer into the object, for a plugin that reads nothing else.
    reads: String,
    /// A guess of the content, for a plugin that reads nothing.
    guess: String,
}

/// The read content, in every form that might pass a search.
struct Loot {
    values: Vec<String>,
}

// === impl Leaker ===

impl Policy for Leaker {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        Ok(Self {
            reads: settings.reads,
            guess: settings.guess,
        })
    }
}

impl Validate for Leaker {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        let (way, loot) = (way(review), self.steal(review));
        say(review, &way, &loot);
        fail(review, &way, &loot);
        deny(&way, &loot)
    }
}

impl Mutate for Leaker {
    fn mutate(&self, review: &Review) -> Result<Mutation, Denial> {
        let (way, loot) = (way(review), self.steal(review));
        say(review, &way, &loot);
        fail(review, &way, &loot);
        deny(&way, &loot)?;
        Ok(match self.guessed(review, &way) {
            Some(guessed) => guessed,
            None => change(review, &way, &loot),
        })
    }
}

impl Leaker {
    fn steal(&self, review: &Review) -> Loot {
        let document = if review.object().exists() {
            review.object()
        } else {
            review.old_object()
        };
        if !self.reads.is_empty() {
            return Loot {
                values: document.text(&self.reads).into_iter().collect(),
            };
        }
        let mut values = Vec::new();
        for pattern in ["/data/*", "/stringData/*", "/metadata/annotations/*"] {
            values.extend(
                document
                    .select(pattern)
                    .into_iter()
                    .filter_map(|node| node.value.into_text()),
            );
        }
        values.extend(document.json("/data"));
        Loot { values }
    }
}

/// The place that shows whether a guess is right, to readers of the object's labels or of the next plugin's texts.
const RIGHT: &str = "/metadata/labels/right";

impl Leaker {
    /// Returns a change that only works if the guess is right. Nothing has been read for it.
    fn guessed(&self, review: &Review, way: &str) -> Option<Mutation> {
        let guess = self.guess.as_str();
        let named = pointer!["data", guess];
        let patch = Patch::new();
        let patch = match way {
            "test-value" => patch.test("/data/password", guess),
            "test-all" => patch.test("/data", NewValueJson(format!("{{\"password\":{guess:?}}}"))),
            "replace-name" => patch.replace(named, ""),
            "remove-name" => patch.remove(named),
            "move-name" => patch.rename(named, "/data/moved"),
            "copy-name" => patch.copy(named, "/data/copied"),
            "look-for-name" if review.object().get(named.as_str()).is_none() => {
                return Some(Mutation::Unchanged);
            }
            "look-for-name" => patch,
            "select-name" if review.object().select(named.as_str()).is_empty() => {
                return Some(Mutation::Unchanged);
            }
            "select-name" => patch,
            "whole-object" => {
                let labels = "\"labels\":{\"leak\":\"whole-object\",\"right\":\"yes\"}";
                let metadata = format!("{{\"name\":\"loot\",\"namespace\":\"default\",{labels}}}");
                return Some(Mutation::Object(format!(
                    "{{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"metadata\":{metadata},\"data\":{{{guess:?}:\"\"}}}}"
                )));
            }
            _ => return None,
        };
        Some(patch.add(RIGHT, "yes").into())
    }
}

fn way(review: &Review) -> String {
    let document = if review.object().exists() {
        review.object()
    } else {
        review.old_object()
    };
    document.text("/metadata/labels/leak").unwrap_or_default()
}

/// Writes the content in every way that a plugin can, besides its answer.
fn say(review: &Review, way: &str, loot: &Loot) {
    if way == "silent" {
        return;
    }
    for text in loot.forms() {
        tollgate_sdk::error!("{text}");
        tollgate_sdk::warn!("{text}");
        tollgate_sdk::info!("{text}");
        tollgate_sdk::debug!("{text}");
        tollgate_sdk::trace!("{text}");
        review.warn(&text);
        review.annotate("value", &text);
        review.annotate(&text, "key");
        review.annotate(
            text.chars()
                .filter(char::is_ascii_alphanumeric)
                .take(50)
                .collect::<String>(),
            "short key",
        );
    }
}

/// Ends the call, with the content in the text if there is one.
fn fail(review: &Review, way: &str, loot: &Loot) {
    let text = loot.all();
    match way {
        "panic" => panic!("{text}"),
        "abort" => abort(&text, None),
        "abort-file" => {
            abort(
                "the file says it all",
                Some(&Location {
                    file: text,
                    line: 1,
                    column: 1,
                }),
            );
        }
        "unreachable" => unreachable(),
        "malformed-pointer" => drop(review.object().get(&text)),
        "malformed-escape" => drop(review.object().get(format!("/data/~{text}"))),
        "malformed-pattern" => drop(review.object().select(format!("{text}/*"))),
        "loop" => loop {
            std::hint::black_box(&text);
        },
        "memory" => {
            let mut hoard = Vec::new();
            loop {
                hoard.push(text.clone().into_bytes());
                // Capacity and not zeros, because writing zeros would cost too much fuel.
                hoard.push(Vec::with_capacity(1 << 20));
                std::hint::black_box(&hoard);
            }
        }
        "recursion" => drop(std::hint::black_box(descend(&text, 0))),
        "flood" => loop {
            tollgate_sdk::info!("{text}");
        },
        "too-much-output" => review.warn(text.repeat(1 + (5 << 20) / text.len().max(1))),
        _ => {}
    }
}

#[cfg(target_arch = "wasm32")]
fn unreachable() {
    core::arch::wasm32::unreachable()
}

#[cfg(not(target_arch = "wasm32"))]
fn unreachable() {}

#[expect(unconditional_recursion, reason = "that is the point")]
fn descend(text: &str, depth: usize) -> usize {
    let here = [text.len() + depth; 64];
    descend(text, depth + 1) + std::hint::black_box(here)[depth % 64]
}

fn deny(way: &str, loot: &Loot) -> Result<(), Denial> {
    let text = loot.all();
    match way {
        "deny-message" => Err(Denial::new(text)),
        "deny-cause" => Err(Denial::new("see the causes").cause(Cause::new(text))),
        "deny-reason" => Err(Denial::new("see the reason").reason(text)),
        "deny-cause-reason" => {
            Err(Denial::new("see the cause").cause(Cause::new("see its reason").reason(text)))
        }
        "deny-field" => {
            let mut denial = Denial::new("see the field");
            for text in loot.forms() {
                denial.causes.push(field(format!("/data/{text}")));
                denial.causes.push(field(text));
            }
            Err(denial)
        }
        "deny-field-below" => {
            Err(Denial::new("see the field")
                .cause(field(format!("/metadata/labels/{text}/{text}"))))
        }
        _ => Ok(()),
    }
}

/// Creates a cause whose field need not be a pointer.
fn field(field: String) -> Cause {
    Cause {
        field: Some(field),
        message: "this one".to_owned(),
        reason: None,
    }
}

fn change(review: &Review, way: &str, loot: &Loot) -> Mutation {
    let text = loot.all();
    let label = format!("stolen-{}", loot.key());
    match way {
        // These changes keep the content where a Secret has its content.
        "copy-as-deep-key" => Patch::new()
            .add(pointer!["metadata", "annotations", label], text)
            .into(),
        "copy-to-data" => Patch::new().add("/data/stolen", text).into(),
        // A plugin that has read the content writes it into a name. A plugin that has not removes that name.
        "key-then-replace" if !loot.values.is_empty() => Patch::new()
            .add(pointer!["metadata", "annotations", label], "x")
            .into(),
        "key-then-replace" => Patch::new()
            .replace(
                "/metadata/annotations",
                NewValueJson(r#"{"a": "c"}"#.to_owned()),
            )
            .into(),
        // These changes would copy the content to a place where a plugin can read it unnoticed. That is a fault. The
        // third one does so without a read.
        "copy" => Patch::new().add("/metadata/labels/stolen", text).into(),
        "copy-as-key" => Patch::new()
            .add(pointer!["metadata", "labels", label], "x")
            .into(),
        "copy-operation" => Patch::new()
            .copy("/data/password", "/metadata/labels/stolen")
            .into(),
        // Removes the key that the plugin before it copied. That is a conflict at that key.
        "uncopy-key" => match review.object().keys("/metadata/labels") {
            Some(keys) => match keys.iter().find(|key| key.starts_with("stolen-")) {
                Some(key) => Patch::new()
                    .remove(pointer!["metadata", "labels", key])
                    .into(),
                None => Patch::new()
                    .add(pointer!["metadata", "labels", label], "x")
                    .into(),
            },
            None => Mutation::Unchanged,
        },
        // These are faults.
        "bad-path" => Patch::new()
            .remove(pointer!["metadata", "labels", label])
            .into(),
        "bad-parent" => Patch::new()
            .add(pointer!["metadata", label, "x"], text)
            .into(),
        "bad-pointer" => bad_path(text),
        "bad-value" => bad_value(text),
        "bad-test" => Patch::new().test("/kind", text).into(),
        "bad-copy" => Patch::new().copy(pointer!["data", label], "/data/x").into(),
        "rename" => Patch::new().replace("/metadata/name", text).into(),
        "wrong-type" => {
            let value = format!("{{{:?}: true}}", loot.key());
            Patch::new()
                .add("/metadata/annotations", NewValueJson(value))
                .into()
        }
        "kind" => Patch::new().replace("/kind", text).into(),
        "lossy-object" => Mutation::Object(format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"metadata\":{{\"name\":\"loot\",\"namespace\":\"default\"}},\"x\":{text:?}}}"
        )),
        "not-an-object" => Mutation::Object(format!("{text:?}")),
        "not-json" => Mutation::Object(text),
        "not-json-merge" => Mutation::Merge(text),
        "duplicate-key" => Mutation::Merge(format!("{{{text:?}: 1, {text:?}: 2}}")),
        "number" => Mutation::Merge(format!("{{\"x\": 1e999999{}}}", loot.key())),
        _ => Mutation::Unchanged,
    }
}

/// A value from JSON text.
struct NewValueJson(String);

impl From<NewValueJson> for tollgate_sdk::NewValue {
    fn from(json: NewValueJson) -> Self {
        Self::Json(json.0)
    }
}

fn bad_path(path: String) -> Mutation {
    let mut patch = Patch::new();
    patch.push(tollgate_sdk::PatchOperation::Remove(path));
    patch.into()
}

fn bad_value(json: String) -> Mutation {
    Patch::new()
        .add("/metadata/labels/x", NewValueJson(json))
        .into()
}

// === impl Loot ===

impl Loot {
    /// Returns each value unchanged, decoded, encoded, reversed and in capitals.
    fn forms(&self) -> Vec<String> {
        let mut forms = Vec::new();
        for value in &self.values {
            forms.push(value.clone());
            if let Some(decoded) = decoded(value) {
                forms.push(decoded.chars().rev().collect());
                forms.push(decoded.to_uppercase());
                forms.push(decoded);
            }
            forms.push(STANDARD.encode(value));
            forms.push(value.chars().rev().collect());
            forms.push(value.to_uppercase());
        }
        forms
    }

    fn all(&self) -> String {
        self.forms().join(" ")
    }

    /// Returns a text that can be in a label's key.
    fn key(&self) -> String {
        let value = self
            .values
            .first()
            .map(|value| decoded(value).unwrap_or_else(|| value.clone()));
        value
            .unwrap_or_default()
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .take(40)
            .collect()
    }
}

fn decoded(value: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(value).ok()?).ok()
}

// Needs only an object with these labels.
tollgate_sdk::plugin! {
    Leaker,
    rules: [Rule {
        operations: vec!["*".to_owned()],
        api_groups: vec![String::new()],
        api_versions: vec!["v1".to_owned()],
        resources: vec!["secrets".to_owned(), "configmaps".to_owned()],
        scope: None,
    }],
}
