//! Plugins from a registry behind a proxy that resolves the names. Addresses that the registry leads to are still
//! checked.

use std::process::Output;

use tempfile::TempDir;
use tokio::process::Command;
use tollgate_tests::binary;
use tollgate_tests::registry::misbehaving::{Behaviour, Fault, Misbehaving};
use tollgate_tests::registry::proxy::Proxy;
use tollgate_tests::wat::marker;

/// Names that never resolve, because `.invalid` is reserved.
const REGISTRY: &str = "registry.invalid";
const STORAGE: &str = "storage.invalid";

struct Network {
    folder: TempDir,
    registry: Misbehaving,
    proxy: Proxy,
    layer: Vec<u8>,
}

impl Network {
    async fn start() -> Self {
        let layer = marker("colour", "red");
        let registry = Misbehaving::start(Behaviour::of(layer.clone())).await;
        let proxy = Proxy::start(REGISTRY, registry.host(), STORAGE, layer.clone()).await;
        Self {
            folder: tempfile::tempdir().expect("a temporary folder can be made"),
            registry,
            proxy,
            layer,
        }
    }

    /// Pulls through the proxy while the registry has a fault.
    async fn pull(&self, fault: Fault) -> Output {
        self.registry
            .behave(Behaviour::of(self.layer.clone()).with(fault));
        let mut command = Command::new(binary::tollgate());
        for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
            command.env_remove(name).env_remove(name.to_uppercase());
        }
        let output = command
            .args(["pull", "--plain-http", "--output", "plugin.wasm"])
            .arg(format!("oci://{REGISTRY}/policies/colour:1"))
            .env("http_proxy", self.proxy.url())
            .current_dir(self.folder.path())
            .kill_on_drop(true)
            .output();
        output.await.expect("tollgate can be run")
    }
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}{err}")
}

#[tokio::test(flavor = "multi_thread")]
async fn pulls_through_proxy_that_alone_resolves_names() {
    let network = Network::start().await;
    for fault in [
        Fault::None,
        Fault::Redirect(format!("http://{STORAGE}/layer")),
    ] {
        let output = network.pull(fault).await;
        assert!(output.status.success(), "{}", text(&output));
        let pulled = std::fs::read(network.folder.path().join("plugin.wasm"));
        assert_eq!(pulled.expect("it was pulled"), network.layer);
    }
    let asked = network.proxy.take_asked();
    let storage = format!("http://{STORAGE}/layer");
    assert_eq!(
        asked.iter().filter(|url| **url == storage).count(),
        1,
        "{asked:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn asks_proxy_for_no_forbidden_address() {
    let network = Network::start().await;
    let redirect = |to: &str| Fault::Redirect(to.to_owned());
    let rows = [
        (
            redirect("http://169.254.169.254/latest/"),
            "169.254.169.254",
            "is a link-local address",
        ),
        (
            redirect("http://[::a9fe:a9fe]/latest/"),
            "::a9fe:a9fe",
            "is a metadata service",
        ),
        (
            redirect("http://[64:ff9b:1::a9fe:a9fe]/latest/"),
            "64:ff9b:1::a9fe:a9fe",
            "is a metadata service",
        ),
        (
            redirect("http://metadata.google.internal/computeMetadata/v1/"),
            "metadata.google.internal",
            "is the name of a metadata service",
        ),
        (
            redirect("http://localhost:9/admin"),
            "localhost",
            "is a loopback address",
        ),
        (
            redirect("http://vault.corp.internal/v1/secret"),
            "vault.corp.internal",
            "is the name of a private network",
        ),
        (
            Fault::Realm("http://vault.corp.internal/token".to_owned()),
            "vault.corp.internal",
            "is the name of a private network",
        ),
    ];
    for (fault, host, why) in rows {
        let shown = format!("{fault:?}");
        let output = network.pull(fault).await;
        let asked = network.proxy.take_asked();
        let printed = text(&output);
        println!("{shown}: {}", printed.trim_end());
        assert_eq!(output.status.code(), Some(2), "{shown}: {printed}");
        assert!(printed.contains(why), "{shown}: {printed}");
        assert!(
            !asked.iter().any(|url| url.contains(host)),
            "{shown}: the proxy was asked for {asked:?}"
        );
        assert!(!asked.is_empty(), "{shown}: the proxy is in use");
    }
}
