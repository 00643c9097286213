//! `tollgate review`

pub(super) mod difference;
pub(super) mod examine;
pub(super) mod input;
pub(super) mod request;
pub(super) mod show;
mod yaml;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tollgate::setup::{Options, Setup};
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_config::kubernetes::{refused_kind, resource_named};
use tollgate_config::matching::Decided;
use tollgate_config::{Config, Match, Mode, Requests};
use tollgate_gate::pipeline::Pipeline;
use tollgate_gate::plugin::{Plugin, PluginSet, PluginState};
use tollgate_json::document::Json;
use tollgate_telemetry::logs::LogFormat;

use self::examine::{Finding, Verdict, examine};
use self::input::Document;
use self::request::{Maker, Prepared, with_member};
use super::terminal::{NOTABLE, plain, say, tell};
use super::{FAILURE, Origin, USAGE};
use crate::asked;
use crate::custom_resources::ResourceFiles;

/// Review manifests or AdmissionReviews through the whole configuration, without a server.
///
/// Each document goes to the mutators. If they allow it, the changed document goes to the validators. The command runs
/// the server's own code, with its limits.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Review {
    /// Files with YAML or JSON: manifests, lists of them, AdmissionReviews. A file may hold any number of them. `-` is
    /// standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    origin: Origin,
    #[command(flatten)]
    resources: ResourceFiles,
    #[command(flatten)]
    review_options: ReviewOptions,
    /// File with the Namespaces of the cluster, for plugins and selectors that need their labels. Other objects in the
    /// file are left out.
    #[arg(long, value_name = "FILE")]
    namespaces: Option<PathBuf>,
    /// File or folder with objects of the cluster, for plugins with lookups. For the plugins, no other objects exist.
    #[arg(long, value_name = "FILE|FOLDER")]
    objects: Option<PathBuf>,
    /// File with what users may do, under the key `access` as in a suite, for plugins that ask for rights.
    #[arg(long, value_name = "FILE")]
    access: Option<PathBuf>,
    /// File with images and who has signed them, under the key `images` as in a suite, for plugins that verify images.
    #[arg(long, value_name = "FILE")]
    images: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    /// Show every plugin for every document, including plugins that were not called, with the reason.
    #[arg(short, long)]
    verbose: bool,
    /// Log to standard error, with a level or target=level pairs such as warn,plugin=debug.
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

/// Flags for the parts of a review that kube-apiserver would add to a manifest. AdmissionReviews contain these parts
/// already.
#[derive(Args, Debug, Default)]
pub(super) struct ReviewOptions {
    /// Operation for the manifests [default: CREATE, or UPDATE for objects in --old]
    #[arg(long, value_enum, ignore_case = true)]
    pub(super) operation: Option<RequestedOperation>,
    /// Name of the requesting user [default: tollgate-review]
    #[arg(long, value_name = "NAME")]
    pub(super) user: Option<String>,
    /// Group of the user, in addition to system:authenticated. May be given several times.
    #[arg(long, value_name = "NAME")]
    pub(super) group: Vec<String>,
    /// File with the old objects for UPDATE, and with the current objects for DELETE. Objects are matched by kind,
    /// namespace and name.
    #[arg(long, value_name = "FILE")]
    pub(super) old: Option<PathBuf>,
    /// Namespace of manifests that name none [default: default]
    #[arg(long, value_name = "NAME")]
    pub(super) namespace: Option<String>,
    /// Mark the requests as dry runs, like `kubectl --dry-run=server`.
    #[arg(long)]
    pub(super) dry_run: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum RequestedOperation {
    #[value(name = "CREATE")]
    Create,
    #[value(name = "UPDATE")]
    Update,
    #[value(name = "DELETE")]
    Delete,
    #[value(name = "CONNECT")]
    Connect,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Output {
    /// Findings, for people
    Text,
    /// Findings as JSON
    Json,
    /// Findings as YAML
    Yaml,
    /// The AdmissionReviews themselves, one on a line, to send to a server. Nothing is reviewed.
    Request,
}

const EXAMPLES: &str = "\
Examples:
  tollgate review --config tollgate.yaml deploy.yaml
  kustomize build . | tollgate review --config tollgate.yaml -
  tollgate review --config tollgate.yaml --old before.yaml after.yaml
  kubectl get namespaces -o yaml | tollgate review --config tollgate.yaml --namespaces - deploy.yaml
  tollgate review --config tollgate.yaml --objects dump.yaml ingress.yaml
  tollgate review --plugins ./plugins --operation DELETE --user jane --group dev pod.yaml
  tollgate review --config tollgate.yaml -o json review.json
  tollgate review --config tollgate.yaml -o request deploy.yaml | curl --data-binary @- …

Exit code: 0 when everything is allowed, 1 when something is denied, 2 when something could not be reviewed, or when a \
plugin that enforces is not loaded.";

// === impl Review ===

impl Review {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        anyhow::ensure!(
            self.review_options.operation != Some(RequestedOperation::Create)
                || self.review_options.old.is_none(),
            "--operation CREATE cannot have --old: a created object has no old version; leave one of them out"
        );
        let origin = self.origin.resolve()?;
        let config = self.resources.add_to(origin.load()?, &origin)?;
        if let Some(filter) = &self.log {
            tollgate_telemetry::logs::install(LogFormat::Text, Some(filter))?;
        }
        let mut documents = Vec::new();
        for file in &self.files {
            documents.extend(input::read(file)?);
        }
        let old = match &self.review_options.old {
            Some(file) => input::read(file)?,
            None => Vec::new(),
        };
        let namespaces = self.namespaces.as_deref();
        let namespaces = namespaces.map(super::namespaces::read).transpose()?;
        let objects = self.objects.as_deref();
        let tables = objects.map(super::objects::read).transpose()?;
        let access = self.access.as_deref();
        let authorizer = access.map(super::access::read).transpose()?;
        let images = super::images::of_file(self.images.as_deref())?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let maker = Maker::new(&self.review_options, &documents, old);
        let common = maker.assumptions();
        let prepared: Vec<_> = documents
            .into_iter()
            .map(|document| {
                let prepared = maker.prepare(&document);
                let prepared = prepared.and_then(|prepared| served(&document, prepared));
                (document, prepared)
            })
            .collect();
        if self.output == Output::Request {
            return print_requests(&prepared);
        }
        let any_manifest = prepared.iter().any(|(_, prepared)| {
            prepared
                .as_ref()
                .is_ok_and(|prepared| prepared.from_manifest)
        });
        let (findings, is_complete) = runtime.block_on(async {
            let options = Options {
                namespaces,
                tables,
                authorizer,
                images: Some(images),
                ..Options::default()
            };
            let setup = Setup::new(&config, &options)?;
            let max_depth = config.requests.max_depth;
            let Served {
                pipeline,
                requests,
                is_complete,
                rules,
            } = Served::of(&setup, config).await;
            if self.output == Output::Text && any_manifest {
                show::assumptions(&common);
            }
            let mut findings = Vec::with_capacity(prepared.len());
            for (document, prepared) in prepared {
                let prepared = prepared.and_then(|prepared| {
                    let other = converted(&prepared, &rules, max_depth);
                    other.map_or(Ok(prepared), |reason| Err(anyhow::anyhow!(reason)))
                });
                let finding = examine(&pipeline, &requests, document, prepared).await;
                if self.output == Output::Text {
                    show::finding(&finding, self.verbose);
                }
                findings.push(finding);
            }
            anyhow::Ok((findings, is_complete))
        })?;
        match self.output {
            Output::Text | Output::Request => show::summary(&findings),
            Output::Json => say!("{:#}", whole(&findings, &common)),
            Output::Yaml => say!(
                "{}",
                serde_saphyr::to_string(&whole(&findings, &common))?.trim_end()
            ),
        }
        Ok(exit_code(&findings, is_complete))
    }
}

/// Returns the review of a manifest, unless kube-apiserver has no such kind and would refuse the manifest.
fn served(document: &Document, prepared: Prepared) -> anyhow::Result<Prepared> {
    let text = |member: &str| document.content.member(member)?.as_text();
    if let (true, Some(api_version), Some(kind)) =
        (prepared.from_manifest, text("apiVersion"), text("kind"))
    {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if let Some(reason) = refused_kind(group, version, kind) {
            anyhow::bail!("{reason}");
        }
    }
    Ok(prepared)
}

/// Prints the reviews that kube-apiserver would send for the documents.
///
/// # Errors
/// When a document is no Kubernetes object.
fn print_requests(prepared: &[(Document, anyhow::Result<Prepared>)]) -> anyhow::Result<ExitCode> {
    for (document, prepared) in prepared {
        match prepared {
            Ok(prepared) => say!("{}", prepared.review.to_text()),
            Err(error) => {
                anyhow::bail!("{}, document {}: {error:#}", document.file, document.number)
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What `serve` would run. A plugin that is not loaded follows its failurePolicy, as in the server.
struct Served {
    pipeline: Pipeline,
    requests: Requests,
    /// Whether no plugin that would enforce is missing.
    is_complete: bool,
    /// The rules of the loaded plugins.
    rules: Vec<(String, Match)>,
}

/// Returns the reason why a manifest cannot be reviewed: kube-apiserver would convert it for a plugin.
///
/// The webhooks that Tollgate registers have `matchPolicy: Equivalent`. kube-apiserver therefore also calls them for
/// objects in other versions than those of the rules, and converts the objects.
fn converted(prepared: &Prepared, rules: &[(String, Match)], max_depth: u32) -> Option<String> {
    if !prepared.from_manifest {
        return None;
    }
    let request = asked::read(&prepared.review, max_depth).ok()?;
    let of = &request.resource;
    let resource = resource_named(&of.group, &of.resource)?;
    let others = resource.versions.iter();
    let others = others.filter(|version| ***version != *of.version);
    let others = others.filter_map(|version| {
        let of = json!({ "group": of.group, "version": version, "resource": of.resource });
        let review = with_member(&prepared.review, "resource", Json::from(of));
        Some((version, asked::read(&review, max_depth).ok()?))
    });
    let others: Vec<_> = others.collect();
    rules.iter().find_map(|(plugin, matching)| {
        if matching.matches(&request).is_some() {
            return None;
        }
        let mut others = others.iter();
        let is_called = |other: &AdmissionRequest| {
            !matches!(matching.decide(other, other.object.as_ref()), Decided::Fails(_))
        };
        let (version, _) = others.find(|(_, other)| is_called(other))?;
        Some(format!(
            "kube-apiserver would convert the object from {} to {version} and call {plugin}, whose rules have {version} \
             only; Tollgate cannot convert objects: write this one in {version}",
            of.version
        ))
    })
}

/// Whether a plugin is missing that enforces, or will at the end of its rollout.
fn lacks(plugin: &Plugin) -> bool {
    let config = &plugin.config;
    let enforces = config.mode == Mode::Enforce || config.active_rollout().is_some();
    enforces && matches!(plugin.state, PluginState::Failed { .. })
}

/// Tells which plugins are not loaded, and what that means.
pub(super) fn report_failed(set: &PluginSet) {
    for plugin in set.iter() {
        if let PluginState::Failed { reason } = &plugin.state {
            let config = &plugin.config;
            let counts = match config.mode {
                Mode::Enforce => {
                    format!(
                        "its failurePolicy {} applies",
                        config.failure_policy.as_str()
                    )
                }
                mode => format!("it denies nothing in mode {}", mode.as_str()),
            };
            tell!(
                "{NOTABLE}the plugin {} is not loaded, and {counts}:{NOTABLE:#} {}",
                config.name,
                plain(reason)
            );
        }
    }
}

fn whole(findings: &[Finding], common: &[String]) -> Value {
    let count = |verdict: Verdict| {
        let same = findings
            .iter()
            .filter(|finding| finding.verdict() == verdict);
        same.count()
    };
    json!({
        "documents": findings.iter().map(|finding| finding.to_json(common)).collect::<Vec<_>>(),
        "summary": {
            "documents": findings.len(),
            "allowed": count(Verdict::Allowed) + count(Verdict::Changed),
            "changed": count(Verdict::Changed),
            "denied": count(Verdict::Denied),
            "errors": count(Verdict::Error),
        },
    })
}

fn exit_code(findings: &[Finding], is_complete: bool) -> ExitCode {
    let any = |verdict: Verdict| findings.iter().any(|finding| finding.verdict() == verdict);
    if any(Verdict::Error) {
        ExitCode::from(USAGE)
    } else if any(Verdict::Denied) {
        ExitCode::from(FAILURE)
    } else if is_complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(USAGE)
    }
}

// === impl Served ===

impl Served {
    async fn of(setup: &Setup, config: Config) -> Self {
        let set = setup.loader.load_all(config.plugins).await;
        report_failed(&set);
        let is_complete = !set.iter().any(|plugin| lacks(plugin));
        let rules = set.iter().filter_map(|plugin| match &plugin.state {
            PluginState::Loaded(loaded) => {
                Some((plugin.config.name.to_string(), loaded.matching.clone()))
            }
            PluginState::Failed { .. } | PluginState::Disabled => None,
        });
        let rules = rules.collect();
        Self {
            pipeline: setup.pipeline(set, &config.requests, &config.engine),
            requests: config.requests,
            is_complete,
            rules,
        }
    }
}

// === impl RequestedOperation ===

impl RequestedOperation {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }

    /// Returns the kind of the operation's options. For CONNECT, kube-apiserver sends no options.
    pub(super) fn options(self) -> Option<&'static str> {
        match self {
            Self::Create => Some("CreateOptions"),
            Self::Update => Some("UpdateOptions"),
            Self::Delete => Some("DeleteOptions"),
            Self::Connect => None,
        }
    }
}
