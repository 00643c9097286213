//! Compares a request with a plugin's rules, in words for the plugin's author.

use std::sync::Arc;

use tollgate_admission::chain;
use tollgate_admission::review::decode::decode;
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_admission::review::template::Workload;
use tollgate_config::Match;
use tollgate_config::matching::{Decided, Mismatch};
use tollgate_json::document::Json;

/// Nesting depth of the AdmissionReview around the object.
const DEPTH_AROUND: u32 = 2;

/// Reads the request of an AdmissionReview, as the server does.
pub(super) fn read(review: &Json, max_depth: u32) -> anyhow::Result<AdmissionRequest> {
    let review = decode(review.to_text().as_bytes(), max_depth + DEPTH_AROUND);
    Ok(review
        .map_err(|error| anyhow::anyhow!("cannot decode the review: {}", chain(&error)))?
        .request)
}

/// Returns why a plugin does not match a request. Returns none if it matches, or if the host would have to look
/// something up first.
pub(super) fn mismatch(request: &AdmissionRequest, matching: &Match) -> Option<String> {
    let derived = match derived(request, matching) {
        Ok(derived) => derived,
        Err(mismatch) => return Some(mismatch.describe(Some(matching)).into_owned()),
    };
    let request = derived.as_ref().unwrap_or(request);
    match matching.decide(request, request.object.as_ref()) {
        Decided::Fails(Mismatch::Rules) => {
            let rules = matching.rules().iter().map(ToString::to_string);
            let rules: Vec<String> = rules.collect();
            let wanted = match rules.is_empty() {
                true => "it has no rules".to_owned(),
                false => format!("its rules want {}", rules.join("; or ")),
            };
            Some(format!("asked for {}, {wanted}", asked_for(request)))
        }
        Decided::Fails(mismatch) => Some(mismatch.describe(Some(matching)).into_owned()),
        _ => None,
    }
}

/// Returns the request that the plugin gets of a workload. Returns none if the plugin gets the request itself, or a
/// fault.
fn derived(
    request: &AdmissionRequest,
    matching: &Match,
) -> Result<Option<AdmissionRequest>, Mismatch> {
    let workload = Workload::of(request).filter(|_| matching.pod_templates);
    let (Some(workload), Some(object)) = (workload, &request.object) else {
        return Ok(None);
    };
    if workload.is_made_by_controller(object) {
        return Err(Mismatch::MadeByController);
    }
    let Ok(derived) = workload.derive(&Arc::new(request.clone())) else {
        return Ok(None);
    };
    let old_pod = derived.template.as_ref();
    let old_pod = old_pod.and_then(|template| template.old_pod.as_ref());
    let is_same = |pod: &Json| old_pod.is_some_and(|old| old.equivalent(pod));
    match derived.object.as_ref().is_some_and(is_same) {
        true => Err(Mismatch::SameTemplate),
        false => Ok(Some(derived)),
    }
}

/// Describes a request in the words of a rule.
fn asked_for(request: &AdmissionRequest) -> String {
    let resource = &request.resource;
    let group = match &*resource.group {
        "" => "\"\"",
        group => group,
    };
    let sub_resource = request.sub_resource.as_deref().unwrap_or_default();
    let name = match sub_resource {
        "" => resource.resource.clone(),
        sub_resource => format!("{}/{sub_resource}", resource.resource),
    };
    let scope = match &request.namespace {
        Some(namespace) if !namespace.is_empty() => format!("namespace={namespace}"),
        _ => "scope=Cluster".to_owned(),
    };
    format!(
        "operation={} apiGroup={group} apiVersion={} resource={name} {scope}",
        request.operation.as_str(),
        resource.version
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tollgate_config::ManifestRule;

    use super::*;

    fn matching() -> Match {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        Match::from_manifest_rules(&[ManifestRule {
            operations: texts(&["CREATE", "UPDATE"]),
            api_groups: texts(&["apps"]),
            api_versions: texts(&["v1"]),
            resources: texts(&["deployments"]),
            scope: None,
        }])
        .unwrap()
    }

    fn request(resource: &str) -> AdmissionRequest {
        let review = json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": "1", "operation": "CREATE", "name": "web", "namespace": "shop",
                "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
                "resource": {"group": "apps", "version": "v1", "resource": resource},
                "userInfo": {"username": "jane"},
                "object": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}},
            },
        });
        read(&Json::from(review), 120).unwrap()
    }

    #[test]
    fn says_what_was_asked_for_and_what_the_rules_want() {
        assert_eq!(mismatch(&request("deployments"), &matching()), None);
        assert_eq!(
            mismatch(&request("statefulsets"), &matching()).unwrap(),
            "asked for operation=CREATE apiGroup=apps apiVersion=v1 resource=statefulsets namespace=shop, its rules \
             want operations=CREATE,UPDATE apiGroups=apps apiVersions=v1 resources=deployments"
        );
    }

    #[test]
    fn names_other_reasons_than_rules() {
        let mut matching = matching();
        matching.exclude_users = vec!["jane".into()];
        let said = mismatch(&request("deployments"), &matching).unwrap();
        assert!(said.contains("`excludeUsers` lists this user"), "{said}");
    }
}
