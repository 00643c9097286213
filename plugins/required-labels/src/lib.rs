//! Requires labels and annotations, and can require that their whole values match patterns.
//!
//! Every violation is reported with its field. A denial never contains values, but it contains patterns.

use std::collections::BTreeMap;
use std::iter;

use tollgate_sdk::pattern::Pattern;
use tollgate_sdk::prelude::*;

/// The policy with its compiled patterns. The host keeps a snapshot of them, so no request compiles a pattern.
pub struct RequiredLabels {
    demands: Vec<Demand>,
    /// What a call reads: the object itself, and the field of each demand.
    reads: Pointers,
}

/// The settings as the configuration has them: a pattern for each key, or null to allow any value.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    labels: BTreeMap<String, Option<String>>,
    annotations: BTreeMap<String, Option<String>>,
}

struct Demand {
    field: Pointer,
    /// The name for the user: `label team`.
    name: String,
    pattern: Option<Pattern>,
}

// === impl RequiredLabels ===

impl Policy for RequiredLabels {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        let mut demands = Vec::new();
        for (list, singular, keys) in [
            ("labels", "label", settings.labels),
            ("annotations", "annotation", settings.annotations),
        ] {
            for (key, pattern) in keys {
                if key.is_empty() {
                    errors.at(pointer![list, key], "a key is not empty");
                    continue;
                }
                match pattern.as_deref().map(Pattern::whole).transpose() {
                    Ok(pattern) => demands.push(Demand {
                        field: pointer!["metadata", list, key],
                        name: format!("{singular} {key}"),
                        pattern,
                    }),
                    Err(error) => {
                        errors.at(
                            pointer![list, key],
                            format!("is no regular expression: {error}"),
                        );
                    }
                }
            }
        }
        let fields = demands.iter().map(|demand| demand.field.clone());
        let reads = Pointers::new(iter::once(Pointer::root()).chain(fields));
        errors.or(Self { demands, reads })
    }
}

impl Validate for RequiredLabels {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        // Most reviews take this one call of the host.
        let mut values = review.object().get_all(&self.reads).into_iter();
        if values.next().flatten().is_none() {
            return Ok(());
        }
        let mut findings = Findings::new("labels or annotations are missing or malformed");
        for (demand, value) in self.demands.iter().zip(values) {
            if let Some(cause) = demand.check(value.and_then(Value::into_text)) {
                findings.push(cause);
            }
        }
        // A subresource has an object of its own, such as a Scale, with other metadata.
        if !findings.is_empty() && review.sub_resource().is_some() {
            return Ok(());
        }
        findings.verdict()
    }
}

// === impl Demand ===

impl Demand {
    fn check(&self, value: Option<String>) -> Option<Cause> {
        let Some(value) = value else {
            let message = match &self.pattern {
                Some(pattern) => format!("{} is required, matching {pattern}", self.name),
                None => format!("{} is required", self.name),
            };
            return Some(Cause::at(&self.field, message).reason(Cause::VALUE_REQUIRED));
        };
        let pattern = self.pattern.as_ref()?;
        if pattern.matches(&value) {
            return None;
        }
        let message = format!("{} must match {pattern}", self.name);
        Some(Cause::at(&self.field, message).reason(Cause::VALUE_INVALID))
    }
}

tollgate_sdk::validator! {
    RequiredLabels,
    rules: [
        Rule::on([Operation::Create, Operation::Update], "", "v1", ["namespaces", "pods", "services"]),
        Rule::on([Operation::Create, Operation::Update], "apps", "v1", ["daemonsets", "deployments", "statefulsets"]),
        Rule::on([Operation::Create, Operation::Update], "batch", "v1", ["cronjobs", "jobs"]),
    ],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};
    use tollgate_sdk::testing::{Outcome, TestReview, configure, manifest};

    use super::*;

    fn deployment(metadata: Json) -> Json {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata})
    }

    fn evaluate(metadata: Json, settings: Json) -> Outcome<()> {
        TestReview::create(deployment(metadata))
            .settings(settings)
            .validate::<RequiredLabels>()
    }

    #[test]
    fn without_settings_everything_is_allowed() {
        assert!(evaluate(json!({}), json!({})).is_allowed());
    }

    #[test]
    fn every_violation_is_reported_with_its_field() {
        let outcome = evaluate(
            json!({"labels": {"team": "Blue", "tier": "web"}}),
            json!({
                "labels": {"app.kubernetes.io/name": null, "team": "[a-z]+", "tier": "web|db"},
                "annotations": {"owner": ".+@example[.]com"}
            }),
        );
        assert_eq!(
            outcome.causes(),
            [
                (
                    "/metadata/labels/app.kubernetes.io~1name",
                    "label app.kubernetes.io/name is required"
                ),
                ("/metadata/labels/team", "label team must match [a-z]+"),
                (
                    "/metadata/annotations/owner",
                    "annotation owner is required, matching .+@example[.]com"
                ),
            ]
        );
        let reasons: Vec<_> = outcome
            .denial()
            .causes
            .iter()
            .map(|cause| cause.reason.as_deref().unwrap())
            .collect();
        assert_eq!(
            reasons,
            [
                "FieldValueRequired",
                "FieldValueInvalid",
                "FieldValueRequired"
            ]
        );
    }

    #[test]
    fn any_value_will_do_where_there_is_no_pattern() {
        assert!(
            evaluate(
                json!({"labels": {"team": ""}}),
                json!({"labels": {"team": null}})
            )
            .is_allowed()
        );
    }

    #[test]
    fn a_pattern_matches_the_whole_value() {
        for (pattern, value, is_allowed) in [
            ("web", "web", true),
            ("web", "website", false),
            ("web", "the web", false),
            ("web|db", "db", true),
            ("web|db", "dbs", false),
            ("web", "web\n", false),
            ("(?m)web", "web\ndb", false),
            ("", "", true),
            ("", "a", false),
        ] {
            let outcome = evaluate(
                json!({"labels": {"tier": value}}),
                json!({"labels": {"tier": pattern}}),
            );
            assert_eq!(outcome.is_allowed(), is_allowed, "{pattern} on {value:?}");
        }
    }

    #[test]
    fn a_denial_does_not_repeat_values() {
        let outcome = evaluate(
            json!({"annotations": {"key": "hunter2"}}),
            json!({"annotations": {"key": "[0-9]+"}}),
        );
        assert!(!format!("{:?}", outcome.denial()).contains("hunter2"));
    }

    #[test]
    fn a_value_that_is_no_string_counts_as_missing() {
        let outcome = evaluate(
            json!({"labels": {"team": null}}),
            json!({"labels": {"team": null}}),
        );
        assert_eq!(
            outcome.causes(),
            [("/metadata/labels/team", "label team is required")]
        );
    }

    #[test]
    fn a_deletion_is_allowed_and_to_write_of_one_excuses_nothing() {
        let settings = json!({"labels": {"team": null}});
        let review = TestReview::delete(deployment(json!({}))).settings(settings.clone());
        assert!(review.validate::<RequiredLabels>().is_allowed());
        // kube-apiserver removes this field from new objects.
        let pretended = deployment(json!({"deletionTimestamp": "2030-01-01T00:00:00Z"}));
        for review in [
            TestReview::create(pretended.clone()),
            TestReview::update(deployment(json!({})), pretended),
        ] {
            let outcome = review
                .settings(settings.clone())
                .validate::<RequiredLabels>();
            assert_eq!(outcome.fields(), ["/metadata/labels/team"]);
        }
    }

    #[test]
    fn subresources_are_ignored() {
        let scale =
            json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 3}});
        let review = TestReview::update(scale.clone(), scale)
            .sub_resource("scale")
            .settings(json!({"labels": {"team": null}}));
        assert!(review.validate::<RequiredLabels>().is_allowed());
    }

    #[test]
    fn a_bad_pattern_is_refused_with_the_pointer_of_its_setting() {
        for pattern in ["(", "a)|(b"] {
            let errors = configure::<RequiredLabels>(json!({"labels": {"a/b": pattern}}))
                .err()
                .unwrap();
            assert!(
                errors
                    .to_string()
                    .starts_with("/labels/a~1b: is no regular expression"),
                "{errors}"
            );
        }
        let errors = configure::<RequiredLabels>(json!({"labels": {"a": 1}}))
            .err()
            .unwrap();
        assert!(
            errors.to_string().starts_with("/labels/a: invalid type"),
            "{errors}"
        );
        let errors = configure::<RequiredLabels>(json!({"label": {}}))
            .err()
            .unwrap();
        assert!(
            errors.to_string().starts_with("/label: unknown field"),
            "{errors}"
        );
    }

    #[test]
    fn the_settings_schema_is_json() {
        let schema: Json =
            serde_json::from_str(&manifest::<RequiredLabels>().settings_schema.unwrap()).unwrap();
        assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
    }
}
