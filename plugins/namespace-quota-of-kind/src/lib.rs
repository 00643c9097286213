//! Denies the creation of an object when its namespace has the most that it may have of the kind.
//!
//! The lookup `objects` of the configuration has the objects that count. kube-apiserver's ResourceQuota counts any
//! resource, too. This plugin counts those that a label selector chooses, and a Namespace can carry its own number.

use tollgate_sdk::cluster::{self, OrFault};
use tollgate_sdk::prelude::*;

const LOOKUP: &str = "objects";
const MOST: usize = 10_000;

/// The policy, which consists of its settings.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    most: usize,
    #[serde(default)]
    annotation: Option<QualifiedName>,
}

// === impl Quota ===

impl Policy for Quota {
    type Settings = Self;

    fn configure(settings: Self) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        if settings.most > MOST {
            errors.at("/most", format!("must be at most {MOST}"));
        }
        errors.or(settings)
    }
}

impl Validate for Quota {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        if review.operation() != Operation::Create || review.sub_resource().is_some() {
            return Ok(());
        }
        let Some(namespace) = review.request().namespace else {
            return Ok(());
        };
        let most = self.most_in(review)?;
        // Does not count further, because every object costs fuel.
        let counted = cluster::list(LOOKUP, Some(&namespace)).take(most);
        if counted.map(OrFault::or_fault).count() < most {
            return Ok(());
        }
        Err(Denial::new(format!(
            "the namespace has all {most} objects of this kind that it may have"
        )))
    }
}

impl Quota {
    /// Returns the number for the namespace of the object.
    fn most_in(&self, review: &Review) -> Result<usize, Denial> {
        let Some(key) = &self.annotation else {
            return Ok(self.most);
        };
        let at = pointer!["metadata", "annotations", key];
        match review.namespace().text(&at) {
            None => Ok(self.most),
            Some(text) => match text.parse() {
                Ok(most) if most <= MOST => Ok(most),
                _ => Err(Denial::new(format!(
                    "the annotation {key} of the Namespace must be a number from 0 to {MOST}"
                ))),
            },
        }
    }
}

tollgate_sdk::validator! {
    Quota,
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};
    use tollgate_sdk::testing::{Outcome, TestReview, configure, manifest};

    use super::*;

    const TEXT: &str = "the namespace has all 2 objects of this kind that it may have";

    fn database(namespace: &str, name: &str) -> Json {
        json!({"apiVersion": "example.com/v1", "kind": "Database", "metadata": {"namespace": namespace, "name": name}})
    }

    fn evaluate(review: TestReview, settings: Json, names: &[&str]) -> Outcome<()> {
        let lookup = json!({
            "name": "objects",
            "resource": {"group": "example.com", "version": "v1", "resource": "databases"},
        });
        let objects = names.iter().map(|name| database("shop", name));
        let others = ["a", "b", "c"].map(|name| database("blog", name));
        review
            .settings(settings)
            .lookup(lookup, objects.chain(others))
            .validate::<Quota>()
    }

    fn namespace(annotations: Json) -> Json {
        json!({"metadata": {"name": "shop", "annotations": annotations}})
    }

    #[test]
    fn denies_one_more_than_the_most() {
        let new = TestReview::create(database("shop", "new"));
        let settings = json!({"most": 2});
        assert!(evaluate(new.clone(), settings.clone(), &["a"]).is_allowed());
        for names in [&["a", "b"][..], &["a", "b", "c"]] {
            let outcome = evaluate(new.clone(), settings.clone(), names);
            assert_eq!(outcome.denial().message, TEXT);
        }
        assert!(!evaluate(new, json!({"most": 0}), &[]).is_allowed());
    }

    #[test]
    fn counts_no_updates_subresources_and_cluster_scoped_objects() {
        let settings = json!({"most": 0});
        let object = database("shop", "a");
        for review in [
            TestReview::update(object.clone(), object.clone()),
            TestReview::create(object.clone()).sub_resource("status"),
            TestReview::delete(object),
            TestReview::create(
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}),
            ),
        ] {
            assert!(evaluate(review, settings.clone(), &["a"]).is_allowed());
        }
    }

    #[test]
    fn annotation_of_the_namespace_overrides_the_number() {
        let settings = json!({"most": 2, "annotation": "example.com/databases"});
        let allowed = |annotations: Json| {
            let review = TestReview::create(database("shop", "new"));
            let review = review.namespace_object(namespace(annotations));
            evaluate(review, settings.clone(), &["a", "b"]).is_allowed()
        };
        assert!(!allowed(json!({})));
        assert!(allowed(json!({"example.com/databases": "3"})));
        assert!(!allowed(json!({"example.com/databases": "1"})));
    }

    #[test]
    fn malformed_annotation_denies() {
        for text in ["many", "-1", "10001", ""] {
            let review = TestReview::create(database("shop", "new"))
                .namespace_object(namespace(json!({"example.com/databases": text})));
            let settings = json!({"most": 2, "annotation": "example.com/databases"});
            assert_eq!(
                evaluate(review, settings, &[]).denial().message,
                "the annotation example.com/databases of the Namespace must be a number from 0 to 10000"
            );
        }
    }

    #[test]
    #[should_panic(expected = "not synchronised: the lookup `objects`")]
    fn says_so_when_not_synchronised() {
        let review = TestReview::create(database("shop", "new"))
            .settings(json!({"most": 2}))
            .not_synchronised("objects");
        drop(review.validate::<Quota>());
    }

    #[test]
    fn settings_are_checked() {
        let error = configure::<Quota>(json!({"most": 10_001})).err().unwrap();
        assert_eq!(error.to_string(), "/most: must be at most 10000");
        assert!(configure::<Quota>(json!({})).is_err());
        assert!(configure::<Quota>(json!({"most": 1, "annotation": "a b"})).is_err());
    }

    #[test]
    fn settings_schema_is_json() {
        let schema: Json =
            serde_json::from_str(&manifest::<Quota>().settings_schema.unwrap()).unwrap();
        assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
    }
}
