//! All metrics of the host, in one value that is created once and passed in.
//!
//! Names carry the prefix `tollgate_` and use Prometheus base units. Label values are plugin names, versions, digests,
//! configuration keys, file paths, status codes and words from fixed lists. No part of an object ever becomes a label.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

mod access;
mod exports;
mod images;
mod lookups;
mod plugin;
mod rollout;
mod roots;
mod scan;
mod uses;

use tollgate_admission::Phase;

use self::access::AccessMetrics;
pub use self::exports::ExportDrop;
use self::exports::ExportMetrics;
use self::images::ImageMetrics;
use self::lookups::LookupMetrics;
pub use self::lookups::{LookupProbe, LookupReading};
use self::plugin::PluginFamilies;
pub use self::plugin::{Outcome, PluginMetrics};
use self::rollout::RolloutMetrics;
pub use self::rollout::RolloutReview;
use self::roots::RootMetrics;
pub use self::scan::{ScanMetrics, Scanned};
pub use self::uses::ExceptionUses;

/// The media type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Buckets for the duration of a request, in seconds: those of kube-apiserver's webhook histogram, with more low ones.
const REQUEST_BUCKETS_SECONDS: [f64; 15] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// Reasons of [`Metrics::recording_dropped`].
const RECORDING_DROPPED: [&str; 3] = ["queue", "unreadable", "write"];

/// The registry and every family in it.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    request_duration: Family<EndpointLabels, Histogram, fn() -> Histogram>,
    overload: Family<ReasonLabels, Counter>,
    authentication_failures: Family<ReasonLabels, Counter>,
    certificate_expiry: Family<FileLabels, Gauge>,
    credential_degraded: Family<SettingLabels, Gauge>,
    reviews: Family<ReviewLabels, Counter>,
    conflicts: Family<ConflictLabels, Counter>,
    unserved_reviews: Family<UnservedLabels, Counter>,
    config_reloads: Family<ResultLabels, Counter>,
    config_last_reload_successful: Gauge,
    config_last_reload_success: Gauge,
    plugins_loaded: Gauge,
    plugin_information: Family<PluginInformationLabels, Gauge>,
    plugin: PluginFamilies,
    lookups: LookupMetrics,
    rollouts: RolloutMetrics,
    audit_dropped: Counter,
    recorded_reviews: Counter,
    recording_bytes: Counter,
    recording_dropped: Family<ReasonLabels, Counter>,
    exports: ExportMetrics,
    access: AccessMetrics,
    images: ImageMetrics,
    roots: RootMetrics,
    shadow_comparisons: Family<ComparisonLabels, Counter>,
    shadow_near_fuel_limit: Family<ComparedPluginLabels, Counter>,
    /// The background scan.
    pub scan: ScanMetrics,
    /// Requests that are being read, reviewed or answered.
    pub requests_in_flight: Gauge,
    /// Request bytes that are held.
    pub bytes_in_flight: Gauge,
    /// Memory that decoded documents use.
    pub decoded_bytes: Gauge,
    /// Linear memory that running calls use.
    pub call_memory_bytes: Gauge,
    /// Open connections of the HTTPS listener.
    pub connections: Gauge,
    /// Connections that failed the TLS handshake.
    pub tls_handshake_failures: Counter,
    /// Bodies above `requests.maxBody`.
    pub oversized_bodies: Counter,
    /// Requests that ended in a panic of the host.
    pub panics: Counter,
    /// Whether this replica leads its installation.
    pub registration_leader: Gauge,
    /// Plugins whose rules wait for a replica.
    pub registration_waiting_plugins: Gauge,
    /// Whether the webhook configurations are not as desired.
    pub registration_problem: Gauge,
    /// Repairs of webhook configurations that somebody else had changed.
    pub registration_repairs: Counter,
}

/// The limit that made the host refuse a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Overload {
    /// The request would have exceeded `requests.maxInFlight`.
    Bytes,
    /// The request would have exceeded `requests.maxDecoded`.
    Decoded,
    /// The gate had no room: every instance slot was taken.
    Instances,
    /// Other password checks took all the time that the request had.
    Passwords,
}

/// The result of comparing a shadow's call with its plugin's call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Comparison {
    /// The plugin and its shadow gave the same answer.
    Same,
    /// The answers differ.
    Different,
    /// No result: the shadow's call ran out of time.
    Unfinished,
    /// No result: there was no room for the call.
    Dropped,
}

/// Why no configured plugin is for a review.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Unserved {
    /// The path names a plugin that was removed from the configuration.
    Removed,
    /// The path names a plugin whose custom resource is not valid, with no earlier version to serve.
    Refused,
    /// The path names a plugin of the configuration that is not loaded yet.
    Pending,
    /// The path names a plugin that this server never had.
    Unknown,
    /// The path names a plugin that does not take part in this phase.
    Phase,
    /// No rule of any plugin matches the request.
    Unmatched,
}

/// The credential that a client failed to present.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum AuthenticationFailure {
    /// No accepted client certificate.
    Certificate,
    /// No credential of an accepted kind.
    Missing,
    /// No accepted bearer token.
    Bearer,
    /// No accepted name and password.
    Basic,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RequestLabels {
    endpoint: &'static str,
    code: u16,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct EndpointLabels {
    endpoint: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct FileLabels {
    file: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct SettingLabels {
    setting: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ReviewLabels {
    endpoint: &'static str,
    version: &'static str,
    verdict: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct UnservedLabels {
    endpoint: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ConflictLabels {
    plugin: String,
    overwrote: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ComparisonLabels {
    plugin: String,
    phase: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ComparedPluginLabels {
    plugin: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct PluginInformationLabels {
    plugin: String,
    digest: String,
    version: String,
}

// === impl Metrics ===

impl Metrics {
    /// Creates a registry with every family at zero.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let mut registry = Registry::with_prefix("tollgate");
        let mut metrics = Self {
            requests: Family::default(),
            request_duration: Family::new_with_constructor(|| {
                Histogram::new(REQUEST_BUCKETS_SECONDS)
            }),
            overload: Family::default(),
            authentication_failures: Family::default(),
            certificate_expiry: Family::default(),
            credential_degraded: Family::default(),
            reviews: Family::default(),
            conflicts: Family::default(),
            unserved_reviews: Family::default(),
            config_reloads: Family::default(),
            config_last_reload_successful: Gauge::default(),
            config_last_reload_success: Gauge::default(),
            plugins_loaded: Gauge::default(),
            plugin_information: Family::default(),
            plugin: PluginFamilies::register(&mut registry),
            lookups: LookupMetrics::register(&mut registry),
            rollouts: RolloutMetrics::register(&mut registry),
            scan: ScanMetrics::register(&mut registry),
            audit_dropped: Counter::default(),
            recorded_reviews: Counter::default(),
            recording_bytes: Counter::default(),
            recording_dropped: Family::default(),
            exports: ExportMetrics::register(&mut registry),
            access: AccessMetrics::register(&mut registry),
            images: ImageMetrics::register(&mut registry),
            roots: RootMetrics::register(&mut registry),
            shadow_comparisons: Family::default(),
            shadow_near_fuel_limit: Family::default(),
            requests_in_flight: Gauge::default(),
            bytes_in_flight: Gauge::default(),
            decoded_bytes: Gauge::default(),
            call_memory_bytes: Gauge::default(),
            connections: Gauge::default(),
            tls_handshake_failures: Counter::default(),
            oversized_bodies: Counter::default(),
            panics: Counter::default(),
            registration_leader: Gauge::default(),
            registration_waiting_plugins: Gauge::default(),
            registration_problem: Gauge::default(),
            registration_repairs: Counter::default(),
            registry: Registry::default(),
        };
        metrics.register_server(&mut registry);
        metrics.register_reviews(&mut registry);
        metrics.register_live(&mut registry);
        metrics.register_registration(&mut registry);
        metrics.registry = registry;
        metrics.begin();
        Arc::new(metrics)
    }

    /// Creates series with the value zero, because an alert on an increase needs a value before the first event.
    fn begin(&self) {
        for reason in Overload::ALL.map(Overload::name) {
            drop(self.overload.get_or_create(&ReasonLabels { reason }));
        }
        for reason in AuthenticationFailure::ALL.map(AuthenticationFailure::name) {
            let labels = ReasonLabels { reason };
            drop(self.authentication_failures.get_or_create(&labels));
        }
        for reason in RECORDING_DROPPED {
            drop(
                self.recording_dropped
                    .get_or_create(&ReasonLabels { reason }),
            );
        }
        for endpoint in [Phase::Mutate, Phase::Validate].map(Phase::name) {
            for verdict in ["allowed", "denied", "error"] {
                let labels = ReviewLabels {
                    endpoint,
                    version: "v1",
                    verdict,
                };
                drop(self.reviews.get_or_create(&labels));
            }
            for reason in Unserved::ALL.map(Unserved::name) {
                let labels = UnservedLabels { endpoint, reason };
                drop(self.unserved_reviews.get_or_create(&labels));
            }
        }
    }

    fn register_server(&self, registry: &mut Registry) {
        registry.register(
            "requests",
            "Requests of the HTTPS listener, by endpoint and HTTP status code; code 499: the client \
             went away",
            self.requests.clone(),
        );
        registry.register_with_unit(
            "request_duration",
            "Time from the head of a request to its answer",
            Unit::Seconds,
            self.request_duration.clone(),
        );
        registry.register(
            "requests_in_flight",
            "Requests being read, evaluated or answered",
            self.requests_in_flight.clone(),
        );
        registry.register(
            "in_flight_bytes",
            "Bytes of requests in flight, limited by requests.maxInFlight",
            self.bytes_in_flight.clone(),
        );
        registry.register(
            "decoded_bytes",
            "Memory of decoded documents, limited by requests.maxDecoded",
            self.decoded_bytes.clone(),
        );
        registry.register(
            "call_memory_bytes",
            "Linear memory of the calls in progress, limited by engine.maxMemory",
            self.call_memory_bytes.clone(),
        );
        registry.register(
            "connections",
            "Open connections of the HTTPS listener",
            self.connections.clone(),
        );
        registry.register(
            "tls_handshake_failures",
            "Connections that failed the TLS handshake",
            self.tls_handshake_failures.clone(),
        );
        registry.register(
            "authentication_failures",
            "Handshakes and requests that failed authentication, by the credential that was wrong or missing",
            self.authentication_failures.clone(),
        );
        registry.register(
            "overload_rejections",
            "Requests answered with 429, by the limit that was reached",
            self.overload.clone(),
        );
        registry.register(
            "oversized_bodies",
            "Request bodies larger than requests.maxBody",
            self.oversized_bodies.clone(),
        );
        registry.register(
            "panics",
            "Requests that ended in a panic of the host: each is a defect of Tollgate",
            self.panics.clone(),
        );
        registry.register(
            "certificate_expiry_timestamp_seconds",
            "Expiry of a served or trusted certificate, in seconds since 1970",
            self.certificate_expiry.clone(),
        );
        registry.register(
            "credential_degraded",
            "1 while the files of a certificate, token or password are unusable and their previous content stays in \
             force",
            self.credential_degraded.clone(),
        );
    }

    fn register_registration(&self, registry: &mut Registry) {
        registry.register(
            "registration_leader",
            "1 on the replica that registers the webhooks of its installation",
            self.registration_leader.clone(),
        );
        registry.register(
            "registration_waiting_plugins",
            "Plugins whose rules are not registered as desired because a ready replica does not serve them",
            self.registration_waiting_plugins.clone(),
        );
        registry.register(
            "registration_problem",
            "1 on the leader while the webhook configurations are not as desired",
            self.registration_problem.clone(),
        );
        registry.register(
            "registration_repairs",
            "Webhook configurations that this replica restored because somebody else had changed them",
            self.registration_repairs.clone(),
        );
    }

    fn register_reviews(&self, registry: &mut Registry) {
        registry.register(
            "reviews",
            "Reviews answered, by endpoint, AdmissionReview version and verdict",
            self.reviews.clone(),
        );
        registry.register(
            "unserved_reviews",
            "Reviews that no configured plugin is for, because the registration differs from the configuration, by \
             reason",
            self.unserved_reviews.clone(),
        );
        registry.register(
            "conflicts",
            "Mutations that overwrote a change of an earlier plugin",
            self.conflicts.clone(),
        );
        registry.register(
            "audit_dropped",
            "Calls of plugins in mode audit or warn that were not run because the host had no room for them",
            self.audit_dropped.clone(),
        );
        registry.register(
            "recorded_reviews",
            "Reviews that were written to the recording",
            self.recorded_reviews.clone(),
        );
        registry.register_with_unit(
            "recording_written",
            "Compressed bytes that were written to the recording",
            Unit::Bytes,
            self.recording_bytes.clone(),
        );
        registry.register(
            "recording_dropped",
            "Reviews that should be in the recording and are not, by reason",
            self.recording_dropped.clone(),
        );
        registry.register(
            "shadow_comparisons",
            "Calls of a plugin that its shadow was due to repeat, by result",
            self.shadow_comparisons.clone(),
        );
        registry.register(
            "shadow_near_fuel_limit",
            "Calls of a plugin's shadow that used more than 80 % of its limits.fuel, or all of it",
            self.shadow_near_fuel_limit.clone(),
        );
        registry.register(
            "plugins_loaded",
            "Plugins that are loaded and serving",
            self.plugins_loaded.clone(),
        );
        registry.register(
            "plugin_info",
            "Always 1; the labels name the version that serves under a plugin's name",
            self.plugin_information.clone(),
        );
    }

    fn register_live(&self, registry: &mut Registry) {
        registry.register(
            "config_reloads",
            "Reconciliations of the configuration and the plugins after a change or on request, by result",
            self.config_reloads.clone(),
        );
        registry.register(
            "config_last_reload_successful",
            "1 if everything that the configuration desires is served, otherwise 0",
            self.config_last_reload_successful.clone(),
        );
        registry.register(
            "config_last_reload_success_timestamp_seconds",
            "Last time at which everything that the configuration desires was served, in seconds since 1970",
            self.config_last_reload_success.clone(),
        );
    }

    /// Returns all metrics as OpenMetrics text.
    #[must_use]
    pub fn encode(&self) -> String {
        self.lookups.refresh();
        let mut text = String::with_capacity(16 * 1024);
        if encode(&mut text, &self.registry).is_err() {
            // Writing into a string fails only if a metric's own encoder fails. The text then lacks its end marker, so
            // a scraper reports an error and does not store half of the metrics.
            tracing::error!("the metrics could not be encoded");
        }
        text
    }

    /// Returns the metrics of one plugin. Resolve them once at load and keep them with the plugin.
    #[must_use]
    pub fn plugin(&self, name: &str) -> PluginMetrics {
        self.plugin.resolve(name)
    }

    /// Replaces the lookups whose tables the metrics show.
    pub fn observe_lookups(&self, probes: Vec<LookupProbe>) {
        self.lookups.observe(probes);
    }

    /// Records that a version of a plugin started to serve.
    pub fn plugin_loaded(&self, plugin: &str, digest: &str, version: &str) {
        let labels = PluginInformationLabels::new(plugin, digest, version);
        let gauge = self.plugin_information.get_or_create_owned(&labels);
        if gauge.set(1) == 0 {
            self.plugins_loaded.inc();
        }
    }

    /// Records that a version of a plugin stopped serving.
    pub fn plugin_unloaded(&self, plugin: &str, digest: &str, version: &str) {
        let labels = PluginInformationLabels::new(plugin, digest, version);
        if self.plugin_information.remove(&labels) {
            self.plugins_loaded.dec();
        }
    }

    /// Counts a reload of the configuration and the plugins. `result` is a word from a fixed list.
    pub fn reloaded(&self, result: &'static str) {
        self.config_reloads
            .get_or_create(&ResultLabels { result })
            .inc();
    }

    /// Sets whether everything in the configuration is served.
    pub fn as_configured(&self, all: bool, timestamp_seconds: i64) {
        self.config_last_reload_successful.set(all.into());
        if all {
            self.config_last_reload_success.set(timestamp_seconds);
        }
    }

    /// Sets whether a plugin's desired version cannot be loaded, so that another one serves.
    pub fn plugin_degraded(&self, plugin: &str, degraded: bool) {
        self.plugin.degraded(plugin, degraded);
    }

    /// Sets whether a plugin keeps its previous configuration because another plugin cannot change.
    pub fn plugin_held(&self, plugin: &str, held: bool) {
        self.plugin.held(plugin, held);
    }

    /// Sets which plugins kube-apiserver was shown to call, and which ones not. Other plugins have no value.
    pub fn plugins_effective(&self, plugins: &BTreeMap<String, bool>) {
        self.plugin.effective(plugins);
    }

    /// When a plugin was called last. None if it was not called since the start.
    #[must_use]
    pub fn last_call(&self, plugin: &str) -> Option<SystemTime> {
        self.plugin.last_call(plugin)
    }

    /// Removes the gauges of a plugin that is no longer configured.
    pub fn plugin_gone(&self, plugin: &str) {
        self.plugin.gone(plugin);
    }

    /// Counts an answered review. `version` is `v1` or `v1beta1`. `verdict` is a word from a fixed list, such as
    /// `allowed` or `denied`.
    pub fn review(&self, endpoint: &'static str, version: &'static str, verdict: &'static str) {
        self.reviews
            .get_or_create(&ReviewLabels {
                endpoint,
                version,
                verdict,
            })
            .inc();
    }

    /// Counts a review that no configured plugin is for.
    pub fn unserved(&self, endpoint: &'static str, reason: Unserved) {
        let reason = reason.name();
        self.unserved_reviews
            .get_or_create(&UnservedLabels { endpoint, reason })
            .inc();
    }

    /// Counts that `plugin` changed or removed a value that `overwrote` had written.
    pub fn conflict(&self, plugin: &str, overwrote: &str) {
        self.conflicts
            .get_or_create(&ConflictLabels {
                plugin: plugin.to_owned(),
                overwrote: overwrote.to_owned(),
            })
            .inc();
    }

    /// Counts reviews that were written to the recording, and their compressed size.
    pub fn recorded(&self, reviews: u64, bytes: u64) {
        self.recorded_reviews.inc_by(reviews);
        self.recording_bytes.inc_by(bytes);
    }

    /// Counts reviews that should be in the recording and are not. `reason` is a word from a fixed list.
    pub fn recording_dropped(&self, reason: &'static str, reviews: u64) {
        self.recording_dropped
            .get_or_create(&ReasonLabels { reason })
            .inc_by(reviews);
    }

    /// Counts an audit-mode call that did not run because too many were waiting.
    pub fn audit_dropped(&self) {
        self.audit_dropped.inc();
    }

    /// Counts a call that a plugin's shadow was to repeat, by result.
    pub fn compared(&self, plugin: &str, phase: Phase, result: Comparison) {
        let labels = ComparisonLabels {
            plugin: plugin.to_owned(),
            phase: phase.name(),
            result: result.name(),
        };
        self.shadow_comparisons.get_or_create(&labels).inc();
    }

    /// Counts a call in which a plugin's shadow came close to its fuel limit.
    pub fn shadow_near_fuel_limit(&self, plugin: &str) {
        let plugin = plugin.to_owned();
        let labels = ComparedPluginLabels { plugin };
        self.shadow_near_fuel_limit.get_or_create(&labels).inc();
    }

    /// Counts a request that got 429. The server counts all reasons: it maps `Reply::Overloaded` to
    /// [`Overload::Instances`] and `Reply::Crowded` to [`Overload::Decoded`].
    pub fn overloaded(&self, reason: Overload) {
        self.overload
            .get_or_create(&ReasonLabels {
                reason: reason.name(),
            })
            .inc();
    }

    /// Counts a client that failed authentication.
    pub fn authentication_failed(&self, failure: AuthenticationFailure) {
        self.authentication_failures
            .get_or_create(&ReasonLabels {
                reason: failure.name(),
            })
            .inc();
    }

    /// Counts a request that was answered or abandoned by its client (code 499).
    pub fn request(&self, endpoint: &'static str, code: u16, duration: Duration) {
        self.requests
            .get_or_create(&RequestLabels { endpoint, code })
            .inc();
        self.request_duration
            .get_or_create(&EndpointLabels { endpoint })
            .observe(duration.as_secs_f64());
    }

    /// Sets whether the files of a setting are unusable, so that their previous content stays in use.
    pub fn credential_degraded(&self, setting: &str, degraded: bool) {
        let setting = setting.to_owned();
        self.credential_degraded
            .get_or_create_owned(&SettingLabels { setting })
            .set(degraded.into());
    }

    /// Sets the expiry of a served certificate, in seconds since 1970.
    pub fn certificate(&self, file: Option<&Path>, timestamp_seconds: i64) {
        let file = file.map_or_else(
            || "self-signed".to_owned(),
            |path| path.display().to_string(),
        );
        self.certificate_expiry
            .get_or_create(&FileLabels { file })
            .set(timestamp_seconds);
    }
}

// === impl Comparison ===

impl Comparison {
    fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Different => "different",
            Self::Unfinished => "unfinished",
            Self::Dropped => "dropped",
        }
    }
}

// === impl Overload ===

impl Overload {
    const ALL: [Self; 4] = [Self::Bytes, Self::Decoded, Self::Instances, Self::Passwords];

    fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Decoded => "decoded",
            Self::Instances => "instances",
            Self::Passwords => "passwords",
        }
    }
}

// === impl Unserved ===

impl Unserved {
    const ALL: [Self; 6] = [
        Self::Removed,
        Self::Refused,
        Self::Pending,
        Self::Unknown,
        Self::Phase,
        Self::Unmatched,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Refused => "refused",
            Self::Pending => "pending",
            Self::Unknown => "unknown",
            Self::Phase => "phase",
            Self::Unmatched => "unmatched",
        }
    }
}

// === impl AuthenticationFailure ===

impl AuthenticationFailure {
    const ALL: [Self; 4] = [Self::Certificate, Self::Missing, Self::Bearer, Self::Basic];

    /// Returns the name used in metrics and log lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::Missing => "missing",
            Self::Bearer => "bearer",
            Self::Basic => "basic",
        }
    }
}

// === impl PluginInformationLabels ===

impl PluginInformationLabels {
    fn new(plugin: &str, digest: &str, version: &str) -> Self {
        Self {
            plugin: plugin.to_owned(),
            digest: digest.to_owned(),
            version: version.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_every_family_with_prefix_and_unit() {
        let metrics = Metrics::new();
        metrics.request("mutate", 200, Duration::from_millis(2));
        metrics.overloaded(Overload::Bytes);
        metrics.authentication_failed(AuthenticationFailure::Missing);
        metrics.review("mutate", "v1", "allowed");
        metrics.conflict("second", "first");
        metrics.unserved("validate", Unserved::Removed);
        metrics.plugin_loaded("first", "sha256:ab", "1.0.0");
        metrics.audit_dropped();
        metrics.recorded(3, 700);
        metrics.recording_dropped("queue", 2);
        metrics.compared("first", Phase::Validate, Comparison::Different);
        metrics.shadow_near_fuel_limit("first");
        metrics.certificate(None, 17);
        let text = metrics.encode();
        for line in [
            "tollgate_requests_total{endpoint=\"mutate\",code=\"200\"} 1",
            "tollgate_request_duration_seconds_count{endpoint=\"mutate\"} 1",
            "tollgate_overload_rejections_total{reason=\"bytes\"} 1",
            "tollgate_authentication_failures_total{reason=\"missing\"} 1",
            "tollgate_reviews_total{endpoint=\"mutate\",version=\"v1\",verdict=\"allowed\"} 1",
            "tollgate_conflicts_total{plugin=\"second\",overwrote=\"first\"} 1",
            "tollgate_plugin_info{plugin=\"first\",digest=\"sha256:ab\",version=\"1.0.0\"} 1",
            "tollgate_unserved_reviews_total{endpoint=\"validate\",reason=\"removed\"} 1",
            "tollgate_plugins_loaded 1",
            "tollgate_audit_dropped_total 1",
            "tollgate_recorded_reviews_total 3",
            "tollgate_recording_written_bytes_total 700",
            "tollgate_recording_dropped_total{reason=\"queue\"} 2",
            "tollgate_recording_dropped_total{reason=\"write\"} 0",
            "tollgate_shadow_comparisons_total{plugin=\"first\",phase=\"validate\",result=\"different\"} 1",
            "tollgate_shadow_near_fuel_limit_total{plugin=\"first\"} 1",
            "tollgate_certificate_expiry_timestamp_seconds{file=\"self-signed\"} 17",
            "# EOF",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn exports_counters_as_zero_before_first_event() {
        let text = Metrics::new().encode();
        for line in [
            "tollgate_overload_rejections_total{reason=\"bytes\"} 0",
            "tollgate_overload_rejections_total{reason=\"decoded\"} 0",
            "tollgate_overload_rejections_total{reason=\"instances\"} 0",
            "tollgate_overload_rejections_total{reason=\"passwords\"} 0",
            "tollgate_authentication_failures_total{reason=\"bearer\"} 0",
            "tollgate_reviews_total{endpoint=\"validate\",version=\"v1\",verdict=\"error\"} 0",
            "tollgate_unserved_reviews_total{endpoint=\"mutate\",reason=\"unmatched\"} 0",
            "tollgate_panics_total 0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn counts_loaded_version_once_until_it_is_unloaded() {
        let metrics = Metrics::new();
        metrics.plugin_loaded("a", "sha256:1", "1");
        metrics.plugin_loaded("a", "sha256:1", "1");
        assert!(metrics.encode().contains("tollgate_plugins_loaded 1"));
        metrics.plugin_unloaded("a", "sha256:1", "1");
        metrics.plugin_unloaded("a", "sha256:1", "1");
        let text = metrics.encode();
        assert!(text.contains("tollgate_plugins_loaded 0"));
        assert!(!text.contains("sha256:1"));
    }
}
