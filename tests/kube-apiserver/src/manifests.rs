//! The plain manifests of `deploy/manifests`, as the chart renders them.
//!
//! The chart is the only source. `cargo xtask manifests` writes these files, and a test compares them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::helm::Helm;

/// Namespace of the plain manifests.
pub const NAMESPACE: &str = "tollgate-system";

/// Name of the installation in the plain manifests.
pub const INSTALLATION: &str = "tollgate";

/// Lines that only mean something to Helm.
const OF_HELM: [&str; 2] = ["helm.sh/chart:", "app.kubernetes.io/managed-by: Helm"];

const CRDS: &str = "crds.yaml";
const INSTALL: &str = "tollgate.yaml";
const MONITORING: &str = "monitoring.yaml";

const HEAD: &str =
    "# Generated from deploy/chart by `cargo xtask manifests`. Change the chart instead.\n";

/// The namespace enforces the restricted pod security standard.
const NAMESPACE_FILE: &str = "apiVersion: v1
kind: Namespace
metadata:
  name: tollgate-system
  labels:
    app.kubernetes.io/part-of: tollgate
    pod-security.kubernetes.io/enforce: restricted
    pod-security.kubernetes.io/warn: restricted
";

/// The templates of each file. A template that renders nothing is left out.
const MONITORING_TEMPLATES: [&str; 3] = ["dashboard", "prometheusrule", "servicemonitor"];

/// Copies the CustomResourceDefinitions of `deploy/crds` into the chart, because a chart cannot read files outside of its
/// folder. Returns their names.
///
/// # Errors
/// Fails if a file cannot be read or written.
pub fn copy_crds(deploy: &Path) -> io::Result<Vec<String>> {
    let (from, into) = (deploy.join("crds"), deploy.join("chart/files/crds"));
    std::fs::create_dir_all(&into)?;
    let wanted = yaml_files(&from)?;
    for stale in yaml_files(&into)? {
        if !wanted.contains(&stale) {
            std::fs::remove_file(into.join(stale))?;
        }
    }
    for name in &wanted {
        std::fs::copy(from.join(name), into.join(name))?;
    }
    Ok(wanted)
}

/// Returns the names of the YAML files in a folder in their order. A missing folder has none.
///
/// # Errors
/// Fails if the folder cannot be read.
pub fn yaml_files(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".yaml") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Renders the files of `deploy/manifests` by their names.
///
/// # Errors
/// Fails if Helm cannot be run or cannot render the chart.
pub fn render(helm: &Helm, deploy: &Path) -> io::Result<BTreeMap<&'static str, String>> {
    let rendered = |arguments: &[&str]| -> io::Result<String> {
        let chart = deploy.join("chart");
        let output = helm.template(INSTALLATION, &chart, NAMESPACE, arguments)?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr);
            let reason = format!("helm cannot render {}: {}", chart.display(), reason.trim());
            return Err(io::Error::other(reason));
        }
        Ok(plain(&String::from_utf8_lossy(&output.stdout)))
    };
    let everything = rendered(&[
        "--set",
        "crds.keep=false,serviceMonitor.enabled=true,prometheusRule.enabled=true,grafanaDashboard.enabled=true",
    ])?;
    let mut files = BTreeMap::new();
    for (name, text) in split(&everything) {
        let file: &mut String = files.entry(name).or_insert_with(|| HEAD.to_owned());
        file.push_str("---\n");
        file.push_str(&text);
    }
    let mut resources = vec!["namespace.yaml"];
    resources.extend(files.contains_key(CRDS).then_some(CRDS));
    resources.push(INSTALL);
    let mut kustomization = format!(
        "{HEAD}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
    );
    for name in resources {
        kustomization.push_str(&format!("  - {name}\n"));
    }
    files.insert("kustomization.yaml", kustomization);
    files.insert("namespace.yaml", format!("{HEAD}{NAMESPACE_FILE}"));
    Ok(files)
}

/// Removes the labels that only Helm reads.
fn plain(rendered: &str) -> String {
    let is_of_helm = |line: &str| OF_HELM.iter().any(|label| line.trim().starts_with(label));
    let lines = rendered.lines().filter(|line| !is_of_helm(line));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Splits what Helm rendered into documents, each with the file that it belongs to.
fn split(rendered: &str) -> Vec<(&'static str, String)> {
    let mut documents = Vec::new();
    for document in format!("\n{rendered}").split("\n---\n") {
        let source = document.lines().find_map(|line| {
            let (_, path) = line.split_once("# Source: tollgate/templates/")?;
            path.strip_suffix(".yaml")
        });
        let lines = document
            .lines()
            .filter(|line| !line.starts_with("# Source: "));
        let text: String = lines.flat_map(|line| [line, "\n"]).collect();
        // Helm 3 and Helm 4 end documents with different spaces.
        let text = format!("{}\n", text.trim());
        let file = match source {
            Some("crds") => CRDS,
            Some(name) if MONITORING_TEMPLATES.contains(&name) => MONITORING,
            _ => INSTALL,
        };
        if text
            .lines()
            .any(|line| !line.is_empty() && !line.starts_with('#'))
        {
            documents.push((file, text));
        }
    }
    documents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendered_documents_get_their_files() {
        let rendered = "---\n# Source: tollgate/templates/service.yaml\nkind: Service\nmetadata:\n  labels:\n    \
                        helm.sh/chart: tollgate-0.1.0\n    app.kubernetes.io/managed-by: Helm\n    a: b\n\n---\n# Source: \
                        tollgate/templates/crds.yaml\nkind: CustomResourceDefinition\n---\n# Source: \
                        tollgate/templates/prometheusrule.yaml\nkind: PrometheusRule\n";
        let documents = split(&plain(rendered));
        let expected = [
            (INSTALL, "kind: Service\nmetadata:\n  labels:\n    a: b\n"),
            (CRDS, "kind: CustomResourceDefinition\n"),
            (MONITORING, "kind: PrometheusRule\n"),
        ];
        assert_eq!(
            documents,
            expected.map(|(file, text)| (file, text.to_owned()))
        );
    }
}
