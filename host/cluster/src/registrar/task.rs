//! Carries out the plan: applies the webhook configurations, repairs them, and removes them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tollgate_admission::Endpoint;

use super::bundle::Bundle;
use super::configuration::{NAMESPACE_ANNOTATION, configuration, differences};
use super::examine::{Configuration, Examined};
use super::live::{Live, api, known_of};
use super::owner::{Owner, tie};
use super::plan::{Target, plan};
use super::problem::Problem;
use super::repair::{self, Repairs};
use super::standing::{Outlook, Standing, standings};
use crate::api::{is_invalid, is_not_found, words};
use crate::canary::{Entry, Shortfall};
use crate::lease::{Leadership, Replicas};
use crate::options::{Certificates, Options, Trust};
use crate::plugin::Desired;
use crate::{ClusterNamespaces, Installation};

/// Both endpoints, in the order in which kube-apiserver calls them.
pub(super) const ENDPOINTS: [Endpoint; 2] = [Endpoint::Mutate, Endpoint::Validate];

/// Pause after a change, so that changes that come together are one write.
const PAUSE: Duration = Duration::from_millis(50);

/// Longest time without a look: Leases expire without an event.
const PERIOD: Duration = Duration::from_secs(2);

/// Time limit for removing a configuration.
pub(super) const REMOVAL_LIMIT: Duration = Duration::from_secs(5);

/// The inputs of the registrar's decisions.
pub(crate) struct Inputs {
    pub(crate) desired: watch::Receiver<Option<Desired>>,
    pub(crate) replicas: watch::Receiver<Replicas>,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) live: watch::Sender<Live>,
    pub(crate) trust: watch::Receiver<Trust>,
    pub(crate) owner: watch::Receiver<Owner>,
}

/// The state of the registrar, for status and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Whether this replica leads. The rest of a report is empty on other replicas.
    pub leads: bool,
    /// The number of ready replicas.
    pub ready_replicas: usize,
    /// The plugins whose desired rules are not registered yet, because a ready replica does not serve them.
    pub waiting: BTreeSet<String>,
    /// How often this process repaired a configuration that somebody else had changed.
    pub repairs: u64,
    /// The reason why the configurations are not as desired.
    pub problem: Option<String>,
    /// Whether each desired plugin is registered, by name.
    pub plugins: BTreeMap<String, Standing>,
    /// The missing input without which the leader decides nothing about the plugins.
    pub undecided: Option<&'static str>,
    /// The registered webhooks.
    pub(crate) entries: Vec<Entry>,
    /// Why kube-apiserver does not call a plugin for everything that it is for, by name.
    pub(crate) shortfalls: BTreeMap<String, Shortfall>,
    /// The plugins that have not been examined.
    pub(crate) unexamined: BTreeSet<String>,
}

/// The task of the registrar.
pub(crate) struct Registrar {
    client: Client,
    installation: Installation,
    options: Options,
    manager: PatchParams,
    pub(super) inputs: Inputs,
    pub(super) report: watch::Sender<Report>,
    /// The configurations that this process applied last as the leader.
    pub(super) applied: [Option<Value>; 2],
    repairs: [Repairs; 2],
    /// The last changes by others, as text for people.
    changes: [String; 2],
    pub(super) events: repair::Recorder,
    /// The CAs of a certificate of others.
    bundle: Bundle,
}

// === impl Registrar ===

impl Registrar {
    pub(crate) fn new(
        client: Client,
        installation: Installation,
        options: Options,
        inputs: Inputs,
        report: watch::Sender<Report>,
    ) -> Self {
        let manager =
            PatchParams::apply(&format!("tollgate-registrar-{}", installation.name)).force();
        Self {
            events: repair::Recorder::new(client.clone(), &installation),
            client,
            installation,
            options,
            manager,
            inputs,
            report,
            applied: [None, None],
            repairs: Default::default(),
            changes: Default::default(),
            bundle: Bundle::default(),
        }
    }

    /// Reconciles for as long as the process lives.
    pub(crate) async fn run(mut self) {
        let mut live = self.inputs.live.subscribe();
        loop {
            let wake = self.reconcile().await.min(Instant::now() + PERIOD);
            let inputs = &mut self.inputs;
            tokio::select! {
                () = sleep_until(wake) => continue,
                Ok(()) = inputs.desired.changed() => {}
                Ok(()) = inputs.replicas.changed() => {}
                Ok(()) = inputs.leadership.changed() => {}
                Ok(()) = inputs.trust.changed() => {}
                Ok(()) = inputs.owner.changed() => {}
                Ok(()) = live.changed() => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Makes the changes that are due. Returns the time of the next check.
    async fn reconcile(&mut self) -> Instant {
        let never = Instant::now() + PERIOD;
        let owner = self.inputs.owner.borrow_and_update().clone();
        let leadership = *self.inputs.leadership.borrow_and_update();
        let (owner, untied) = match owner {
            Owner::Removed => {
                // Not only the leader: the rights to lead may be gone already.
                self.remove_all(None).await;
                return never;
            }
            Owner::Missing { anchor } => {
                self.remove_all(Some(&anchor)).await;
                self.report_missing(anchor, leadership).await;
                return never;
            }
            Owner::Unknown => {
                if leadership.until(Instant::now()).is_some() {
                    self.hesitate(
                        "the Namespace of the installation or the anchor (cluster.registration.anchor) cannot be read",
                    );
                }
                return never;
            }
            Owner::Present { owner, untied } => (owner, untied),
        };
        let Some(until) = leadership.until(Instant::now()) else {
            self.applied = [None, None];
            self.bundle.forget();
            self.publish(Report::default());
            return never;
        };
        self.sweep(until).await;
        if let (Some(namespace), Some(anchor)) = (untied, self.options.anchor.clone()) {
            let tied = tie(self.client.clone(), &anchor, &self.manager, &namespace);
            if let Ok(Err(error)) = timeout_at(until, tied).await {
                let error = words(&error);
                tracing::warn!(
                    anchor,
                    error,
                    "cannot make the Namespace own the anchor; deleting the Namespace alone would leave the webhook configurations behind"
                );
            }
        }
        let desired = self.inputs.desired.borrow_and_update().clone();
        let trust = self.inputs.trust.borrow_and_update().clone();
        let replicas = self.inputs.replicas.borrow_and_update().clone();
        let ready = replicas.ready(self.options.timing.replica_gone, Instant::now());
        let (Some(desired), Some(ready)) = (desired, ready) else {
            self.hesitate("the desired plugins or the Leases of the replicas have not been read");
            return never;
        };
        let mut registration = self.options.registration.clone();
        registration.name = self.installation.webhook_configuration();
        registration.ca_bundle = match trust {
            Trust::Pending => {
                self.hesitate("the certificate of the server has not been read");
                return never;
            }
            Trust::System => None,
            Trust::Bundle(pem) => Some(self.bundle(pem)),
        };
        let mut report = Report {
            leads: true,
            ready_replicas: ready.len(),
            ..Report::default()
        };
        let mut wake = never;
        let mut outlooks = ENDPOINTS.map(|endpoint| (endpoint, Outlook::default()));
        let mut is_decided = [false; 2];
        for (index, endpoint) in ENDPOINTS.into_iter().enumerate() {
            let Some(live) = self.inputs.live.borrow().known(endpoint) else {
                continue;
            };
            // What this process applied counts, even if somebody has changed or deleted it since.
            let applied = self.applied[index].as_ref();
            let known = applied.and_then(known_of).unwrap_or(live);
            let expected = match plan(endpoint, &desired, &ready, &known) {
                Target::Keep => match applied {
                    Some(applied) => Ok(Some(applied.clone())),
                    None => {
                        outlooks[index].1.known = Some(known);
                        continue;
                    }
                },
                Target::Register {
                    plugins,
                    record,
                    waiting,
                } => {
                    report.waiting.extend(waiting);
                    configuration(
                        endpoint,
                        &registration,
                        &self.installation,
                        &owner,
                        &plugins,
                        &record,
                    )
                }
            };
            is_decided[index] = true;
            let outcome = match expected {
                Ok(expected) => self.bring(index, endpoint, expected, until).await,
                Err(error) => Err(error.into()),
            };
            let outlook = &mut outlooks[index].1;
            match outcome {
                Ok(again) => {
                    wake = wake.min(again.unwrap_or(wake));
                    let is_contested = self.repairs[index].is_contested(Instant::now());
                    outlook.changed =
                        (again.is_some() || is_contested).then(|| self.changes[index].clone());
                }
                Err(problem) => {
                    let text = words(&problem);
                    let is_news = self.report.borrow().problem.as_ref() != Some(&text);
                    if is_news {
                        tracing::error!(
                            endpoint = endpoint.name(),
                            problem = text,
                            "the webhooks are not registered as desired"
                        );
                    }
                    outlook.problem = Some((problem.reason(), text.clone()));
                    report.problem.get_or_insert(text);
                }
            }
            outlook.known = self.inputs.live.borrow().known(endpoint);
        }
        report.plugins = standings(&desired, &outlooks);
        let examined = self.examine(&desired, is_decided);
        report.entries = examined.entries;
        report.shortfalls = examined.shortfalls;
        report.unexamined = examined.undecided;
        self.publish(report);
        wake
    }

    /// Compares the live configurations with what the plugins need.
    pub(super) fn examine(&self, desired: &Desired, is_decided: [bool; 2]) -> Examined {
        let live = self.inputs.live.borrow();
        let configurations = [0, 1].map(|index| Configuration {
            endpoint: ENDPOINTS[index],
            applied: self.applied[index].as_ref(),
            live: live.object(ENDPOINTS[index]).flatten(),
            is_decided: is_decided[index],
        });
        let namespaces = self.options.namespaces.as_deref();
        let namespaces = namespaces.map(ClusterNamespaces::all).unwrap_or_default();
        let excluded = &self.options.registration.excluded_namespaces;
        Examined::of(desired, &configurations, excluded, &namespaces)
    }

    /// Returns the CAs to register. The own authority keeps both CAs in its bundle itself.
    fn bundle(&mut self, pem: Vec<u8>) -> Vec<u8> {
        match self.options.certificates {
            Certificates::Own { .. } => pem,
            Certificates::Given(_) => {
                let live = self.inputs.live.borrow().bundles();
                self.bundle.with(&pem, live.as_ref(), Instant::now())
            }
        }
    }

    /// Brings one configuration to the expected state. Returns the time of the next attempt, if a repair waits.
    async fn bring(
        &mut self,
        index: usize,
        endpoint: Endpoint,
        expected: Option<Value>,
        until: Instant,
    ) -> Result<Option<Instant>, Problem> {
        let now = Instant::now();
        let live = self
            .inputs
            .live
            .borrow()
            .object(endpoint)
            .flatten()
            .cloned();
        if let Some(live) = &live {
            self.refuse_foreign(live)?;
        }
        let changes = match (&self.applied[index], &live) {
            (Some(applied), Some(live)) => differences(applied, live),
            (Some(_), None) => vec!["deleted".to_owned()],
            (None, _) => Vec::new(),
        };
        if changes.is_empty() {
            self.write(index, endpoint, expected, live.as_ref(), until)
                .await?;
            return Ok(None);
        }
        let by = live.as_ref().map_or_else(String::new, |live| {
            repair::other_managers(live, &self.manager)
        });
        let changes = changes.join(", ");
        self.changes[index] = repair::sentence(&by, &changes);
        // Another controller may change the configuration back again and again. Own changes do not wait for that.
        let is_same = self.applied[index] == expected;
        if is_same && let Some(at) = self.repairs[index].not_before(now) {
            return Ok(Some(at));
        }
        tracing::warn!(
            endpoint = endpoint.name(),
            changes,
            by,
            "somebody changed the webhook configuration; restoring it"
        );
        self.repairs[index].begin(now);
        self.report.send_modify(|report| report.repairs += 1);
        self.options.metrics.registration_repairs.inc();
        let written = self
            .write(index, endpoint, expected, live.as_ref(), until)
            .await;
        let note = format!("{}: {changes}", endpoint.name());
        self.events.publish(&note, &by, until).await;
        written.map(|()| None)
    }

    /// Writes what differs from the expected configuration.
    async fn write(
        &mut self,
        index: usize,
        endpoint: Endpoint,
        expected: Option<Value>,
        live: Option<&Value>,
        until: Instant,
    ) -> Result<(), Problem> {
        // A write may succeed without an answer. Then the live object is not foreign.
        let applied = self.applied[index].take();
        let Some(expected) = expected else {
            if live.is_some() {
                self.remove(endpoint, until).await?;
                tracing::info!(
                    endpoint = endpoint.name(),
                    "removed the webhook configuration: no plugin is registered"
                );
            }
            return Ok(());
        };
        if live.is_none_or(|live| !differences(&expected, live).is_empty()) {
            self.apply(endpoint, &expected, live.is_some(), until)
                .await?;
            if applied.as_ref() != Some(&expected) {
                tracing::info!(endpoint = endpoint.name(), "registered the webhooks");
            }
        }
        self.applied[index] = Some(expected);
        Ok(())
    }

    /// Applies a configuration. Server-side apply leaves what others added to lists. Such remains are replaced.
    async fn apply(
        &self,
        endpoint: Endpoint,
        expected: &Value,
        exists: bool,
        until: Instant,
    ) -> Result<(), Problem> {
        let configurations = api(self.client.clone(), endpoint);
        let name = self.installation.webhook_configuration();
        let patch = Patch::Apply(expected);
        let applied = self
            .while_leading(until, configurations.patch(&name, &self.manager, &patch))
            .await?;
        match applied {
            Ok(object) => {
                let remains = self.remains(endpoint, expected, &object);
                if remains.is_empty() {
                    return Ok(());
                }
            }
            // Together with what others wrote, the applied object is not valid.
            Err(error) if exists && is_invalid(&error) => {}
            Err(error) => return Err(Problem::Write(Box::new(error))),
        }
        let manager = PatchParams {
            force: false,
            ..self.manager.clone()
        };
        let patch = json!({ "metadata": expected["metadata"], "webhooks": expected["webhooks"] });
        let patch = Patch::Merge(&patch);
        let object = self
            .while_leading(until, configurations.patch(&name, &manager, &patch))
            .await?
            .map_err(|error| Problem::Write(Box::new(error)))?;
        let remains = self.remains(endpoint, expected, &object);
        if remains.is_empty() {
            Ok(())
        } else {
            Err(Problem::Refused(remains.join(", ")))
        }
    }

    /// Takes note of a written object, and returns how it differs.
    fn remains(&self, endpoint: Endpoint, expected: &Value, object: &DynamicObject) -> Vec<String> {
        self.inputs
            .live
            .send_modify(|live| live.see(endpoint, object));
        let live = self.inputs.live.borrow();
        let object = live.object(endpoint).flatten();
        object
            .map(|object| differences(expected, object))
            .unwrap_or_default()
    }

    pub(super) async fn remove(&self, endpoint: Endpoint, until: Instant) -> Result<(), Problem> {
        let configurations = api(self.client.clone(), endpoint);
        let name = self.installation.webhook_configuration();
        let parameters = DeleteParams::default();
        let removal = configurations.delete(&name, &parameters);
        match self.while_leading(until, removal).await? {
            Ok(_) => {}
            Err(error) if is_not_found(&error) => {}
            Err(error) => return Err(Problem::Write(Box::new(error))),
        }
        self.inputs
            .live
            .send_modify(|live| live.list_empty(endpoint));
        Ok(())
    }

    /// Deletes the Leases of replicas that are gone.
    async fn sweep(&self, until: Instant) {
        let gone = self
            .inputs
            .replicas
            .borrow()
            .gone(self.options.timing.replica_gone, Instant::now());
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.installation.namespace);
        for (lease, version) in gone {
            let parameters = DeleteParams {
                preconditions: Some(Preconditions {
                    resource_version: Some(version),
                    uid: None,
                }),
                ..DeleteParams::default()
            };
            match timeout_at(until, leases.delete(&lease, &parameters)).await {
                Ok(Ok(_)) => tracing::info!(lease, "deleted the Lease of a replica that is gone"),
                Ok(Err(error)) => {
                    let error = words(&error);
                    tracing::debug!(lease, error, "did not delete the Lease of a replica");
                }
                Err(_) => return,
            }
        }
    }

    /// Refuses a configuration of another installation.
    pub(super) fn refuse_foreign(&self, live: &Value) -> Result<(), Problem> {
        let namespace = live["metadata"]["annotations"][NAMESPACE_ANNOTATION].as_str();
        match namespace {
            Some(namespace) if namespace != self.installation.namespace => Err(Problem::Taken {
                name: self.installation.webhook_configuration(),
                namespace: namespace.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    async fn while_leading<T>(
        &self,
        until: Instant,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<Result<T, kube::Error>, Problem> {
        timeout_at(until, request)
            .await
            .map_err(|_| Problem::NotLeading)
    }

    /// Notes that the leader cannot decide yet, and why.
    fn hesitate(&self, why: &'static str) {
        self.report.send_if_modified(|report| {
            let is_news = !report.leads || report.undecided != Some(why);
            report.leads = true;
            report.undecided = Some(why);
            report.plugins.clear();
            report.entries.clear();
            report.shortfalls.clear();
            report.unexamined.clear();
            is_news
        });
    }

    /// Publishes a report. The count of repairs stays.
    pub(super) fn publish(&self, report: Report) {
        let metrics = &self.options.metrics;
        let waiting = i64::try_from(report.waiting.len()).unwrap_or(i64::MAX);
        metrics.registration_leader.set(report.leads.into());
        metrics.registration_waiting_plugins.set(waiting);
        metrics
            .registration_problem
            .set(report.problem.is_some().into());
        self.report.send_if_modified(|before| {
            let report = Report {
                repairs: before.repairs,
                ..report
            };
            let is_news = *before != report;
            *before = report;
            is_news
        });
    }
}
