//! The gate: a configuration's plugins, ready for reviews.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tollgate_admission::Endpoint;
use tollgate_admission::access::Authorizer;
use tollgate_admission::images::{ImageVerifier, PullSecrets};
use tollgate_admission::namespaces::Namespaces;
use tollgate_config::deadline::MAX_TIMEOUT;
use tollgate_config::{Config, PluginName};
use tollgate_gate::pipeline::Pipeline;
use tollgate_gate::plugin::{Plugin, PluginState};
use tollgate_json::document::{Json, Pointer, parse};
use tollgate_json::patch::{ApplyLimits, Operation, apply};
use tollgate_lookups::Tables;

use crate::answer::Answer;
use crate::error::{BuildError, FailedPlugin, ReviewError};
use crate::preparer::Preparer;
use crate::setup::{self, Examination, Options, Setup};

/// Nesting levels above the object: the AdmissionReview and its request.
const DEPTH_OF_OBJECT: u32 = 2;
/// Place of the object in an AdmissionReview.
const OBJECT: &str = "/request/object";
/// Limits for the host's own patch, which has already been checked.
const UNLIMITED: ApplyLimits = ApplyLimits {
    max_depth: u32::MAX,
    max_added_nodes: usize::MAX,
    max_added_bytes: usize::MAX,
    max_steps: usize::MAX,
};

/// The plugins of one configuration, ready for reviews.
///
/// A gate is made for many reviews at once: share it in an `Arc`. A gate needs a tokio runtime with timers, and is fastest
/// on one with several threads.
///
/// The gate reserves address space for `engine.maxConcurrentCalls` calls. Build one gate for a process, not one for a
/// review. If `engine.cacheDirectory` is not set, the compiled code is in a temporary folder, which is deleted with the
/// gate.
pub struct Gate {
    pipeline: Pipeline,
    max_body_bytes: u64,
    max_depth: u32,
    timeout: Duration,
    plugins: Vec<LoadedPlugin>,
    failed: Vec<FailedPlugin>,
    /// Owns the folder of the compiled code.
    setup: Setup,
}

/// Builds a [`Gate`].
#[derive(Debug)]
#[must_use]
pub struct GateBuilder {
    config: Config,
    preparer: Preparer,
    timeout: Option<Duration>,
    allows_failed_plugins: bool,
    namespaces: Option<Arc<dyn Namespaces>>,
    tables: Option<Arc<dyn Tables>>,
    authorizer: Option<Arc<dyn Authorizer>>,
    images: Option<Arc<dyn ImageVerifier>>,
    pull_secrets: Option<Arc<dyn PullSecrets>>,
}

/// A plugin that a [`Gate`] has loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadedPlugin {
    /// The name in the configuration.
    pub name: PluginName,
    /// The version that the plugin gives itself. May be empty.
    pub version: String,
    /// SHA-256 of the plugin's file, as `sha256:…`.
    pub digest: String,
    /// Whether the plugin can mutate objects.
    pub mutates: bool,
    /// Whether the plugin can validate requests.
    pub validates: bool,
}

// === impl Gate ===

impl Gate {
    /// Starts to build a gate for a configuration.
    ///
    /// The gate uses the sections `plugins`, `limits`, `engine`, `registries` and `requests`. It ignores those of the
    /// server, such as `listen` and `tls`, and shadow versions.
    pub fn builder(config: Config) -> GateBuilder {
        GateBuilder {
            config,
            preparer: Preparer::default(),
            timeout: None,
            allows_failed_plugins: false,
            namespaces: None,
            tables: None,
            authorizer: None,
            images: None,
            pull_secrets: None,
        }
    }

    /// Reviews a request as a whole: calls the mutators, and then the validators on the changed object.
    ///
    /// `review` is an AdmissionReview of `admission.k8s.io/v1` or `v1beta1` as JSON. If a mutator denies, no validator is
    /// called. Both steps share one timeout.
    ///
    /// # Errors
    /// When the review has no answer: the bytes are not an AdmissionReview, or the host has no room for it.
    pub async fn review(&self, review: impl Into<Vec<u8>>) -> Result<Answer, ReviewError> {
        let body = Bytes::from(review.into());
        let (received, deadline) = self.times();
        let mutated = self
            .examine(Endpoint::Mutate, body.clone(), received, deadline)
            .await?;
        if !mutated.outcome.allowed {
            return Ok(Answer::of_one(Endpoint::Mutate, mutated));
        }
        let (body, object) = self.changed(body, &mutated.outcome.patch)?;
        let validated = self
            .examine(Endpoint::Validate, body, received, deadline)
            .await?;
        Answer::of_both(mutated, validated, object)
    }

    /// Calls only the mutators, like the server's `/mutate`.
    ///
    /// # Errors
    /// When the review has no answer: the bytes are not an AdmissionReview, or the host has no room for it.
    pub async fn mutate(&self, review: impl Into<Vec<u8>>) -> Result<Answer, ReviewError> {
        self.one(Endpoint::Mutate, review.into()).await
    }

    /// Calls only the validators, like the server's `/validate`.
    ///
    /// # Errors
    /// When the review has no answer: the bytes are not an AdmissionReview, or the host has no room for it.
    pub async fn validate(&self, review: impl Into<Vec<u8>>) -> Result<Answer, ReviewError> {
        self.one(Endpoint::Validate, review.into()).await
    }

    /// Returns the loaded plugins, in the order in which mutators run. Disabled plugins are left out.
    #[must_use]
    pub fn plugins(&self) -> &[LoadedPlugin] {
        &self.plugins
    }

    /// Returns the plugins that could not be loaded. Empty unless the gate was built with
    /// [`GateBuilder::allow_failed_plugins`].
    #[must_use]
    pub fn failed_plugins(&self) -> &[FailedPlugin] {
        &self.failed
    }

    /// Returns the metrics of this gate as OpenMetrics text. Metrics of the server are in it, and stay 0.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.setup.metrics.encode()
    }

    async fn one(&self, endpoint: Endpoint, review: Vec<u8>) -> Result<Answer, ReviewError> {
        let (received, deadline) = self.times();
        let examined = self
            .examine(endpoint, Bytes::from(review), received, deadline)
            .await?;
        Ok(Answer::of_one(endpoint, examined))
    }

    async fn examine(
        &self,
        endpoint: Endpoint,
        body: Bytes,
        received: Instant,
        deadline: Instant,
    ) -> Result<Examination, ReviewError> {
        setup::examine(
            &self.pipeline,
            self.max_body_bytes,
            endpoint,
            body,
            received,
            deadline,
        )
        .await
    }

    fn times(&self) -> (Instant, Instant) {
        let received = Instant::now();
        (received, received + self.timeout)
    }

    /// Returns the review with the mutators' object, and that object. The object is None if the review has none, or is
    /// one that no plugin could be shown.
    fn changed(
        &self,
        body: Bytes,
        patch: &[Operation],
    ) -> Result<(Bytes, Option<Json>), ReviewError> {
        if body.len() as u64 > self.max_body_bytes {
            return Ok((body, None));
        }
        let Ok(review) = parse(&body, self.max_depth.saturating_add(DEPTH_OF_OBJECT)) else {
            return Ok((body, None));
        };
        let object = review
            .member("request")
            .and_then(|request| request.member("object"));
        let Some(before) = object.filter(|object| !object.is_null()) else {
            return Ok((body, None));
        };
        if patch.is_empty() {
            return Ok((body, Some(before.clone())));
        }
        let internal =
            |error: String| ReviewError::Internal(format!("cannot apply the patch: {error}"));
        let after =
            apply(before, patch, &UNLIMITED).map_err(|error| internal(error.to_string()))?;
        let place = Pointer::parse(OBJECT).map_err(|error| internal(error.to_string()))?;
        let replaced = Operation::Replace {
            path: place,
            value: after.clone(),
        };
        let review =
            apply(&review, &[replaced], &UNLIMITED).map_err(|error| internal(error.to_string()))?;
        Ok((Bytes::from(review.to_text()), Some(after)))
    }
}

// === impl GateBuilder ===

impl GateBuilder {
    /// Sets the program that prepares plugins. The default is [`Preparer::this_program`].
    pub fn preparer(self, preparer: Preparer) -> Self {
        Self { preparer, ..self }
    }

    /// Sets the time that one review may take, at most 30 seconds. The default is `requests.defaultTimeout`.
    ///
    /// A plugin that is not done by then has a fault, and its `failurePolicy` applies. `requests.deadlineMargin` is not
    /// subtracted, because there is no network to wait for.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self {
            timeout: Some(timeout),
            ..self
        }
    }

    /// Builds the gate even if plugins cannot be loaded. Their `failurePolicy` then applies to the requests that they
    /// match, as in the server. [`Gate::failed_plugins`] names them.
    pub fn allow_failed_plugins(self) -> Self {
        Self {
            allows_failed_plugins: true,
            ..self
        }
    }

    /// Sets where the gate looks up the Namespace of a request, such as a list of Namespaces
    /// ([`FixedNamespaces`](crate::namespaces::FixedNamespaces)). Without it, a plugin that needs a
    /// namespace has a fault.
    pub fn namespaces(self, namespaces: Arc<dyn Namespaces>) -> Self {
        Self {
            namespaces: Some(namespaces),
            ..self
        }
    }

    /// Sets where the objects of lookups come from, such as a list of objects
    /// ([`FileTables`](crate::lookups::FileTables)). Without it, lookups answer `not-synchronised`.
    pub fn lookups(self, tables: Arc<dyn Tables>) -> Self {
        Self {
            tables: Some(tables),
            ..self
        }
    }

    /// Sets who says what users may do, such as a list of rights ([`FixedRights`](crate::access::FixedRights)). Without it,
    /// every question of a plugin is `unavailable`.
    pub fn authorizer(self, authorizer: Arc<dyn Authorizer>) -> Self {
        Self {
            authorizer: Some(authorizer),
            ..self
        }
    }

    /// Sets who verifies images, such as a list ([`FixedImages`](crate::images::FixedImages)). Without it, the gate asks
    /// the registries that the configuration of each plugin names under `images`.
    pub fn images(self, images: Arc<dyn ImageVerifier>) -> Self {
        Self {
            images: Some(images),
            ..self
        }
    }

    /// Sets who reads the `imagePullSecrets` of Pods, in the namespaces that the configuration of a plugin lists under
    /// `images.pullSecretNamespaces`. Without it, the images of such Pods are `unavailable`.
    pub fn pull_secrets(self, pull_secrets: Arc<dyn PullSecrets>) -> Self {
        Self {
            pull_secrets: Some(pull_secrets),
            ..self
        }
    }

    /// Sets up the engine and loads all plugins.
    ///
    /// The first load of a plugin compiles it, which takes from some milliseconds to many seconds, depending on its
    /// size. With `engine.cacheDirectory`, later loads of the same bytes take milliseconds.
    ///
    /// # Errors
    /// When the engine cannot be set up, or a plugin cannot be loaded. [`BuildError::Plugins`] names each plugin that
    /// failed.
    pub async fn build(self) -> Result<Gate, BuildError> {
        let Self {
            config,
            preparer,
            timeout,
            allows_failed_plugins,
            namespaces,
            tables,
            authorizer,
            images,
            pull_secrets,
        } = self;
        let options = Options {
            preparer,
            namespaces,
            tables,
            authorizer,
            images,
            pull_secrets,
            ..Options::default()
        };
        let setup = Setup::new(&config, &options)?;
        let set = setup.loader.load_all(config.plugins).await;
        let failed: Vec<FailedPlugin> = set.iter().filter_map(|plugin| failure(plugin)).collect();
        if !failed.is_empty() && !allows_failed_plugins {
            return Err(BuildError::Plugins(failed));
        }
        let plugins = set.iter().filter_map(|plugin| loaded(plugin)).collect();
        let pipeline = setup.pipeline(set, &config.requests, &config.engine);
        let timeout = timeout.unwrap_or(config.requests.default_timeout);
        Ok(Gate {
            pipeline,
            max_body_bytes: config.requests.max_body_bytes,
            max_depth: config.requests.max_depth,
            timeout: timeout.min(MAX_TIMEOUT),
            plugins,
            failed,
            setup,
        })
    }
}

fn failure(plugin: &Plugin) -> Option<FailedPlugin> {
    match &plugin.state {
        PluginState::Failed { reason } => Some(FailedPlugin {
            name: plugin.config.name.clone(),
            reason: reason.clone(),
        }),
        PluginState::Loaded(_) | PluginState::Disabled => None,
    }
}

fn loaded(plugin: &Plugin) -> Option<LoadedPlugin> {
    let PluginState::Loaded(loaded) = &plugin.state else {
        return None;
    };
    let interfaces = loaded.interfaces();
    Some(LoadedPlugin {
        name: plugin.config.name.clone(),
        version: loaded.manifest.version.clone(),
        digest: plugin.digest.as_deref()?.to_owned(),
        mutates: interfaces.mutating,
        validates: interfaces.validating,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_send<T: Send>(_: &T) {}
    fn is_shared<T: Send + Sync>() {}

    /// A server handles each request on a separate task.
    #[test]
    fn can_be_used_from_tasks() {
        is_shared::<Gate>();
        is_shared::<Answer>();
        let _ = |gate: &'static Gate| {
            is_send(&gate.review(""));
            is_send(&gate.mutate(""));
        };
        let _ = |builder: GateBuilder| is_send(&builder.build());
    }
}
