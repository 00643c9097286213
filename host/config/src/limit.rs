//! All limits: key, unit, default, bounds, and the effect of reaching the limit.
//!
//! This table has three readers. The parser takes defaults and bounds from it. A test compares `docs/reference/configuration.md`
//! with it. People find all limits in one place.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::quantity::{
    format_bytes, format_count, format_duration, parse_bytes, parse_count, parse_go_duration,
};
use super::read::Fields;

/// The unit of an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A plain number, with decimal suffixes.
    Count,
    /// Bytes, with binary or decimal suffixes.
    Bytes,
    /// A time in Go's syntax. The amount is in nanoseconds.
    Duration,
    /// Hundredths.
    Percent,
}

/// One limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The key in the configuration file.
    pub key: &'static str,
    /// The unit of the amounts.
    pub unit: Unit,
    /// The value if the key is missing.
    pub default: u64,
    /// The smallest accepted value.
    pub minimum: u64,
    /// The largest accepted value.
    pub maximum: u64,
    /// The mechanism that enforces the limit.
    pub mechanism: &'static str,
    /// The effect of reaching the limit: a kind of fault, or `none:` and another effect.
    pub fault: &'static str,
}

/// The limits of one plugin. They apply per call unless stated otherwise.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Units of work: about one per WebAssembly instruction, plus the charges of host functions.
    pub fuel: u64,
    /// Time that the plugin runs, without waiting for a processor.
    pub cpu_time: Duration,
    /// Time from the start of the call to its answer.
    pub timeout: Duration,
    /// Size of all linear memories together.
    pub memory_bytes: u64,
    /// Number of linear memories.
    pub memories: u32,
    /// Number of tables.
    pub tables: u32,
    /// Number of elements of one table.
    pub table_elements: u32,
    /// Number of core instances that one call may create.
    pub instances: u32,
    /// Bytes that one call may pass to the host in total: the arguments of host functions and the answer.
    pub output_bytes: u64,
    /// Number of operations of one patch.
    pub patch_operations: u32,
    /// Number of warnings of one answer.
    pub warnings: u32,
    /// Number of audit annotations of one answer.
    pub annotations: u32,
    /// Number of log lines of one call.
    pub log_lines: u32,
    /// Number of concurrent calls of this plugin.
    pub concurrency: u32,
}

const KI: u64 = 1 << 10;
const MI: u64 = 1 << 20;
const GI: u64 = 1 << 30;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;
const MINUTE: u64 = 60 * SECOND;

macro_rules! limits {
    ($($(#[$meta:meta])* $name:ident = $key:literal $unit:ident $default:expr, $minimum:expr => $maximum:expr,
        $mechanism:literal, $fault:literal;)*) => {
        $($(#[$meta])* pub(crate) const $name: Limit = Limit {
            key: $key, unit: Unit::$unit, default: $default, minimum: $minimum, maximum: $maximum,
            mechanism: $mechanism, fault: $fault,
        };)*

        /// Every limit, in the order of the documentation.
        pub const LIMITS: &[Limit] = &[$($name),*];
    };
}

limits! {
    FUEL = "limits.fuel" Count 100_000_000, 1 => 1_000_000_000_000,
        "wasmtime fuel; host functions charge it too", "out-of-fuel";
    // 30 s is the longest time that kube-apiserver waits for a webhook.
    CPU_TIME = "limits.cpuTime" Duration 250 * MILLISECOND, MILLISECOND => 30 * SECOND,
        "epoch ticks of 1 ms, counted while the plugin runs", "cpu-deadline";
    TIMEOUT = "limits.timeout" Duration 500 * MILLISECOND, MILLISECOND => 30 * SECOND,
        "timer around the call", "deadline";
    MEMORY = "limits.memory" Bytes 32 * MI, 64 * KI => 4 * GI,
        "resource limiter, when a linear memory is created or grows", "memory";
    MEMORIES = "limits.memories" Count 4, 1 => 16,
        "resource limiter, at instantiation", "none: the plugin is not loaded";
    TABLES = "limits.tables" Count 8, 1 => 64,
        "resource limiter, at instantiation", "none: the plugin is not loaded";
    TABLE_ELEMENTS = "limits.tableElements" Count 20_000, 1 => 1_000_000,
        "resource limiter, when a table is created or grows", "memory";
    // A Python component has 33 or more.
    INSTANCES = "limits.instances" Count 64, 1 => 64,
        "resource limiter, at instantiation", "none: the plugin is not loaded";
    OUTPUT = "limits.output" Bytes 4 * MI, KI => 64 * MI,
        "host-call fuel, and the size of the answer", "output-too-large";
    PATCH_OPERATIONS = "limits.patchOperations" Count 10_000, 1 => 100_000,
        "count of the answer's operations", "output-too-large";
    WARNINGS = "limits.warnings" Count 16, 0 => 100,
        "count of the answer's warnings", "none: the rest is dropped";
    ANNOTATIONS = "limits.annotations" Count 16, 0 => 100,
        "count of the answer's annotations", "none: the rest is dropped";
    LOG_LINES = "limits.logLines" Count 100, 0 => 10_000,
        "count in the host function", "none: the rest is dropped";
    CONCURRENCY = "limits.concurrency" Count 16, 1 => 1_024,
        "semaphore per plugin; waiting counts towards `limits.timeout`", "deadline";
    MAX_BODY = "requests.maxBody" Bytes 40 * MI, 64 * KI => GI,
        "counted while the body is read", "none: the answer names the limit and follows failurePolicy";
    MAX_IN_FLIGHT = "requests.maxInFlight" Bytes 128 * MI, MI => 64 * GI,
        "counted over all requests being read or answered, as their bytes arrive", "none: HTTP 429 with Retry-After, which kube-apiserver retries";
    MAX_DECODED = "requests.maxDecoded" Bytes 256 * MI, 16 * MI => 64 * GI,
        "counted while reviews and plugins' answers are decoded, before the memory is allocated", "none: HTTP 429 with Retry-After; unreadable for a review that is too large by itself, output-too-large for an answer";
    // kube-apiserver keeps 25 idle connections. 1,000 is enough for forty kube-apiservers.
    MAX_CONNECTIONS = "requests.maxConnections" Count 1_000, 16 => 100_000,
        "counted when a connection is accepted", "none: an idle connection of the client with the most connections is closed";
    MARGIN_PERCENT = "requests.deadlineMargin.percent" Percent 10, 0 => 50,
        "subtracted from `?timeout=`; the larger of the two margins counts", "deadline";
    MARGIN_AT_LEAST = "requests.deadlineMargin.atLeast" Duration 50 * MILLISECOND, 0 => 5 * SECOND,
        "subtracted from `?timeout=`; the larger of the two margins counts", "deadline";
    DEFAULT_TIMEOUT = "requests.defaultTimeout" Duration 10 * SECOND, SECOND => 30 * SECOND,
        "the deadline of a request without `?timeout=`", "deadline";
    // kube-apiserver keeps idle connections for 90 s. A server that closes one first loses requests.
    IDLE_TIMEOUT = "requests.idleTimeout" Duration 120 * SECOND, 91 * SECOND => 60 * MINUTE,
        "timer per connection", "none: the connection is closed";
    SHUTDOWN_GRACE_PERIOD = "requests.shutdownGracePeriod" Duration 30 * SECOND, 0 => 10 * MINUTE,
        "timer from SIGTERM on", "none: unfinished requests are aborted";
    MAX_DEPTH = "requests.maxDepth" Count 120, 16 => 500,
        "counted while JSON is parsed, and in patched objects", "bad-patch for a plugin's answer, unreadable for a request";
    MAX_DECISIONS = "admin.decisions.maxCount" Count 1_000, 0 => 100_000,
        "the oldest decision is evicted for a new one", "none";
    MAX_DECISION_BYTES = "admin.decisions.maxBytes" Bytes 2 * MI, 64 * KI => GI,
        "the oldest decision is evicted for a new one", "none";
    MAX_CONCURRENT_CALLS = "engine.maxConcurrentCalls" Count 128, 1 => 1_024,
        "semaphore below the size of the instance pool", "none: HTTP 429 with Retry-After";
    MAX_MEMORY = "engine.maxMemory" Bytes 512 * MI, 64 * MI => 1024 * GI,
        "counted when a linear memory is created or grows", "none: HTTP 429 with Retry-After";
    ANSWER_CACHE = "engine.answerCache" Bytes 8 * MI, 0 => GI,
        "counted when an answer is kept, with all that the plugin was told; 0 keeps none", "none: the plugin's kept answers are forgotten";
    KEPT_INSTANCES = "engine.keptInstances" Count 256, 0 => 4_096,
        "counted when a call ends and its instance is to be kept; with 0, every call gets a new instance", "none: the next call gets a new instance";
    MAX_WASM_STACK = "engine.maxWasmStack" Bytes 512 * KI, 64 * KI => 8 * MI,
        "wasmtime's stack limit, the same for every plugin", "trap";
    MAX_PLUGIN = "engine.maxPlugin" Bytes 64 * MI, KI => GI,
        "counted while the file is read", "none: the plugin is not loaded";
    LOAD_TIMEOUT = "engine.loadTimeout" Duration 60 * SECOND, SECOND => 30 * MINUTE,
        "CPU time of each child process that prepares a plugin; its wall-clock time may be four times as long", "none: the plugin is not loaded";
    LOAD_MEMORY = "engine.loadMemory" Bytes GI, 64 * MI => 64 * GI,
        "data of each child process that prepares a plugin (RLIMIT_DATA)", "none: the plugin is not loaded";
    STARTUP_GRACE = "startupGrace" Duration 5 * MINUTE, 0 => 60 * MINUTE,
        "timer from the start, while a plugin under failurePolicy Fail has never been loaded; the default is `never` without `startupPeers`", "none: /readyz answers 503 during this time, and while a peer has all of its plugins";
    CANARY_INTERVAL = "cluster.registration.canaryInterval" Duration MINUTE, 5 * SECOND => 10 * MINUTE,
        "timer on the leader, between two canaries of a webhook", "none";
    POLL_INTERVAL = "registries.pollInterval" Duration MINUTE, SECOND => 24 * 60 * MINUTE,
        "timer per tag, randomized by up to 10 %", "none";
    PULL_TIMEOUT = "registries.timeout" Duration 30 * SECOND, SECOND => 30 * MINUTE,
        "timer around one pull and its retries", "none: the plugin keeps its version";
    MAX_CACHE = "registries.maxCache" Bytes GI, MI => 1024 * GI,
        "the least recently used artifacts are evicted", "none";
    MAX_RECORDING = "record.maxBytes" Bytes 256 * MI, MI => 1024 * GI,
        "the oldest segments of the recording are deleted", "none";
    MAX_RECORD_QUEUE = "record.maxQueue" Bytes 16 * MI, 64 * KI => GI,
        "counted over the reviews that wait to be written", "none: the review is answered, but not recorded";
    MAX_TENANTS = "tenancy.maxPlugins" Count 50, 1 => 100,
        "the oldest AdmissionPlugins of the cluster count", "none: the AdmissionPlugin is refused";
    MAX_TENANTS_PER_NAMESPACE = "tenancy.maxPluginsPerNamespace" Count 5, 1 => 100,
        "the oldest AdmissionPlugins of the namespace count", "none: the AdmissionPlugin is refused";
    TENANT_CALLS = "tenancy.budget.calls" Count 8, 1 => 1_024,
        "semaphore for the calls of all AdmissionPlugins; a namespace gets at most half of the places", "tenant-budget";
    TENANT_FUEL = "tenancy.budget.fuel" Count 1_000_000_000, 1_000_000 => 1_000_000_000_000,
        "fuel per second of all AdmissionPlugins, charged after each call; the next calls wait", "tenant-budget";
    TENANT_NAMESPACE_FUEL = "tenancy.budget.fuelPerNamespace" Count 200_000_000, 1_000_000 => 1_000_000_000_000,
        "fuel per second of the AdmissionPlugins of a namespace, charged after each call; the next calls wait", "tenant-budget";
    TENANT_CPU_TIME = "tenancy.budget.cpuTime" Duration 500 * MILLISECOND, MILLISECOND => 60 * SECOND,
        "CPU time per second of all AdmissionPlugins, charged after each call; the next calls wait", "tenant-budget";
    TENANT_NAMESPACE_CPU_TIME = "tenancy.budget.cpuTimePerNamespace" Duration 100 * MILLISECOND, MILLISECOND => 60 * SECOND,
        "CPU time per second of the AdmissionPlugins of a namespace, charged after each call; the next calls wait", "tenant-budget";
    RECORD_SHARE = "record.share" Percent 100, 1 => 100,
        "hash of the review's uid", "none: the other reviews are not recorded";
    SCAN_INTERVAL = "scan.interval" Duration 30 * MINUTE, 10 * SECOND => 24 * 60 * MINUTE,
        "timer from the begin of a scan", "none: the next scan begins when the one before has ended";
    SCAN_PAGE_SIZE = "scan.pageSize" Count 200, 10 => 500,
        "asked of kube-apiserver", "none";
    SCAN_MAX_PAGE = "scan.maxPage" Bytes 8 * MI, 4 * MI => 256 * MI,
        "counted while a page is read", "none: smaller pages, or the objects one by one";
    SCAN_MAX_RATE = "scan.maxRate" Count 200, 1 => 100_000,
        "pauses between objects that are read or judged", "none: the scan takes longer";
    SCAN_MAX_MEMORY = "scan.maxMemory" Bytes 64 * MI, MI => 64 * GI,
        "estimate of the results that are kept", "none: further results are counted, and judged again in the next scan";
    SCAN_MAX_REPORT = "scan.maxReport" Bytes 256 * KI, 64 * KI => 64 * MI,
        "counted while the reports of a namespace are made", "none: further results are counted in the summary";
    TRACE_SHARE = "telemetry.traces.share" Percent 1, 0 => 100,
        "random number, unless an authenticated caller sends `traceparent`", "none: the other reviews are not traced";
    TRACES_TIMEOUT = "telemetry.traces.timeout" Duration 10 * SECOND, 100 * MILLISECOND => MINUTE,
        "timer around one request to the collector", "none: Tollgate tries again, and then drops the spans";
    MAX_TRACE_QUEUE = "telemetry.traces.maxQueue" Bytes 4 * MI, 64 * KI => GI,
        "counted over the spans that wait to be exported", "none: the review is answered, but not traced";
    ALLOWED_SHARE = "telemetry.decisions.allowedShare" Percent 1, 0 => 100,
        "hash of the review's uid", "none: the other decisions to allow are not exported";
    DECISIONS_TIMEOUT = "telemetry.decisions.timeout" Duration 10 * SECOND, 100 * MILLISECOND => MINUTE,
        "timer around one request to the collector", "none: Tollgate tries again, and then drops the decisions";
    MAX_EXPORT_QUEUE = "telemetry.decisions.maxQueue" Bytes 4 * MI, 64 * KI => GI,
        "counted over the decisions that wait to be exported", "none: the review is answered, but its decision is not exported";
    TUF_REFRESH = "signatures.tuf.refreshInterval" Duration 60 * MINUTE, MINUTE => 24 * 60 * MINUTE,
        "age of the last complete refresh of the trusted root", "none: Tollgate asks the repository again";
    TUF_LAST_KNOWN_GOOD = "signatures.tuf.lastKnownGoodFor" Duration 7 * 24 * 60 * MINUTE, 0 => 90 * 24 * 60 * MINUTE,
        "time since the metadata of the trusted root has expired", "none: keyless signatures do not count; loaded plugins keep serving";
    IMAGES_VERIFIED = "plugins[].images.verifiedFor" Duration 60 * MINUTE, SECOND => 30 * 24 * 60 * MINUTE,
        "age of the verification of a digest", "none: Tollgate asks the registry again";
    IMAGES_REFUSED = "plugins[].images.refusedFor" Duration 30 * SECOND, SECOND => 60 * MINUTE,
        "age of the refusal of a digest, or of the answer that a tag is missing", "none: Tollgate asks the registry again";
    IMAGES_RESOLVED = "plugins[].images.resolvedFor" Duration 10 * SECOND, SECOND => 60 * MINUTE,
        "age of the digest of a tag", "none: Tollgate asks the registry again";
    IMAGES_LAST_KNOWN_GOOD = "plugins[].images.lastKnownGoodFor" Duration 24 * 60 * MINUTE, 0 => 30 * 24 * 60 * MINUTE,
        "age of the verification of a digest whose registry does not answer", "none: the plugin is told that the registry is unavailable";
}

// === impl Unit ===

impl Unit {
    /// Returns the unit's name in the documentation.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Bytes => "bytes",
            Self::Duration => "duration",
            Self::Percent => "percent",
        }
    }

    /// Writes an amount the way it is written in a configuration file.
    #[must_use]
    pub fn format(self, amount: u64) -> String {
        match self {
            Self::Count => format_count(amount),
            Self::Bytes => format_bytes(amount),
            Self::Duration => format_duration(Duration::from_nanos(amount)),
            Self::Percent => amount.to_string(),
        }
    }

    pub(crate) fn parse(self, text: &str) -> Option<u64> {
        match self {
            Self::Count => parse_count(text),
            Self::Bytes => parse_bytes(text),
            Self::Duration => u64::try_from(parse_go_duration(text).ok()?.as_nanos()).ok(),
            Self::Percent => text.parse().ok(),
        }
    }

    pub(crate) fn expected(self) -> &'static str {
        match self {
            Self::Count => "a whole number, such as 250, 5k, 100M or 1G",
            Self::Bytes => "a number of bytes, such as 512Ki, 32Mi, 1Gi or 65536",
            Self::Duration => "a duration with its unit, such as 500ms, 1.5s or 1m30s",
            Self::Percent => "a whole number of percent, such as 10",
        }
    }
}

// === impl Limit ===

impl Limit {
    /// Returns the last part of the key.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.key.rsplit('.').next().unwrap_or(self.key)
    }

    pub(crate) fn default_duration(&self) -> Duration {
        Duration::from_nanos(self.default)
    }

    /// Returns the default as 32 bits, for limits whose bounds fit.
    pub(crate) fn default_u32(&self) -> u32 {
        u32::try_from(self.default).unwrap_or(u32::MAX)
    }
}

// === impl Limits ===

impl Limits {
    /// Reads the keys that are given, and takes the other values from `base`.
    pub fn read(mut fields: Fields<'_>, base: &Self, max_concurrent_calls: u32) -> Self {
        let limits = Self {
            fuel: fields.amount(&FUEL, base.fuel),
            cpu_time: fields.duration(&CPU_TIME, base.cpu_time),
            timeout: fields.duration(&TIMEOUT, base.timeout),
            memory_bytes: fields.amount(&MEMORY, base.memory_bytes),
            memories: fields.amount_u32(&MEMORIES, base.memories),
            tables: fields.amount_u32(&TABLES, base.tables),
            table_elements: fields.amount_u32(&TABLE_ELEMENTS, base.table_elements),
            instances: fields.amount_u32(&INSTANCES, base.instances),
            output_bytes: fields.amount(&OUTPUT, base.output_bytes),
            patch_operations: fields.amount_u32(&PATCH_OPERATIONS, base.patch_operations),
            warnings: fields.amount_u32(&WARNINGS, base.warnings),
            annotations: fields.amount_u32(&ANNOTATIONS, base.annotations),
            log_lines: fields.amount_u32(&LOG_LINES, base.log_lines),
            concurrency: fields
                .amount_u32(&CONCURRENCY, base.concurrency.min(max_concurrent_calls)),
        };
        if limits.concurrency > max_concurrent_calls {
            fields.problem(
                CONCURRENCY.name(),
                format!(
                    "got {}, expected at most {max_concurrent_calls}, which is engine.maxConcurrentCalls",
                    limits.concurrency
                ),
            );
        }
        fields.finish();
        limits
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel: FUEL.default,
            cpu_time: CPU_TIME.default_duration(),
            timeout: TIMEOUT.default_duration(),
            memory_bytes: MEMORY.default,
            memories: MEMORIES.default_u32(),
            tables: TABLES.default_u32(),
            table_elements: TABLE_ELEMENTS.default_u32(),
            instances: INSTANCES.default_u32(),
            output_bytes: OUTPUT.default,
            patch_operations: PATCH_OPERATIONS.default_u32(),
            warnings: WARNINGS.default_u32(),
            annotations: ANNOTATIONS.default_u32(),
            log_lines: LOG_LINES.default_u32(),
            concurrency: CONCURRENCY.default_u32(),
        }
    }
}
