//! `cargo xtask policies`: the cost of policies in Rego and CEL, beside OPA and kube-apiserver's own CEL.

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

/// Measure a policy in Rego and one in CEL, beside OPA and kube-apiserver's own CEL in Go.
///
/// All four evaluate the same rule on the same Pod. Builds the host, the two plugins and two Go programs, whose modules
/// come from Go's module proxy. Prints microseconds per evaluation. Nothing else should run on the machine.
#[derive(Args, Debug)]
pub(crate) struct Policies {
    /// Size of the Pod in bytes.
    #[arg(long, value_name = "NUMBER", default_value_t = 5_000)]
    bytes: usize,
    /// Number of calls of each plugin.
    #[arg(long, value_name = "NUMBER", default_value_t = 2_000)]
    calls: u32,
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

// === impl Policies ===

impl Policies {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let workspace = Workspace::find()?;
        terminal::heading("build");
        toolchain::ensure_wasm_target()?;
        build(&workspace)?;
        let opa = opa::build(&workspace)?;
        let apiserver = build_apiserver(&workspace)?;
        terminal::heading("measure");
        let pod = pod(self.bytes);
        let folder = workspace.target().join("policies");
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let theirs = opa_nanoseconds(&opa, &pod)?;
        println!("one evaluation, Pod of {} bytes", pod.to_string().len());
        row("Rego: OPA, prepared query", theirs["query"].as_f64());
        row(
            "Rego: OPA, input parsed, prepared query",
            theirs["parse and query"].as_f64(),
        );
        let ours = self.plugin(&workspace, &folder, "rego", &rego_settings(), &pod)?;
        row("Rego: plugin rego, whole call", Some(ours));
        let theirs = ask(
            &apiserver,
            &[],
            &json!({ "policy": vap(), "object": pod }).to_string(),
        )?;
        row("CEL: kube-apiserver", theirs["validate"].as_f64());
        let settings = json!({ "policy": vap(), "bindings": [binding()] });
        let ours = self.plugin(&workspace, &folder, "cel-policy", &settings, &pod)?;
        row("CEL: plugin cel-policy, whole call", Some(ours));
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the median of a plugin's calls, in nanoseconds.
    fn plugin(
        &self,
        workspace: &Workspace,
        folder: &Path,
        package: &str,
        settings: &Value,
        pod: &Value,
    ) -> anyhow::Result<f64> {
        let write = |name: &str, value: &Value| {
            let file = folder.join(format!("{package}-{name}.json"));
            std::fs::write(&file, value.to_string())
                .with_context(|| format!("cannot write {}", file.display()))?;
            anyhow::Ok(file)
        };
        let mut bench = Command::new(workspace.target().join("release/tollgate"));
        bench
            .arg("bench")
            .arg(workspace.guest_file(package))
            .arg("--settings")
            .arg(write("settings", settings)?)
            .arg("--object")
            .arg(write("pod", pod)?)
            .args(["--calls", &self.calls.to_string(), "-o", "json"]);
        let output = bench.output().context("cannot run tollgate bench")?;
        anyhow::ensure!(
            output.status.success(),
            "tollgate bench failed for {package}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let measured: Value = serde_json::from_slice(&output.stdout)?;
        let phases = measured["phases"].as_array().into_iter().flatten();
        let mut validating = phases.filter(|phase| phase["phase"] == "validate");
        let row = validating.next().map(|phase| phase["rows"][0].clone());
        let row = row.with_context(|| format!("tollgate bench has not measured {package}"))?;
        anyhow::ensure!(
            row["answer"] == "allowed",
            "{package} does not allow the Pod: {row}"
        );
        let milliseconds = row["median"].as_f64();
        let milliseconds = milliseconds.context("tollgate bench does not say the median")?;
        Ok(milliseconds * 1e6)
    }
}

fn row(name: &str, nanoseconds: Option<f64>) {
    match nanoseconds {
        Some(nanoseconds) => println!("  {name:<42} {:>9.1} µs", nanoseconds / 1000.0),
        None => println!("  {name:<42} {:>12}", "no figure"),
    }
}

fn build(workspace: &Workspace) -> anyhow::Result<()> {
    let mut host = workspace.cargo();
    host.args(["build", "--workspace", "--release", "--bin", "tollgate"]);
    let mut plugins = workspace.cargo();
    plugins.args(["build", "--profile", PLUGIN_PROFILE, "--target", WASM]);
    plugins.args(["--package", "rego", "--package", "cel-policy"]);
    for mut command in [host, plugins] {
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

fn vap() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": "registries" },
        "spec": { "validations": [{ "expression": CEL, "message": "an image is not from an allowed registry" }] },
    })
}

fn binding() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": "registries" },
        "spec": { "policyName": "registries", "validationActions": ["Deny"] },
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
