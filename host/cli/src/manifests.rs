//! `tollgate manifests`

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use tollgate::setup::{Options, Setup};
use tollgate_admission::Endpoint;
use tollgate_config::{
    Config, Mode, ReinvocationPolicy, SelfSigned, Tls, is_label, is_of_namespace, why_everybody,
};
use tollgate_gate::plugin::{Plugin, PluginSet, PluginState};
use tollgate_registration::drift::{Drift, compare};
use tollgate_registration::{
    Address, BREAK_GLASS_GROUP, EXCLUDED_NAMESPACES, Participant, Registration, STATIC_SUFFIX,
    TIMEOUT_BOUNDS_SECONDS, Webhooks,
};
use tollgate_server::bundle_path;

use super::kubectl::{Live, WEBHOOKS};
use super::terminal::{say, tell};
use super::{FAILURE, Origin};

/// Print the webhook configurations that register this host with kube-apiserver, as YAML.
#[derive(Args, Debug)]
pub(super) struct Manifests {
    #[command(flatten)]
    origin: Origin,
    /// Service in front of the host. [default: tls.selfSigned.service]
    #[arg(long, value_name = "NAMESPACE/NAME[:PORT]", value_parser = read_service, conflicts_with = "url")]
    service: Option<Address>,
    /// URL at which kube-apiserver reaches a host outside the cluster.
    #[arg(long, value_parser = read_url)]
    url: Option<Address>,
    /// PEM file of the CA that kube-apiserver trusts for the host. [default: ca.crt in tls.selfSigned.directory. If the
    /// certificate comes from files, there is no default: kube-apiserver then uses its own CAs]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Name of both configurations.
    #[arg(long, default_value = "tollgate", value_parser = read_name)]
    name: String,
    /// Register one webhook per plugin, at /mutate/NAME and /validate/NAME, instead of one for all plugins.
    #[arg(long)]
    per_plugin: bool,
    /// Timeout of kube-apiserver, 1 to 30. [default: the shortest that the plugins need, and at least 5]
    #[arg(long, value_name = "SECONDS", value_parser = read_seconds)]
    timeout_seconds: Option<u32>,
    /// Whether kube-apiserver calls the mutating webhooks again after another webhook changed the object. [default:
    /// IfNeeded if a plugin has that as its reinvocationPolicy]
    #[arg(long, value_name = "POLICY")]
    reinvocation_policy: Option<Reinvocation>,
    /// Further namespace to exclude, in addition to kube-system, kube-node-lease and the service's own. May be given
    /// several times.
    #[arg(long, value_name = "NAMESPACE", value_parser = read_namespace)]
    exclude_namespace: Vec<String>,
    /// Group whose members' requests skip all plugins, so that they can repair the cluster. May be given several times.
    /// [default: tollgate:break-glass, for `kubectl --as=NAME --as-group=tollgate:break-glass`]
    #[arg(long, value_name = "GROUP", value_parser = read_group)]
    break_glass_group: Vec<String>,
    /// Compare with the registered configurations, and print the differences. Exit code 1 if there are any.
    #[arg(long, conflicts_with_all = ["prune", "static"])]
    check: bool,
    /// Print the commands that delete left-over webhook configurations of this installation.
    #[arg(long, conflicts_with = "static")]
    prune: bool,
    /// Write files for kube-apiserver's manifest-based admission control into the folders mutating and validating of
    /// this folder. Needs --url.
    #[arg(
        long = "static",
        id = "static",
        value_name = "FOLDER",
        requires = "url"
    )]
    folder: Option<PathBuf>,
    #[command(flatten)]
    live: Live,
}

/// The configurations that an installation is to have, and where kube-apiserver calls it.
pub(super) struct Desired {
    /// The configurations. Empty if there are no plugins.
    pub(super) documents: Vec<Webhooks>,
    /// Name of both configurations.
    pub(super) name: String,
    /// Address at which kube-apiserver calls the installation.
    pub(super) address: Address,
}

/// Kubernetes' reinvocationPolicy.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Reinvocation {
    /// Call the webhooks once per request.
    #[value(name = "Never")]
    Never,
    /// Call the webhooks once more after a later webhook changed the object.
    #[value(name = "IfNeeded")]
    IfNeeded,
}

// === impl Manifests ===

impl Manifests {
    /// The options for an installation that is registered with defaults, except for these.
    pub(super) fn for_doctor(
        config: PathBuf,
        service: Option<Address>,
        ca: Option<PathBuf>,
        name: String,
        per_plugin: bool,
    ) -> Self {
        Self {
            origin: Origin {
                config: Some(config),
                plugins: None,
            },
            service,
            url: None,
            ca,
            name,
            per_plugin,
            timeout_seconds: None,
            reinvocation_policy: None,
            exclude_namespace: Vec::new(),
            break_glass_group: Vec::new(),
            check: false,
            prune: false,
            folder: None,
            live: Live::default(),
        }
    }

    pub(crate) fn run(mut self) -> anyhow::Result<ExitCode> {
        if self.folder.is_some() && !self.name.ends_with(STATIC_SUFFIX) {
            self.name.push_str(STATIC_SUFFIX);
        }
        let (compares, prunes) = (self.check, self.prune);
        let (folder, live) = (self.folder.take(), std::mem::take(&mut self.live));
        let Some(desired) = self.desired()? else {
            return Ok(ExitCode::from(FAILURE));
        };
        if compares || prunes {
            let objects = live.read(&[&WEBHOOKS])?;
            let drifts = compare(
                &desired.documents,
                &objects,
                &desired.name,
                &desired.address,
            );
            return Ok(if prunes {
                prune(&drifts)
            } else {
                check(&drifts)
            });
        }
        anyhow::ensure!(
            !desired.documents.is_empty(),
            "nothing to register: the configuration has no plugins"
        );
        if let Some(folder) = folder {
            write_static(&folder, &desired)?;
        } else {
            let yaml = Webhooks::to_yaml(&desired.documents)?;
            say!("{}", yaml.trim_end_matches('\n'));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Loads the plugins and computes their registration. None if a plugin cannot be loaded, which is then printed.
    pub(super) fn desired(self) -> anyhow::Result<Option<Desired>> {
        let mut config = self.origin.load()?;
        for warning in self
            .break_glass_group
            .iter()
            .filter_map(|group| wide_group(group))
        {
            tell!("tollgate: {warning}");
        }
        let address = self.address(&config)?;
        let ca_bundle = self.ca_bundle(&config, &address)?;
        let setup = Setup::new(&config, &Options::default())?;
        let plugins = std::mem::take(&mut config.plugins);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let set = runtime.block_on(setup.loader.load_all(plugins));
        if let Some(failures) = failures(&set) {
            tell!("{failures}");
            return Ok(None);
        }
        let participants: Vec<_> = set
            .iter()
            .filter_map(|plugin| participant(plugin))
            .collect();
        let registration = self.registration(&config, address.clone(), ca_bundle);
        let mut documents = Vec::new();
        for endpoint in [Endpoint::Mutate, Endpoint::Validate] {
            documents.extend(registration.webhooks(endpoint, &participants)?);
            if let Some(hiding) = registration.hiding(endpoint, &participants) {
                tell!("tollgate: {hiding}");
            }
            for lockout in registration.lockouts(endpoint, &participants) {
                tell!("tollgate: warning: {lockout}");
            }
        }
        Ok(Some(Desired {
            documents,
            name: registration.name,
            address,
        }))
    }

    fn address(&self, config: &Config) -> anyhow::Result<Address> {
        if let Some(given) = self.service.as_ref().or(self.url.as_ref()) {
            return Ok(given.clone());
        }
        let configured = match &config.tls {
            Tls::SelfSigned(settings) => settings.service.as_ref(),
            Tls::Files { .. } => None,
        };
        let service = configured.context(
            "the address of the host for kube-apiserver is missing: pass --service NAMESPACE/NAME or --url, or set \
             tls.selfSigned.service in the configuration",
        )?;
        Ok(Address::Service {
            namespace: service.namespace.clone(),
            name: service.name.clone(),
            port: HTTPS_PORT,
        })
    }

    fn ca_bundle(&self, config: &Config, address: &Address) -> anyhow::Result<Option<Vec<u8>>> {
        if let Tls::SelfSigned(settings) = &config.tls {
            check_names(settings, address)?;
        }
        match (&self.ca, &config.tls) {
            (Some(file), _) => read_bundle(file).map(Some),
            (None, Tls::SelfSigned(settings)) => {
                let bundle = read_bundle(&bundle_path(settings)).context(
                    "cannot read the self-signed CA: start `tollgate serve` once to create it, or pass a copy with \
                     --ca",
                )?;
                Ok(Some(bundle))
            }
            (None, Tls::Files { .. }) => {
                tell!(
                    "tollgate: no caBundle: kube-apiserver uses the CAs of its own system, unless a tool such as \
                     cert-manager adds one; add it here with --ca FILE"
                );
                Ok(None)
            }
        }
    }

    fn registration(
        self,
        config: &Config,
        address: Address,
        ca_bundle: Option<Vec<u8>>,
    ) -> Registration {
        let mut excluded_namespaces: BTreeSet<String> = EXCLUDED_NAMESPACES
            .iter()
            .map(ToString::to_string)
            .collect();
        excluded_namespaces.extend(self.exclude_namespace);
        if let Address::Service { namespace, .. } = &address {
            excluded_namespaces.insert(namespace.clone());
        }
        let break_glass_groups = if self.break_glass_group.is_empty() {
            [BREAK_GLASS_GROUP.to_owned()].into()
        } else {
            self.break_glass_group.into_iter().collect()
        };
        Registration {
            name: self.name,
            address,
            ca_bundle,
            per_plugin: self.per_plugin,
            timeout_seconds: self.timeout_seconds,
            reinvocation_policy: self.reinvocation_policy.map(|policy| match policy {
                Reinvocation::Never => ReinvocationPolicy::Never,
                Reinvocation::IfNeeded => ReinvocationPolicy::IfNeeded,
            }),
            excluded_namespaces,
            break_glass_groups,
            margin: config.requests.deadline_margin,
        }
    }
}

const HTTPS_PORT: u16 = 443;

/// Prints the differences between the registration and the configuration.
fn check(drifts: &[Drift]) -> ExitCode {
    for drift in drifts {
        say!("{drift}");
    }
    if drifts.is_empty() {
        tell!("tollgate: what is registered is what is configured");
        return ExitCode::SUCCESS;
    }
    let count = drifts.len();
    tell!(
        "tollgate: {count} differences: - is registered, + is configured; apply the output of `tollgate manifests`"
    );
    ExitCode::from(FAILURE)
}

/// Prints the commands that delete left-over configurations.
fn prune(drifts: &[Drift]) -> ExitCode {
    let removals: Vec<String> = drifts.iter().filter_map(Drift::removal).collect();
    for removal in &removals {
        say!("{removal}");
    }
    if removals.is_empty() {
        tell!("tollgate: no webhook configuration is left over");
    }
    ExitCode::SUCCESS
}

/// Writes the files that kube-apiserver reads. Each of its two webhook admission plugins has a separate folder.
fn write_static(folder: &Path, desired: &Desired) -> anyhow::Result<()> {
    anyhow::ensure!(
        matches!(desired.address, Address::Url(_)),
        "--static needs --url: kube-apiserver reads these files before it knows Services"
    );
    for document in &desired.documents {
        let of_plugin = match document.endpoint() {
            Endpoint::Mutate => "mutating",
            Endpoint::Validate => "validating",
        };
        let folder = folder.join(of_plugin);
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let file = folder.join(format!("{}.yaml", desired.name));
        let yaml = Webhooks::to_yaml(std::slice::from_ref(document))?;
        std::fs::write(&file, yaml).with_context(|| format!("cannot write {}", file.display()))?;
        say!("{}", file.display());
    }
    Ok(())
}

/// Describes the plugins that could not be loaded. Their rules are unknown, so they cannot be registered.
fn failures(set: &PluginSet) -> Option<String> {
    let failure = |plugin: &Plugin| match &plugin.state {
        PluginState::Failed { reason } => Some(format!(
            "{}: NOT LOADED ({}): {reason}",
            plugin.config.name,
            plugin.config.source_in_words()
        )),
        _ => None,
    };
    let mut lines: Vec<String> = set.iter().filter_map(|plugin| failure(plugin)).collect();
    if lines.is_empty() {
        return None;
    }
    lines.push("nothing is printed, because the rules of these plugins are not known".to_owned());
    Some(lines.join("\n"))
}

fn participant(plugin: &Plugin) -> Option<Participant<'_>> {
    let PluginState::Loaded(loaded) = &plugin.state else {
        return None;
    };
    let interfaces = loaded.interfaces();
    Some(Participant {
        name: plugin.config.name.as_str(),
        mutates: interfaces.mutating,
        validates: interfaces.validating,
        matching: &loaded.matching,
        // A rollout ends in mode enforce, and nobody applies the manifests again by then.
        mode: match plugin.config.active_rollout() {
            Some(_) => Mode::Enforce,
            None => plugin.config.mode,
        },
        failure_policy: plugin.config.failure_policy,
        reinvocation_policy: plugin.config.reinvocation_policy,
        existing_violations: plugin.config.existing_violations,
        timeout: plugin.config.limits.timeout,
    })
}

/// Checks that the certificate covers the address.
///
/// kube-apiserver rejects a certificate for another name. Under `Fail` that denies every request.
fn check_names(settings: &SelfSigned, address: &Address) -> anyhow::Result<()> {
    let (wanted, remedy) = match address {
        Address::Service {
            namespace, name, ..
        } => (
            format!("{name}.{namespace}.svc"),
            format!("tls.selfSigned.service: {name}.{namespace}"),
        ),
        Address::Url(url) => {
            let uri: http::Uri = url.parse().context("--url is not a URL")?;
            let host = uri.host().unwrap_or_default();
            let host = host
                .trim_start_matches('[')
                .trim_end_matches(']')
                .to_owned();
            let remedy = format!("tls.selfSigned.names: [{host}]");
            (host, remedy)
        }
    };
    let is_for = |name: &String| {
        let under_wildcard = name.strip_prefix("*.").is_some_and(|parent| {
            wanted
                .split_once('.')
                .is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(parent))
        });
        under_wildcard || name.eq_ignore_ascii_case(&wanted)
    };
    anyhow::ensure!(
        settings.subject_names().iter().any(is_for),
        "the self-signed certificate is not valid for {wanted}, so kube-apiserver would reject it: set {remedy}"
    );
    Ok(())
}

fn read_bundle(path: &Path) -> anyhow::Result<Vec<u8>> {
    use rustls_pki_types::{CertificateDer, pem::PemObject as _};
    let pem = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut certificates = CertificateDer::pem_slice_iter(&pem);
    anyhow::ensure!(
        matches!(certificates.next(), Some(Ok(_))),
        "{} contains no certificate: expected PEM with one or more CERTIFICATE sections",
        path.display()
    );
    Ok(pem)
}

pub(super) fn read_service(text: &str) -> Result<Address, String> {
    let expected =
        "expected NAMESPACE/NAME or NAMESPACE/NAME:PORT, such as tollgate-system/tollgate";
    let (namespace, rest) = text.split_once('/').ok_or(expected)?;
    let (name, port) = match rest.split_once(':') {
        Some((name, port)) => (name, port.parse().map_err(|_| expected)?),
        None => (rest, HTTPS_PORT),
    };
    if !is_label(namespace, 63) || !is_label(name, 63) || port == 0 {
        return Err(expected.to_owned());
    }
    Ok(Address::Service {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        port,
    })
}

fn read_url(text: &str) -> Result<Address, String> {
    let expected = "expected an https URL without user, query and fragment, such as https://gate.example.com:8443";
    let uri: http::Uri = text.parse().map_err(|_| expected)?;
    let authority = uri.authority().ok_or(expected)?.as_str();
    let plain = !authority.contains('@') && !text.contains(['?', '#']);
    if uri.scheme_str() != Some("https") || !plain {
        return Err(expected.to_owned());
    }
    Ok(Address::Url(text.to_owned()))
}

pub(super) fn read_name(text: &str) -> Result<String, String> {
    let is_name = text.len() <= 253 && text.split('.').all(|label| is_label(label, 63));
    is_name
        .then(|| text.to_owned())
        .ok_or_else(|| "expected the name of an object, such as tollgate".to_owned())
}

fn read_namespace(text: &str) -> Result<String, String> {
    is_label(text, 63)
        .then(|| text.to_owned())
        .ok_or_else(|| "expected the name of a namespace".to_owned())
}

/// Reads a group's name. The name becomes a string in a CEL expression.
pub(super) fn read_group(text: &str) -> Result<String, String> {
    let plain = |character: char| !character.is_control() && !matches!(character, '\'' | '\\');
    if text.trim().is_empty() || text.trim() != text || !text.chars().all(plain) {
        return Err("expected the name of a group, without ', \\ and spaces around it".to_owned());
    }
    if text.contains('*') {
        return Err("expected the exact name of a group: patterns are not supported".to_owned());
    }
    if let Some(why) = why_everybody(text) {
        return Err(format!(
            "{why}, so their requests would bypass every plugin; expected a group whose members are chosen on \
             purpose, such as tollgate:break-glass"
        ));
    }
    Ok(text.to_owned())
}

/// Returns a warning for a break-glass group that is too wide.
fn wide_group(group: &str) -> Option<String> {
    is_of_namespace(group).then(|| {
        format!(
            "warning: --break-glass-group {group}: all service accounts of that namespace are members, so anyone who \
             may use or create one there bypasses every plugin"
        )
    })
}

fn read_seconds(text: &str) -> Result<u32, String> {
    let (least, most) = (TIMEOUT_BOUNDS_SECONDS.start(), TIMEOUT_BOUNDS_SECONDS.end());
    let seconds = text.parse().ok();
    seconds
        .filter(|seconds| TIMEOUT_BOUNDS_SECONDS.contains(seconds))
        .ok_or_else(|| format!("expected a whole number of seconds, {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_services_and_urls_as_kubernetes_does() {
        let service = |port| {
            Ok(Address::Service {
                namespace: "gate-system".to_owned(),
                name: "gate".to_owned(),
                port,
            })
        };
        assert_eq!(read_service("gate-system/gate"), service(443));
        assert_eq!(read_service("gate-system/gate:8443"), service(8443));
        for wrong in [
            "gate",
            "a/b/c",
            "/b",
            "a/",
            "A/b",
            "a/b:",
            "a/b:0",
            "a/b:70000",
        ] {
            assert!(read_service(wrong).is_err(), "{wrong}");
        }
        assert!(read_url("https://gate.example.com:8443/tollgate").is_ok());
        for wrong in [
            "gate.example.com",
            "http://gate.example.com",
            "https://user@gate.example.com",
            "https://gate.example.com?a=b",
            "https://gate.example.com/#a",
            "/mutate",
        ] {
            assert!(read_url(wrong).is_err(), "{wrong}");
        }
        assert!(read_group("system:masters").is_ok());
        assert!(read_group("a' || true || 'b").is_err());
        assert_eq!(read_seconds("30"), Ok(30));
        assert!(read_seconds("31").is_err() && read_seconds("0").is_err());
    }

    #[test]
    fn rejects_break_glass_groups_with_automatic_members() {
        for group in [
            "system:authenticated",
            "system:unauthenticated",
            "system:serviceaccounts",
            "system:nodes",
            "*",
            "system:*",
            " oncall",
            "",
        ] {
            assert!(read_group(group).is_err(), "{group}");
        }
        for group in ["tollgate:break-glass", "system:masters", "oncall"] {
            assert_eq!(read_group(group).as_deref(), Ok(group));
            assert_eq!(wide_group(group), None);
        }
        assert!(wide_group("system:serviceaccounts:flux-system").is_some());
    }

    #[test]
    fn rejects_address_outside_self_signed_certificate() {
        let text = "allowEmpty: true\ntls: { selfSigned: { service: gate.policy, names: ['*.example.com', 'fd00::1'] } }";
        let config = Config::parse(text, Path::new(".")).expect("valid");
        let Tls::SelfSigned(settings) = config.tls else {
            panic!("{:?}", config.tls)
        };
        let refusal = |address: Result<Address, String>| {
            check_names(&settings, &address.expect("an address"))
                .err()
                .map(|error| error.to_string())
        };
        assert_eq!(refusal(read_service("policy/gate")), None);
        assert_eq!(refusal(read_url("https://one.example.com:8443")), None);
        assert_eq!(refusal(read_url("https://[fd00::1]:8443")), None);
        assert_eq!(
            refusal(read_service("gate/policy")).as_deref(),
            Some(
                "the self-signed certificate is not valid for policy.gate.svc, so kube-apiserver would reject it: \
                 set tls.selfSigned.service: policy.gate"
            )
        );
        assert_eq!(
            refusal(read_url("https://a.b.example.com")).as_deref(),
            Some(
                "the self-signed certificate is not valid for a.b.example.com, so kube-apiserver would reject it: \
                 set tls.selfSigned.names: [a.b.example.com]"
            )
        );
    }
}
