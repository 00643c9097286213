//! Denies Pods that choose users, groups or SELinux options, like the admission plugin SecurityContextDeny of
//! kube-apiserver, which Kubernetes 1.30 removed.

use tollgate_sdk::prelude::*;

/// Fields of the Pod's own security context, in the order in which kube-apiserver looks at them.
const OF_PODS: [(&str, &str); 4] = [
    ("supplementalGroups", "SupplementalGroups"),
    ("seLinuxOptions", "SELinuxOptions"),
    ("runAsUser", "RunAsUser"),
    ("fsGroup", "FSGroup"),
];

/// Fields of each container's security context.
const OF_CONTAINERS: [(&str, &str); 2] = [
    ("seLinuxOptions", "SELinuxOptions"),
    ("runAsUser", "RunAsUser"),
];

/// Lists of containers. kube-apiserver does not look at ephemeral containers.
const CONTAINERS: [&str; 2] = ["initContainers", "containers"];

/// The policy, which has no settings.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecurityContextDeny {}

// === impl SecurityContextDeny ===

impl Policy for SecurityContextDeny {
    type Settings = Self;

    fn configure(settings: Self) -> Result<Self, SettingsErrors> {
        Ok(settings)
    }
}

impl Validate for SecurityContextDeny {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        if review.sub_resource().is_some() {
            return Ok(());
        }
        let pod = review.object();
        for (field, name) in OF_PODS {
            if is_set(pod, &pointer!["spec", "securityContext", field]) {
                return Err(Denial::new(format!(
                    "pod.Spec.SecurityContext.{name} is forbidden"
                )));
            }
        }
        for list in CONTAINERS {
            let list = pointer!["spec", list];
            for index in 0..pod.length(&list).unwrap_or(0) {
                let context = list.child(index).child("securityContext");
                for (field, name) in OF_CONTAINERS {
                    if is_set(pod, &context.child(field)) {
                        return Err(Denial::new(format!("SecurityContext.{name} is forbidden")));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether a field has a value. An empty object is one, and so is 0.
fn is_set(pod: Document, at: &Pointer) -> bool {
    !matches!(pod.get(at), None | Some(Value::Null))
}

tollgate_sdk::validator! {
    SecurityContextDeny,
    rules: [Rule::on([Operation::Create, Operation::Update], "", "v1", ["pods"])],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};
    use tollgate_sdk::testing::{Outcome, TestReview, manifest};

    use super::*;

    fn pod(of_pod: &Json, list: &str, of_container: &Json) -> Json {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"},
            "spec": {list: [{"name": "app"}]}});
        if !of_pod.is_null() {
            pod["spec"]["securityContext"] = of_pod.clone();
        }
        if !of_container.is_null() {
            pod["spec"][list][0]["securityContext"] = of_container.clone();
        }
        pod
    }

    fn validate(pod: &Json) -> Outcome<()> {
        TestReview::create(pod.clone()).validate::<SecurityContextDeny>()
    }

    /// The rows of `TestAdmission` in plugin/pkg/admission/securitycontext/scdeny/admission_test.go of Kubernetes 1.29,
    /// each with a container and with an init container.
    #[test]
    fn answers_like_kube_apiserver() {
        let (none, empty) = (json!(null), json!({}));
        let valid = json!({"privileged": true, "capabilities": {}});
        let user = json!({"runAsUser": 1});
        let options = json!({"seLinuxOptions": {}});
        for (name, of_container, of_pod, message) in [
            ("unset", &none, &none, None),
            ("empty container.SecurityContext", &empty, &none, None),
            ("empty pod.Spec.SecurityContext", &none, &empty, None),
            ("valid container.SecurityContext", &valid, &none, None),
            ("valid pod.Spec.SecurityContext", &none, &empty, None),
            (
                "container.SecurityContext.RunAsUser",
                &user,
                &none,
                Some("SecurityContext.RunAsUser is forbidden"),
            ),
            (
                "container.SecurityContext.SELinuxOptions",
                &options,
                &none,
                Some("SecurityContext.SELinuxOptions is forbidden"),
            ),
            (
                "pod.Spec.SecurityContext.RunAsUser",
                &none,
                &user,
                Some("pod.Spec.SecurityContext.RunAsUser is forbidden"),
            ),
            (
                "pod.Spec.SecurityContext.SELinuxOptions",
                &none,
                &options,
                Some("pod.Spec.SecurityContext.SELinuxOptions is forbidden"),
            ),
        ] {
            for list in CONTAINERS {
                let outcome = validate(&pod(of_pod, list, of_container));
                let denial = outcome.answer().err();
                let said = denial.map(|denial| denial.message.as_str());
                assert_eq!(said, message, "{name}, {list}");
            }
        }
    }

    /// The rows of `TestPodSecurityContextAdmission` in the same file.
    #[test]
    fn answers_about_groups_like_kube_apiserver() {
        for (context, message) in [
            (json!({}), None),
            (
                json!({"supplementalGroups": [1234]}),
                Some("pod.Spec.SecurityContext.SupplementalGroups is forbidden"),
            ),
            (
                json!({"fsGroup": 1001}),
                Some("pod.Spec.SecurityContext.FSGroup is forbidden"),
            ),
        ] {
            let outcome = validate(&pod(&context, "containers", &json!(null)));
            let denial = outcome.answer().err();
            assert_eq!(denial.map(|denial| denial.message.as_str()), message);
        }
    }

    #[test]
    fn names_the_field_that_kube_apiserver_would_name() {
        let both = json!({"runAsUser": 0, "seLinuxOptions": {"level": "s0"}});
        for (of_pod, message) in [
            (
                both.clone(),
                "pod.Spec.SecurityContext.SELinuxOptions is forbidden",
            ),
            (
                json!({"runAsNonRoot": true}),
                "SecurityContext.SELinuxOptions is forbidden",
            ),
        ] {
            let outcome = validate(&pod(&of_pod, "containers", &both));
            assert_eq!(outcome.denial().message, message);
        }
    }

    #[test]
    fn allows_ephemeral_containers_and_subresources() {
        let user = json!({"runAsUser": 1});
        let ephemeral = pod(&json!(null), "ephemeralContainers", &user);
        assert!(validate(&ephemeral).is_allowed());
        let denied = pod(&user, "containers", &json!(null));
        for sub_resource in ["status", "ephemeralcontainers", "resize"] {
            let review = TestReview::update(denied.clone(), denied.clone());
            let review = review.sub_resource(sub_resource);
            assert!(review.validate::<SecurityContextDeny>().is_allowed());
        }
        let update = TestReview::update(denied.clone(), denied);
        assert!(!update.validate::<SecurityContextDeny>().is_allowed());
    }

    /// The rows of `TestHandles` in the same file.
    #[test]
    fn is_asked_about_creations_and_updates() {
        let rules = manifest::<SecurityContextDeny>().rules;
        assert_eq!(rules[0].operations, ["CREATE", "UPDATE"]);
    }

    #[test]
    fn settings_schema_is_json() {
        let schema: Json =
            serde_json::from_str(&manifest::<SecurityContextDeny>().settings_schema.unwrap())
                .unwrap();
        assert_eq!(schema["title"], json!(env!("CARGO_PKG_NAME")));
    }
}
