//! The part of an installation that registers its webhooks: what `serve` tells the registrar, and the certificate that it
//! gets from it.

use std::collections::BTreeSet;
use std::fs::{OpenOptions, Permissions, create_dir_all, rename};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use pem::{EncodeConfig, LineEnding, Pem, encode_many_config};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;
use tollgate_admission::Gate as _;
use tollgate_admission::canary::Prover;
use tollgate_cluster::{
    Certificate, Certificates, Clock, Desired, Handle, Members, Options, Plan, Plugin, Registered,
    Serving, Timing, Trust, spawn,
};
use tollgate_config::{
    self as config, ClusterRegistration, Config, PluginConfig, ServingPlugin, ServingState, Tls,
};
use tollgate_gate::live::Live;
use tollgate_registration::{Address, BREAK_GLASS_GROUP, EXCLUDED_NAMESPACES, Registration};
use tollgate_server::RegisteredAuthorities;
use tollgate_telemetry::metrics::Metrics;

use crate::custom_resources::CustomResources;

/// The tasks that register the installation. They end when it is dropped.
pub(crate) struct Registering {
    handle: Handle,
    desired: watch::Sender<Option<Desired>>,
    serving: watch::Sender<Serving>,
    own: Option<Own>,
    tasks: Vec<AbortOnDropHandle<()>>,
}

/// The files of the installation's own certificate.
struct Own {
    directory: PathBuf,
}

/// How often readiness and the file of the CA are looked at.
const PERIOD: Duration = Duration::from_millis(500);
/// How long a start waits for the certificate. kube-apiserver keeps it, and sends no reviews while it is away.
const CERTIFICATE_LIMIT: Duration = Duration::from_secs(60);
/// How long a replica may be unready because it does not serve everything that is registered. The registered plugins may
/// be those of a newer configuration, or of an older one.
const REGISTERED_LIMIT: Duration = Duration::from_secs(60);
/// The file of the CAs beside a certificate, as cert-manager writes it.
const CA_FILE: &str = "ca.crt";

// === impl Registering ===

impl Registering {
    /// Starts the tasks. None if the configuration does not ask for them.
    pub(crate) fn start(
        resources: Option<&CustomResources>,
        config: &Config,
        metrics: &Arc<Metrics>,
    ) -> Option<Self> {
        let resources = resources?;
        let Some(registration) = &config.cluster.registration else {
            resources.registered_by(None);
            return None;
        };
        let installation = resources.installation().clone();
        let (mut tasks, mut own) = (Vec::new(), None);
        let certificates = match &config.tls {
            Tls::SelfSigned(settings) => {
                own = Some(Own {
                    directory: settings.directory.clone(),
                });
                let mut names = names(&registration.service, &installation.namespace);
                names.extend(settings.names.iter().cloned());
                Certificates::Own { names }
            }
            Tls::Files { certificate, .. } => {
                let (sender, trust) = watch::channel(Trust::Pending);
                let file = certificate.with_file_name(CA_FILE);
                tasks.push(AbortOnDropHandle::new(tokio::spawn(follow_ca(
                    file, sender,
                ))));
                Certificates::Given(trust)
            }
        };
        let (desired, desired_receiver) = watch::channel(None);
        let (serving, serving_receiver) = watch::channel(Serving::default());
        let options = Options {
            registration: of(registration, config, &installation.namespace),
            certificates,
            anchor: registration.anchor.clone(),
            timing: Timing {
                canary: registration.canary_interval,
                ..Timing::default()
            },
            clock: Clock::system(),
            namespaces: Some(resources.cluster_namespaces()),
            metrics: metrics.clone(),
        };
        let client = resources.client();
        let handle = spawn(
            client,
            installation,
            options,
            desired_receiver,
            serving_receiver,
        );
        resources.registered_by(Some(&handle));
        Some(Self {
            handle,
            desired,
            serving,
            own,
            tasks,
        })
    }

    /// Waits for the certificate, and returns where the server finds it. From then on a task writes newer ones there.
    pub(crate) async fn tls(&mut self, tls: Tls) -> anyhow::Result<Tls> {
        let Some(own) = &self.own else {
            return Ok(tls);
        };
        let mut certificate = self.handle.certificate();
        let first = certificate.wait_for(Option::is_some);
        let first = tokio::time::timeout(CERTIFICATE_LIMIT, first).await;
        let first = first.ok().and_then(Result::ok);
        let first = first.and_then(|certificate| certificate.clone());
        let first = first.with_context(|| {
            format!(
                "kube-apiserver did not give the certificate within {} s: see the errors above; the service account \
                 must be allowed to create and read the Secret",
                CERTIFICATE_LIMIT.as_secs()
            )
        })?;
        let directory = own.directory.clone();
        let files = write(&directory, &first).with_context(|| {
            format!(
                "cannot write the certificate to {} (tls.selfSigned.directory)",
                directory.display()
            )
        })?;
        let following = follow_certificate(certificate, directory);
        self.tasks
            .push(AbortOnDropHandle::new(tokio::spawn(following)));
        Ok(files)
    }

    /// Returns where the server finds the CAs that are registered.
    pub(crate) fn authorities(&self) -> RegisteredAuthorities {
        RegisteredAuthorities::new(self.handle.bundles())
    }

    /// From now on, sends the registrar the desired and the serving plugins, and whether this replica is ready.
    pub(crate) fn relay(&mut self, resources: &CustomResources, live: Arc<Live>) {
        let (mut plan, mut in_effect) = (resources.plan(), resources.serving());
        let (desired, serving) = (self.desired.clone(), self.serving.clone());
        let relaying = async move {
            let mut ticks = interval(PERIOD);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                let wanted = {
                    let (plan, serving) = (plan.borrow_and_update(), in_effect.borrow());
                    plan.as_ref().map(|plan| wanted(plan, &serving))
                };
                let plugins = in_effect.borrow_and_update().clone();
                let plugins = plugins.plugins.iter().filter_map(plugin).collect();
                let ready = live.readiness().ready;
                send(&desired, wanted);
                send(&serving, Serving { ready, plugins });
                tokio::select! {
                    changed = plan.changed() => if changed.is_err() { return },
                    changed = in_effect.changed() => if changed.is_err() { return },
                    _ = ticks.tick() => {}
                }
            }
        };
        self.tasks
            .push(AbortOnDropHandle::new(tokio::spawn(relaying)));
    }

    /// Returns who answers the leader's canaries.
    pub(crate) fn prover(&self) -> Option<Arc<dyn Prover>> {
        self.handle.prover()
    }

    /// Returns the function that says why the replica must not be ready yet.
    pub(crate) fn waiting(
        &self,
        resources: &CustomResources,
    ) -> impl Fn() -> Option<String> + Send + Sync + 'static {
        let (registered, in_effect) = (self.handle.registered(), resources.serving());
        let began = Instant::now();
        move || {
            if began.elapsed() > REGISTERED_LIMIT {
                return None;
            }
            missing(&registered.borrow(), &in_effect.borrow())
        }
    }

    /// Returns the replicas that share the background scan.
    pub(crate) fn members(&self) -> Members {
        self.handle.members()
    }

    /// Withdraws what this replica announced, and hands over the lead.
    pub(crate) async fn shutdown(self) {
        drop(self.tasks);
        self.handle.shutdown().await;
    }
}

/// The names under which kube-apiserver reaches the service, and those of this machine.
fn names(service: &str, namespace: &str) -> Vec<String> {
    let mut names = vec![
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
        format!("{service}.{namespace}"),
    ];
    names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
    names
}

fn of(registration: &ClusterRegistration, config: &Config, namespace: &str) -> Registration {
    let mut excluded_namespaces: BTreeSet<String> = EXCLUDED_NAMESPACES
        .iter()
        .map(ToString::to_string)
        .collect();
    excluded_namespaces.insert(namespace.to_owned());
    Registration {
        name: config.cluster.installation.clone(),
        address: Address::Service {
            namespace: namespace.to_owned(),
            name: registration.service.clone(),
            port: registration.port,
        },
        ca_bundle: None,
        per_plugin: registration.per_plugin,
        timeout_seconds: None,
        reinvocation_policy: None,
        excluded_namespaces,
        break_glass_groups: [BREAK_GLASS_GROUP.to_owned()].into(),
        margin: config.requests.deadline_margin,
    }
}

/// The plugins that the installation shall serve, with the rules that they have on this replica.
fn wanted(plan: &Plan, in_effect: &config::Serving) -> Desired {
    let mut desired = Desired::default();
    let entries = config::entries(&plan.config.plugins);
    for config in entries.iter().filter(|config| config.enabled) {
        let name = config.name.as_str();
        let serving = in_effect.get(name);
        // A plugin that this replica does not serve may be registered already. Its rules must stay until it is known.
        match serving.and_then(plugin).or_else(|| unloaded_tenant(config)) {
            Some(plugin) => desired.plugins.push(plugin),
            None => drop(desired.pending.insert(name.to_owned())),
        }
    }
    desired
}

/// A plugin of a namespace that this replica does not serve. Its rules are known from its resource. Whether it mutates
/// or validates is not known, so rules that are registered and desired stay, and no rules are added. A plugin of the
/// cluster would be pending instead, which holds up all changes. The author of a namespace's plugin must not be able to
/// do that.
fn unloaded_tenant(config: &PluginConfig) -> Option<Plugin> {
    config.name.namespace()?;
    Some(Plugin {
        name: config.name.as_str().to_owned(),
        digest: String::new(),
        mutates: true,
        validates: true,
        matching: config.matching.clone()?,
        mode: config.mode,
        failure_policy: config.failure_policy,
        reinvocation_policy: config.reinvocation_policy,
        existing_violations: config.existing_violations,
        timeout: config.limits.timeout,
    })
}

/// A plugin that answers reviews on this replica, or none.
fn plugin(serving: &ServingPlugin) -> Option<Plugin> {
    let ServingState::Loaded {
        matching,
        mutates,
        validates,
    } = &serving.state
    else {
        return None;
    };
    let config = &serving.config;
    Some(Plugin {
        name: config.name.as_str().to_owned(),
        digest: serving.digest.as_deref().unwrap_or_default().to_owned(),
        mutates: *mutates,
        validates: *validates,
        matching: matching.clone(),
        mode: config.mode,
        failure_policy: config.failure_policy,
        reinvocation_policy: config.reinvocation_policy,
        existing_violations: config.existing_violations,
        timeout: config.limits.timeout,
    })
}

/// Why this replica must not get reviews: it lacks plugins that are registered.
fn missing(registered: &Registered, in_effect: &config::Serving) -> Option<String> {
    let names = registered.names()?;
    // A plugin of a namespace must not keep a replica from serving the cluster.
    let lacks = |name: &&String| !name.contains('/') && in_effect.get(name).is_none();
    let lacking: Vec<&str> = names.iter().filter(lacks).map(String::as_str).collect();
    if lacking.is_empty() {
        return None;
    }
    let lacking = lacking.join(", ");
    Some(format!(
        "not ready: registered, and not served here: {lacking}"
    ))
}

fn send<T: PartialEq>(sender: &watch::Sender<T>, now: T) {
    sender.send_if_modified(|before| {
        let is_news = *before != now;
        *before = now;
        is_news
    });
}

/// Sends the CAs of a file, and follows the file.
async fn follow_ca(file: PathBuf, trust: watch::Sender<Trust>) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = match tokio::fs::read(&file).await {
            Ok(bytes) => Trust::Bundle(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Trust::System,
            // What was read last counts.
            Err(_) => continue,
        };
        send(&trust, now);
    }
}

/// Writes each new certificate to the files that the server follows.
async fn follow_certificate(
    mut certificate: watch::Receiver<Option<Arc<Certificate>>>,
    directory: PathBuf,
) {
    while certificate.changed().await.is_ok() {
        let Some(now) = certificate.borrow_and_update().clone() else {
            continue;
        };
        if let Err(error) = write(&directory, &now) {
            let directory = directory.display().to_string();
            tracing::error!(
                directory,
                error = &error as &dyn std::error::Error,
                "cannot write the new certificate; serving the old one"
            );
        }
    }
}

/// Writes a certificate with its key and CAs, and returns the files.
fn write(directory: &Path, certificate: &Certificate) -> std::io::Result<Tls> {
    create_dir_all(directory)?;
    std::fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    let chain = certificate.chain.iter();
    let chain = chain.map(|one| Pem::new("CERTIFICATE", one.as_ref()));
    let chain: Vec<Pem> = chain.collect();
    let key = Pem::new(key_tag(certificate), certificate.key.secret_der());
    let lines = EncodeConfig::new().set_line_ending(LineEnding::LF);
    let files = Tls::Files {
        certificate: directory.join("tls.crt"),
        key: directory.join("tls.key"),
    };
    for (name, text) in [
        (CA_FILE, certificate.bundle.clone()),
        ("tls.key", encode_many_config(&[key], lines)),
        ("tls.crt", encode_many_config(&chain, lines)),
    ] {
        let (path, new) = (directory.join(name), directory.join(format!("{name}.new")));
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&new)?.write_all(text.as_bytes())?;
        rename(&new, &path)?;
    }
    Ok(files)
}

fn key_tag(certificate: &Certificate) -> &'static str {
    use rustls_pki_types::PrivateKeyDer;

    match &certificate.key {
        PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        _ => "PRIVATE KEY",
    }
}
