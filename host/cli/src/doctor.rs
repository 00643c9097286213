//! `tollgate doctor`

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use serde_json::json;
use time::OffsetDateTime;
use tollgate_config::Config;
use tollgate_registration::doctor::{
    Finding, Installation, Severity, break_glass, drifted, examine, expired, found_in, not_needed,
    sort,
};
use tollgate_registration::drift::compare;
use tollgate_registration::live::Objects;
use tollgate_registration::{Address, BREAK_GLASS_GROUP};

use super::FAILURE;
use super::kubectl::{Live, Query, WEBHOOKS};
use super::manifests::{Manifests, read_group, read_name, read_service};
use super::terminal::{say, tell};

/// Find what in a cluster can lock users out or keep Tollgate from its work, with the fix for each problem.
#[derive(Args, Debug)]
pub(super) struct Doctor {
    /// Configuration file to compare the registration with. [default: no comparison]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Service in front of the host. [default: the one that the registered webhooks call, or
    /// tollgate-system/tollgate]
    #[arg(long, value_name = "NAMESPACE/NAME[:PORT]", value_parser = read_service)]
    service: Option<Address>,
    /// PEM file of the CA to be registered, as for `manifests`.
    #[arg(long, value_name = "FILE", requires = "config")]
    ca: Option<PathBuf>,
    /// Name of both webhook configurations.
    #[arg(long, default_value = "tollgate", value_parser = read_name)]
    name: String,
    /// Expect one webhook per plugin, as for `manifests`.
    #[arg(long, requires = "config")]
    per_plugin: bool,
    /// Group whose members' requests skip the plugins.
    #[arg(long, value_name = "GROUP", default_value = BREAK_GLASS_GROUP, value_parser = read_group)]
    break_glass_group: String,
    /// Service account of the replicas, to ask for its rights. [default: its rights are not asked for]
    #[arg(long, value_name = "NAME", value_parser = read_name)]
    service_account: Option<String>,
    /// Right that the service account needs: a verb, a resource and an optional namespace, such as
    /// `update leases.coordination.k8s.io tollgate-system`. May be given several times. [default: leases in its own
    /// namespace]
    #[arg(long, value_name = "RIGHT", requires = "service_account")]
    right: Vec<String>,
    /// Print the findings as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    live: Live,
}

/// The kinds of policy reports, each with its API.
const REPORTS: [&str; 2] = [
    "reports.openreports.io,clusterreports.openreports.io",
    "policyreports.wgpolicyk8s.io,clusterpolicyreports.wgpolicyk8s.io",
];
/// Selects the reports of Tollgate's scans.
const SCANS: &str = "tollgate.dev/scan";
/// The part of kubectl's error about a kind that the cluster does not have.
const NO_KIND: &str = "doesn't have a resource type";

// === impl Doctor ===

impl Doctor {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut unread = Vec::new();
        let mut objects = self.live.read_or_note(&[&WEBHOOKS], &mut unread)?;
        let installation = self.installation(&objects);
        if !self.live.is_file() {
            let queries = queries(&installation);
            let queries: Vec<&Query> = queries.iter().collect();
            objects.extend(self.live.read_or_note(&queries, &mut unread)?);
        }
        let mut findings = examine(&objects, &installation, OffsetDateTime::now_utc());
        // The reports of a cluster can be large, so they are read for this alone.
        let reports = if self.live.is_file() {
            not_needed(&objects)
        } else {
            not_needed(&self.reports(&mut unread)?)
        };
        findings.extend(reports);
        sort(&mut findings);
        self.ask_for_rights(&installation, &mut findings)?;
        let commands = break_glass(&objects, &installation);
        if let Some(config) = self.config {
            let entries = Config::load(&config)?.plugins;
            findings.extend(expired(entries.iter(), SystemTime::now()));
            let address = Address::Service {
                namespace: installation.namespace.clone(),
                name: installation.service.clone(),
                port: 443,
            };
            let address = self.service.unwrap_or(address);
            let manifests =
                Manifests::for_doctor(config, Some(address), self.ca, self.name, self.per_plugin);
            let Some(desired) = manifests.desired()? else {
                return Ok(ExitCode::from(FAILURE));
            };
            let drifts = compare(
                &desired.documents,
                &objects,
                &desired.name,
                &desired.address,
            );
            findings.extend(drifted(&drifts));
            sort(&mut findings);
        }
        let is_healthy = findings
            .iter()
            .all(|finding| finding.severity == Severity::Notice);
        if self.json {
            let report = json!({"findings": findings, "unread": unread, "breakGlass": commands});
            say!("{report:#}");
        } else {
            show(&findings, &unread, &commands);
        }
        Ok(if is_healthy {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(FAILURE)
        })
    }

    /// Reads the policy reports of scans. A cluster without their kinds has none.
    fn reports(&self, unread: &mut Vec<String>) -> anyhow::Result<Objects> {
        let mut reasons = Vec::new();
        let queries = REPORTS.map(|resources| Query {
            resources,
            namespace: None,
            selector: None,
            labels: Some(SCANS),
            is_optional: true,
        });
        let queries: Vec<&Query> = queries.iter().collect();
        let reports = self.live.read_or_note(&queries, &mut reasons)?;
        reasons.retain(|reason| !reason.contains(NO_KIND));
        let is_whole = reasons.is_empty();
        unread.extend(reasons);
        // Without a part of the reports, an exception could seem to be needed by nobody.
        Ok(if is_whole {
            reports
        } else {
            Objects::default()
        })
    }

    fn installation(&self, objects: &Objects) -> Installation {
        let (namespace, service) = match &self.service {
            Some(Address::Service {
                namespace, name, ..
            }) => (namespace.clone(), name.clone()),
            _ => found_in(objects)
                .unwrap_or_else(|| ("tollgate-system".to_owned(), "tollgate".to_owned())),
        };
        Installation {
            namespace,
            service,
            break_glass_group: self.break_glass_group.clone(),
        }
    }

    /// Asks kube-apiserver whether the service account has its rights.
    fn ask_for_rights(
        &self,
        installation: &Installation,
        findings: &mut Vec<Finding>,
    ) -> anyhow::Result<()> {
        let Some(account) = &self.service_account else {
            return Ok(());
        };
        let namespace = &installation.namespace;
        let user = format!("system:serviceaccount:{namespace}:{account}");
        let rights = if self.right.is_empty() {
            ["get", "create", "update"]
                .map(|verb| format!("{verb} leases.coordination.k8s.io {namespace}"))
                .to_vec()
        } else {
            self.right.clone()
        };
        for right in rights {
            let mut words = right.split_whitespace().map(str::to_owned);
            let mut arguments: Vec<String> = words.by_ref().take(2).collect();
            anyhow::ensure!(
                arguments.len() == 2,
                "--right {right}: expected a verb and a resource, such as `list namespaces`"
            );
            match words.next() {
                Some(namespace) => arguments.extend(["-n".to_owned(), namespace]),
                None => arguments.push("--all-namespaces".to_owned()),
            }
            if !self.live.can_i(&user, &arguments)? {
                findings.push(Finding {
                    severity: Severity::Error,
                    check: "right-missing",
                    object: format!("ServiceAccount {namespace}/{account}"),
                    problem: format!("RBAC does not allow it to {right}"),
                    fix: "apply the Roles and ClusterRoles that Tollgate was installed with"
                        .to_owned(),
                });
            }
        }
        sort(findings);
        Ok(())
    }
}

/// The objects to read beside webhook configurations.
fn queries(installation: &Installation) -> Vec<Query> {
    let own = Some(installation.namespace.clone());
    [
        ("namespaces", None),
        ("services", own.clone()),
        ("endpointslices.discovery.k8s.io", own.clone()),
        ("secrets", own.clone()),
        ("pluginexceptions.tollgate.dev", own),
        ("clusteradmissionplugins.tollgate.dev", None),
        ("validatingadmissionpolicies", None),
        ("validatingadmissionpolicybindings", None),
        ("mutatingadmissionpolicies", None),
        ("mutatingadmissionpolicybindings", None),
    ]
    .map(|(resources, namespace)| Query {
        resources,
        namespace,
        // Other Secrets are none of its business.
        selector: (resources == "secrets").then_some("type=kubernetes.io/tls"),
        labels: None,
        is_optional: true,
    })
    .into()
}

fn show(findings: &[Finding], unread: &[String], commands: &[String]) {
    for finding in findings {
        say!("{finding}");
    }
    for reason in unread {
        say!("not examined: {reason}");
    }
    say!("if everything is denied, one of these commands lets an administrator work:");
    for command in commands {
        say!("    {command}");
    }
    let count = |severity: Severity| {
        findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    };
    tell!(
        "tollgate: {} errors, {} warnings, {} notices",
        count(Severity::Error),
        count(Severity::Warning),
        count(Severity::Notice)
    );
}
