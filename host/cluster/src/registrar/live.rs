//! Follows the live webhook configurations.

use std::collections::BTreeSet;

use futures_util::StreamExt as _;
use k8s_openapi::ByteString;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use tokio::sync::watch;
use tollgate_admission::Endpoint;

use super::plan::Known;
use super::record::{RECORD_ANNOTATION, Record};
use crate::api::words;

/// The live webhook configurations of the installation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live {
    mutate: Option<Seen>,
    validate: Option<Seen>,
}

/// The last known version of one configuration.
#[derive(Clone, Debug)]
struct Seen {
    /// None if there is no configuration.
    object: Option<Value>,
    /// The version of the object, or that of its deletion.
    version: u64,
}

/// The plugins that have rules in the live webhook configurations. None while that is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registered(pub(crate) Option<BTreeSet<String>>);

/// The webhook configurations of an endpoint, in the cluster.
pub(super) fn api(client: Client, endpoint: Endpoint) -> Api<DynamicObject> {
    Api::all_with(client, &resource(endpoint))
}

fn resource(endpoint: Endpoint) -> ApiResource {
    let kind = match endpoint {
        Endpoint::Mutate => "MutatingWebhookConfiguration",
        Endpoint::Validate => "ValidatingWebhookConfiguration",
    };
    ApiResource {
        group: "admissionregistration.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "admissionregistration.k8s.io/v1".to_owned(),
        kind: kind.to_owned(),
        plural: format!("{}s", kind.to_lowercase()),
    }
}

/// Reads the record of a configuration. Returns none if it has no readable record.
pub(super) fn known_of(object: &Value) -> Option<Known> {
    let record = object["metadata"]["annotations"][RECORD_ANNOTATION].as_str();
    record.and_then(Record::read).map(Known::Recorded)
}

/// Follows the configuration of an endpoint, for as long as the process lives.
pub(crate) async fn follow(
    client: Client,
    endpoint: Endpoint,
    name: String,
    live: watch::Sender<Live>,
) {
    let config = Config::default().fields(&format!("metadata.name={name}"));
    let events = watcher(api(client, endpoint), config);
    let mut events = events.default_backoff().boxed();
    let mut listed = None;
    let mut failed = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                failed = false;
                match event {
                    Event::Init => listed = None,
                    Event::InitApply(object) => listed = Some(object),
                    Event::InitDone => live.send_modify(|live| match listed.take() {
                        Some(object) => live.see(endpoint, &object),
                        None => live.list_empty(endpoint),
                    }),
                    Event::Apply(object) => live.send_modify(|live| live.see(endpoint, &object)),
                    Event::Delete(object) => live.send_modify(|live| live.lose(endpoint, &object)),
                }
            }
            Err(error) => {
                if !failed {
                    let error = words(&error);
                    tracing::warn!(
                        webhooks = endpoint.name(),
                        error,
                        "cannot watch the webhook configuration; retrying"
                    );
                }
                failed = true;
            }
        }
    }
}

// === impl Live ===

impl Live {
    /// Takes note of an object, unless a later version is known.
    pub(crate) fn see(&mut self, endpoint: Endpoint, object: &DynamicObject) {
        let value = serde_json::to_value(object).expect("the keys of the maps are strings");
        self.put(endpoint, version(object), Some(value));
    }

    /// Takes note that the object was deleted, unless a later version is known.
    pub(crate) fn lose(&mut self, endpoint: Endpoint, object: &DynamicObject) {
        self.put(endpoint, version(object), None);
    }

    /// Takes note that a list had no object.
    pub(crate) fn list_empty(&mut self, endpoint: Endpoint) {
        *self.slot(endpoint) = Some(Seen {
            object: None,
            version: 0,
        });
    }

    /// The live object. None if it is not known; `Some(None)` if there is none.
    pub(crate) fn object(&self, endpoint: Endpoint) -> Option<Option<&Value>> {
        let seen = match endpoint {
            Endpoint::Mutate => self.mutate.as_ref(),
            Endpoint::Validate => self.validate.as_ref(),
        };
        seen.map(|seen| seen.object.as_ref())
    }

    /// The record of the live object. None if it is not known yet.
    pub(super) fn known(&self, endpoint: Endpoint) -> Option<Known> {
        let object = self.object(endpoint)?;
        Some(match object {
            None => Known::Absent,
            Some(object) => known_of(object).unwrap_or(Known::Unrecorded),
        })
    }

    /// The plugins with rules in either configuration.
    pub(crate) fn registered(&self) -> Registered {
        let mut names = BTreeSet::new();
        for endpoint in [Endpoint::Mutate, Endpoint::Validate] {
            match self.known(endpoint) {
                Some(Known::Absent) => {}
                Some(Known::Recorded(record)) => names.extend(record.0.into_keys()),
                Some(Known::Unrecorded) | None => return Registered(None),
            }
        }
        Registered(Some(names))
    }

    /// The `caBundle`s of all webhooks, in PEM. None while one of the configurations is not known. A webhook without a
    /// `caBundle` has none here.
    pub(crate) fn bundles(&self) -> Option<BTreeSet<Vec<u8>>> {
        let mut bundles = BTreeSet::new();
        for endpoint in [Endpoint::Mutate, Endpoint::Validate] {
            let object = self.object(endpoint)?;
            let webhooks = object.and_then(|object| object["webhooks"].as_array());
            let of_webhooks = webhooks.into_iter().flatten().filter_map(|webhook| {
                let bundle = &webhook["clientConfig"]["caBundle"];
                serde_json::from_value::<ByteString>(bundle.clone()).ok()
            });
            bundles.extend(of_webhooks.map(|bundle| bundle.0));
        }
        Some(bundles)
    }

    fn slot(&mut self, endpoint: Endpoint) -> &mut Option<Seen> {
        match endpoint {
            Endpoint::Mutate => &mut self.mutate,
            Endpoint::Validate => &mut self.validate,
        }
    }

    fn put(&mut self, endpoint: Endpoint, version: u64, object: Option<Value>) {
        let slot = self.slot(endpoint);
        // A watch may still deliver what was there before an own write.
        if slot
            .as_ref()
            .is_none_or(|seen| version == 0 || seen.version <= version)
        {
            *slot = Some(Seen { object, version });
        }
    }
}

fn version(object: &DynamicObject) -> u64 {
    let version = object.resource_version();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

// === impl Registered ===

impl Registered {
    /// Whether the plugin has rules, or may have some because the live rules are not known.
    #[must_use]
    pub fn may_have(&self, plugin: &str) -> bool {
        self.0.as_ref().is_none_or(|names| names.contains(plugin))
    }

    /// The names of the plugins with rules. None while they are not known.
    #[must_use]
    pub fn names(&self) -> Option<&BTreeSet<String>> {
        self.0.as_ref()
    }
}
