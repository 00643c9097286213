//! Tollgate as an installation of several replicas in a Kubernetes cluster: custom resources as a source of desired
//! plugins, their status, and the registration of webhooks.
//!
//! # Custom resources
//!
//! ```text
//! ClusterAdmissionPlugin, PluginException ─▶ watch ┐
//! ConfigMaps and Secrets of settingsFrom  ─▶ watch ┴─▶ store ─▶ desired: file + resources = plan (pure) ─▶ reconciler
//!                   status, events ◀─ report ◀─ status: conditions (pure) ◀──── what this replica serves ◀────┘
//! ```
//!
//! Reviews never wait for this crate. While kube-apiserver is away, the last desired state of the resources stays in
//! effect.
//!
//! # Registration
//!
//! [`spawn`] starts everything that a replica does for its installation, and returns a [`Handle`]:
//!
//! | part | on | object |
//! |---|---|---|
//! | takes part in the election of the leader | every replica | Lease `NAME-leader` |
//! | announces the plugins that it serves, renewed every 10 seconds | every replica | Lease `NAME-replica-REPLICA` |
//! | keeps the CA and the certificate of the server | every replica | Secret `NAME-authority` |
//! | answers canaries, so that the leader sees that a webhook is called | every replica | |
//! | decides about rollouts, by the reports of all replicas | the leader | status of `ClusterAdmissionPlugin` |
//! | registers the plugins, repairs foreign changes, deletes Leases of dead replicas and their entries in the status | the leader | `MutatingWebhookConfiguration` and `ValidatingWebhookConfiguration` `NAME` |
//! | creates a canary for each webhook, as a dry run | the leader | `Canary` |
//! | removes the configurations of the installation when it goes | every replica | |
//!
//! A rule is registered after every ready replica serves its plugin. The rule of a plugin that is no longer desired may
//! outlive the plugin for a moment: the gate allows its reviews meanwhile.
//!
//! # Wiring
//!
//! ```text
//! configuration, resources ─▶ desired ─┐             ┌─▶ certificate()   the server's TLS material
//! the gate's serving set   ─▶ serving ─┴─ spawn ─────┼─▶ registered()    before this replica becomes ready
//!                                                    ├─▶ prover()        the gate's answer to canaries
//!                                                    ├─▶ report()        status and metrics
//!                                                    └─▶ shutdown()      before the drain
//! ```
//!
//! - `desired` is `None` until the desired plugins are known, and the registrar changes nothing meanwhile. A plugin
//!   whose rules are not known yet belongs into [`Desired::pending`].
//! - `serving` has what the gate publishes. Send it *after* the gate has swapped. `ready` follows `/readyz`.
//! - A replica becomes ready when it serves every plugin of [`Handle::registered`]. Bound that wait: the leader may run an
//!   older configuration.
//! - [`Handle::shutdown`] comes first at SIGTERM: it withdraws the announcement and hands over the lead.
//!
//! # Rights
//!
//! In the namespace of the installation (a Role):
//!
//! | API group | resource | verbs | resource names |
//! |---|---|---|---|
//! | `coordination.k8s.io` | `leases` | `create`, `list`, `watch`, `get`, `update`, `patch`, `delete` | |
//! | (core) | `secrets` | `create` | |
//! | (core) | `secrets` | `get`, `update` | `NAME-authority` |
//! | `events.k8s.io` | `events` | `create`, `patch` | |
//!
//! In the cluster (a ClusterRole):
//!
//! | API group | resource | verbs | resource names |
//! |---|---|---|---|
//! | `admissionregistration.k8s.io` | `mutatingwebhookconfigurations`, `validatingwebhookconfigurations` | `create` | |
//! | `admissionregistration.k8s.io` | `mutatingwebhookconfigurations`, `validatingwebhookconfigurations` | `get`, `list`, `watch`, `patch`, `delete` | `NAME` |
//! | (core) | `namespaces` | `get`, `list`, `watch` | the namespace |
//! | `tollgate.dev` | `canaries` | `create` | |
//! | `rbac.authorization.k8s.io` | `clusterroles` | `get`, `list`, `watch`, `patch` | the anchor |
//!
//! [`ClusterTokens`] also needs the ClusterRole `system:auth-delegator`: it creates TokenReviews and SubjectAccessReviews.
//!
//! [`ClusterAuthorizer`] needs `create` of `subjectaccessreviews` in the group `authorization.k8s.io`, and nothing else.
//!
//! [`ClusterPullSecrets`] needs `get` of `secrets` and `serviceaccounts` in each namespace that a plugin lists, and nothing else.
//!
//! `list` and `watch` with a resource name work because Tollgate selects the object by `metadata.name`. If the
//! admission plugin OwnerReferencesPermissionEnforcement is enabled, the anchor also needs `delete`. The Secret rows
//! are not needed where [`Certificates::Given`] is used, and the last row is not needed without an anchor.

mod access;
mod api;
mod authority;
mod canary;
mod client;
mod definition;
mod desired;
mod installation;
mod inventory;
mod kinds;
mod lead;
mod lease;
mod namespaces;
mod offline;
mod options;
mod plugin;
mod pull_secrets;
mod registrar;
mod report;
mod reports;
mod run;
mod settings;
mod source;
mod status;
mod store;
mod tables;
#[cfg(test)]
mod tests;
mod tokens;
mod watch;

pub use kube::Client;

pub use self::{
    access::ClusterAuthorizer,
    authority::Certificate,
    canary::{canary_definition, canary_definition_yaml},
    client::{ClientError, NamelessError, connect, connect_as_user},
    definition::{definition, definition_yaml, editor_schema},
    desired::{Plan, Refusal, Verdict},
    installation::Installation,
    inventory::{
        InventoryError, Part, Served, Version, Versions, discover, object, page, part, versions,
    },
    kinds::{GROUP, Kind, ROLLOUT_ANNOTATION, VERSION},
    lease::{ElectionTiming, Members, RulesDigest},
    namespaces::ClusterNamespaces,
    offline::merge_objects,
    options::{Certificates, Clock, Options, Timing, Trust},
    plugin::{Desired, Plugin, Serving},
    pull_secrets::ClusterPullSecrets,
    registrar::{Registered, Report, Standing},
    reports::{Written, write_reports, write_reports_in},
    run::{Handle, spawn},
    source::Source,
    tables::ClusterTables,
    tokens::ClusterTokens,
};
