//! `tollgate scan`

pub(super) mod dump;
mod format;
mod show;
mod state;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use crate::terminal::tell;
use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use tollgate::setup::{Options, Setup};
use tollgate_admission::access::NoAuthorizer;
use tollgate_admission::namespaces::Namespaces;
use tollgate_cluster::{
    Client, ClusterNamespaces, Served, connect_as_user, discover, write_reports,
};
use tollgate_config::Config;
use tollgate_config::kubernetes::refused_kind;
use tollgate_json::document::Json;
use tollgate_scan::exceptions::rows;
use tollgate_scan::finding::{Results, Verdict};
use tollgate_scan::inventory;
use tollgate_scan::judge::{Bench, Circumstances};
use tollgate_scan::key::Key;
use tollgate_scan::object::{self, Item, Read};
use tollgate_scan::report::{LABEL, Layout, reports, resources};
use tollgate_telemetry::logs::LogFormat;
use tollgate_telemetry::metrics::Metrics;

use self::dump::Kind;
use self::format::Format;
use self::show::Shown;
use self::state::State;
use super::manifests::read_name;
use super::{FAILURE, Origin, USAGE};
use crate::custom_resources::ResourceFiles;
use crate::review::report_failed;

/// Judge the objects that exist, in a dump or in a cluster, and report which of them would be denied today.
///
/// Each object goes through the server's own code, as the CREATE that would make it. Modes, rules, selectors, conditions
/// and exceptions count as at admission. Only fuel ends a call, because time depends on the machine.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Scan {
    /// Files or folders with objects, as `kubectl get … -o yaml` or `-o json` prints them. `-` is standard input.
    #[arg(value_name = "FILE", required_unless_present = "cluster")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    origin: Origin,
    #[command(flatten)]
    resources: ResourceFiles,
    /// Scan the cluster of KUBECONFIG or ~/.kube/config, or the one that the pod runs in.
    #[arg(long, conflicts_with = "files")]
    cluster: bool,
    /// Context of the kubeconfig file. [default: the current one]
    #[arg(long, value_name = "NAME", requires = "cluster")]
    context: Option<String>,
    /// Write the results to the cluster as policy reports, and delete reports of this scan that are no longer needed.
    #[arg(long, requires = "cluster")]
    write: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    /// Format of policy reports.
    #[arg(long, value_enum, default_value = "openreports")]
    format: Format,
    /// Name of the policy reports. Scans with different names own different reports.
    #[arg(long, value_name = "NAME", default_value = "tollgate-scan", value_parser = read_report_name)]
    name: String,
    /// Maximum size of the policy reports of a namespace, in KiB. Results that do not fit are counted in the summary.
    #[arg(long, value_name = "KIB", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(64..))]
    max_report_size: u32,
    /// List results that pass in policy reports, too. They always count in the summary.
    #[arg(long)]
    passes: bool,
    /// File with the results of the last scan. Objects that have not changed since are not judged again. The scan
    /// replaces the file.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Maximum number of results in the text for people.
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    most: usize,
    /// Number of objects at the same time [default: the number of processors]
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<usize>,
    /// Log to standard error, with a level or target=level pairs such as warn,plugin=debug.
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Results, exceptions and counts, for people
    Text,
    /// All results but those that pass, exceptions and counts, as JSON
    Json,
    /// Policy reports as YAML documents
    Reports,
}

/// A scan under way.
struct Run {
    bench: Arc<Bench>,
    known: Arc<State>,
    /// The engine, with the folder of its compiled code.
    _setup: Setup,
    /// The results that the next scan may use again.
    next: State,
    /// The versions of the objects that came so far, by their key.
    versions: HashMap<String, Option<Key>>,
    results: Results,
    jobs: usize,
}

/// Longest name of reports: a number may follow, and the name is the value of a label, too.
const LONGEST_NAME: usize = 56;

const EXAMPLES: &str = "\
Examples:
  kubectl get pods,deployments,namespaces -A -o yaml | tollgate scan --config tollgate.yaml -
  tollgate scan --config tollgate.yaml dump/ -o json
  tollgate scan --config tollgate.yaml dump/ -o reports --format policyreport | kubectl apply --server-side -f -
  tollgate scan --config tollgate.yaml --cluster --state scan.json --write

Exit code: 0 when no object would be denied, 1 when one would be, 2 when something could not be read or judged, or not \
be written.";

// === impl Scan ===

impl Scan {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        // clap does not ask for --cluster where files are given, because the two exclude each other.
        for (option, is_given) in [
            ("--write", self.write),
            ("--context", self.context.is_some()),
        ] {
            ensure!(
                self.cluster || !is_given,
                "{option} needs --cluster: objects in files have no cluster"
            );
        }
        if let Some(filter) = &self.log {
            tollgate_telemetry::logs::install(LogFormat::Text, Some(filter))?;
        }
        let origin = self.origin.resolve()?;
        let config = self.resources.add_to(origin.load()?, &origin)?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = self.jobs.unwrap_or(processors).max(1);
        let jobs = jobs.min(config.engine.max_concurrent_calls as usize);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(jobs)
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.block_on(self.scan(config, jobs))
    }

    async fn scan(self, config: Config, jobs: usize) -> anyhow::Result<ExitCode> {
        let now = SystemTime::now();
        let known = self.state.as_deref().map(State::read).transpose()?;
        let known = Arc::new(known.unwrap_or_default());
        let entries = config.plugins.clone();
        let (run, client) = if self.cluster {
            let client = connect_as_user(self.context.as_deref()).await?;
            let run = of_cluster(config, &client, known, now, jobs).await?;
            (run, Some(client))
        } else {
            (self.of_dump(config, known, now, jobs).await?, None)
        };
        let Run { results, next, .. } = run;
        let layout = Layout {
            format: self.format.into(),
            name: self.name.clone(),
            max_bytes: self.max_report_size as usize * 1024,
            lists_passes: self.passes,
            missing: Vec::new(),
        };
        let (reports, omitted) = reports(&results, &layout);
        let shown = Shown {
            exceptions: rows(entries.iter().filter(|entry| entry.enabled), &results, now),
            results,
            omitted,
        };
        match self.output {
            Output::Text => show::text(&shown, self.most),
            Output::Json => show::json(&shown),
            Output::Reports => show::reports(&shown, &reports)?,
        }
        let mut is_written = true;
        let is_whole = shown.results.unread.is_empty();
        if self.write && !is_whole {
            tell!(
                "no report was written: what could not be read would be missing from the reports"
            );
        }
        if let (Some(client), true, true) = (client, self.write, is_whole) {
            let selector = format!("{LABEL}={}", self.name);
            let kinds = resources(self.format.into());
            let written = write_reports(&client, &kinds, &selector, &reports).await?;
            is_written = written.failed.is_empty();
            show::written(&written, shown.omitted);
        }
        // A state of reports that were not written would not harm: reports are made of all results.
        if let Some(file) = &self.state {
            next.write(file)?;
        }
        Ok(exit_code(&shown.results, is_written))
    }

    async fn of_dump(
        &self,
        config: Config,
        known: Arc<State>,
        now: SystemTime,
        jobs: usize,
    ) -> anyhow::Result<Run> {
        let documents = dump::documents(&self.files)?;
        let namespaces = dump::namespaces(&documents)?;
        let mut run = Run::new(config, namespaces, known, now, jobs).await?;
        let kinds = dump::kinds(&documents);
        let rules = inventory::rules(run.bench.judges());
        let mut items = Vec::new();
        for document in documents {
            let at = format!("{}, document {}", document.file, document.number);
            let (kind, content) = match dump::kind(&kinds, document.content) {
                Ok(read) => read,
                Err(error) => {
                    run.results.unread.push(format!("{at}: {error:#}"));
                    continue;
                }
            };
            let Kind {
                resource,
                is_guessed,
            } = kind;
            // An object with a uid comes from a cluster that has its kind.
            let metadata = content.member("metadata");
            let is_stored = metadata.is_some_and(|metadata| metadata.member("uid").is_some());
            let refused = refused_kind(&resource.group, &resource.version, &resource.kind);
            if let Some(reason) = refused.filter(|_| !is_stored) {
                run.results.unread.push(format!("{at}: {reason}"));
                continue;
            }
            if let Some(version) = inventory::converted(&rules, &resource) {
                run.results.unread.push(format!(
                    "{at}: rules have {} in {version} only, and kube-apiserver would convert the object from {}: dump it in {version}",
                    resource.plural, resource.version
                ));
                continue;
            }
            if let Some(doubt) = inventory::doubt(&rules, &resource).filter(|_| is_guessed) {
                let group = &resource.group;
                let what = format!("{at}: {}.{group}: {doubt}", resource.kind);
                run.results.unread.push(what);
            }
            run.take(&resource, &content, object::Origin::Dump, &at, &mut items);
        }
        run.judge(items).await?;
        Ok(run)
    }
}

/// Scans a cluster. A resource that cannot be listed does not stop the scan.
async fn of_cluster(
    config: Config,
    client: &Client,
    known: Arc<State>,
    now: SystemTime,
    jobs: usize,
) -> anyhow::Result<Run> {
    let namespaces: Arc<dyn Namespaces> = Arc::new(ClusterNamespaces::start(client.clone()));
    let mut run = Run::new(config, Some(namespaces), known, now, jobs).await?;
    let rules = inventory::rules(run.bench.judges());
    let unknown = inventory::without_rules(run.bench.judges());
    run.results.unread.extend(unknown);
    let wants = |group: &str, version: &str| inventory::wants(&rules, group, version);
    let served = discover(client, wants, &mut run.results.unread).await?;
    for resource in inventory::choose(&rules, &served) {
        let mut pages = inventory::Pages::new(client, &resource);
        loop {
            let objects = match pages.next().await {
                Ok(Some(objects)) => objects,
                Ok(None) => break,
                Err(error) => {
                    run.results.unread.push(format!("{error:#}"));
                    break;
                }
            };
            let (mut items, at) = (Vec::new(), resource.to_string());
            for object in objects {
                let origin = object::Origin::Cluster;
                run.take(&resource, &object, origin, &at, &mut items);
            }
            run.judge(items).await?;
        }
    }
    Ok(run)
}

fn exit_code(results: &Results, is_written: bool) -> ExitCode {
    let summary = results.summary();
    if !is_written || !results.unread.is_empty() || summary.count(Verdict::Error) > 0 {
        ExitCode::from(USAGE)
    } else if summary.count(Verdict::Fail) > 0 {
        ExitCode::from(FAILURE)
    } else {
        ExitCode::SUCCESS
    }
}

fn read_report_name(text: &str) -> Result<String, String> {
    let name = read_name(text)?;
    let is_label = name.len() <= LONGEST_NAME && !name.contains('.');
    is_label.then_some(name).ok_or_else(|| {
        format!(
            "expected at most {LONGEST_NAME} characters of a-z, 0-9 and -, such as tollgate-scan"
        )
    })
}

// === impl Run ===

impl Run {
    async fn new(
        config: Config,
        namespaces: Option<Arc<dyn Namespaces>>,
        known: Arc<State>,
        now: SystemTime,
        jobs: usize,
    ) -> anyhow::Result<Self> {
        ensure!(
            !config.plugins.is_empty(),
            "the configuration has no plugin: nothing to judge objects by"
        );
        let options = Options {
            namespaces: namespaces.clone(),
            authorizer: Some(Arc::new(NoAuthorizer::because(
                "a scan has no user whose rights could be asked for",
            ))),
            ..Options::default()
        };
        let setup = Setup::new(&config, &options)?;
        let set = setup.loader.load_all(config.plugins.clone()).await;
        report_failed(&set);
        let circumstances = Circumstances {
            namespaces,
            now,
            most_faults: None,
            metrics: Metrics::new(),
        };
        let bench = Bench::new(&set, &setup.engine, &config, circumstances);
        Ok(Self {
            bench: Arc::new(bench),
            _setup: setup,
            known,
            next: State::default(),
            versions: HashMap::new(),
            results: Results::default(),
            jobs,
        })
    }

    /// Adds an object to those that are judged next. `at` says where a document is that cannot be judged.
    fn take(
        &mut self,
        resource: &Served,
        content: &Json,
        origin: object::Origin,
        at: &str,
        items: &mut Vec<Item>,
    ) {
        let item = match object::read(resource, content, origin) {
            Ok(Read::Item(item)) => *item,
            Ok(Read::Deleted) => {
                self.results.objects += 1;
                self.results.deleted += 1;
                return;
            }
            Err(error) => {
                self.results.unread.push(format!("{at}: {error:#}"));
                return;
            }
        };
        let version = item.version;
        if let Some(known) = self.versions.get(&item.id) {
            // A list that began again brings objects twice, and so do two dumps of the same cluster.
            if origin == object::Origin::Dump && (*known != version || version.is_none()) {
                let what = format!("{at}: {} is there twice, with different content", item.id);
                self.results.unread.push(what);
            }
            return;
        }
        self.versions.insert(item.id.clone(), version);
        self.results.objects += 1;
        items.push(item);
    }

    async fn judge(&mut self, items: Vec<Item>) -> anyhow::Result<()> {
        let known = self.known.clone();
        let known = Arc::new(move |id: &str| known.seen(id).cloned());
        let outcomes = self.bench.judge_all(&known, items, self.jobs).await?;
        for outcome in outcomes {
            self.results.calls += outcome.calls;
            self.results.reused += outcome.reused;
            if let Some(seen) = outcome.seen {
                self.next.add(outcome.item.id, seen);
            }
            self.results.add(outcome.item.place, outcome.judged);
        }
        Ok(())
    }
}
