//! Renders the Helm chart, and reads the objects that it renders.

use std::path::PathBuf;

use serde_json::Value;
use tollgate_kube_apiserver::helm::{Helm, Major};

use crate::{binary, left_out};

/// The namespace of rendered releases.
pub const NAMESPACE: &str = "tollgate-system";

/// Every template that the default values leave out.
pub const EVERYTHING: &str = "autoscaling.enabled=true,serviceMonitor.enabled=true,prometheusRule.enabled=true,\
                              grafanaDashboard.enabled=true";

/// The chart and a Helm to render it.
#[derive(Debug)]
pub struct Chart {
    helm: Helm,
}

/// Returns the folder `deploy` of the workspace.
#[must_use]
pub fn deploy() -> PathBuf {
    binary::workspace().join("deploy")
}

// === impl Chart ===

impl Chart {
    /// Returns the chart with a Helm, or skips the test if that Helm is not built.
    ///
    /// # Panics
    /// Panics if there is no Helm because of a mistake, and not because of the machine.
    #[must_use]
    pub fn with(major: Major) -> Option<Self> {
        match Helm::find(major) {
            Ok(helm) => Some(Self { helm }),
            Err(missing) => {
                assert!(missing.is_circumstance(), "no Helm: {missing}");
                let thread = std::thread::current();
                let test = thread.name().unwrap_or("a test");
                let version = major.version();
                left_out(&format!(
                    "{test} was NOT run with Helm {version}: {missing}"
                ));
                None
            }
        }
    }

    /// The Helm.
    #[must_use]
    pub fn helm(&self) -> &Helm {
        &self.helm
    }

    /// Renders the chart as the release `tollgate`.
    ///
    /// # Errors
    /// Returns the message of Helm if it refuses the values.
    ///
    /// # Panics
    /// Panics if Helm cannot be run.
    pub fn try_text(&self, arguments: &[&str]) -> Result<String, String> {
        let rendered =
            self.helm
                .template("tollgate", &deploy().join("chart"), NAMESPACE, arguments);
        let rendered = rendered.unwrap_or_else(|error| panic!("helm cannot be run: {error}"));
        if rendered.status.success() {
            Ok(String::from_utf8_lossy(&rendered.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&rendered.stderr).into_owned())
        }
    }

    /// Renders the objects with values as in `--set`.
    ///
    /// # Panics
    /// Panics if Helm refuses the values, or if the result is not YAML.
    #[must_use]
    #[track_caller]
    pub fn objects(&self, values: &str) -> Objects {
        if values.is_empty() {
            self.objects_with(&[])
        } else {
            self.objects_with(&["--set", values])
        }
    }

    /// Renders the objects with arguments of `helm template`.
    ///
    /// # Panics
    /// Panics if Helm refuses the values, or if the result is not YAML.
    #[must_use]
    #[track_caller]
    pub fn objects_with(&self, arguments: &[&str]) -> Objects {
        match self.try_text(arguments) {
            Ok(text) => Objects::parse(&text),
            Err(reason) => panic!("helm refuses {arguments:?}: {reason}"),
        }
    }
}

/// Objects of Kubernetes, in the order of their file.
#[derive(Clone, Debug, PartialEq)]
pub struct Objects(pub Vec<Value>);

// === impl Objects ===

impl Objects {
    /// Parses YAML documents. Empty documents are left out.
    ///
    /// # Panics
    /// Panics if the text is not YAML.
    #[must_use]
    #[track_caller]
    pub fn parse(text: &str) -> Self {
        let documents: Result<Vec<Value>, _> = serde_saphyr::from_multiple(text);
        let documents = documents.unwrap_or_else(|error| panic!("{error}\n{text}"));
        Self(
            documents
                .into_iter()
                .filter(|value| !value.is_null())
                .collect(),
        )
    }

    /// Returns the only object of a kind with this name.
    ///
    /// # Panics
    /// Panics if there is none.
    #[must_use]
    #[track_caller]
    pub fn get(&self, kind: &str, name: &str) -> &Value {
        let found = self.of_kind(kind).find(|it| it["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name} is rendered: {:?}", self.names()))
    }

    /// The objects of a kind.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |object| object["kind"] == kind)
    }

    /// Kind and name of each object.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let name = |object: &Value| {
            let part = |value: &Value| value.as_str().unwrap_or("?").to_owned();
            format!(
                "{}/{}",
                part(&object["kind"]),
                part(&object["metadata"]["name"])
            )
        };
        self.0.iter().map(name).collect()
    }

    /// The specification of the pods.
    #[must_use]
    #[track_caller]
    pub fn pod(&self) -> &Value {
        &self.get("Deployment", "tollgate")["spec"]["template"]["spec"]
    }

    /// The configuration file of the host.
    ///
    /// # Panics
    /// Panics if there is none.
    #[must_use]
    #[track_caller]
    pub fn configuration(&self) -> &str {
        let text = self.get("ConfigMap", "tollgate")["data"]["tollgate.yaml"].as_str();
        text.expect("the ConfigMap has a tollgate.yaml")
    }
}
