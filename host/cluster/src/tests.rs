//! Tests of the pure parts: resource to entry, precedence, order, settings, exceptions, conditions.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_config::{Config, ManifestRule, Match, Serving, ServingPlugin, ServingState};

use crate::Installation;
use crate::definition::definition_yaml;
use crate::desired::{Entry, Kept, Plan, World, plan};
use crate::kinds::{Kind, Resource};
use crate::offline::merge_objects;
use crate::settings::{Held, Holder, HolderKind};
use crate::status::{self, ReplicaEntry, Signature};

const FILE: &str = "
cluster: { enabled: true }
limits: { fuel: 5M }
plugins:
  - { name: one, source: 'file:one.wasm' }
  - { name: two, source: 'file:two.wasm' }
";

fn file() -> Config {
    Config::parse(FILE, Path::new("/etc/tollgate")).unwrap()
}

fn resource(name: &str, spec: Value) -> Resource {
    Resource {
        name: name.to_owned(),
        namespace: None,
        uid: format!("uid-{name}"),
        generation: 1,
        version: String::new(),
        asked: None,
        created: String::new(),
        spec,
        status: Value::Null,
    }
}

fn world(plugins: impl IntoIterator<Item = Resource>) -> World {
    World {
        plugins: Some(named(plugins)),
        exceptions: Some(BTreeMap::new()),
        ..World::default()
    }
}

fn named(resources: impl IntoIterator<Item = Resource>) -> BTreeMap<String, Resource> {
    let resources = resources.into_iter();
    resources
        .map(|resource| (resource.name.clone(), resource))
        .collect()
}

fn planned(world: &World, kept: &mut Kept) -> Plan {
    plan(&file(), Path::new("/etc/tollgate"), world, kept)
}

fn names(plan: &Plan) -> Vec<&str> {
    let plugins = plan.config.plugins.iter();
    plugins.map(|plugin| plugin.name.as_str()).collect()
}

fn refusal<'p>(plan: &'p Plan, name: &str) -> (&'p str, &'p str) {
    let refusal = plan.plugins[name].refusal.as_ref().unwrap();
    (refusal.reason, refusal.message.as_str())
}

fn keys(pairs: &[(&str, &str)]) -> Held {
    let pairs = pairs.iter();
    Held::Keys(
        pairs
            .map(|(key, text)| ((*key).to_owned(), text.as_bytes().to_vec()))
            .collect(),
    )
}

fn holder(kind: HolderKind, name: &str) -> Holder {
    Holder {
        kind,
        namespace: None,
        name: name.to_owned(),
    }
}

#[test]
fn resource_reads_like_entry_of_file() {
    let spec = json!({
        "source": "oci://registry.example.com/guard:1", "order": 3, "mode": "warn", "settings": { "a": 1 },
        "shadow": { "source": "file:new.wasm" },
    });
    let plan = planned(&world([resource("guard", spec)]), &mut Kept::new());
    assert_eq!(plan.plugins["guard"].refusal, None);
    let same = FILE.to_owned()
        + "  - { name: guard, source: 'oci://registry.example.com/guard:1', mode: warn, settings: { a: 1 }, shadow: { \
           source: 'file:new.wasm' } }";
    let same = Config::parse(&same, Path::new("/etc/tollgate")).unwrap();
    assert_eq!(plan.config.plugins, same.plugins);
    assert_eq!(plan.config.shadows, same.shadows);
}

#[test]
fn rollout_in_a_resource_needs_a_leader() {
    let rollout =
        json!({ "to": { "source": "file:b.wasm" }, "steps": [{ "mode": "enforce", "for": "1h" }] });
    let spec = json!({ "source": "file:a.wasm", "rollout": rollout });
    let world = world([resource("guard", spec.clone())]);
    let read = planned(&world, &mut Kept::new());
    assert_eq!(read.plugins["guard"].refusal, None);
    let guard = read.config.plugins.last().unwrap();
    assert!(guard.active_rollout().is_some());
    assert_eq!(read.config.shadows.len(), 1);
    // Nobody elects a leader who could decide. What was valid before stays.
    let text = "cluster: { enabled: true, registration: { enabled: false } }";
    let folder = Path::new("/etc/tollgate");
    let alone = Config::parse(text, folder).unwrap();
    let mut kept = Kept::new();
    let before = crate::tests::world([resource("guard", json!({ "source": "file:a.wasm" }))]);
    plan(&alone, folder, &before, &mut kept);
    let read = plan(&alone, folder, &world, &mut kept);
    let (reason, message) = refusal(&read, "guard");
    assert_eq!(reason, "Invalid");
    assert!(message.contains("needs cluster.registration"), "{message}");
    assert!(read.plugins["guard"].is_kept);
    assert!(read.config.shadows.is_empty());
}

#[test]
fn orders_by_order_then_file_then_name() {
    let spec = |order: i64| json!({ "source": "file:a.wasm", "order": order });
    let resources = [
        resource("b", spec(0)),
        resource("a", spec(0)),
        resource("late", spec(1)),
        resource("early", spec(-1)),
        resource("c", json!({ "source": "file:a.wasm" })),
    ];
    let plan = planned(&world(resources), &mut Kept::new());
    assert_eq!(names(&plan), ["early", "one", "two", "a", "b", "c", "late"]);
}

#[test]
fn file_wins_over_resource_of_same_name() {
    let spec = json!({ "source": "file:other.wasm" });
    let plan = planned(&world([resource("two", spec)]), &mut Kept::new());
    assert_eq!(plan.config.plugins, file().plugins);
    let (reason, message) = refusal(&plan, "two");
    assert_eq!(reason, "NameTaken");
    assert!(message.contains("the file wins"), "{message}");
    assert!(!plan.plugins["two"].is_kept);
}

#[test]
fn invalid_resource_keeps_its_last_valid_version() {
    let mut kept = Kept::new();
    let good = resource("guard", json!({ "source": "file:guard.wasm" }));
    planned(&world([good.clone()]), &mut kept);
    let mut bad = resource(
        "guard",
        json!({ "source": "guard.wasm", "limits": { "fual": 1 } }),
    );
    bad.generation = 2;
    let plan = planned(&world([bad.clone()]), &mut kept);
    assert_eq!(names(&plan), ["one", "two", "guard"]);
    let (reason, message) = refusal(&plan, "guard");
    assert_eq!(reason, "Invalid");
    assert!(
        message.contains("spec.source: got \"guard.wasm\""),
        "{message}"
    );
    assert!(
        message.contains("spec.limits.fual: unknown key"),
        "{message}"
    );
    assert!(plan.plugins["guard"].is_kept);
    assert!(plan.config.refused.is_empty());
    // Another resource of the same name does not inherit it.
    bad.uid = "another".to_owned();
    let plan = planned(&world([bad]), &mut kept);
    assert_eq!(names(&plan), ["one", "two"]);
    assert!(!plan.plugins["guard"].is_kept);
    assert!(plan.config.refused.contains("guard"));
    planned(&world([good]), &mut kept);
    assert_eq!(names(&planned(&world([]), &mut kept)), ["one", "two"]);
}

#[test]
fn last_known_good_stands_for_resources_until_they_are_listed() {
    let good = resource("guard", json!({ "source": "file:guard.wasm", "order": 1 }));
    let before = planned(&world([good.clone()]), &mut Kept::new()).config;
    let mut kept = Entry::recorded(before);
    let plan = planned(&World::default(), &mut kept);
    assert_eq!(names(&plan), ["one", "two", "guard"]);
    assert!(plan.plugins.is_empty());
    let broken = resource("guard", json!({ "source": "nowhere" }));
    let plan = planned(&world([broken]), &mut kept.clone());
    assert_eq!(names(&plan), ["one", "two", "guard"]);
    assert!(plan.plugins["guard"].is_kept);
    assert_eq!(names(&planned(&world([]), &mut kept)), ["one", "two"]);
}

#[test]
fn settings_are_merged_in_order_and_own_ones_win() {
    let spec = json!({
        "source": "file:guard.wasm",
        "settings": { "own": true, "deep": { "b": 3 } },
        "settingsFrom": [
            { "configMapKeyRef": { "name": "common", "key": "settings.yaml" } },
            { "secretKeyRef": { "name": "token", "key": "json" } },
        ],
    });
    let mut world = world([resource("guard", spec)]);
    let holders: Vec<String> = world.holders().iter().map(ToString::to_string).collect();
    assert_eq!(holders, ["ConfigMap common", "Secret token"]);
    assert!(!world.is_complete());
    let plan = planned(&world, &mut Kept::new());
    assert_eq!(refusal(&plan, "guard").0, "SettingsPending");
    let common = keys(&[(
        "settings.yaml",
        "deep: { a: 1, b: 1 }\nlist: [1]\nown: false\n",
    )]);
    let token = keys(&[("json", r#"{"deep": {"b": 2, "c": "s3cret"}, "list": [2]}"#)]);
    world
        .held
        .insert(holder(HolderKind::ConfigMap, "common"), common);
    world
        .held
        .insert(holder(HolderKind::Secret, "token"), token);
    assert!(world.is_complete());
    let plan = planned(&world, &mut Kept::new());
    assert_eq!(plan.plugins["guard"].refusal, None);
    let guard = &plan.config.plugins[2];
    let merged = json!({ "own": true, "deep": { "a": 1, "b": 3, "c": "s3cret" }, "list": [2] });
    assert_eq!(guard.settings, merged);
    assert!(guard.secret_settings);
    assert!(!format!("{world:?}").contains("s3cret"));
}

#[test]
fn missing_and_broken_settings_say_so_without_their_text() {
    let spec = json!({
        "source": "file:guard.wasm",
        "settingsFrom": [{ "secretKeyRef": { "name": "token", "key": "json" } }],
    });
    let mut world = world([resource("guard", spec)]);
    let cases = [
        (
            Held::Missing,
            "SettingsMissing",
            "Secret token does not exist",
        ),
        (
            keys(&[]),
            "SettingsMissing",
            "Secret token has no key \"json\"",
        ),
        (
            keys(&[("json", "s3cret")]),
            "SettingsInvalid",
            "is not an object",
        ),
        (
            keys(&[("json", "{s3cret: [")]),
            "SettingsInvalid",
            "is not an object",
        ),
        (
            Held::Unreadable("forbidden".to_owned()),
            "SettingsUnreadable",
            "forbidden",
        ),
    ];
    for (held, reason, message) in cases {
        world.held.insert(holder(HolderKind::Secret, "token"), held);
        let plan = planned(&world, &mut Kept::new());
        let (got, said) = refusal(&plan, "guard");
        assert_eq!(got, reason);
        assert!(said.contains(message), "{said}");
        assert!(!said.contains("s3cret"), "{said}");
    }
    let both = json!({ "source": "file:a.wasm", "settingsFrom": [{ "secretKeyRef": { "name": "a", "key": "b" }, "configMapKeyRef": { "name": "a", "key": "b" } }] });
    let plan = planned(&self::world([resource("guard", both)]), &mut Kept::new());
    assert!(refusal(&plan, "guard").1.contains("spec.settingsFrom[0]"));
}

#[test]
fn exceptions_apply_to_plugins_of_file_and_of_resources() {
    let mut world = world([resource("guard", json!({ "source": "file:guard.wasm" }))]);
    let exception = |name: &str, more: Value| {
        let mut spec =
            json!({ "plugins": ["one", "guard"], "users": ["anna"], "reason": "migration" });
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        resource(name, spec)
    };
    world.exceptions = Some(named([
        exception("active", json!({})),
        exception("over", json!({ "expires": "2020-01-01" })),
        exception("unknown", json!({ "plugins": ["guard", "nobody"] })),
        exception("broken", json!({ "reason": " " })),
    ]));
    let plan = planned(&world, &mut Kept::new());
    let reasons: Vec<_> = plan
        .exceptions
        .values()
        .map(|verdict| verdict.refusal.as_ref().map(|refusal| refusal.reason))
        .collect();
    assert_eq!(
        reasons,
        [
            None,
            Some("Invalid"),
            Some("Expired"),
            Some("PluginUnknown")
        ]
    );
    let now = std::time::SystemTime::now();
    let active = |index: usize| {
        let exceptions = plan.config.plugins[index].exceptions.iter();
        exceptions
            .filter(|exception| exception.is_active(now))
            .count()
    };
    assert_eq!([active(0), active(1), active(2)], [1, 0, 2]);
    // The records of a restart contain them.
    let document = plan.config.document(plan.config.plugins.iter());
    let again = Config::of_document(&document, Path::new("/etc/tollgate")).unwrap();
    assert_eq!(again.plugins, plan.config.plugins);
}

#[test]
fn objects_of_files_merge_as_in_a_cluster() {
    let mut file = file();
    file.cluster.namespace = Some("system".to_owned());
    let exception = |namespace: &str| {
        json!({
            "apiVersion": "tollgate.dev/v1alpha1", "kind": "PluginException",
            "metadata": { "name": namespace, "namespace": namespace },
            "spec": { "plugins": ["guard"], "users": ["anna"], "reason": "migration" },
        })
    };
    let objects = [
        json!({
            "apiVersion": "tollgate.dev/v1alpha1", "kind": "ClusterAdmissionPlugin", "metadata": { "name": "guard" },
            "spec": { "source": "file:guard.wasm", "settingsFrom": [
                { "configMapKeyRef": { "name": "a", "key": "x" } }, { "secretKeyRef": { "name": "a", "key": "x" } },
            ] },
        }),
        exception("system"),
        exception("shop"),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "namespace": "system" }, "data": { "x": "a: 1" } }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a", "namespace": "system" }, "data": { "x": "YjogMg==" } }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a", "namespace": "shop" }, "stringData": { "x": "b: 3" } }),
    ];
    let plan = merge_objects(&file, Path::new("/etc/tollgate"), &objects);
    assert_eq!(plan.plugins["guard"].refusal, None);
    let guard = &plan.config.plugins[2];
    assert_eq!(guard.settings, json!({ "a": 1, "b": 2 }));
    assert_eq!(guard.exceptions.len(), 1);
    assert_eq!(plan.exceptions.keys().collect::<Vec<_>>(), ["system"]);
}

fn installation(replica: &str) -> Installation {
    Installation {
        name: "tollgate".to_owned(),
        namespace: "system".to_owned(),
        replica: replica.to_owned(),
    }
}

/// Returns the replica's entry while these plugins serve.
fn said(plan: &Plan, name: &str, serving: &Serving) -> Option<ReplicaEntry> {
    let verdict = &plan.plugins[name];
    status::entry(&installation("tollgate-0"), name, verdict, plan, serving)
}

fn anything() -> Match {
    Match::from_manifest_rules(&[ManifestRule {
        operations: vec!["*".to_owned()],
        api_groups: vec!["*".to_owned()],
        api_versions: vec!["*".to_owned()],
        resources: vec!["*".to_owned()],
        scope: None,
    }])
    .unwrap()
}

#[test]
fn replica_is_ready_only_when_desired_entry_serves() {
    let plan = planned(
        &world([resource("guard", json!({ "source": "file:guard.wasm" }))]),
        &mut Kept::new(),
    );
    let desired = plan.config.plugins[2].clone();
    let mut serving = Serving::default();
    assert_eq!(said(&plan, "guard", &serving), None, "it is being loaded");
    serving.plugins.push(ServingPlugin {
        config: Arc::new(desired.clone()),
        digest: Some("sha256:0123456789abcdef".into()),
        state: ServingState::Loaded {
            matching: anything(),
            mutates: true,
            validates: false,
        },
    });
    let entry = said(&plan, "guard", &serving).unwrap();
    assert!(entry.is_ready);
    assert_eq!(entry.reason, "Serving");
    assert_eq!(entry.signature, Some(Signature::NotRequired));
    assert_eq!(
        status::digest(std::slice::from_ref(&entry)),
        Some("sha256:0123456789abcdef")
    );
    assert_eq!(
        status::short("sha256:0123456789abcdef"),
        "sha256:0123456789ab"
    );
    serving
        .troubles
        .insert(desired.name.clone(), "no such file".to_owned());
    let entry = said(&plan, "guard", &serving).unwrap();
    assert_eq!(
        (entry.is_ready, entry.reason.as_str()),
        (false, "LoadFailed")
    );
    assert_eq!(entry.signature, None);
    serving.unsigned.insert(desired.name.clone());
    let untrusted = said(&plan, "guard", &serving).unwrap();
    assert_eq!(untrusted.signature, Some(Signature::Untrusted));
    assert_eq!(
        entry.message,
        "no such file; the previous version keeps serving"
    );
    serving.troubles.clear();
    let mut other = desired;
    other.set_mode(tollgate_config::Mode::Audit);
    serving.plugins[0].config = Arc::new(other);
    assert_eq!(said(&plan, "guard", &serving), None);
}

#[test]
fn condition_needs_every_replica() {
    let entry = |name: &str, generation, is_ready| {
        let reason = if is_ready { "Serving" } else { "LoadFailed" };
        let message = "words".to_owned();
        ReplicaEntry::new(&installation(name), is_ready, reason, message, generation)
    };
    let mut resource = resource("guard", json!({}));
    resource.generation = 2;
    assert_eq!(status::ready(&resource, &[]), None);
    let cases = [
        (vec![entry("a", 2, true)], "True", "Serving", "words"),
        (
            vec![entry("a", 2, true), entry("b", 2, true)],
            "True",
            "Serving",
            "on all 2 replicas: words",
        ),
        (
            vec![entry("a", 2, true), entry("b", 1, false)],
            "Unknown",
            "Progressing",
            "1 of 2 replicas serve this generation",
        ),
        (
            vec![entry("a", 2, true), entry("b", 2, false)],
            "False",
            "LoadFailed",
            "replica b: words",
        ),
    ];
    for (entries, status, reason, message) in cases {
        let condition = status::ready(&resource, &entries).unwrap();
        assert_eq!(
            (condition.status, condition.reason.as_str()),
            (status, reason)
        );
        assert_eq!(condition.message, message);
        assert!(!condition.is_written(&resource));
    }
    let condition = status::ready(&resource, &[entry("a", 2, true)]).unwrap();
    let document = condition.document(&resource, "2026-01-01T00:00:00Z");
    resource.status =
        json!({ "conditions": [document], "replicas": [entry("a", 2, true).document("now")] });
    assert!(condition.is_written(&resource));
    assert_eq!(status::entries(&resource), [entry("a", 2, true)]);
    // The time of the last change stays while only words change.
    let other = status::ready(&resource, &[entry("a", 2, true), entry("b", 2, true)]).unwrap();
    let document = other.document(&resource, "2027-01-01T00:00:00Z");
    assert_eq!(document["lastTransitionTime"], "2026-01-01T00:00:00Z");
    assert!(!other.is_news(&resource) && !other.is_written(&resource));
}

/// Compares the files with the code. With `TOLLGATE_WRITE=1`, writes the files.
#[test]
fn files_hold_the_definitions() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    for kind in Kind::ALL {
        let path = folder.join(format!("{}.yaml", kind.plural()));
        let yaml = definition_yaml(kind).unwrap();
        if std::env::var_os("TOLLGATE_WRITE").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &yaml).unwrap();
        }
        let file = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            file == yaml,
            "{} differs from the code: run TOLLGATE_WRITE=1 cargo test -p tollgate-cluster definitions",
            path.display()
        );
    }
}
