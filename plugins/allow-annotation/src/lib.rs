//! Sets an annotation on Deployments and requires it: the smallest pair of a mutator and a validator.
//!
//! The mutator sets a missing annotation, and does not change an existing one. The validator checks the result, whoever
//! changed the annotation last.

use tollgate_sdk::prelude::*;

/// The required value of the annotation.
const ALLOWED: &str = "true";

/// The policy.
pub struct AllowAnnotation {
    annotation: QualifiedName,
    field: Pointer,
}

/// The settings as the configuration has them.
#[derive(serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    annotation: QualifiedName,
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        let annotation = concat!(env!("CARGO_PKG_NAME"), "/allow");
        Self {
            annotation: annotation.parse().expect("the default is a key"),
        }
    }
}

// === impl AllowAnnotation ===

impl Policy for AllowAnnotation {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        let annotation = settings.annotation;
        let field = pointer!["metadata", "annotations", annotation];
        Ok(Self { annotation, field })
    }
}

impl Mutate for AllowAnnotation {
    fn mutate(&self, review: &Review) -> Result<Mutation, Denial> {
        let object = review.object();
        if !is_covered(review) || object.text(&self.field).is_some() {
            return Ok(Mutation::Unchanged);
        }
        Ok(Patch::new().set(object, &self.field, ALLOWED).into())
    }
}

impl Validate for AllowAnnotation {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        let reason = match review.object().text(&self.field).as_deref() {
            Some(ALLOWED) => return Ok(()),
            _ if !is_covered(review) => return Ok(()),
            Some(_) => Cause::VALUE_INVALID,
            None => Cause::VALUE_REQUIRED,
        };
        let message = format!("the annotation {} does not allow this", self.annotation);
        let cause = Cause::at(&self.field, format!("must be \"{ALLOWED}\"")).reason(reason);
        Err(Denial::new(message).cause(cause))
    }
}

/// Whether the object itself has annotations. A subresource such as `scale` has none.
fn is_covered(review: &Review) -> bool {
    review.sub_resource().is_none() && review.object().exists()
}

tollgate_sdk::plugin! {
    AllowAnnotation,
    rules: [Rule::on([Operation::Create, Operation::Update], "apps", "v1", ["deployments"])],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};
    use tollgate_sdk::testing::{TestReview, configure, manifest};

    use super::*;

    fn deployment(metadata: Json) -> Json {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": 1}})
    }

    #[test]
    fn a_deployment_is_stamped_and_then_allowed() {
        let before = deployment(json!({"name": "web"}));
        for review in [
            TestReview::create(before.clone()),
            TestReview::update(before.clone(), before),
        ] {
            let outcome = review.mutate::<AllowAnnotation>();
            assert_eq!(
                outcome.object()["metadata"]["annotations"],
                json!({"allow-annotation/allow": "true"})
            );
            let stamped = review.object(outcome.object().clone());
            assert!(stamped.validate::<AllowAnnotation>().is_allowed());
            assert!(!stamped.mutate::<AllowAnnotation>().is_changed());
        }
    }

    #[test]
    fn other_annotations_stay() {
        let review = TestReview::create(deployment(json!({"annotations": {"a": "b"}})));
        assert_eq!(
            review.mutate::<AllowAnnotation>().object()["metadata"]["annotations"],
            json!({"a": "b", "allow-annotation/allow": "true"})
        );
    }

    #[test]
    fn a_missing_annotation_is_denied_with_its_field() {
        let outcome = TestReview::create(deployment(json!({}))).validate::<AllowAnnotation>();
        assert_eq!(
            outcome.denial().message,
            "the annotation allow-annotation/allow does not allow this"
        );
        assert_eq!(
            outcome.causes(),
            [(
                "/metadata/annotations/allow-annotation~1allow",
                "must be \"true\""
            )]
        );
    }

    #[test]
    fn what_the_user_wrote_stays_and_is_checked() {
        let annotations = json!({"allow-annotation/allow": "false"});
        let review = TestReview::create(deployment(json!({"annotations": annotations})));
        assert!(!review.mutate::<AllowAnnotation>().is_changed());
        assert!(!review.validate::<AllowAnnotation>().is_allowed());
    }

    #[test]
    fn the_annotation_can_be_another() {
        let review = TestReview::create(deployment(json!({})))
            .settings(json!({"annotation": "example.com/ok"}));
        assert_eq!(
            review.mutate::<AllowAnnotation>().object()["metadata"]["annotations"],
            json!({"example.com/ok": "true"})
        );
        assert_eq!(
            review.validate::<AllowAnnotation>().fields(),
            ["/metadata/annotations/example.com~1ok"]
        );
    }

    #[test]
    fn a_key_that_kubernetes_would_not_take_is_refused() {
        let errors = configure::<AllowAnnotation>(json!({"annotation": "example.com/"}))
            .err()
            .unwrap();
        assert_eq!(
            errors.to_string(),
            "/annotation: is no key of a label or annotation: its name must not be empty"
        );
    }

    #[test]
    fn subresources_and_deletion_are_not_in_the_way() {
        let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {}, "spec": {"replicas": 3}});
        for review in [
            TestReview::update(scale.clone(), scale).sub_resource("scale"),
            TestReview::delete(deployment(json!({}))),
        ] {
            assert!(!review.mutate::<AllowAnnotation>().is_changed());
            assert!(review.validate::<AllowAnnotation>().is_allowed());
        }
    }

    #[test]
    fn to_write_of_a_deletion_excuses_nothing() {
        // kube-apiserver removes this field from new objects.
        let pretended = deployment(json!({"deletionTimestamp": "2030-01-01T00:00:00Z"}));
        for review in [
            TestReview::create(pretended.clone()),
            TestReview::update(deployment(json!({})), pretended),
        ] {
            assert!(review.mutate::<AllowAnnotation>().is_changed());
            assert!(!review.validate::<AllowAnnotation>().is_allowed());
        }
    }

    #[test]
    fn the_settings_schema_is_json() {
        let schema: Json =
            serde_json::from_str(&manifest::<AllowAnnotation>().settings_schema.unwrap()).unwrap();
        assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
    }
}
