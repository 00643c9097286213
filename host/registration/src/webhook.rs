//! Kubernetes' own types, with only the printed fields, in Kubernetes' order.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Serialize;
use tollgate_admission::Endpoint;
use tollgate_config::LabelTest;

use super::Participant;
use super::rules::RegisteredRule;
use tollgate_config as config;

/// The label with a namespace's name. Kubernetes sets it on every namespace.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Webhooks {
    #[serde(skip)]
    endpoint: Endpoint,
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    webhooks: Vec<Webhook>,
}

/// Address at which kube-apiserver reaches the host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Address {
    /// A service in the cluster.
    Service {
        /// The service's namespace.
        namespace: String,
        /// The service's name.
        name: String,
        /// The service's port.
        port: u16,
    },
    /// An `https` URL without a query. The webhook's path is appended to it.
    Url(String),
}

/// Kubernetes' ObjectMeta.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Metadata {
    name: String,
    labels: BTreeMap<&'static str, &'static str>,
}

/// Kubernetes' MutatingWebhook and ValidatingWebhook.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Webhook {
    pub(super) name: String,
    pub(super) client_config: ClientConfig,
    pub(super) rules: Vec<RegisteredRule>,
    pub(super) failure_policy: &'static str,
    pub(super) match_policy: &'static str,
    pub(super) namespace_selector: LabelSelector,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) match_conditions: Vec<MatchCondition>,
    pub(super) side_effects: &'static str,
    pub(super) timeout_seconds: u32,
    pub(super) admission_review_versions: [&'static str; 2],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reinvocation_policy: Option<&'static str>,
}

/// Kubernetes' WebhookClientConfig.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClientConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<ServiceReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_bundle: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct ServiceReference {
    namespace: String,
    name: String,
    path: String,
    port: u16,
}

/// Kubernetes' LabelSelector.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LabelSelector {
    match_expressions: Vec<Requirement>,
}

#[derive(Clone, Debug, Serialize)]
struct Requirement {
    pub key: String,
    operator: &'static str,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    values: BTreeSet<String>,
}

/// Kubernetes' MatchCondition.
#[derive(Clone, Debug, Serialize)]
pub(super) struct MatchCondition {
    pub(super) name: String,
    pub(super) expression: String,
}

/// Returns the `namespaceSelector` that all plugins of a webhook have. None if theirs differ: a webhook for all plugins
/// must be called for each of them.
pub(super) fn shared_namespace_selector<'p>(
    plugins: &[Participant<'p>],
) -> Option<&'p config::LabelSelector> {
    let mut selectors = plugins
        .iter()
        .map(|plugin| &plugin.matching.namespace_selector);
    let first = selectors.next()?;
    selectors.all(|other| other == first).then_some(first)
}

// === impl Webhooks ===

impl Webhooks {
    /// Writes the configurations as YAML, one document each.
    ///
    /// # Errors
    ///
    /// None are known: YAML can represent every value in the configurations.
    pub fn to_yaml(documents: &[Self]) -> Result<String, serde_saphyr::ser::Error> {
        let options = serde_saphyr::ser_options! {
            // Folding would add line breaks to the caBundle and to CEL.
            prefer_block_scalars: false,
        };
        serde_saphyr::to_string_multiple_with_options(documents, options)
    }

    /// Returns the endpoint that the configuration registers.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    pub(crate) fn new(endpoint: Endpoint, metadata: Metadata, webhooks: Vec<Webhook>) -> Self {
        Self {
            endpoint,
            api_version: "admissionregistration.k8s.io/v1",
            kind: match endpoint {
                Endpoint::Mutate => "MutatingWebhookConfiguration",
                Endpoint::Validate => "ValidatingWebhookConfiguration",
            },
            metadata,
            webhooks,
        }
    }
}

// === impl Metadata ===

impl Metadata {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            labels: [("app.kubernetes.io/name", "tollgate")].into(),
        }
    }
}

// === impl ClientConfig ===

impl ClientConfig {
    pub(crate) fn new(address: &Address, path: &str, ca_bundle: Option<&[u8]>) -> Self {
        let (url, service) = match address {
            Address::Url(base) => (Some(format!("{}{path}", base.trim_end_matches('/'))), None),
            Address::Service {
                namespace,
                name,
                port,
            } => {
                let service = ServiceReference {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    path: path.to_owned(),
                    port: *port,
                };
                (None, Some(service))
            }
        };
        Self {
            url,
            service,
            ca_bundle: ca_bundle.map(|pem| STANDARD.encode(pem)),
        }
    }
}

// === impl LabelSelector ===

impl LabelSelector {
    pub(super) fn of_namespaces(
        only: Option<BTreeSet<String>>,
        excluded: BTreeSet<String>,
    ) -> Self {
        let requirement = |operator, values| Requirement {
            key: NAMESPACE_LABEL.to_owned(),
            operator,
            values,
        };
        let only = only.map(|names| requirement("In", names));
        let excluded = (!excluded.is_empty()).then(|| requirement("NotIn", excluded));
        Self {
            match_expressions: only.into_iter().chain(excluded).collect(),
        }
    }

    /// Adds the requirements of a plugin's own selector.
    pub(super) fn and(mut self, selector: Option<&config::LabelSelector>) -> Self {
        let more = selector.and_then(Self::of_objects);
        self.match_expressions
            .extend(more.into_iter().flat_map(|more| more.match_expressions));
        self
    }

    /// Converts a label selector. None if it selects everything.
    pub(super) fn of_objects(selector: &config::LabelSelector) -> Option<Self> {
        let requirements = selector.requirements.iter().map(|requirement| {
            let (operator, values) = match &requirement.test {
                LabelTest::In(values) => ("In", values.as_slice()),
                LabelTest::NotIn(values) => ("NotIn", values.as_slice()),
                LabelTest::Exists => ("Exists", Default::default()),
                LabelTest::DoesNotExist => ("DoesNotExist", Default::default()),
            };
            Requirement {
                key: requirement.key.to_string(),
                operator,
                values: values.iter().map(|value| value.to_string()).collect(),
            }
        });
        let match_expressions: Vec<Requirement> = requirements.collect();
        (!match_expressions.is_empty()).then_some(Self { match_expressions })
    }
}
