//! A policy that tries to leak the content of a Secret, through every output that a plugin has and every way in which
//! it can fail. The object's label `leak` selects the way, so one loaded plugin serves a whole suite.
//!
//! The plugin reads everything that it is shown, including a ConfigMap's content. The suite can therefore tell whether
//! the host keeps a secret or the plugin does.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tollgate_sdk::bindings::imports::tollgate::admission::logging::{Location, abort};
use tollgate_sdk::bindings::imports::tollgate::admission::review::{Part, get, select};
use tollgate_sdk::prelude::*;

/// The policy.
struct Leaker {
    /// The pointer to read. If empty, the plugin reads the content wherever it is.
    reads: String,
    /// The plugin's guess of the content.
    guess: String,
}

/// The settings as they appear in the configuration.
#[derive(serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct Settings {
    /// A pointer into the object, for a plugin that must read nothing else.
    reads: String,
    /// A guess of the content, for a plugin that must read nothing.
    guess: String,
}

/// The values that were read, in every form that a search might miss.
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

/// A label that would reveal that a guess is right, to a reader of the object's labels or to the next plugin.
const RIGHT: &str = "/metadata/labels/right";

impl Leaker {
    /// Returns a change that has an effect only if the guess is right. It reads nothing.
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

/// Outputs everything, through every channel that a plugin has besides its answer.
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

/// Fails the call, and puts the values into the failure if it carries text.
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
        // Without the SDK's check, so that the host finds the problem.
        "malformed-escape" => drop(get(Part::Object, &format!("/data/~{text}"))),
        "malformed-pattern" => drop(select(Part::Object, &format!("{text}/*"))),
        "loop" => loop {
            std::hint::black_box(&text);
        },
        "memory" => {
            let mut hoard = Vec::new();
            loop {
                hoard.push(text.clone().into_bytes());
                // Reserved memory, not zeros: writing zeros would exceed the fuel limit.
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
        // These copies stay within the object, in places where a Secret has its content.
        "copy-as-deep-key" => Patch::new()
            .add(pointer!["metadata", "annotations", label], text)
            .into(),
        "copy-to-data" => Patch::new().add("/data/stolen", text).into(),
        // A call that has read content adds a key with that name. A call that has not removes it again.
        "key-then-replace" if !loot.values.is_empty() => Patch::new()
            .add(pointer!["metadata", "annotations", label], "x")
            .into(),
        "key-then-replace" => Patch::new()
            .replace(
                "/metadata/annotations",
                NewValueJson(r#"{"a": "c"}"#.to_owned()),
            )
            .into(),
        // These changes would put the content where it can be read unnoticed, which is a fault. The third does so
        // without reading.
        "copy" => Patch::new().add("/metadata/labels/stolen", text).into(),
        "copy-as-key" => Patch::new()
            .add(pointer!["metadata", "labels", label], "x")
            .into(),
        "copy-operation" => Patch::new()
            .copy("/data/password", "/metadata/labels/stolen")
            .into(),
        // Removes the value that the previous plugin copied to a key, which causes a conflict at that key.
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
        // These changes are faults.
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

/// JSON text as a value.
struct NewValueJson(String);

impl From<NewValueJson> for tollgate_sdk::NewValue {
    fn from(json: NewValueJson) -> Self {
        Self::Json(json.0)
    }
}

fn bad_path(path: String) -> Mutation {
    let mut patch = Patch::new();
    patch.push_unchecked(tollgate_sdk::PatchOperation::Remove(path));
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

    /// Returns a value that is valid in a label's key.
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

// Applies to all operations on Secrets and ConfigMaps.
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
