//! `cargo xtask policies`: the cost of policies in Rego and CEL, beside OPA and kube-apiserver's own CEL.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context as _;
use clap::Args;
use serde_json::{Value, json};
use tollgate_kube_apiserver::build_program;

use crate::oracles::opa;
use crate::workspace::{PLUGIN_PROFILE, WASM, Workspace};
use crate::{cargo, terminal, toolchain};

/// Measure a policy in Rego and policies in CEL, beside OPA and kube-apiserver's own CEL in Go.
///
/// All evaluate the same rule on the same Pod. Builds the host, three plugins and two Go programs, whose modules come from
/// Go's module proxy. Prints microseconds per evaluation, and the ratios that have a target. Every plugin is measured
/// several times, in turn with the others, and medians count. Fuel must be the same each time. Nothing else should run on
/// the machine.
#[derive(Args, Debug)]
pub(crate) struct Policies {
    /// Size of the Pod in bytes.
    #[arg(long, value_name = "NUMBER", default_value_t = 5_000)]
    bytes: usize,
    /// Number of calls of each plugin in one round.
    #[arg(long, value_name = "NUMBER", default_value_t = 2_000)]
    calls: u32,
    /// Binary to measure. It is built if this is not given.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// What the rounds of a plugin have shown.
#[derive(Default)]
struct Measured {
    nanoseconds: Vec<f64>,
    fuel: Vec<u64>,
}

/// The rule in Rego: every image comes from the company's registries.
const REGO: &str = r#"
package allowedimages

violation[{"msg": msg}] {
  container := input.review.object.spec.containers[_]
  not allowed(container.image)
  msg := sprintf("image %v is not from an allowed registry", [container.image])
}

allowed(image) {
  startswith(image, input.parameters.prefixes[_])
}
"#;
/// The same rule in CEL.
const CEL: &str = "object.spec.containers.all(container, container.image.startsWith('registry.example.com/') || \
                   container.image.startsWith('mirror.example.com/'))";
const PREFIXES: [&str; 2] = ["registry.example.com/", "mirror.example.com/"];
const CONTAINERS: usize = 5;
/// The names of the plugins in the configuration.
const REGO_PLUGIN: &str = "rego";
const CEL_PLUGIN: &str = "cel";
const LABELS_PLUGIN: &str = "labels";
/// The policies in CEL that are measured together.
const POLICIES: usize = 20;
const ROUNDS: usize = 3;

// === impl Policies ===

impl Policies {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let workspace = Workspace::find()?;
        terminal::heading("build");
        toolchain::ensure_wasm_target()?;
        build(&workspace, self.binary.is_none())?;
        let opa = opa::build(&workspace)?;
        let apiserver = build_apiserver(&workspace)?;
        terminal::heading("measure");
        let pod = pod(self.bytes);
        let folder = workspace.target().join("policies");
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let configuration = write(
            &folder,
            "tollgate.yaml",
            &configuration(&workspace, &folder),
        )?;
        let object = write(&folder, "pod.json", &pod)?;
        println!("one evaluation, Pod of {} bytes", pod.to_string().len());
        let mut ours: BTreeMap<String, Measured> = BTreeMap::new();
        let (mut query, mut parsed, mut theirs, mut all) = (vec![], vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            for name in names() {
                let (nanoseconds, fuel) =
                    self.plugin(&workspace, &configuration, &object, &name)?;
                let measured = ours.entry(name).or_default();
                measured.nanoseconds.push(nanoseconds);
                measured.fuel.push(fuel);
            }
            let opa = opa_nanoseconds(&opa, &pod)?;
            query.extend(opa["query"].as_f64());
            parsed.extend(opa["parse and query"].as_f64());
            let mut sum = 0.0;
            for index in 0..POLICIES {
                let question = json!({ "policy": vap(index), "object": pod }).to_string();
                let answer = ask(&apiserver, &[], &question)?;
                let nanoseconds = answer["validate"].as_f64().unwrap_or(f64::NAN);
                if index == 0 {
                    theirs.push(nanoseconds);
                }
                sum += nanoseconds;
            }
            all.push(sum);
        }
        for (name, Measured { fuel, .. }) in &ours {
            let is_same = fuel.iter().all(|one| Some(one) == fuel.first());
            anyhow::ensure!(is_same, "the plugin {name} takes different fuel: {fuel:?}");
        }
        let of = |name: &str| median(ours[name].nanoseconds.clone());
        let fuel = |name: &str| ours[name].fuel.first().copied().unwrap_or_default();
        let twenty: f64 = (0..POLICIES).map(|index| of(&cel_name(index))).sum();
        let (rego, cel, labels) = (of(REGO_PLUGIN), of(&cel_name(0)), of(LABELS_PLUGIN));
        let query = median(query);
        row("Rego: OPA, prepared query", query);
        row("Rego: OPA, input parsed, prepared query", median(parsed));
        row("Rego: plugin rego, whole call", rego);
        row("CEL: kube-apiserver", median(theirs));
        row("CEL: plugin cel-policy, whole call", cel);
        row("plugin required-labels, whole call", labels);
        row("CEL: kube-apiserver, 20 policies", median(all));
        row("CEL: plugin cel-policy, 20 policies", twenty);
        println!(
            "  Rego / OPA's prepared query: {:.2} (target: at most 2)",
            rego / query
        );
        println!(
            "  CEL / required-labels: {:.2} (target: at most 2.5)",
            cel / labels
        );
        println!(
            "  fuel, the same in {ROUNDS} rounds: rego {}, cel-policy {}, required-labels {}",
            fuel(REGO_PLUGIN),
            fuel(&cel_name(0)),
            fuel(LABELS_PLUGIN)
        );
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the median of a plugin's calls in nanoseconds, and the fuel of a call.
    fn plugin(
        &self,
        workspace: &Workspace,
        configuration: &Path,
        object: &Path,
        name: &str,
    ) -> anyhow::Result<(f64, u64)> {
        let built = workspace.target().join("release/tollgate");
        let mut bench = Command::new(self.binary.as_ref().unwrap_or(&built));
        bench.args(["bench", name, "--config"]).arg(configuration);
        bench.arg("--object").arg(object);
        bench.args(["--calls", &self.calls.to_string(), "-o", "json"]);
        let output = bench.output().context("cannot run tollgate bench")?;
        anyhow::ensure!(
            output.status.success(),
            "tollgate bench failed for {name}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let measured: Value = serde_json::from_slice(&output.stdout)?;
        let phases = measured["phases"].as_array().into_iter().flatten();
        let mut validating = phases.filter(|phase| phase["phase"] == "validate");
        let row = validating.next().map(|phase| phase["rows"][0].clone());
        let row = row.with_context(|| format!("tollgate bench has not measured {name}"))?;
        anyhow::ensure!(
            row["answer"] == "allowed",
            "{name} does not allow the Pod: {row}"
        );
        let milliseconds = row["median"].as_f64();
        let milliseconds = milliseconds.context("tollgate bench does not say the median")?;
        let fuel = row["fuel"].as_u64();
        Ok((
            milliseconds * 1e6,
            fuel.context("tollgate bench does not say the fuel")?,
        ))
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn write(folder: &Path, name: &str, value: &Value) -> anyhow::Result<PathBuf> {
    let file = folder.join(name);
    std::fs::write(&file, value.to_string())
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

fn cel_name(index: usize) -> String {
    format!("{CEL_PLUGIN}-{index}")
}

/// The names of all plugins, in the order of their measurement.
fn names() -> impl Iterator<Item = String> {
    let others = [REGO_PLUGIN, LABELS_PLUGIN].map(str::to_owned);
    others.into_iter().chain((0..POLICIES).map(cel_name))
}

/// The configuration with all plugins, which `tollgate bench` takes one by one.
fn configuration(workspace: &Workspace, folder: &Path) -> Value {
    let plugin = |name: &str, package: &str, settings: Value| {
        json!({
            "name": name, "source": format!("file:{}", workspace.guest_file(package).display()), "settings": settings,
            "match": { "rules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
            }] },
        })
    };
    let mut plugins = vec![
        plugin(REGO_PLUGIN, "rego", rego_settings()),
        plugin(
            LABELS_PLUGIN,
            "required-labels",
            json!({ "labels": { "team": "[a-z]+" } }),
        ),
    ];
    for index in 0..POLICIES {
        let settings = json!({ "policy": vap(index), "bindings": [binding(index)] });
        plugins.push(plugin(&cel_name(index), "cel-policy", settings));
    }
    json!({
        "listen": "127.0.0.1:0", "admin": { "listen": "127.0.0.1:0" }, "probes": { "listen": "127.0.0.1:0" },
        "tls": { "selfSigned": { "directory": folder.join("tls") } },
        "engine": { "cacheDirectory": folder.join("code") },
        "plugins": plugins,
    })
}

fn row(name: &str, nanoseconds: f64) {
    println!("  {name:<42} {:>9.1} µs", nanoseconds / 1000.0);
}

fn build(workspace: &Workspace, with_host: bool) -> anyhow::Result<()> {
    let mut host = workspace.cargo();
    host.args(["build", "--workspace", "--release", "--bin", "tollgate"]);
    let mut plugins = workspace.cargo();
    plugins.args(["build", "--profile", PLUGIN_PROFILE, "--target", WASM]);
    plugins.args(["--package", "rego", "--package", "cel-policy"]);
    plugins.args(["--package", "required-labels"]);
    for mut command in [with_host.then_some(host), Some(plugins)]
        .into_iter()
        .flatten()
    {
        println!("$ {}", cargo::typed(&command));
        cargo::run(&mut command)?;
    }
    Ok(())
}

fn build_apiserver(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    const SOURCE: &str = "tests/apiserver-cel";
    let program = workspace.target().join("oracles/apiserver-cel");
    terminal::paragraph("  ", &format!("building {SOURCE} (minutes the first time)"));
    build_program(&workspace.root().join(SOURCE), &program)?;
    Ok(program)
}

fn opa_nanoseconds(program: &Path, pod: &Value) -> anyhow::Result<Value> {
    let template = json!({ "rego": REGO, "libs": [], "inventory": {} });
    let request = json!({
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE", "name": "shop", "namespace": "default",
        "kind": { "group": "", "version": "v1", "kind": "Pod" }, "userInfo": { "username": "jane" },
        "object": pod, "oldObject": null,
    });
    let input = json!({ "review": request, "parameters": { "prefixes": PREFIXES } });
    ask(program, &["bench"], &format!("{template}\n{input}\n"))
}

/// Runs a program, and reads the JSON document that it prints.
fn ask(program: &Path, arguments: &[&str], input: &str) -> anyhow::Result<Value> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let mut stdin = child.stdin.take().context("the program has no input")?;
    stdin.write_all(input.as_bytes())?;
    drop(stdin);
    let output = child.wait_with_output()?;
    let name = program.display();
    anyhow::ensure!(output.status.success(), "{name} failed ({})", output.status);
    serde_json::from_slice(&output.stdout).with_context(|| format!("{name} did not print JSON"))
}

fn rego_settings() -> Value {
    json!({
        "template": {
            "apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate",
            "metadata": { "name": "allowedimages" },
            "spec": {
                "crd": { "spec": { "names": { "kind": "AllowedImages" } } },
                "targets": [{ "target": "admission.k8s.gatekeeper.sh", "rego": REGO }],
            },
        },
        "constraints": [{
            "apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": "AllowedImages",
            "metadata": { "name": "registries" }, "spec": { "parameters": { "prefixes": PREFIXES } },
        }],
    })
}

/// The policy, with a message of its own, so that no two are equal.
fn vap(index: usize) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": format!("registries-{index}") },
        "spec": {
            "matchConstraints": { "resourceRules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
            }] },
            "validations": [{ "expression": CEL, "message": format!("{index}: an image is not from an allowed registry") }],
        },
    })
}

fn binding(index: usize) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": format!("registries-{index}") },
        "spec": { "policyName": format!("registries-{index}"), "validationActions": ["Deny"] },
    })
}

/// Returns a Pod with five containers, whose environment fills the remaining bytes.
fn pod(bytes: usize) -> Value {
    let container = |index: usize| {
        json!({
            "name": format!("container-{index}"),
            "image": format!("mirror.example.com/shop/front-end:1.4.{index}"),
            "ports": [{ "containerPort": 8080, "name": "http", "protocol": "TCP" }],
            "env": [],
        })
    };
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "shop", "namespace": "default", "labels": { "team": "blue" } },
        "spec": { "containers": (0..CONTAINERS).map(container).collect::<Vec<_>>() },
    });
    let mut length = pod.to_string().len();
    let mut index = 0;
    while length < bytes {
        let variable = json!({ "name": format!("SETTING_{index}"), "value": format!("the value of setting {index}") });
        length += variable.to_string().len() + 1;
        if let Some(list) = pod["spec"]["containers"][index % CONTAINERS]["env"].as_array_mut() {
            list.push(variable);
        }
        index += 1;
    }
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_has_roughly_the_requested_size() {
        let bytes = pod(5_000).to_string().len();
        assert!((5_000..5_200).contains(&bytes), "{bytes}");
    }
}
