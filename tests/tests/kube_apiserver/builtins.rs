//! kube-apiserver's own admission plugins, and the plugins that do the same: the same requests get the same answers.
//!
//! The files in `builtins` have the requests. Each file has one cluster. kube-apiserver answers all requests as dry
//! runs, first with Tollgate's plugin, and after a restart with its own one. `differs` names what may differ, and the
//! README of the plugin says why.

use std::path::Path;

use reqwest::Method;
use serde_json::{Map, Value, json};
use tollgate_tests::guests;
use tollgate_tests::kubernetes::{Cluster, Registration, Start as ClusterStart};
use tollgate_tests::server::{Server, Start};

use crate::fixtures::{configuration, path_of};
use crate::plugins_as_resources::define;

/// The namespace of the installation.
const SYSTEM: &str = "builtins-system";
/// Fewer requests would leave out edge cases.
const LEAST: usize = 25;

/// An answer of kube-apiserver, without what differs each time.
#[derive(Debug, PartialEq)]
struct Answer {
    allowed: bool,
    code: u16,
    /// The reason of a denial, without the names of the object, the webhook and the plugin.
    message: String,
    /// The resulting object. Null for a denial.
    object: Value,
}

// === impl Answer ===

impl Answer {
    fn new(plugin: &str, code: u16, mut body: Value) -> Self {
        let allowed = (200..300).contains(&code);
        if allowed {
            mask(&mut body);
            return Self {
                allowed,
                code,
                message: String::new(),
                object: body,
            };
        }
        let text = body["message"].as_str().unwrap_or_default();
        Self {
            allowed,
            code,
            message: reason(plugin, code, text),
            object: Value::Null,
        }
    }

    /// The names of the fields that differ.
    fn differences(&self, other: &Self) -> Vec<&'static str> {
        let fields = [
            ("allowed", self.allowed != other.allowed),
            ("code", self.code != other.code),
            ("message", self.message != other.message),
            ("object", self.object != other.object),
        ];
        let differing = fields.into_iter().filter(|(_, differs)| *differs);
        differing.map(|(name, _)| name).collect()
    }
}

/// Removes what kube-apiserver makes up for each request.
fn mask(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in [
            "uid",
            "creationTimestamp",
            "resourceVersion",
            "managedFields",
            "deletionTimestamp",
        ] {
            metadata.remove(name);
        }
        if metadata.contains_key("generateName") {
            metadata.remove("name");
        }
    }
    let is_service = object["kind"] == "Service";
    let spec = object.get_mut("spec").and_then(Value::as_object_mut);
    if let Some(spec) = spec.filter(|_| is_service) {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
}

/// Returns the reason of a denial.
///
/// - kube-apiserver's plugin: `pods "new" is forbidden: REASON`.
/// - Tollgate's: `admission webhook "NAME" denied the request: PLUGIN: REASON (review UID)`.
fn reason(plugin: &str, code: u16, text: &str) -> String {
    if let Some((_, said)) = text.split_once(" denied the request: ") {
        let said = said.strip_prefix(&format!("{plugin}: ")).unwrap_or(said);
        let without_uid = said.rsplit_once(" (review ").map(|(said, _)| said);
        return without_uid.unwrap_or(said).to_owned();
    }
    match text.split_once(" is forbidden: ") {
        Some((_, said)) if code == 403 => said.to_owned(),
        _ => text.to_owned(),
    }
}

/// Applies a merge patch. The elements of `list+` go to the end of `list`.
fn merged(target: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch.clone();
    };
    let mut result = target.as_object().cloned().unwrap_or_default();
    for (key, value) in patch {
        if let Some(list) = key.strip_suffix('+') {
            let elements = result.entry(list).or_insert_with(|| json!([]));
            let more = value.as_array().cloned().unwrap_or_default();
            elements.as_array_mut().expect("a list").extend(more);
        } else if value.is_null() {
            result.remove(key);
        } else {
            let new = merged(result.get(key).unwrap_or(&Value::Null), value);
            result.insert(key.clone(), new);
        }
    }
    Value::Object(result)
}

/// The requests to compare.
struct Comparison {
    plugin: String,
    file: Value,
}

// === impl Comparison ===

impl Comparison {
    fn read(plugin: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kube_apiserver/builtins");
        let path = folder.join(format!("{plugin}.yaml"));
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file = serde_saphyr::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self {
            plugin: plugin.to_owned(),
            file,
        }
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.file[key].as_str()
    }

    fn map(&self, key: &str) -> impl Iterator<Item = (&String, &Value)> {
        self.file[key].as_object().into_iter().flatten()
    }

    fn requests(&self) -> &[Value] {
        self.file["requests"].as_array().expect("a list")
    }

    fn object(&self, patch: &Value) -> Value {
        merged(&self.file["template"], patch)
    }

    fn start(&self) -> Option<Cluster> {
        let mut start = ClusterStart::default();
        if let Some(disabled) = self.text("disabled") {
            start = start.argument(&format!("--disable-admission-plugins={disabled}"));
        }
        start.start()
    }

    /// Creates the namespaces and the objects that requests change or delete.
    async fn prepare(&self, cluster: &Cluster) {
        for (name, annotations) in self.map("namespaces") {
            let metadata = json!({"name": name, "annotations": annotations});
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
            create(cluster, &namespace).await;
        }
        for (_, patch) in self.map("existing") {
            create(cluster, &self.object(patch)).await;
        }
    }

    /// Starts a host with the plugin and its settings.
    fn serve(&self, cluster: &Cluster) -> Server {
        let mut configuration = configuration().with(
            "cluster",
            json!({"enabled": true, "namespace": SYSTEM, "replica": "replica-0", "registration": {"enabled": false}}),
        );
        let settings = match &self.file["settings"] {
            Value::Null => json!({}),
            settings => settings.clone(),
        };
        let file = guests::build(&self.plugin);
        let entry = self.file.get("entry").cloned().unwrap_or_else(|| json!({}));
        let entry = merged(&json!({"settings": settings}), &entry);
        configuration.plugin(&self.plugin, &file, entry);
        let kubeconfig = cluster.folder().join("kubeconfig").display().to_string();
        let start = Start::default().environment("KUBECONFIG", &kubeconfig);
        tokio::task::block_in_place(|| start.start(configuration))
    }

    /// Writes the configuration of kube-apiserver's own plugin, and returns the arguments.
    fn arguments(&self, cluster: &Cluster) -> Vec<String> {
        let builtin = self.text("builtin").expect("the name of the plugin");
        let mut arguments = vec![format!("--enable-admission-plugins={builtin}")];
        if !self.file["settings"].is_null() {
            let own = cluster.folder().join("builtin.json");
            let none = Value::Object(Map::new());
            let configuration = self.file.get("configuration").unwrap_or(&none);
            let configuration = merged(configuration, &self.file["settings"]);
            let all = json!({
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "AdmissionConfiguration",
                "plugins": [{"name": builtin, "path": own.display().to_string()}],
            });
            let path = cluster.folder().join("admission.json");
            for (path, content) in [(&own, configuration), (&path, all)] {
                std::fs::write(path, content.to_string())
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            }
            arguments.push(format!(
                "--admission-control-config-file={}",
                path.display()
            ));
        }
        arguments
    }

    async fn answers(&self, cluster: &Cluster) -> Vec<Answer> {
        let mut answers = Vec::new();
        for request in self.requests() {
            let (code, body) = self.send(cluster, request).await;
            answers.push(Answer::new(&self.plugin, code, body));
        }
        answers
    }

    async fn send(&self, cluster: &Cluster, request: &Value) -> (u16, Value) {
        let user = request["as"].as_str();
        if let Some(patch) = request.get("create") {
            let object = self.object(patch);
            let path = format!("{}?dryRun=All", path_of(&object));
            return cluster
                .request_as(user, Method::POST, &path, Some(&object))
                .await;
        }
        let path = |key: &str| {
            let name = request[key].as_str()?;
            let object = self.object(&self.file["existing"][name]);
            Some(format!("{}/{name}", path_of(&object)))
        };
        if let Some(path) = path("delete") {
            let path = format!("{path}?dryRun=All");
            return cluster.request_as(user, Method::DELETE, &path, None).await;
        }
        let path = path("update").unwrap_or_else(|| panic!("an unknown request: {request}"));
        let (status, stored) = cluster.request(Method::GET, &path, None).await;
        assert_eq!(status, 200, "{path}: {stored}");
        let object = merged(&stored, &request["with"]);
        let path = match request["subresource"].as_str() {
            Some(subresource) => format!("{path}/{subresource}?dryRun=All"),
            None => format!("{path}?dryRun=All"),
        };
        cluster
            .request_as(user, Method::PUT, &path, Some(&object))
            .await
    }
}

async fn create(cluster: &Cluster, object: &Value) {
    let path = path_of(object);
    let (status, answer) = cluster.request(Method::POST, &path, Some(object)).await;
    assert_eq!(status, 201, "{object}: {answer}");
}

async fn compare(plugin: &str) {
    let comparison = Comparison::read(plugin);
    let requests = comparison.requests();
    assert!(requests.len() >= LEAST, "{} requests", requests.len());
    let Some(cluster) = comparison.start() else {
        return;
    };
    define(&cluster);
    cluster.namespace(SYSTEM);
    comparison.prepare(&cluster).await;

    let server = comparison.serve(&cluster);
    server.assert_all_loaded().await;
    let probe = comparison.object(&json!({"metadata": {"name": "probe"}}));
    let path = path_of(&probe);
    let registration = Registration::new(&cluster, &server, plugin, &[], (&path, &probe)).await;
    let ours = comparison.answers(&cluster).await;
    drop(registration);
    drop(server);

    cluster.restart_api_server(&comparison.arguments(&cluster));
    let theirs = comparison.answers(&cluster).await;

    let mut wrong = Vec::new();
    let mut explained = 0;
    for ((request, ours), theirs) in requests.iter().zip(&ours).zip(&theirs) {
        let expected = request["differs"].as_array().into_iter().flatten();
        let expected: Vec<&str> = expected.filter_map(Value::as_str).collect();
        explained += usize::from(!expected.is_empty());
        if ours.differences(theirs) != expected {
            let name = &request["name"];
            wrong.push(format!(
                "{name}: expected differences {expected:?}\n  {plugin}: {ours:?}\n  built in: {theirs:?}"
            ));
        }
    }
    let denied = theirs.iter().filter(|answer| !answer.allowed).count();
    println!(
        "{plugin}: {} requests, {denied} denied by kube-apiserver, {explained} with a difference that is explained",
        requests.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn always_pull_images_answers_like_the_built_in_one() {
    compare("always-pull-images").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deny_service_external_ips_answers_like_the_built_in_one() {
    compare("deny-service-external-ips").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn extended_resource_toleration_answers_like_the_built_in_one() {
    compare("extended-resource-toleration").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_pod_hard_anti_affinity_topology_answers_like_the_built_in_one() {
    compare("limit-pod-hard-anti-affinity-topology").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn namespace_exists_answers_like_the_built_in_one() {
    compare("namespace-exists").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_references_permission_enforcement_answers_like_the_built_in_one() {
    compare("owner-references-permission-enforcement").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_node_selector_answers_like_the_built_in_one() {
    compare("pod-node-selector").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_toleration_restriction_answers_like_the_built_in_one() {
    compare("pod-toleration-restriction").await;
}

#[test]
fn reasons_are_found_in_both_forms() {
    for (code, text, expected) in [
        (403, "pods \"new\" is forbidden: no", "no"),
        (403, "pods is forbidden: no", "no"),
        (
            403,
            "admission webhook \"a.tollgate.dev\" denied the request: limit: no (really) (review 01234567)",
            "no (really)",
        ),
        (500, "no", "no"),
        (
            422,
            "Pod \"new\" is invalid: a is forbidden: b",
            "Pod \"new\" is invalid: a is forbidden: b",
        ),
    ] {
        assert_eq!(reason("limit", code, text), expected);
    }
    let before = json!({"a": {"b": 1, "c": [1]}, "d": 2});
    let patch = json!({"a": {"b": null, "c+": [2], "e+": [3]}, "d": {"f": 4}});
    let after = json!({"a": {"c": [1, 2], "e": [3]}, "d": {"f": 4}});
    assert_eq!(merged(&before, &patch), after);
}
