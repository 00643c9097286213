use serde_json::json;
use tollgate_config::PluginName;

use super::*;

fn paths() -> Paths {
    Paths::read(&[], Written::default()).unwrap()
}

fn strict<'p>(paths: &'p Paths, kinds: &[(&str, &str)]) -> Strict<'p> {
    let kinds = kinds.iter().map(|(version, kind)| Kind::new(version, kind));
    Strict {
        catalogue: &paths.catalogue,
        written: &paths.written,
        plugins: Vec::new(),
        kinds: kinds.collect(),
        templates: BTreeSet::new(),
        told: BTreeSet::new(),
    }
}

fn read(document: ReadDocument, at: &str) -> Read {
    Read {
        plugin: PluginName::parse("labels").unwrap(),
        document,
        at: at.to_owned(),
        is_pattern: at.contains('*'),
    }
}

fn said(at: &str, api_version: &str, kind: &str) -> Option<String> {
    let paths = paths();
    let strict = strict(&paths, &[(api_version, kind)]);
    let kind = Kind::new(api_version, kind);
    strict.wrong(&read(ReadDocument::Object, at), Some(&kind))
}

#[test]
fn fields_of_kubernetes_kinds_are_known() {
    for (at, api_version, kind) in [
        ("", "v1", "Pod"),
        ("/spec/containers/*/resources/limits/cpu", "v1", "Pod"),
        (
            "/spec/containers/0/securityContext/capabilities/add/0",
            "v1",
            "Pod",
        ),
        ("/spec/containers/0/ports/0/hostPort", "v1", "Pod"),
        ("/metadata/annotations/a~1b", "v1", "Pod"),
        ("/metadata/managedFields/0/fieldsV1/f:spec", "v1", "Pod"),
        ("/data/any.key", "v1", "ConfigMap"),
        (
            "/spec/template/spec/containers/*/image",
            "apps/v1",
            "Deployment",
        ),
        (
            "/spec/strategy/rollingUpdate/maxSurge",
            "apps/v1",
            "Deployment",
        ),
        (
            "/spec/rules/*/http/paths/*/path",
            "networking.k8s.io/v1",
            "Ingress",
        ),
        (
            "/rules/*/verbs/*",
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
        ),
        (
            "/spec/jobTemplate/spec/template/spec/hostNetwork",
            "batch/v1",
            "CronJob",
        ),
        ("/spec/replicas", "autoscaling/v1", "Scale"),
    ] {
        assert_eq!(said(at, api_version, kind), None, "{at} of {kind}");
    }
}

#[test]
fn mistakes_are_named_with_kind_and_nearest_field() {
    assert_eq!(
        said("/spec/replica", "apps/v1", "Deployment").as_deref(),
        Some(
            "strict paths: labels reads /spec/replica of the object, and apps/v1 Deployment has no field \
             /spec/replica; did you mean /spec/replicas?"
        )
    );
    for (at, kind, words) in [
        (
            "/spec/containers/0/picture",
            "Pod",
            "the fields there are args, command, ",
        ),
        (
            "/spec/containers/name",
            "Pod",
            "has a list at /spec/containers: write an index",
        ),
        (
            "/metadata/name/0",
            "Pod",
            "a value without members at /metadata/name",
        ),
        (
            "/spec/container/*/image",
            "Pod",
            "did you mean /spec/containers/*/image?",
        ),
        (
            "/metadata/label/app",
            "Service",
            "did you mean /metadata/labels/app?",
        ),
    ] {
        let said = said(at, "v1", kind).unwrap_or_default();
        assert!(said.contains(words), "{said}");
    }
    let said = said("/spec/size", "shop.example/v1", "Cart").unwrap_or_default();
    assert!(
        said.contains("shop.example/v1 Cart are not known; pass the file"),
        "{said}"
    );
}

#[test]
fn request_and_namespace_have_fields_of_their_own() {
    let paths = paths();
    let strict = strict(&paths, &[]);
    let wrong = |document, at: &str| strict.wrong(&read(document, at), None);
    for at in [
        "/userInfo/groups/*",
        "/userInfo/extra/a/0",
        "/object/spec",
        "/kind/group",
    ] {
        assert_eq!(wrong(ReadDocument::Request, at), None, "{at}");
    }
    let said = wrong(ReadDocument::Request, "/userinfo/username").unwrap_or_default();
    assert!(
        said.contains(
            "an AdmissionRequest has no field /userinfo; did you mean /userInfo/username?"
        ),
        "{said}"
    );
    assert_eq!(
        wrong(ReadDocument::Namespace, "/metadata/labels/team"),
        None
    );
    let said = wrong(ReadDocument::Namespace, "/metadata/lables/team").unwrap_or_default();
    assert!(
        said.contains("of the namespace, and v1 Namespace has no field"),
        "{said}"
    );
    assert_eq!(wrong(ReadDocument::Options, "/anything"), None);
}

#[test]
fn field_of_another_kind_of_the_suite_is_no_mistake() {
    let paths = paths();
    let pod = Kind::new("v1", "Pod");
    let template = read(ReadDocument::Object, "/spec/template/spec/containers");
    let alone = strict(&paths, &[("v1", "Pod")]);
    assert!(alone.wrong(&template, Some(&pod)).is_some());
    let both = strict(&paths, &[("v1", "Pod"), ("apps/v1", "Deployment")]);
    assert_eq!(both.wrong(&template, Some(&pod)), None);
    let typo = read(ReadDocument::Object, "/spec/template/spec/container");
    assert!(both.wrong(&typo, Some(&pod)).is_some());
}

#[test]
fn open_kind_of_the_suite_excuses_no_mistake_about_a_closed_one() {
    let mut paths = paths();
    let open = |known: &[&str]| {
        let known = known.iter().map(|name| ((*name).to_owned(), Type::Open));
        Type::Fields(fields::Fields {
            known: known.collect(),
            is_open: true,
        })
    };
    let define = |paths: &mut Paths, of| {
        paths
            .catalogue
            .define(Kind::new("shop.example/v1", "Cart"), of)
    };
    let kinds = [("apps/v1", "Deployment"), ("shop.example/v1", "Cart")];
    let deployment = Kind::new("apps/v1", "Deployment");
    let cart = Kind::new("shop.example/v1", "Cart");
    let typo = read(ReadDocument::Object, "/spec/replica");
    for of in [open(&["apiVersion", "kind", "metadata"]), Type::Open] {
        define(&mut paths, of);
        let both = strict(&paths, &kinds);
        let said = both.wrong(&typo, Some(&deployment)).unwrap_or_default();
        assert!(said.contains("did you mean /spec/replicas?"), "{said}");
        assert_eq!(both.wrong(&typo, Some(&cart)), None);
    }
    // Whoever names the member says that the policy may mean it.
    define(&mut paths, open(&["spec"]));
    let both = strict(&paths, &kinds);
    assert_eq!(both.wrong(&typo, Some(&deployment)), None);
}

#[test]
fn kind_is_that_of_the_object_and_not_of_options() {
    let review = |operation: &str, object| {
        Json::from(
            json!({"request": {"operation": operation, "object": object, "oldObject": {"apiVersion": "v1", "kind": "Pod"}}}),
        )
    };
    let pod = Some(Kind::new("v1", "Pod"));
    assert_eq!(kind(&review("DELETE", json!(null))), pod);
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale"});
    assert_eq!(
        kind(&review("UPDATE", scale.clone())),
        Some(Kind::new("autoscaling/v1", "Scale"))
    );
    assert_eq!(kind(&review("CONNECT", scale)), None);
}
