//! The schemas of rollouts: the plan, what each replica sees, and what the leader has decided.

use serde_json::{Value, json};

use super::{extend, text, texts, words};
use crate::status::rollout::{LONGEST_REASON_CHARACTERS, MOST_CHANGES};

const MOST_STEPS: usize = 16;
const MOST_NAMESPACES: usize = 1000;
/// Maximum number of installations that serve one resource.
const MOST_INSTALLATIONS: usize = 16;
const LONGEST_NAME_CHARACTERS: usize = 128;
const PHASES: &[&str] = &["running", "stopped", "promoted", "rolled-back"];
const ACTORS: &[&str] = &["configuration", "gates", "operator"];

/// A rollback is final within a run, and nothing goes back behind what was decided. So a leader that knows an old status
/// cannot undo a rollback.
const ONLY_FORWARD: &str = "self.identity != oldSelf.identity || self.run > oldSelf.run || (self.run == oldSelf.run && self.revision >= oldSelf.revision && (oldSelf.phase != 'rolled-back' || self.phase == 'rolled-back'))";

/// The plan: `spec.rollout`. `version` has the keys of the new version.
pub(super) fn plan(version: Value) -> Value {
    let mut namespaces = texts("Namespaces that belong to the step beside those of the share.");
    namespaces["maxItems"] = json!(MOST_NAMESPACES);
    json!({
        "description": "The steps by which a new version, or the mode enforce, takes effect. Not beside shadow.",
        "type": "object",
        "required": ["steps"],
        "properties": {
            "to": {
                "description": "The new version. Without it, the plugin's own version gets the mode enforce.",
                "type": "object", "required": ["source"], "properties": version,
            },
            "steps": {
                "description": "The modes come in the order shadow, warn, enforce, and a share does not shrink within a mode.",
                "type": "array", "minItems": 1, "maxItems": MOST_STEPS,
                "items": {
                    "type": "object",
                    "required": ["mode", "for"],
                    "properties": {
                        "mode": words("The part of the new version.", &["shadow", "warn", "enforce"], None),
                        "for": text("Minimum duration of the step, such as 24h."),
                        "share": { "description": "Share of the namespaces in percent.", "type": "integer", "minimum": 1, "maximum": 100 },
                        "namespaces": namespaces,
                    },
                },
                "x-kubernetes-validations": [{
                    "rule": "self[self.size() - 1].mode == 'enforce'",
                    "message": "the last step must have mode: enforce",
                }],
            },
            "gates": {
                "description": "The conditions of every step, for the sum of what all replicas see.",
                "type": "object",
                "properties": {
                    "newDenials": count("Maximum number of requests that the new version denies and the old one does not.", 0),
                    "faults": count("Maximum number of faults of the new version.", 0),
                    "addedTime": text("Maximum CPU time that a call of the new version takes longer on average."),
                    "minReviews": count("Minimum number of calls of the new version.", 1),
                },
            },
            "onFailure": words("The effect of too many new denials and too much added time. Faults always roll back.", &["rollback", "stop"], None),
        },
    })
}

/// What a replica sees: `status.replicas[].rollout`.
pub(super) fn report() -> Value {
    let mut properties = point();
    let more = json!({
        "available": { "description": "Whether the replica can call the new version.", "type": "boolean" },
        "over": { "description": "Whether the counts were made after the step could end.", "type": "boolean" },
        "observed": observations("What the replica saw in this step."),
        "asksForPromotion": { "description": "Whether an administrator asked the replica for the next step.", "type": "boolean" },
    });
    extend(&mut properties, &more);
    json!({
        "description": "What the replica sees of the rollout. The leader decides by the sum of all replicas.",
        "type": "object", "properties": properties,
    })
}

/// What the leaders have decided: `status.rollouts`.
pub(super) fn decisions() -> Value {
    let mut properties = point();
    let time = json!({ "type": "string", "format": "date-time" });
    let more = json!({
        "installation": { "description": "Namespace and name of the installation whose leader has decided.", "type": "string", "maxLength": LONGEST_NAME_CHARACTERS },
        "steps": { "description": "Number of steps.", "type": "integer", "minimum": 1, "maximum": MOST_STEPS },
        "summary": text("The phase, and the step while there is one."),
        "startedAt": time, "since": time,
        "waitsFor": text("What the rollout waits for."),
        "from": text("SHA-256 of the old version's bytes."),
        "to": text("SHA-256 of the new version's bytes."),
        "observed": observations("What all replicas saw in this step, when this was written."),
        "carried": observations("What replicas saw that are gone since."),
        "history": {
            "description": "The last changes, oldest first.",
            "type": "array", "maxItems": MOST_CHANGES,
            "items": {
                "type": "object",
                "properties": {
                    "at": time,
                    "phase": words("The phase after the change.", PHASES, None),
                    "step": { "type": "integer" },
                    "by": words("Who made the change.", ACTORS, None),
                    "reason": text("Why."),
                },
            },
        },
    });
    extend(&mut properties, &more);
    json!({
        "description": "The state of the rollout that the replicas of each installation share.",
        "type": "array", "maxItems": MOST_INSTALLATIONS,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["installation"],
        "items": {
            "type": "object",
            "required": ["installation", "identity", "run", "revision", "phase", "step", "steps"],
            "properties": properties,
            "x-kubernetes-validations": [
                { "rule": "self.step <= self.steps", "message": "the plan has no such step" },
                { "rule": ONLY_FORWARD, "message": "a rollback is final within a run, and no decision goes back behind another one" },
            ],
        },
    })
}

/// Where a rollout stands.
fn point() -> Value {
    json!({
        "identity": { "description": "What is rolled out, and by which plan: a hash.", "type": "string", "maxLength": 64 },
        "run": { "description": "Number of times that the rollout has begun.", "type": "integer", "format": "int64", "minimum": 0 },
        "revision": { "description": "Number of changes in this run.", "type": "integer", "format": "int64", "minimum": 0 },
        "phase": words("Whether the rollout goes on.", PHASES, None),
        "step": { "description": "Number of the step, from 1.", "type": "integer", "minimum": 1 },
        "by": words("Who made the last change.", ACTORS, None),
        "reason": { "description": "Why.", "type": "string", "maxLength": LONGEST_REASON_CHARACTERS },
    })
}

fn observations(description: &str) -> Value {
    let number = json!({ "type": "integer", "format": "int64" });
    let mean =
        json!({ "type": "object", "properties": { "calls": number, "microseconds": number } });
    json!({
        "description": description,
        "type": "object",
        "properties": { "reviews": number, "newDenials": number, "faults": number, "newTime": mean, "oldTime": mean },
    })
}

fn count(description: &str, minimum: u32) -> Value {
    json!({ "description": description, "type": "integer", "format": "int64", "minimum": minimum })
}
