//! Reads objects of a cluster with the user's kubectl, or from files.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use clap::Args;
use tollgate_registration::live::Objects;

/// The objects to compare with.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Live {
    /// File of live objects, from `kubectl get … -o yaml` or `-o json`, in place of a cluster; - for standard input. May
    /// be given several times.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubectl", "context"])]
    live: Vec<PathBuf>,
    /// kubectl to read the cluster with. [default: kubectl on the PATH]
    #[arg(long, value_name = "FILE")]
    kubectl: Option<PathBuf>,
    /// Context of kubectl. [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// One call of `kubectl get`.
#[derive(Clone, Debug)]
pub(super) struct Query {
    /// Resources, separated by commas.
    pub(super) resources: &'static str,
    /// Namespace, for namespaced resources.
    pub(super) namespace: Option<String>,
    /// Field selector. None for all objects.
    pub(super) selector: Option<&'static str>,
    /// Label selector. None for all objects. With one, all namespaces are read.
    pub(super) labels: Option<&'static str>,
    /// Whether a cluster can do without, because of its version or the user's rights.
    pub(super) is_optional: bool,
}

/// The webhook configurations of a cluster.
pub(super) const WEBHOOKS: Query = Query {
    resources: "mutatingwebhookconfigurations,validatingwebhookconfigurations",
    namespace: None,
    selector: None,
    labels: None,
    is_optional: false,
};

// === impl Live ===

impl Live {
    /// Returns whether objects come from files.
    pub(super) fn is_file(&self) -> bool {
        !self.live.is_empty()
    }

    /// Reads the objects: all of the files, or those that kubectl gets.
    pub(super) fn read(&self, queries: &[&Query]) -> anyhow::Result<Objects> {
        let mut unread = Vec::new();
        let objects = self.read_or_note(queries, &mut unread)?;
        anyhow::ensure!(unread.is_empty(), "{}", unread.join("; "));
        Ok(objects)
    }

    /// Reads the objects, and notes those that are optional and cannot be read.
    pub(super) fn read_or_note(
        &self,
        queries: &[&Query],
        unread: &mut Vec<String>,
    ) -> anyhow::Result<Objects> {
        let mut objects = Objects::default();
        for file in &self.live {
            let text = read_file(file)?;
            let read =
                Objects::parse(&text).with_context(|| format!("cannot use {}", file.display()))?;
            objects.extend(read);
        }
        if self.is_file() {
            return Ok(objects);
        }
        for query in queries {
            match self.get(query) {
                Ok(read) => objects.extend(read),
                Err(error) if query.is_optional => unread.push(format!("{error:#}")),
                Err(error) => return Err(error),
            }
        }
        Ok(objects)
    }

    /// Asks whether a user may do something.
    pub(super) fn can_i(&self, user: &str, arguments: &[String]) -> anyhow::Result<bool> {
        let mut command = self.command();
        command.args(["auth", "can-i"]).args(arguments);
        let output = command.arg(format!("--as={user}")).output();
        let output = output.with_context(|| format!("cannot run {}", self.program().display()))?;
        let answer = String::from_utf8_lossy(&output.stdout);
        match answer.split_whitespace().next() {
            Some("yes") => Ok(true),
            Some("no") => Ok(false),
            _ => anyhow::bail!(
                "cannot ask for the rights of {user}: {}",
                last_line(&output.stderr)
            ),
        }
    }

    /// Sets an annotation of an object of the cluster.
    pub(super) fn annotate(
        &self,
        resource: &str,
        name: &str,
        key: &str,
        value: &str,
    ) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.is_file(),
            "a file of live objects cannot be changed: leave --live out"
        );
        let mut command = self.command();
        command.args(["annotate", "--overwrite", resource, name]);
        let output = command.arg(format!("{key}={value}")).output();
        let output = output.with_context(|| format!("cannot run {}", self.program().display()))?;
        anyhow::ensure!(
            output.status.success(),
            "kubectl cannot annotate {resource} {name}: {}",
            last_line(&output.stderr)
        );
        Ok(())
    }

    fn get(&self, query: &Query) -> anyhow::Result<Objects> {
        let mut command = self.command();
        command.args(["get", query.resources, "-o", "json"]);
        if let Some(namespace) = &query.namespace {
            command.args(["-n", namespace]);
        }
        if let Some(selector) = query.selector {
            command.args(["--field-selector", selector]);
        }
        if let Some(labels) = query.labels {
            command.args(["-l", labels, "--all-namespaces"]);
        }
        let output = command.output().with_context(|| {
            format!(
                "cannot run {}: install kubectl, pass --kubectl, or pass files with --live",
                self.program().display()
            )
        })?;
        anyhow::ensure!(
            output.status.success(),
            "kubectl cannot get {}: {}",
            query.resources,
            last_line(&output.stderr)
        );
        let text = String::from_utf8(output.stdout).context("kubectl printed no UTF-8")?;
        Ok(Objects::parse(&text)?)
    }

    fn program(&self) -> &Path {
        self.kubectl.as_deref().unwrap_or(Path::new("kubectl"))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.program());
        if let Some(context) = &self.context {
            command.arg(format!("--context={context}"));
        }
        command
    }
}

fn read_file(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        read.context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

fn last_line(printed: &[u8]) -> String {
    let printed = String::from_utf8_lossy(printed);
    let line = printed.lines().rfind(|line| !line.trim().is_empty());
    line.unwrap_or("it printed nothing").to_owned()
}
