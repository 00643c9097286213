//! Runs a suite: each case goes through the server's own pipeline.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail, ensure};
use serde_json::Value;
use tollgate::setup::{Options, Setup};
use tollgate_admission::Endpoint;
use tollgate_admission::access::{Authorizer, NoAuthorizer};
use tollgate_admission::images::{ImageVerifier, NoImages};
use tollgate_admission::namespaces::{Namespaces, NoNamespaces};
use tollgate_config::PluginConfig;
use tollgate_engine::{Clock, Reads};
use tollgate_gate::pipeline::Pipeline;
use tollgate_gate::plugin::{Plugin, PluginSet, PluginState};
use tollgate_json::document::Json;
use tollgate_lookups::{NoTables, Tables};

use super::actual::{Actual, operations};
use super::against::{Against, Comparison, compare};
use super::compare::{Failure, compare_result};
use super::edit;
use super::expect::Verdict;
use super::overrides::{override_review, with_resource};
use super::paths::{Paths, Strict};
use super::snapshot::Snapshots;
use super::suite::{Case, Input, Parts, Suite};
use crate::asked;
use crate::review::examine::{Finding, examine, step};
use crate::review::input;
use crate::review::input::Document;
use crate::review::request::{Maker, Prepared, in_namespace, with_member, with_object};
use crate::review::{RequestedOperation, ReviewOptions};

/// Options for running suites.
pub(super) struct RunOptions<'a> {
    pub(super) filter: Option<&'a str>,
    pub(super) update: bool,
    pub(super) against: Option<&'a Against>,
    /// The fields of kinds, if reads are checked.
    pub(super) strict: Option<&'a Paths>,
}

/// A suite that was run.
pub(super) struct Tested {
    pub(super) suite: PathBuf,
    pub(super) cases: Vec<TestedCase>,
}

/// A case that was run.
pub(super) struct TestedCase {
    pub(super) suite: PathBuf,
    pub(super) name: String,
    /// The case's key path in the suite.
    pub(super) place: String,
    pub(super) failures: Vec<Failure>,
    /// The reason why the case could not be run.
    pub(super) error: Option<String>,
    pub(super) actual: Option<Actual>,
    /// The comparison with another version, if one was requested.
    pub(super) comparison: Option<Comparison>,
}

/// The plugins with one set of settings, as loaded for some of the cases.
pub(super) struct Loaded {
    plugins: Vec<Arc<Plugin>>,
    /// Names of the plugins that failed to load, with the reasons.
    failed: Vec<(String, String)>,
}

/// The state that all cases of a suite share.
pub(super) struct Lab<'p> {
    setup: Setup,
    strict: Option<Strict<'p>>,
    suite: Suite,
    loaded: BTreeMap<(String, bool), Arc<Loaded>>,
}

/// Runs a suite, and calls `tell` with each finished case.
pub(super) async fn run(
    suite: Suite,
    options: &RunOptions<'_>,
    on_case: impl Fn(&TestedCase),
) -> anyhow::Result<Tested> {
    let path = suite.path.clone();
    let mut snapshots = Snapshots::of(&path)?;
    let setup = Setup::new(&suite.config, &Options::default())?;
    let cases = suite.cases.clone();
    let mut lab = Lab {
        setup,
        strict: options.strict.map(|paths| paths.of_suite(&suite)),
        suite,
        loaded: BTreeMap::new(),
    };
    let mut tested = Vec::new();
    let is_selected = |case: &&Case| {
        options
            .filter
            .is_none_or(|filter| case.name.contains(filter))
    };
    for case in cases.iter().filter(is_selected) {
        for (name, document) in documents(case) {
            let mut run = TestedCase {
                suite: path.clone(),
                name,
                place: case.place.clone(),
                failures: Vec::new(),
                error: None,
                actual: None,
                comparison: None,
            };
            let result = match document {
                Ok(document) => {
                    lab.case(case, document, &mut run, &mut snapshots, options)
                        .await
                }
                Err(error) => Err(error),
            };
            run.error = result.err().map(|error| format!("{error:#}"));
            on_case(&run);
            tested.push(run);
        }
    }
    if options.update {
        snapshots.save(options.filter.is_none())?;
    }
    Ok(Tested {
        suite: path,
        cases: tested,
    })
}

/// Reads the documents of a case. Each one comes with the name that it is reported under.
pub(super) fn documents(case: &Case) -> Vec<(String, anyhow::Result<Document>)> {
    let input = case.review.object.as_ref();
    let read = input
        .ok_or_else(|| anyhow!("the case has no object"))
        .and_then(read);
    match read {
        Err(error) => vec![(case.name.clone(), Err(error))],
        Ok(documents) if documents.len() == 1 => documents
            .into_iter()
            .map(|document| (case.name.clone(), Ok(document)))
            .collect(),
        Ok(documents) => documents
            .into_iter()
            .map(|document| {
                (
                    format!("{} [document {}]", case.name, document.number),
                    Ok(document),
                )
            })
            .collect(),
    }
}

fn read(input: &Input) -> anyhow::Result<Vec<Document>> {
    match input {
        Input::File(path) => input::read(path),
        Input::Inline(value) => Ok(vec![Document {
            file: "suite".to_owned(),
            number: 1,
            content: Json::from(value.clone()),
        }]),
    }
}

fn read_one(input: &Input) -> anyhow::Result<Json> {
    let mut documents = read(input)?;
    ensure!(
        documents.len() == 1,
        "{}: expected one document, found {}",
        documents[0].file,
        documents.len()
    );
    Ok(documents.remove(0).content)
}

/// Prepares the review of a case, with the case's own changes.
pub(super) fn prepare(case: &Case, mut document: Document) -> anyhow::Result<Prepared> {
    let parts = &case.review;
    let is_review =
        document.content.member("kind").and_then(Json::as_text) == Some("AdmissionReview");
    if !parts.set.is_empty() || !parts.unset.is_empty() {
        document.content = edited(parts, &document.content, is_review)?;
    }
    if is_review {
        let mut prepared =
            Maker::new(&ReviewOptions::default(), &[], Vec::new()).prepare(&document)?;
        let old = case.own.old_object.as_ref().map(read_one).transpose()?;
        check_old(&case.own, old.is_some())?;
        prepared.review = override_review(&prepared.review, &case.own, old);
        return Ok(prepared);
    }
    let old = parts.old_object.as_ref().map(read_one).transpose()?;
    let review_options = ReviewOptions {
        operation: parts
            .operation
            .or(old.is_some().then_some(RequestedOperation::Update)),
        user: parts.user.clone(),
        group: parts.groups.clone().unwrap_or_default(),
        old: None,
        namespace: parts.namespace.clone(),
        dry_run: parts.dry_run.unwrap_or(false),
    };
    check_old(parts, old.is_some())?;
    let documents = [document];
    let mut prepared =
        Maker::new(&review_options, &documents, Vec::new()).prepare(&documents[0])?;
    if let Some(old) = old {
        let namespace = prepared
            .review
            .at("/request/object/metadata/namespace")
            .ok()
            .flatten();
        let old = match namespace.and_then(Json::as_text) {
            Some(namespace) => in_namespace(&old, namespace),
            None => old,
        };
        prepared.review = with_member(&prepared.review, "oldObject", old);
    }
    prepared.review = with_resource(&prepared.review, parts);
    Ok(prepared)
}

fn check_old(parts: &Parts, has_old: bool) -> anyhow::Result<()> {
    let is_update = matches!(parts.operation, None | Some(RequestedOperation::Update));
    ensure!(
        !has_old || is_update,
        "oldObject is only for UPDATE; for DELETE, write the old object as `object`"
    );
    Ok(())
}

/// Returns the Namespaces of a case. Without any, a plugin that needs one has a fault that says so.
pub(super) fn namespaces(parts: &Parts) -> anyhow::Result<Arc<dyn Namespaces>> {
    match &parts.namespaces {
        None => Ok(Arc::new(NoNamespaces::because(
            "the case has no Namespaces: list them under `namespaces`, in the case or in `defaults`",
        ))),
        Some(Input::File(path)) => crate::namespaces::read(path),
        Some(Input::Inline(value)) => {
            let list = Json::from(value.clone());
            let objects = list.as_array().unwrap_or_default();
            crate::namespaces::of_list("in `namespaces` of the case", objects)
        }
    }
}

/// Returns the objects that the lookups of a case see. Without any, lookups answer `not-synchronised`.
fn tables(parts: &Parts) -> anyhow::Result<Arc<dyn Tables>> {
    match &parts.cluster {
        None => Ok(Arc::new(NoTables::because(
            "the case has no objects of the cluster: list them under `cluster`, in the case or in `defaults`",
        ))),
        Some(Input::File(path)) => crate::objects::read(path),
        Some(Input::Inline(value)) => {
            let list = Json::from(value.clone());
            let objects = list.as_array().unwrap_or_default();
            crate::objects::of_list("in `cluster` of the case", objects)
        }
    }
}

/// Returns who says what users may do in a case. Without rules, every question is `unavailable`.
fn authorizer(parts: &Parts) -> Arc<dyn Authorizer> {
    match &parts.access {
        None => Arc::new(NoAuthorizer::because(
            "this host has no authorizer: list what users may do under `access`, in the case or in `defaults`",
        )),
        Some(rules) => crate::access::of_rules(rules.iter().cloned()),
    }
}

/// Returns who verifies images in a case. Without a list, every image is `unavailable`. Registries are never asked.
fn image_verifier(parts: &Parts) -> Arc<dyn ImageVerifier> {
    match &parts.images {
        None => Arc::new(NoImages::because(
            "this host verifies no images: list them under `images`, in the case or in `defaults`",
        )),
        Some(images) => crate::images::of_list(images.iter().cloned()),
    }
}

fn edited(parts: &Parts, content: &Json, is_review: bool) -> anyhow::Result<Json> {
    let mut value: Value = serde_json::from_str(&content.to_text())?;
    let object = match is_review {
        true => value.pointer_mut("/request/object").ok_or_else(|| {
            anyhow!("cannot `set` anything, because the AdmissionReview has no object")
        })?,
        false => &mut value,
    };
    for (pointer, value) in &parts.set {
        edit::set(object, pointer, value).map_err(|error| anyhow!("set: {error}"))?;
    }
    for pointer in &parts.unset {
        edit::unset(object, pointer).map_err(|error| anyhow!("unset: {error}"))?;
    }
    Ok(Json::from(value))
}

// === impl Lab ===

impl Lab<'_> {
    async fn case(
        &mut self,
        case: &Case,
        document: Document,
        run: &mut TestedCase,
        snapshots: &mut Snapshots,
        options: &RunOptions<'_>,
    ) -> anyhow::Result<()> {
        let parts = &case.review;
        let prepared = prepare(case, document.clone())?;
        let object = case.expect.object.as_ref().map(read_one).transpose()?;
        let loaded = self.load(parts.settings.as_ref(), None).await?;
        if let Some(part) = &case.expect.not_loaded {
            run.failures.extend(not_loaded(part, &loaded));
            return Ok(());
        }
        if !loaded.failed.is_empty() {
            let failed = loaded.failed.iter();
            run.failures.extend(failed.map(|(name, reason)| {
                Failure::new(format!("the plugin {name} is not loaded: {reason}"))
            }));
            return Ok(());
        }
        let namespaces = namespaces(parts).context("namespaces")?;
        let tables = tables(parts).context("cluster")?;
        let reads = self.strict.as_ref().map(|_| Arc::<Reads>::default());
        let pipeline = self.pipeline(
            &loaded,
            parts,
            namespaces.clone(),
            tables.clone(),
            reads.clone(),
        );
        let finding = examine(
            &pipeline,
            &self.suite.config.requests,
            document,
            Ok(prepared.clone()),
        )
        .await;
        if let Some(error) = &finding.error {
            bail!("{error}");
        }
        let mut actual = Actual::of(&finding);
        if actual.verdict == Verdict::NotCalled {
            actual.mismatches = self.mismatches(&loaded, &prepared.review);
        }
        run.failures = compare_result(&actual, &case.expect, object.as_ref(), parts.fuel);
        if let (Some(strict), Some(reads)) = (&mut self.strict, &reads) {
            run.failures
                .extend(strict.failures(reads, &prepared.review));
            run.failures.extend(strict.edits(parts, &prepared.review));
        }
        if case.expect.snapshot {
            let growth = self.suite.fuel_growth;
            run.failures
                .extend(snapshots.compare(&run.name, &actual, growth, options.update));
        }
        run.failures
            .extend(self.settles(&pipeline, &finding).await?);
        if let Some(against) = options.against {
            let old = self.load(parts.settings.as_ref(), Some(against)).await?;
            if let Some((name, reason)) = old.failed.first() {
                bail!(
                    "the version of {name} to compare with is not loaded: {reason}; if it needs other settings, pass \
                     them with --against-settings FILE"
                );
            }
            let old = self.pipeline(&old, parts, namespaces, tables, None);
            let comparison = compare(
                &pipeline,
                &old,
                &self.suite.config.requests,
                &finding,
                &prepared,
            )
            .await?;
            run.failures.extend(comparison.failures());
            run.comparison = Some(comparison);
        }
        run.actual = Some(actual);
        Ok(())
    }

    /// Runs the mutators on their own output. kube-apiserver may call them again, and then nothing may change.
    async fn settles(
        &self,
        pipeline: &Pipeline,
        finding: &Finding,
    ) -> anyhow::Result<Option<Failure>> {
        let is_changed = finding
            .steps
            .first()
            .is_some_and(|step| !step.outcome.patch.is_empty());
        let (Some(prepared), Some(after), true) = (&finding.prepared, &finding.after, is_changed)
        else {
            return Ok(None);
        };
        let review = with_object(&prepared.review, after.clone());
        let again = step(
            pipeline,
            &self.suite.config.requests,
            Endpoint::Mutate,
            &review,
        )
        .await?;
        if let Some(status) = &again.outcome.status {
            let what = format!(
                "again: the mutators deny their own output: {}",
                status.message
            );
            return Ok(Some(Failure::new(what)));
        }
        if again.outcome.patch.is_empty() {
            return Ok(None);
        }
        let plugins = again
            .reports
            .iter()
            .filter(|report| !report.changed.is_empty());
        let plugins: Vec<&str> = plugins.map(|report| report.plugin.as_str()).collect();
        Ok(Some(Failure::new(format!(
            "again: {} changes its own output again, and kube-apiserver may call it twice: {}",
            plugins.join(" and "),
            operations(&again.outcome.patch)
        ))))
    }

    /// Describes for each plugin the request that it got, and the requests that it matches.
    fn mismatches(&self, loaded: &Loaded, review: &Json) -> Vec<String> {
        let Ok(request) = asked::read(review, self.suite.config.requests.max_depth) else {
            return Vec::new();
        };
        let plugins = loaded.plugins.iter();
        let mismatches = plugins.filter_map(|plugin| match &plugin.state {
            PluginState::Loaded(loaded) => {
                let mismatch = asked::mismatch(&request, &loaded.matching)?;
                Some(format!("{}: {mismatch}", plugin.config.name))
            }
            PluginState::Failed { .. } => None,
            PluginState::Disabled => Some(format!("{}: it is disabled", plugin.config.name)),
        });
        mismatches.collect()
    }

    fn pipeline(
        &self,
        loaded: &Loaded,
        parts: &Parts,
        namespaces: Arc<dyn Namespaces>,
        tables: Arc<dyn Tables>,
        reads: Option<Arc<Reads>>,
    ) -> Pipeline {
        let clock = parts.now.map_or(Clock::System, Clock::Fixed);
        let config = &self.suite.config;
        let engine = self.setup.engine.clone();
        let engine = engine
            .with_clock(clock)
            .with_namespaces(namespaces)
            .with_tables(tables)
            .with_authorizer(authorizer(parts))
            .with_images(image_verifier(parts));
        Pipeline::new(
            match reads {
                Some(reads) => engine.with_reads(reads),
                None => engine,
            },
            PluginSet::new(loaded.plugins.clone()),
            self.setup.metrics.clone(),
            config.requests.max_depth,
            config.engine.max_concurrent_calls as usize,
        )
    }

    /// Loads the plugins with a case's settings. Cases with the same settings share one load.
    async fn load(
        &mut self,
        settings: Option<&Value>,
        against: Option<&Against>,
    ) -> anyhow::Result<Arc<Loaded>> {
        let key = (
            settings.map(Value::to_string).unwrap_or_default(),
            against.is_some(),
        );
        if let Some(loaded) = self.loaded.get(&key) {
            return Ok(loaded.clone());
        }
        let mut configs = self.suite.config.plugins.clone();
        if let Some(settings) = settings {
            set_settings(&mut configs, settings)?;
        }
        if let Some(against) = against {
            against.put_into(&mut configs)?;
        }
        let set = self.setup.loader.load_all(configs).await;
        let failed = set.iter().filter_map(|plugin| match &plugin.state {
            PluginState::Failed { reason } => {
                Some((plugin.config.name.as_str().to_owned(), reason.clone()))
            }
            PluginState::Loaded(_) | PluginState::Disabled => None,
        });
        let loaded = Arc::new(Loaded {
            failed: failed.collect(),
            plugins: set.iter().cloned().collect(),
        });
        self.loaded.insert(key, loaded.clone());
        Ok(loaded)
    }
}

/// Applies a case's settings. With one plugin, they are that plugin's. With several, they are listed by plugin name.
fn set_settings(configs: &mut [PluginConfig], settings: &Value) -> anyhow::Result<()> {
    if let [only] = configs {
        only.settings = settings.clone();
        return Ok(());
    }
    for (name, settings) in settings.as_object().into_iter().flatten() {
        let Some(config) = configs
            .iter_mut()
            .find(|config| config.name.as_str() == name)
        else {
            let names: Vec<&str> = configs.iter().map(|config| config.name.as_str()).collect();
            bail!(
                "settings: no plugin is named {name:?}; with several plugins, write settings under their names: {}",
                names.join(", ")
            );
        };
        ensure!(
            settings.is_object(),
            "settings: expected an object for {name}"
        );
        config.settings = settings.clone();
    }
    Ok(())
}

fn not_loaded(part: &str, loaded: &Loaded) -> Option<Failure> {
    if loaded
        .failed
        .iter()
        .any(|(_, reason)| reason.contains(part))
    {
        return None;
    }
    let got: Vec<String> = loaded
        .failed
        .iter()
        .map(|(name, reason)| format!("{name}: {reason}"))
        .collect();
    let got = match got.is_empty() {
        true => "every plugin was loaded".to_owned(),
        false => format!("got {}", got.join("; ")),
    };
    Some(Failure::new(format!(
        "notLoaded: expected a reason that contains {part:?}; {got}"
    )))
}

// === impl TestedCase ===

impl TestedCase {
    pub(super) fn passed(&self) -> bool {
        self.error.is_none() && self.failures.is_empty()
    }

    /// Returns the result of the case in one word.
    pub(super) fn ended(&self) -> &'static str {
        match (&self.error, self.failures.is_empty()) {
            (Some(_), _) => "error",
            (None, true) => "passed",
            (None, false) => "failed",
        }
    }
}
