//! Policies like those of plugin authors, run on test reviews.

use serde_json::{Value as Json, json};
use tollgate_sdk::log::Level;
use tollgate_sdk::prelude::*;
use tollgate_sdk::testing::{TestReview, manifest};

/// A policy that returns the answer in its settings.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Scripted {
    set: Vec<(String, String)>,
    insert: Vec<(String, usize, String)>,
    append: Vec<(String, String)>,
    merge: Option<Json>,
    object: Option<Json>,
    read: Option<String>,
    select: Option<String>,
    changes: Vec<String>,
    deny: bool,
}

#[derive(Debug, serde::Deserialize)]
struct Labels {
    team: String,
}

impl Policy for Scripted {
    type Settings = Self;

    fn configure(settings: Self) -> Result<Self, SettingsErrors> {
        Ok(settings)
    }
}

impl Mutate for Scripted {
    fn mutate(&self, review: &Review) -> Result<Mutation, Denial> {
        if let Some(merge) = &self.merge {
            return Ok(Mutation::merge(merge));
        }
        if let Some(object) = &self.object {
            return Ok(Mutation::object(object));
        }
        let set = |patch: Patch, (path, value): &(String, String)| {
            patch.set(review.object(), path, value.as_str())
        };
        let insert = |patch: Patch, (list, index, value): &(String, usize, String)| {
            patch.insert(review.object(), list, *index, value.as_str())
        };
        let append = |patch: Patch, (list, value): &(String, String)| {
            patch.append(review.object(), list, value.as_str())
        };
        let patch = self.set.iter().fold(Patch::new(), set);
        let patch = self.insert.iter().fold(patch, insert);
        Ok(self.append.iter().fold(patch, append).into())
    }
}

impl Validate for Scripted {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        if let Some(pointer) = &self.read {
            let object = review.object();
            let facts = json!({
                "exists": object.get(pointer).is_some(),
                "text": object.text(pointer),
                "integer": object.integer(pointer),
                "number": object.number(pointer),
                "boolean": object.boolean(pointer),
                "length": object.length(pointer),
                "keys": object.keys(pointer),
                "json": object.json(pointer),
            });
            tollgate_sdk::info!("{facts}");
        }
        if let Some(pattern) = &self.select {
            for node in review.object().select(pattern) {
                review.warn(node.pointer);
            }
        }
        for pointer in &self.changes {
            if review.changes(pointer) {
                review.warn(format!("{pointer} changes"));
            }
        }
        review.annotate(
            "user",
            review
                .request_document()
                .text("/userInfo/username")
                .unwrap_or_default(),
        );
        match self.deny {
            true => Err(Denial::new("no")
                .code(422)
                .reason("Invalid")
                .cause(Cause::new("because"))),
            false => Ok(()),
        }
    }
}

tollgate_sdk::plugin! {
    Scripted,
    name: "scripted",
    rules: [Rule::on([Operation::Create], "*", "*", ["*"]).scope("Namespaced")],
    labels: [("documentation", "https://example.com")],
}

fn pod() -> Json {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "b", "labels": null},
        "spec": {"priority": 3, "load": 0.5, "hostNetwork": false, "containers": [{"image": "x"}, {}, {"image": "y"}]}
    })
}

fn facts(pointer: &str) -> Json {
    let outcome = TestReview::create(pod())
        .settings(json!({"read": pointer}))
        .validate::<Scripted>();
    let [(Level::Info, line)] = outcome.logs() else {
        panic!("one line is logged")
    };
    let mut facts: Json = serde_json::from_str(line).unwrap();
    facts
        .as_object_mut()
        .unwrap()
        .retain(|_, fact| !fact.is_null());
    facts
}

#[test]
fn a_value_is_read_as_what_it_is_and_as_nothing_else() {
    assert_eq!(
        facts("/spec/containers/0/image"),
        json!({"exists": true, "text": "x", "json": "\"x\""})
    );
    assert_eq!(
        facts("/spec/priority"),
        json!({"exists": true, "integer": 3, "number": 3.0, "json": "3"})
    );
    assert_eq!(
        facts("/spec/load"),
        json!({"exists": true, "number": 0.5, "json": "0.5"})
    );
    assert_eq!(
        facts("/spec/hostNetwork"),
        json!({"exists": true, "boolean": false, "json": "false"})
    );
    assert_eq!(
        facts("/metadata/labels"),
        json!({"exists": true, "json": "null"})
    );
    assert_eq!(
        facts("/spec/containers/1"),
        json!({"exists": true, "length": 0, "keys": [], "json": "{}"})
    );
    assert_eq!(facts("/spec/containers")["length"], json!(3));
    for absent in [
        "/spec/nothing",
        "/spec/containers/3",
        "/spec/containers/00",
        "/spec/containers/-",
        "/spec/priority/0",
    ] {
        assert_eq!(facts(absent), json!({"exists": false}), "{absent}");
    }
}

#[test]
fn a_pattern_selects_every_place_that_is_there() {
    let review = TestReview::create(pod());
    let select = |pattern: &str| {
        review
            .clone()
            .settings(json!({"select": pattern}))
            .validate::<Scripted>()
            .warnings()
            .to_vec()
    };
    assert_eq!(
        select("/spec/containers/*/image"),
        ["/spec/containers/0/image", "/spec/containers/2/image"]
    );
    assert_eq!(select("/metadata/*").len(), 3);
    assert!(select("/spec/*/image").is_empty());
}

#[test]
#[should_panic(expected = "no leading slash")]
fn a_malformed_pointer_ends_the_call() {
    facts("spec");
}

#[test]
fn the_next_review_of_a_thread_knows_nothing_of_the_last() {
    std::panic::catch_unwind(|| facts("/~")).unwrap_err();
    let outcome = TestReview::create(pod())
        .user("jane", &[])
        .validate::<Scripted>();
    assert!(outcome.logs().is_empty());
    assert_eq!(outcome.annotations()["user"], "jane");
}

#[test]
fn a_denial_is_what_the_policy_said() {
    let outcome = TestReview::create(pod())
        .settings(json!({"deny": true}))
        .validate::<Scripted>();
    let denial = outcome.denial();
    assert_eq!(
        (
            denial.message.as_str(),
            denial.code,
            denial.reason.as_deref()
        ),
        ("no", Some(422), Some("Invalid"))
    );
    assert_eq!(outcome.causes(), [("", "because")]);
}

#[test]
fn setting_makes_each_missing_parent_once() {
    let set = json!({"set": [
        ["/metadata/annotations/a", "1"],
        ["/metadata/annotations/b~1c", "2"],
        ["/metadata/labels/d", "3"],
        ["/status/deep/er/e", "4"],
        ["/status/deep/f", "5"],
        ["/spec/containers/1/image", "6"],
        ["/spec/containers/1", "7"],
    ]});
    let outcome = TestReview::create(pod()).settings(set).mutate::<Scripted>();
    let object = outcome.object();
    assert_eq!(
        object["metadata"]["annotations"],
        json!({"a": "1", "b/c": "2"})
    );
    assert_eq!(
        object["metadata"]["labels"],
        json!({"d": "3"}),
        "null is as good as missing"
    );
    assert_eq!(
        object["status"],
        json!({"deep": {"er": {"e": "4"}, "f": "5"}})
    );
    assert_eq!(
        object["spec"]["containers"],
        json!([{"image": "x"}, "7", {"image": "y"}]),
        "elements are replaced"
    );
}

#[test]
fn a_list_that_is_missing_is_made_once() {
    let lists = json!({
        "insert": [["/spec/containers", 0, "first"], ["/spec/containers", 1, "second"], ["/metadata/labels/odd", 0, "a"]],
        "append": [["/spec/containers", "last"], ["/spec/deep/er", "1"], ["/spec/deep/er", "2"]],
    });
    let outcome = TestReview::create(pod())
        .settings(lists)
        .mutate::<Scripted>();
    let object = outcome.object();
    assert_eq!(
        object["spec"]["containers"],
        json!(["first", "second", {"image": "x"}, {}, {"image": "y"}, "last"])
    );
    assert_eq!(object["spec"]["deep"], json!({"er": ["1", "2"]}));
    assert_eq!(
        object["metadata"]["labels"],
        json!({"odd": ["a"]}),
        "null is as good as missing"
    );
}

/// Warns with what the request is about, as the fields of `request()` and as the functions for single fields have it.
#[derive(Default, serde::Deserialize)]
struct About;

impl Policy for About {
    type Settings = Json;

    fn configure(_settings: Json) -> Result<Self, SettingsErrors> {
        Ok(Self)
    }
}

impl Validate for About {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        let request = review.request();
        let all = (
            request.operation,
            request.kind,
            request.resource,
            request.sub_resource,
        );
        let each = (
            review.operation(),
            review.kind(),
            review.resource(),
            review.sub_resource(),
        );
        review.warn(format!("{all:?}"));
        review.warn(format!("{each:?}"));
        Ok(())
    }
}

#[test]
fn single_fields_are_those_of_the_request() {
    let deployment =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}});
    let no_kind = json!({"request": {
        "uid": "u", "operation": "CREATE", "resource": {"group": "", "version": "v1", "resource": "pods"}, "object": pod(),
    }});
    let reviews = [
        TestReview::create(pod()),
        TestReview::delete(deployment.clone()).sub_resource("scale"),
        TestReview::create(deployment),
        TestReview::from_review(no_kind),
    ];
    for review in reviews {
        let warnings = review.validate::<About>().warnings().to_vec();
        assert_eq!(warnings.len(), 2);
        assert_eq!(warnings[0], warnings[1]);
    }
}

#[test]
fn a_change_is_told_from_what_stays() {
    let changes = |review: TestReview| {
        review
            .settings(json!({"changes": ["/spec/priority", "/spec/containers", "/status", ""]}))
            .validate::<Scripted>()
            .warnings()
            .join(", ")
    };
    let mut raised = pod();
    raised["spec"]["priority"] = json!(4);
    assert_eq!(
        changes(TestReview::update(pod(), raised)),
        "/spec/priority changes,  changes"
    );
    assert_eq!(changes(TestReview::update(pod(), pod())), "");
    let all = "/spec/priority changes, /spec/containers changes,  changes";
    assert_eq!(changes(TestReview::create(pod())), all);
    assert_eq!(changes(TestReview::delete(pod())), all);
}

#[test]
fn merge_patches_and_whole_objects_are_applied() {
    let merged = TestReview::create(pod())
        .settings(json!({"merge": {"spec": null}}))
        .mutate::<Scripted>();
    assert_eq!(merged.object().get("spec"), None);
    let replaced = TestReview::create(pod())
        .settings(json!({"object": {"a": 1}}))
        .mutate::<Scripted>();
    assert_eq!(replaced.object(), &json!({"a": 1}));
    assert!(!TestReview::create(pod()).mutate::<Scripted>().is_changed());
}

#[test]
#[should_panic(expected = "the patch does not apply")]
fn a_patch_that_does_not_apply_fails_the_test() {
    let set = json!({"set": [["/spec/priority/x", "1"]]});
    drop(TestReview::create(pod()).settings(set).mutate::<Scripted>());
}

#[test]
#[should_panic(expected = "nothing can be changed")]
fn a_change_without_an_object_fails_the_test() {
    drop(
        TestReview::delete(pod())
            .settings(json!({"merge": {}}))
            .mutate::<Scripted>(),
    );
}

#[test]
#[should_panic(expected = "/sett: unknown field")]
fn refused_settings_fail_the_test() {
    drop(
        TestReview::create(pod())
            .settings(json!({"sett": 1}))
            .mutate::<Scripted>(),
    );
}

#[test]
fn the_manifest_is_what_the_macro_was_given() {
    let manifest = manifest::<Scripted>();
    assert_eq!(manifest.name, "scripted");
    assert_eq!(manifest.version, env!("CARGO_PKG_VERSION"));
    assert_eq!(manifest.description, env!("CARGO_PKG_DESCRIPTION"));
    assert_eq!(manifest.rules[0].scope.as_deref(), Some("Namespaced"));
    assert_eq!(
        manifest.labels,
        [("documentation".to_owned(), "https://example.com".to_owned())]
    );
    assert_eq!(manifest.settings_schema, None);
}

/// A policy that reads with serde.
struct Typed;

impl Policy for Typed {
    type Settings = serde::de::IgnoredAny;

    fn configure(_: Self::Settings) -> Result<Self, SettingsErrors> {
        Ok(Self)
    }
}

impl Validate for Typed {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        match review.object().read::<Labels>("/metadata/labels") {
            Ok(None) => Ok(()),
            Ok(Some(labels)) if labels.team == "blue" => Ok(()),
            Ok(Some(_)) => Err(Denial::new("not blue")),
            Err(error) => Err(Denial::new(error.to_string())),
        }
    }
}

#[test]
fn a_part_of_the_object_is_read_into_a_type() {
    let evaluate =
        |metadata: Json| TestReview::create(json!({"metadata": metadata})).validate::<Typed>();
    assert!(evaluate(json!({})).is_allowed());
    assert!(evaluate(json!({"labels": {"team": "blue"}})).is_allowed());
    assert_eq!(
        evaluate(json!({"labels": {"team": "red"}}))
            .denial()
            .message,
        "not blue"
    );
    let error = evaluate(json!({"labels": {"team": ["hunter2"]}}));
    assert!(
        error
            .denial()
            .message
            .starts_with("/metadata/labels: not of the expected type")
    );
    let error = evaluate(json!({"labels": "hunter2"}));
    assert!(
        !error.denial().message.contains("hunter2"),
        "errors do not repeat values"
    );
}

#[cfg(feature = "clock")]
mod clock {
    use std::time::{Duration, SystemTime};

    use super::*;

    struct Curfew;

    impl Policy for Curfew {
        type Settings = serde::de::IgnoredAny;

        fn configure(_: Self::Settings) -> Result<Self, SettingsErrors> {
            Ok(Self)
        }
    }

    impl Validate for Curfew {
        fn validate(&self, _: &Review) -> Result<(), Denial> {
            let now = tollgate_sdk::clock::now();
            if now < SystemTime::UNIX_EPOCH + Duration::from_secs(60) {
                Err(Denial::new("too early"))
            } else {
                Ok(())
            }
        }
    }

    #[test]
    fn the_clock_stands_where_the_test_put_it() {
        let at = |seconds| {
            TestReview::create(pod()).now(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        };
        assert!(!at(59).validate::<Curfew>().is_allowed());
        assert!(at(60).validate::<Curfew>().is_allowed());
    }
}

mod namespaces {
    use super::*;

    /// Denies objects in namespaces without the label `team`, and repeats what it sees of the namespace.
    struct Labelled;

    impl Policy for Labelled {
        type Settings = serde::de::IgnoredAny;

        fn configure(_: Self::Settings) -> Result<Self, SettingsErrors> {
            Ok(Self)
        }
    }

    impl Validate for Labelled {
        fn validate(&self, review: &Review) -> Result<(), Denial> {
            let namespace = review.namespace();
            review.warn(namespace.json("").unwrap_or_default());
            let found = namespace.get_many(["/metadata/labels/team", "/spec"]);
            match found.as_slice() {
                [Some(Value::Text(_)), None] => Ok(()),
                [None, None] if !namespace.exists() => Ok(()),
                _ => Err(Denial::new("no team")),
            }
        }
    }

    fn shop() -> Json {
        json!({
            "apiVersion": "v1", "kind": "Namespace", "spec": {"finalizers": []},
            "metadata": {"name": "shop", "labels": {"team": "a"}, "managedFields": []},
        })
    }

    #[test]
    fn policy_sees_metadata_of_namespace() {
        let shown = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"labels":{"team":"a"},"name":"shop"}}"#;
        for review in [
            TestReview::create(pod()).namespace_object(shop()),
            TestReview::create(shop()),
            TestReview::delete(shop()),
        ] {
            let outcome = review.validate::<Labelled>();
            assert!(outcome.is_allowed());
            assert_eq!(outcome.warnings(), [shown]);
        }
    }

    #[test]
    fn cluster_scoped_object_has_no_namespace() {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
        let outcome = TestReview::create(node).validate::<Labelled>();
        assert!(outcome.is_allowed());
        assert_eq!(outcome.warnings(), [""]);
    }

    #[test]
    #[should_panic(expected = "TestReview::namespace_object")]
    fn namespace_that_the_test_leaves_out_is_not_absent() {
        let _ = TestReview::create(pod())
            .namespace("shop")
            .validate::<Labelled>();
    }
}

#[cfg(feature = "cluster")]
mod cluster {
    use tollgate_sdk::cluster::{self, Failure, Object, OrFault as _};

    use super::*;

    /// Does what the settings say, and warns with what it finds.
    #[derive(serde::Deserialize)]
    struct Reader {
        get: Option<(String, Option<String>, String)>,
        find: Option<(String, String, String)>,
        list: Option<(String, Option<String>)>,
    }

    impl Policy for Reader {
        type Settings = Self;

        fn configure(settings: Self) -> Result<Self, SettingsErrors> {
            Ok(settings)
        }
    }

    impl Validate for Reader {
        fn validate(&self, review: &Review) -> Result<(), Denial> {
            if let Some((lookup, namespace, name)) = &self.get {
                let found = cluster::get(lookup, namespace.as_deref(), name).or_fault();
                review.warn(found.map_or("none".to_owned(), |object| shown(&object)));
            }
            if let Some((lookup, index, key)) = &self.find {
                for object in cluster::find(lookup, index, key) {
                    review.warn(shown(&object.or_fault()));
                }
            }
            if let Some((lookup, namespace)) = &self.list {
                for object in cluster::list(lookup, namespace.as_deref()) {
                    match object {
                        Ok(object) => review.warn(shown(&object)),
                        Err(failure) => return Err(Denial::new(failure.to_string())),
                    }
                }
            }
            Ok(())
        }
    }

    fn shown(object: &Object) -> String {
        let namespace = object.namespace().unwrap_or("-");
        format!("{namespace}/{} {}", object.name(), object.json("").unwrap())
    }

    fn ingress(namespace: &str, name: &str, hosts: &[&str]) -> Json {
        let rules: Vec<Json> = hosts
            .iter()
            .map(|host| json!({"host": host, "http": {"paths": []}}))
            .chain([json!({"http": {}}), json!([1]), json!("odd")])
            .collect();
        json!({
            "metadata": {"namespace": namespace, "name": name, "labels": {"team": "a"}},
            "spec": {"rules": rules, "tls": []},
        })
    }

    fn lookup() -> Json {
        json!({
            "name": "ingresses",
            "resource": {"group": "networking.k8s.io", "version": "v1", "resource": "ingresses"},
            "fields": ["/spec/rules/*/host"],
            "indexes": {"host": "/spec/rules/*/host", "team": "/metadata/labels/team"},
        })
    }

    fn warnings(settings: Json) -> Vec<String> {
        TestReview::create(pod())
            .settings(settings)
            .lookup(
                lookup(),
                [
                    ingress("shop", "web", &["b.example", "c.example"]),
                    ingress("blog", "web", &["a.example", "b.example"]),
                    ingress("blog", "api", &[]),
                ],
            )
            .validate::<Reader>()
            .warnings()
            .to_vec()
    }

    #[test]
    fn get_returns_kept_fields_of_one_object() {
        assert_eq!(
            warnings(json!({"get": ["ingresses", "shop", "web"]})),
            [
                r#"shop/web {"spec":{"rules":[{"host":"b.example"},{"host":"c.example"},{},[],null]}}"#
            ]
        );
        assert_eq!(
            warnings(json!({"get": ["ingresses", "blog", "api"]})),
            ["blog/api {}"]
        );
        assert_eq!(
            warnings(json!({"get": ["ingresses", "shop", "api"]})),
            ["none"]
        );
        assert_eq!(
            warnings(json!({"get": ["ingresses", null, "web"]})),
            ["none"]
        );
    }

    #[test]
    fn find_returns_objects_with_the_key_by_namespace_and_name() {
        let found = |index: &str, key: &str| -> Vec<String> {
            warnings(json!({"find": ["ingresses", index, key]}))
                .iter()
                .map(|line| line.split(' ').next().unwrap().to_owned())
                .collect()
        };
        assert_eq!(found("host", "b.example"), ["blog/web", "shop/web"]);
        assert_eq!(found("host", "c.example"), ["shop/web"]);
        assert!(found("host", "d.example").is_empty());
        // An index keeps its own keys.
        assert_eq!(found("team", "a").len(), 3);
    }

    #[test]
    fn list_returns_all_pages() {
        let objects = (0..1201).map(|number| ingress("shop", &format!("web-{number:04}"), &[]));
        let outcome = TestReview::create(pod())
            .settings(json!({"list": ["ingresses", "shop"]}))
            .lookup(lookup(), objects)
            .validate::<Reader>();
        assert_eq!(outcome.warnings().len(), 1201);
        assert!(outcome.warnings().is_sorted());
        assert_eq!(
            warnings(json!({"list": ["ingresses", "blog"]})),
            [
                "blog/api {}",
                r#"blog/web {"spec":{"rules":[{"host":"a.example"},{"host":"b.example"},{},[],null]}}"#
            ]
        );
    }

    #[test]
    fn failures_tell_what_is_missing() {
        let denied = |review: TestReview, lookup: &str, namespace: &str| {
            review
                .settings(json!({"list": [lookup, namespace]}))
                .validate::<Reader>()
                .denial()
                .message
                .clone()
        };
        let mut limited = lookup();
        limited["namespaces"] = json!(["shop"]);
        let review = TestReview::create(pod())
            .lookup(limited, [])
            .not_synchronised("pods");
        assert_eq!(
            denied(review.clone(), "pods", "shop"),
            "not synchronised: the lookup `pods`"
        );
        assert_eq!(
            denied(review.clone(), "ingresses", "blog"),
            "not granted: the lookup `ingresses` does not cover the namespace `blog`"
        );
        assert!(
            denied(review, "ingress", "blog")
                .starts_with("not granted: there is no lookup `ingress`")
        );
    }

    #[test]
    #[should_panic(expected = "not synchronised: the lookup `ingresses`")]
    fn enforcing_plugin_ends_as_fault_without_objects() {
        drop(
            TestReview::create(pod())
                .settings(json!({"find": ["ingresses", "host", "a.example"]}))
                .not_synchronised("ingresses")
                .validate::<Reader>(),
        );
    }

    #[test]
    #[should_panic(expected = "the lookup `ingresses` has no index `hosts`")]
    fn unknown_index_is_not_granted() {
        drop(warnings(
            json!({"find": ["ingresses", "hosts", "a.example"]}),
        ));
    }

    #[test]
    fn fields_are_read_by_pointer() {
        struct Fields;

        impl Policy for Fields {
            type Settings = serde::de::IgnoredAny;

            fn configure(_: Self::Settings) -> Result<Self, SettingsErrors> {
                Ok(Self)
            }
        }

        impl Validate for Fields {
            fn validate(&self, _: &Review) -> Result<(), Denial> {
                let object = cluster::get("quotas", None, "a").or_fault().unwrap();
                assert_eq!(object.namespace(), None);
                assert_eq!(object.text("/data/text"), Some("x"));
                assert_eq!(object.text("/data/big"), None);
                assert_eq!(object.integer("/data/big"), Some(9_007_199_254_740_993));
                assert_eq!(object.number("/data/half"), Some(0.5));
                assert_eq!(object.boolean("/data/on"), Some(true));
                assert_eq!(object.get("/data/null"), Some(Value::Null));
                assert_eq!(object.get("/data/none"), None);
                assert_eq!(object.length("/data/list"), Some(2));
                assert_eq!(object.keys("/data/map").unwrap(), ["a/b"]);
                assert_eq!(object.select("/data/map/*")[0].pointer, "/data/map/a~1b");
                assert_eq!(object.json("/data/list").unwrap(), "[1,2]");
                let list = object.read::<Vec<u8>>("/data/list").unwrap();
                assert_eq!(list, Some(vec![1, 2]));
                assert_eq!(object.read::<u8>("/data/none").unwrap(), None);
                let error = object.read::<u8>("/data/text").unwrap_err();
                assert_eq!(error.pointer(), "/data/text");
                assert!(!format!("{object:?}").contains("half"));
                assert_eq!(
                    cluster::get("none", None, "a").unwrap_err(),
                    Failure::NotGranted(
                        "there is no lookup `none`; a test adds it: TestReview::lookup".to_owned()
                    )
                );
                Ok(())
            }
        }

        let object = json!({"metadata": {"name": "a"}, "data": {
            "text": "x", "big": 9_007_199_254_740_993_i64, "half": 0.5, "on": true, "null": null,
            "list": [1, 2], "map": {"a/b": 1},
        }});
        let review = TestReview::create(pod())
            .lookup(json!({"name": "quotas", "fields": ["/data"]}), [object]);
        assert!(review.validate::<Fields>().is_allowed());
    }
}

#[cfg(feature = "access")]
mod access {
    use tollgate_sdk::access::{self, Action, Failure, OrFault as _};

    use super::*;

    /// Asks a few questions, and warns with the answers.
    struct Asks;

    impl Policy for Asks {
        type Settings = serde::de::IgnoredAny;

        fn configure(_: Self::Settings) -> Result<Self, SettingsErrors> {
            Ok(Self)
        }
    }

    fn scale() -> Action {
        Action::resource("delete", "apps", "deployments").subresource("scale")
    }

    impl Validate for Asks {
        fn validate(&self, review: &Review) -> Result<(), Denial> {
            let pods = Action::resource("get", "", "pods").name("web");
            for decision in [
                scale().namespace("shop").check(),
                scale().namespace("blog").check(),
                Action::path("get", "/metrics/slis").check(),
                Action::path("get", "/healthz").check(),
                pods.check(),
                pods.check_service_account("shop", "robot"),
                scale().check_service_account("shop", "robot"),
            ] {
                review.warn(decision.or_fault().allowed.to_string());
            }
            Ok(())
        }
    }

    #[test]
    fn rules_say_what_the_user_may_do() {
        let rules = [
            json!({"user": "anna", "verb": "delete", "apiGroup": "apps", "resource": "deployments/scale", "namespace": "shop"}),
            json!({"group": "dev", "verb": "*", "path": "/metrics*"}),
            json!({"user": "system:serviceaccount:shop:robot", "verb": "get", "resource": "*"}),
        ];
        let outcome = TestReview::create(pod())
            .user("anna", &["dev"])
            .access(rules)
            .validate::<Asks>();
        let expected = ["true", "false", "true", "false", "false", "true", "false"];
        assert_eq!(outcome.warnings(), expected);
    }

    /// Says why there is no answer.
    struct Fails;

    impl Policy for Fails {
        type Settings = serde::de::IgnoredAny;

        fn configure(_: Self::Settings) -> Result<Self, SettingsErrors> {
            Ok(Self)
        }
    }

    impl Validate for Fails {
        fn validate(&self, review: &Review) -> Result<(), Denial> {
            let kind = match scale().check() {
                Ok(_) => "answered",
                Err(Failure::NotGranted(_)) => "not granted",
                Err(Failure::Unavailable(_)) => "unavailable",
            };
            review.warn(format!("{kind} {}", access::is_granted()));
            Ok(())
        }
    }

    #[test]
    fn failures_are_typed() {
        let review = TestReview::create(pod());
        let outcome = review.clone().validate::<Fails>();
        assert_eq!(outcome.warnings(), ["not granted false"]);
        let outcome = review.access_unavailable().validate::<Fails>();
        assert_eq!(outcome.warnings(), ["unavailable true"]);
    }
}

#[cfg(feature = "images")]
mod images {
    use tollgate_sdk::images::{Failure, Request, verify};

    use super::*;

    /// Asks about a few images, and warns with the answers.
    struct Asks;

    impl Policy for Asks {
        type Settings = serde::de::IgnoredAny;

        fn configure(_: Self::Settings) -> Result<Self, SettingsErrors> {
            Ok(Self)
        }
    }

    impl Validate for Asks {
        fn validate(&self, review: &Review) -> Result<(), Denial> {
            let pinned = format!("nginx@sha256:{}", "a".repeat(64));
            let images = [
                "nginx",
                "docker.io/library/nginx:latest",
                &pinned,
                "nginx:2",
                "nginx:3",
                "Nginx",
            ];
            for answer in verify(images.map(|image| Request::new(image, "release"))) {
                review.warn(match answer {
                    Ok(verified) => format!("{} {}", verified.pinned, verified.signers.join(",")),
                    Err(Failure::Unsigned(refusal)) => refusal.reason,
                    Err(failure) => failure.to_string(),
                });
            }
            Ok(())
        }
    }

    #[test]
    fn answers_are_those_of_the_test() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let images = [
            json!({"image": "nginx", "result": "verified", "digest": digest, "signers": ["release"]}),
            json!({"image": "nginx:2", "policy": "other", "result": "verified"}),
            json!({"image": "nginx:2", "result": "unsigned", "reason": "none at all"}),
        ];
        let outcome = TestReview::create(pod()).images(images).validate::<Asks>();
        let expected = [
            "false release",
            "false release",
            "true release",
            "none at all",
            "not found: no entry of images is about docker.io/library/nginx:3",
            "no valid image: expected an image",
        ];
        assert_eq!(outcome.warnings(), expected);
    }

    #[test]
    fn nothing_is_granted_by_default() {
        let outcome = TestReview::create(pod()).validate::<Asks>();
        assert!(
            outcome.warnings()[0].starts_with("not granted"),
            "{:?}",
            outcome.warnings()
        );
    }
}
