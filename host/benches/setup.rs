//! What the benchmarks are set up with: plugins loaded as `tollgate serve` loads them, and documents of a given size.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tollgate::config::Config;
use tollgate::engine::{Engine, EngineSettings};
use tollgate::metrics::Metrics;
use tollgate::plugin::{Loader, PluginSet, PluginState};

/// An engine with plugins in it.
pub(crate) struct Setup {
    pub(crate) runtime: Runtime,
    pub(crate) engine: Engine,
    loader: Loader,
    /// Keeps the compiled code for as long as it may be asked for.
    _code: TempDir,
}

/// The namespace, the user and so on around an object: as kube-apiserver sends them on CREATE.
const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";
const TARGET: &str = "wasm32-unknown-unknown";

// === impl Setup ===

impl Setup {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .expect("the threads can be started");
        let code = tempfile::tempdir().expect("a temporary folder can be made");
        let defaults = configuration(&json!([]));
        let engine = Engine::new(&EngineSettings {
            max_concurrent_calls: defaults.engine.max_concurrent_calls,
            max_wasm_stack_bytes: defaults.engine.max_wasm_stack_bytes,
            largest: tollgate::config::Limits::default(),
            cache_directory: code.path(),
        })
        .expect("the engine can be set up with its defaults");
        let loader = Loader::new(
            engine.clone(),
            PathBuf::from(env!("CARGO_BIN_EXE_tollgate")),
            defaults.engine,
            code.path().to_owned(),
            metrics,
        );
        Self {
            runtime,
            engine,
            loader,
            _code: code,
        }
    }

    /// Loads plugins: `entries` are what stands under `plugins` in a configuration file.
    pub(crate) fn load(&self, entries: &[Value]) -> PluginSet {
        let plugins = configuration(&json!(entries)).plugins;
        let set = self.runtime.block_on(self.loader.load_all(plugins));
        for plugin in set.iter() {
            if let PluginState::Failed { reason } = &plugin.state {
                panic!("{} cannot be loaded: {reason}", plugin.config.name);
            }
        }
        set
    }
}

fn configuration(plugins: &Value) -> Config {
    let text = json!({ "allowEmpty": true, "plugins": plugins }).to_string();
    Config::parse(&text, Path::new(".")).expect("the benchmark's configuration is valid")
}

/// An entry under `plugins` for a package of the workspace, which is built where it is not up to date.
pub(crate) fn entry(name: &str, package: &str, settings: &Value) -> Value {
    let file = build(package);
    json!({ "name": name, "source": format!("file:{}", file.display()), "settings": settings })
}

fn build(package: &str) -> PathBuf {
    let executable = std::env::current_exe().expect("the path of this benchmark is known");
    // target/release/deps/call-0123456789abcdef
    let target = executable
        .ancestors()
        .nth(3)
        .expect("a benchmark lies three folders below the target folder");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--profile", "plugin"])
        .args(["--target", TARGET, "--package", package, "--target-dir"])
        .arg(target)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .status()
        .unwrap_or_else(|error| panic!("cargo cannot be run to build {package}: {error}"));
    assert!(
        built.success(),
        "{package} does not build for {TARGET}; is the target installed? `rustup target add {TARGET}`"
    );
    let file = format!("{}.wasm", package.replace('-', "_"));
    target.join(TARGET).join("plugin").join(file)
}

/// A Pod of exactly that many bytes, if they are enough for one: four containers at most, and more environment
/// in each the more there is room for.
pub(crate) fn pod(bytes: usize) -> Value {
    let container = |index: usize| {
        json!({
            "name": format!("container-{index}"),
            "image": format!("registry-{index}.example.com/shop/front-end:1.4.{index}"),
            "ports": [{ "containerPort": 8080, "name": "http", "protocol": "TCP" }],
            "resources": { "requests": { "cpu": "100m", "memory": "128Mi" }, "limits": { "memory": "256Mi" } },
            "imagePullPolicy": "IfNotPresent",
            "terminationMessagePath": "/dev/termination-log",
            "env": [],
        })
    };
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "shop",
            "namespace": "default",
            "labels": { "app.kubernetes.io/name": "shop", "team": "blue" },
        },
        "spec": { "containers": [{ "name": "app", "image": "registry-0.example.com/app:1.4" }] },
    });
    if bytes > 4_000 {
        pod["spec"]["containers"] = (0..4).map(container).collect();
        for index in 0.. {
            let length = pod.to_string().len();
            let variable = json!({
                "name": format!("SHOP_FRONT_END_SETTING_{index}"),
                "value": format!("the value of setting {index} of the front end"),
            });
            if length + variable.to_string().len() + 32 > bytes {
                break;
            }
            let environment = pod["spec"]["containers"][index % 4]["env"].as_array_mut();
            environment.expect("`env` is a list").push(variable);
        }
    }
    let empty = json!({ "note": "" });
    pod["metadata"]["annotations"] = empty;
    let missing = bytes.saturating_sub(pod.to_string().len());
    pod["metadata"]["annotations"]["note"] = "x".repeat(missing).into();
    pod
}

/// A request to create the object, as kube-apiserver sends it.
pub(crate) fn review(object: &Value) -> Vec<u8> {
    let kind = json!({ "group": "", "version": "v1", "kind": "Pod" });
    let resource = json!({ "group": "", "version": "v1", "resource": "pods" });
    let review = json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID,
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": object["metadata"]["name"],
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": { "username": "jane", "groups": ["system:authenticated"] },
            "object": object,
            "oldObject": null,
            "dryRun": false,
            "options": { "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1" },
        },
    });
    review.to_string().into_bytes()
}
