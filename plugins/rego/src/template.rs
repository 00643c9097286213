//! A ConstraintTemplate: its Rego, and the schema of its parameters.

use serde_json::Value as Json;
use tollgate_sdk::{Pointer, SettingsErrors, pointer};

/// The parts of a template that the plugin uses.
pub(crate) struct Template {
    /// The kind of the template's constraints.
    pub(crate) kind: String,
    /// The schema of `spec.parameters`. None means that anything is allowed.
    pub(crate) schema: Option<Json>,
    /// The module with `violation`.
    pub(crate) module: Source,
    /// The modules that it imports.
    pub(crate) libs: Vec<Source>,
}

/// The text of a Rego module.
pub(crate) struct Source {
    /// The place in the settings.
    pub(crate) place: Pointer,
    /// The text as the template has it.
    pub(crate) text: String,
    /// Whether the module is written in Rego v1.
    pub is_v1: bool,
}

const TARGET: &str = "admission.k8s.gatekeeper.sh";
const NO_REGO: &str =
    "has no Rego; expected `rego`, or an element of `code` with `engine: Rego` and `source.rego`";

// === impl Template ===

impl Template {
    /// Reads a template. `at` is its place in the settings.
    pub(crate) fn read(template: &Json, at: &Pointer, errors: &mut SettingsErrors) -> Option<Self> {
        let text = |pointer: &str| template.pointer(pointer).and_then(Json::as_str);
        if text("/kind") != Some("ConstraintTemplate")
            || !text("/apiVersion").is_some_and(|text| text.starts_with("templates.gatekeeper.sh/"))
        {
            errors.at(
                at.clone(),
                "is no ConstraintTemplate of templates.gatekeeper.sh",
            );
            return None;
        }
        let kind = text("/spec/crd/spec/names/kind");
        if kind.is_none() {
            errors.at(
                at.child("spec"),
                "crd.spec.names.kind is required: the kind of the constraints",
            );
        }
        let targets = template.pointer("/spec/targets").and_then(Json::as_array);
        let targets = targets.map_or(&[][..], Vec::as_slice);
        let target = targets
            .iter()
            .position(|target| target.get("target").and_then(Json::as_str) == Some(TARGET));
        let place = pointer_of(at, &["spec", "targets"]);
        let Some(index) = target else {
            errors.at(place, format!("has no target {TARGET}"));
            return None;
        };
        let place = place.child(index);
        let Some((module, libs)) = sources(&targets[index], &place) else {
            errors.at(place, NO_REGO);
            return None;
        };
        Some(Self {
            kind: kind?.to_owned(),
            schema: template
                .pointer("/spec/crd/spec/validation/openAPIV3Schema")
                .cloned(),
            module,
            libs,
        })
    }
}

/// Finds the Rego of a target. Gatekeeper prefers `code` to the older `rego`.
fn sources(target: &Json, place: &Pointer) -> Option<(Source, Vec<Source>)> {
    let code = target.get("code").and_then(Json::as_array);
    let rego = code.into_iter().flatten().enumerate().find(|(_, code)| {
        code.get("engine").and_then(Json::as_str) == Some("Rego") && code.get("source").is_some()
    });
    let (holder, place) = match rego {
        Some((index, code)) => (
            code.get("source")?,
            place.child("code").child(index).child("source"),
        ),
        None => (target, place.clone()),
    };
    let is_v1 = holder.get("version").and_then(Json::as_str) == Some("v1");
    let source = |text: &str, place: Pointer| Source {
        place,
        text: text.to_owned(),
        is_v1,
    };
    let module = source(
        holder.get("rego").and_then(Json::as_str)?,
        place.child("rego"),
    );
    let libs = holder.get("libs").and_then(Json::as_array);
    let libs = libs.into_iter().flatten().filter_map(Json::as_str);
    let libs = libs
        .enumerate()
        .map(|(index, text)| source(text, place.child("libs").child(index)));
    Some((module, libs.collect()))
}

fn pointer_of(base: &Pointer, tokens: &[&str]) -> Pointer {
    let join = |place: Pointer, token: &&str| place.child(token);
    tokens.iter().fold(base.clone(), join)
}

/// The place of the template in the settings.
pub(crate) fn place() -> Pointer {
    pointer!["template"]
}
