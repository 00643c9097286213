//! Denies an Ingress with a host and path that another Ingress has, in any namespace and of any class.
//!
//! The lookup `ingresses` of the configuration has the other Ingresses, with the index `host`. While the host has not
//! read them, the call ends as a fault, and the failure policy decides.

use std::collections::BTreeSet;

use tollgate_sdk::cluster::{self, Object, OrFault as _};
use tollgate_sdk::prelude::*;

const LOOKUP: &str = "ingresses";
const INDEX: &str = "host";
const HOSTS: &str = "/spec/rules/*/host";

/// The policy, which consists of its settings.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct UniqueIngressHost {
    whole_hosts: bool,
}

/// A path of a rule, and the field to blame for it.
struct Place {
    field: String,
    path: String,
}

// === impl UniqueIngressHost ===

impl Policy for UniqueIngressHost {
    type Settings = Self;

    fn configure(settings: Self) -> Result<Self, SettingsErrors> {
        Ok(settings)
    }
}

impl Validate for UniqueIngressHost {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        let object = review.object();
        if review.sub_resource().is_some() || !object.exists() {
            return Ok(());
        }
        let request = review.request();
        let is_own = |other: &Object| {
            other.namespace() == request.namespace.as_deref() && other.name() == request.name
        };
        let mut findings = Findings::new("a host and path must belong to one Ingress");
        for Node { pointer, value } in object.select(HOSTS) {
            let Some(host) = value.as_text().filter(|host| !host.is_empty()) else {
                continue;
            };
            let mut places = self.places(object, pointer);
            for other in cluster::find(LOOKUP, INDEX, host) {
                let other = other.or_fault();
                if is_own(&other) {
                    continue;
                }
                let taken = paths_of(&other, host);
                places.retain(|place| {
                    let is_taken = self.whole_hosts || taken.contains(&place.path);
                    if is_taken {
                        findings.at(place.field.as_str(), belongs_to(&other));
                    }
                    !is_taken
                });
                if places.is_empty() {
                    break;
                }
            }
        }
        findings.verdict()
    }
}

impl UniqueIngressHost {
    /// Returns the paths of the rule with this host. A rule without paths stands for `/`.
    fn places(&self, object: Document, host: String) -> Vec<Place> {
        let rule = host.strip_suffix("/host").unwrap_or(&host);
        let paths = object.select(format!("{rule}/http/paths/*/path"));
        if self.whole_hosts || paths.is_empty() {
            return vec![Place {
                field: host,
                path: "/".to_owned(),
            }];
        }
        let place = |node: Node| {
            Some(Place {
                path: node.value.into_text()?,
                field: node.pointer,
            })
        };
        paths.into_iter().filter_map(place).collect()
    }
}

/// Returns the paths of all rules with a host. A rule without paths stands for `/`.
fn paths_of(ingress: &Object, host: &str) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    let mut has_host = false;
    for node in ingress.select(HOSTS) {
        if node.value.as_text() != Some(host) {
            continue;
        }
        has_host = true;
        let rule = node.pointer.strip_suffix("/host").unwrap_or_default();
        let of_rule = ingress.select(format!("{rule}/http/paths/*/path"));
        if of_rule.is_empty() {
            paths.insert("/".to_owned());
        }
        paths.extend(
            of_rule
                .into_iter()
                .filter_map(|node| node.value.into_text()),
        );
    }
    // The index has found the host, so only a lookup without the field hides it. That must not count as "free".
    assert!(has_host, "the lookup `{LOOKUP}` does not keep `{HOSTS}`");
    paths
}

fn belongs_to(ingress: &Object) -> String {
    let namespace = ingress.namespace().unwrap_or_default();
    format!(
        "already belongs to the Ingress {namespace}/{}",
        ingress.name()
    )
}

tollgate_sdk::validator! {
    UniqueIngressHost,
    rules: [
        Rule::on([Operation::Create, Operation::Update], "networking.k8s.io", "v1", ["ingresses"]),
    ],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};
    use tollgate_sdk::testing::{Outcome, TestReview, manifest};

    use super::*;

    /// An Ingress with a rule for each host and its paths.
    fn ingress(namespace: &str, name: &str, class: &str, rules: &[(&str, &[&str])]) -> Json {
        let rules: Vec<Json> = rules
            .iter()
            .map(|(host, paths)| {
                let paths: Vec<Json> = paths
                    .iter()
                    .map(|path| json!({"path": path, "pathType": "Prefix", "backend": {}}))
                    .collect();
                json!({"host": host, "http": {"paths": paths}})
            })
            .collect();
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"ingressClassName": class, "rules": rules},
        })
    }

    fn with_lookup(review: TestReview) -> TestReview {
        let lookup = json!({
            "name": "ingresses",
            "resource": {"group": "networking.k8s.io", "version": "v1", "resource": "ingresses"},
            "fields": ["/spec/rules/*/host", "/spec/rules/*/http/paths/*/path"],
            "indexes": {"host": "/spec/rules/*/host"},
        });
        review.lookup(
            lookup,
            [
                ingress("shop", "web", "nginx", &[("shop.example", &["/", "/cart"])]),
                ingress("blog", "web", "traefik", &[("blog.example", &[])]),
            ],
        )
    }

    fn created(new: Json) -> Outcome<()> {
        with_lookup(TestReview::create(new)).validate::<UniqueIngressHost>()
    }

    #[test]
    fn denies_second_ingress_across_namespaces_and_classes() {
        let outcome = created(ingress(
            "mine",
            "new",
            "other",
            &[
                ("new.example", &["/cart"]),
                ("shop.example", &["/new", "/cart"]),
            ],
        ));
        assert_eq!(
            outcome.denial().message,
            "a host and path must belong to one Ingress"
        );
        assert_eq!(
            outcome.causes(),
            [(
                "/spec/rules/1/http/paths/1/path",
                "already belongs to the Ingress shop/web"
            )]
        );
    }

    #[test]
    fn allows_other_paths_of_the_host_unless_it_belongs_as_a_whole() {
        let new = ingress("mine", "new", "nginx", &[("shop.example", &["/new"])]);
        assert!(created(new.clone()).is_allowed());
        let outcome = with_lookup(TestReview::create(new))
            .settings(json!({"wholeHosts": true}))
            .validate::<UniqueIngressHost>();
        assert_eq!(outcome.fields(), ["/spec/rules/0/host"]);
    }

    #[test]
    fn rule_without_paths_stands_for_the_root() {
        for paths in [&[][..], &["/"]] {
            let new = ingress("mine", "new", "nginx", &[("blog.example", paths)]);
            assert!(!created(new).is_allowed());
        }
        let new = ingress("mine", "new", "nginx", &[("shop.example", &[])]);
        assert_eq!(created(new).fields(), ["/spec/rules/0/host"]);
    }

    #[test]
    fn allows_update_of_the_owner() {
        let old = ingress("shop", "web", "nginx", &[("shop.example", &["/", "/cart"])]);
        let new = ingress("shop", "web", "nginx", &[("shop.example", &["/cart"])]);
        let outcome = with_lookup(TestReview::update(old, new)).validate::<UniqueIngressHost>();
        assert!(outcome.is_allowed());
    }

    #[test]
    fn denies_update_that_takes_the_path_of_another() {
        let old = ingress("shop", "api", "nginx", &[("shop.example", &["/api"])]);
        let new = ingress("shop", "api", "nginx", &[("shop.example", &["/cart"])]);
        let outcome = with_lookup(TestReview::update(old, new)).validate::<UniqueIngressHost>();
        assert_eq!(outcome.fields(), ["/spec/rules/0/http/paths/0/path"]);
    }

    #[test]
    fn ingress_with_generated_name_is_not_the_owner() {
        let mut new = ingress("shop", "", "nginx", &[("shop.example", &["/"])]);
        new["metadata"] = json!({"namespace": "shop", "generateName": "web-"});
        assert!(!created(new).is_allowed());
    }

    #[test]
    fn ignores_rules_without_host_subresources_and_deletions() {
        let new = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"namespace": "mine", "name": "new"},
            "spec": {"defaultBackend": {}, "rules": [{"http": {"paths": [{"path": "/"}]}}]},
        });
        assert!(created(new).is_allowed());
        let own = ingress("mine", "new", "nginx", &[("shop.example", &["/"])]);
        let status = TestReview::update(own.clone(), own.clone()).sub_resource("status");
        assert!(status.validate::<UniqueIngressHost>().is_allowed());
        let deletion = TestReview::delete(own);
        assert!(deletion.validate::<UniqueIngressHost>().is_allowed());
    }

    #[test]
    #[should_panic(expected = "not synchronised: the lookup `ingresses`")]
    fn says_so_when_not_synchronised() {
        let new = ingress("mine", "new", "nginx", &[("new.example", &["/"])]);
        let review = TestReview::create(new).not_synchronised("ingresses");
        drop(review.validate::<UniqueIngressHost>());
    }

    #[test]
    #[should_panic(expected = "not granted")]
    fn says_so_without_the_lookup() {
        let new = ingress("mine", "new", "nginx", &[("new.example", &["/"])]);
        drop(TestReview::create(new).validate::<UniqueIngressHost>());
    }

    #[test]
    fn settings_schema_is_json() {
        let schema: Json =
            serde_json::from_str(&manifest::<UniqueIngressHost>().settings_schema.unwrap())
                .unwrap();
        assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
    }
}
