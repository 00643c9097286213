//! Every hostile module hits its intended limit and harms no other plugin.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_tests::checker::{Checked, Endpoint};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::hostile;
use tollgate_tests::reviews::{Review, as_sent, nested_pod, pod};
use tollgate_tests::server::{Answer, Server, Start, metric};

/// A fixture under some limits, with the expected result.
struct Case {
    /// The plugin's name: the fixture's name, with a suffix if one fixture hits several limits.
    name: &'static str,
    fixture: &'static str,
    endpoint: Endpoint,
    /// The object of the review.
    subject: Subject,
    /// Further keys of the plugin's configuration, as JSON.
    configuration: &'static str,
    expected: Expected,
}

/// The object of a review.
#[derive(Clone, Copy)]
enum Subject {
    /// The creation of a Pod.
    Pod,
    /// The creation of a Pod with a list of 20,000 numbers in its spec.
    LargePod,
    /// The creation of a Pod with 1,000 levels of nesting.
    DeepPod,
    /// The deletion of a Pod.
    DeletedPod,
}

/// The expected result for a plugin.
#[derive(Clone, Copy)]
enum Expected {
    /// The plugin is not loaded. The reason contains these words.
    NotLoaded(&'static str),
    /// Its call ends with this fault, whose message contains these words.
    Fault(&'static str, &'static str),
    /// Its denial counts. The message contains these words.
    Denied(&'static str),
    /// Its answer counts and allows the request, with this many operations.
    Allowed(usize),
    /// Its answer counts and allows the request unchanged. No snapshot was possible, and the reason contains these
    /// words.
    Unsnapshotted(&'static str),
}

/// Enough time that fuel is the limit.
const MUCH_TIME: &str = r#"{"limits": {"cpuTime": "20s", "timeout": "20s"}}"#;
/// Little fuel and much time, for modules that get a multiple of their fuel at load.
const LITTLE_FUEL: &str = r#"{"limits": {"fuel": "1M", "cpuTime": "20s", "timeout": "20s"}}"#;
/// Enough fuel and wall-clock time that CPU time is the limit.
const LITTLE_CPU: &str = r#"{"limits": {"fuel": "1000G", "cpuTime": "50ms", "timeout": "20s"}}"#;
/// Enough fuel and CPU time that wall-clock time is the limit.
const LITTLE_TIME: &str = r#"{"limits": {"fuel": "1000G", "cpuTime": "20s", "timeout": "50ms"}}"#;
const DEFAULTS: &str = "{}";

const fn validating(name: &'static str, configuration: &'static str, expected: Expected) -> Case {
    Case {
        name,
        fixture: name,
        endpoint: Endpoint::Validate,
        subject: Subject::Pod,
        configuration,
        expected,
    }
}

const fn mutating(name: &'static str, configuration: &'static str, expected: Expected) -> Case {
    Case {
        name,
        fixture: name,
        endpoint: Endpoint::Mutate,
        subject: Subject::Pod,
        configuration,
        expected,
    }
}

impl Case {
    const fn of(self, fixture: &'static str) -> Self {
        Self { fixture, ..self }
    }

    const fn shown(self, subject: Subject) -> Self {
        Self { subject, ..self }
    }
}

use Expected::{Allowed, Denied, Fault, NotLoaded, Unsnapshotted};

#[rustfmt::skip]
const CASES: &[Case] = &[
    // Files that are not plugins.
    validating("not-wasm", DEFAULTS, NotLoaded("not WebAssembly")),
    validating("empty", DEFAULTS, NotLoaded("not WebAssembly")),
    validating("truncated", DEFAULTS, NotLoaded("componentize")),
    validating("no-wit", DEFAULTS, NotLoaded("without an embedded WIT world")),
    validating("only-lifecycle", DEFAULTS, NotLoaded("does not export `tollgate:admission/validating@0.1.0`")),
    validating("no-lifecycle", DEFAULTS, NotLoaded("does not export `tollgate:admission/lifecycle@0.1.0`")),
    validating("missing-export", DEFAULTS, NotLoaded("componentize")),
    validating("other-version", DEFAULTS, NotLoaded("tollgate:admission/lifecycle@0.9.0")),
    validating("misshapen", DEFAULTS, NotLoaded("does not fit the contract")),
    validating("unknown-import", DEFAULTS, NotLoaded("it imports `tollgate:hostile/unknown`")),
    validating("ungranted-clock", DEFAULTS, NotLoaded("capabilities: [clock]")),
    validating("memory64", DEFAULTS, NotLoaded("compile")),
    validating("shared-memory", DEFAULTS, NotLoaded("compile")),
    validating("many-memories", DEFAULTS, NotLoaded("compile")),
    // Modules that fail at load.
    validating("start-loop", LITTLE_FUEL, NotLoaded("describe: out-of-fuel")),
    validating("start-trap", DEFAULTS, NotLoaded("describe: trap")),
    validating("describe-loop", LITTLE_FUEL, NotLoaded("describe: out-of-fuel")),
    validating("describe-huge", DEFAULTS, NotLoaded("describe: output-too-large")),
    validating("describe-bad-rules", DEFAULTS, NotLoaded("describe.rules[0].operations[0]")),
    validating("large-initial-memory", DEFAULTS, NotLoaded("describe: memory")),
    // 4 GiB exceed the child process's own limit before they exceed the plugin's.
    validating("huge-initial-memory", DEFAULTS, NotLoaded("describe: memory")),
    validating("configure-loop", LITTLE_FUEL, NotLoaded("configure: out-of-fuel")),
    validating("start-sleep", DEFAULTS, NotLoaded("describe: deadline: the plugin slept")),
    validating("describe-sleep", DEFAULTS, NotLoaded("describe: deadline: the plugin slept")),
    validating("configure-sleep", DEFAULTS, NotLoaded("configure: deadline: the plugin slept")),
    validating("configure-naps", MUCH_TIME, NotLoaded("configure: deadline: the plugin slept")),
    validating("configure-asks-for-review", DEFAULTS, NotLoaded("configure: contract-violation")),
    validating("configure-rejects", DEFAULTS, NotLoaded("settings.colour: must be red or green")),
    // Modules that cannot be snapshotted but still run.
    validating("snapshot-fixed-memory", DEFAULTS, Unsnapshotted("panicked")),
    validating("snapshot-refused", DEFAULTS, Unsnapshotted("table.set")),
    validating("snapshot-name-taken", DEFAULTS, Unsnapshotted("__wizer_")),
    // Endless loops, under each limit.
    validating("validate-loop", MUCH_TIME, Fault("out-of-fuel", "limits.fuel")),
    validating("validate-loop-cpu", LITTLE_CPU, Fault("cpu-deadline", "limits.cpuTime")).of("validate-loop"),
    validating("validate-loop-wall", LITTLE_TIME, Fault("deadline", "deadline passed")).of("validate-loop"),
    mutating("mutate-loop", MUCH_TIME, Fault("out-of-fuel", "limits.fuel")),
    mutating("mutate-loop-cpu", LITTLE_CPU, Fault("cpu-deadline", "limits.cpuTime")).of("mutate-loop"),
    validating("bulk-fill", LITTLE_CPU, Fault("cpu-deadline", "limits.cpuTime")),
    validating("realloc-loop", MUCH_TIME, Fault("out-of-fuel", "limits.fuel")),
    validating("post-return-loop", MUCH_TIME, Fault("out-of-fuel", "limits.fuel")),
    validating("wasi-sleep", LITTLE_TIME, Fault("deadline", "deadline passed")),
    // Floods of host calls.
    validating("flood-log", r#"{"limits": {"output": "64Mi", "fuel": "10M", "cpuTime": "20s", "timeout": "20s"}}"#, Fault("out-of-fuel", "limits.fuel")),
    validating("flood-get", MUCH_TIME, Fault("out-of-fuel", "limits.fuel")),
    validating("flood-get-many", MUCH_TIME, Fault("out-of-fuel", "limits.fuel")),
    validating("flood-select", MUCH_TIME, Fault("out-of-fuel", "limits.fuel")).shown(Subject::LargePod),
    validating("flood-json", MUCH_TIME, Fault("out-of-fuel", "limits.fuel")).shown(Subject::LargePod),
    validating("flood-output", MUCH_TIME, Fault("output-too-large", "limits.output")),
    validating("million-warnings", MUCH_TIME, Fault("output-too-large", "limits.output")),
    validating("million-warnings-fuel", LITTLE_FUEL, Fault("out-of-fuel", "limits.fuel")).of("million-warnings"),
    validating("million-warnings-paid", r#"{"limits": {"fuel": "1000G", "output": "64Mi", "cpuTime": "20s", "timeout": "20s"}}"#, Allowed(0)).of("million-warnings"),
    validating("many-annotations", MUCH_TIME, Allowed(0)),
    // Modules that use up memory, tables or the stack.
    validating("memory-bomb", DEFAULTS, Fault("memory", "limits.memory")),
    validating("table-bomb", DEFAULTS, Fault("memory", "limits.tableElements")),
    validating("recursion-bomb", MUCH_TIME, Fault("trap", "stack")),
    validating("throw-for-ever", r#"{"limits": {"fuel": "1000G", "cpuTime": "20s", "timeout": "20s", "memory": "1Mi"}}"#, Fault("memory", "limits.memory")),
    // Answers that are too large.
    mutating("patch-100-megabytes", MUCH_TIME, Fault("output-too-large", "limits.output")),
    mutating("patch-one-string", r#"{"limits": {"memory": "128Mi"}}"#, Fault("output-too-large", "limits.output")),
    mutating("patch-million-operations", MUCH_TIME, Fault("output-too-large", "limits.output")),
    mutating("patch-many-operations", r#"{"limits": {"patchOperations": 5000}}"#, Fault("output-too-large", "limits.patchOperations")).of("patch-many-copies"),
    validating("huge-message", MUCH_TIME, Fault("output-too-large", "limits.output")),
    validating("long-message", MUCH_TIME, Denied("nnnnnnnn")),
    validating("many-causes", MUCH_TIME, Denied("no")),
    // Invalid texts, and texts with control characters.
    validating("invalid-utf8-message", DEFAULTS, Fault("contract-violation", "UTF-8")),
    validating("invalid-utf8-argument", DEFAULTS, Fault("contract-violation", "UTF-8")),
    validating("control-characters", DEFAULTS, Denied("one two [31mred end")),
    validating("malformed-pointer", DEFAULTS, Fault("contract-violation", "pointer")),
    // Invalid answers.
    validating("unreachable", DEFAULTS, Fault("trap", "unreachable")),
    validating("throw", DEFAULTS, Fault("trap", "an exception that nothing caught")),
    validating("abort", DEFAULTS, Fault("trap", "index out of range (at src/policy.rs:42:7)")),
    validating("abort-and-carry-on", DEFAULTS, Fault("trap", "the plugin aborted")),
    validating("malformed-variant", DEFAULTS, Fault("contract-violation", "cannot be read")),
    validating("list-out-of-bounds", DEFAULTS, Fault("contract-violation", "cannot be read")),
    validating("answer-out-of-bounds", DEFAULTS, Fault("contract-violation", "cannot be read")),
    validating("answer-misaligned", DEFAULTS, Fault("contract-violation", "cannot be read")),
    validating("realloc-out-of-bounds", DEFAULTS, Fault("contract-violation", "")),
    validating("realloc-calls-host", DEFAULTS, Fault("trap", "leave")),
    validating("post-return-trap", DEFAULTS, Fault("trap", "unreachable")),
    // Patches that do not apply, or that make an object that Kubernetes would reject.
    mutating("patch-missing-parent", DEFAULTS, Fault("bad-patch", "/metadata/nothing/here")),
    mutating("patch-root", DEFAULTS, Fault("bad-patch", "of type number")),
    mutating("patch-annotation-boolean", DEFAULTS, Fault("bad-patch", "/metadata/annotations/flag")),
    mutating("patch-rename", DEFAULTS, Fault("bad-patch", "/metadata/name")),
    mutating("patch-managed-fields", DEFAULTS, Fault("bad-patch", "managedFields")),
    mutating("patch-invalid-json", DEFAULTS, Fault("bad-patch", "operation 0")),
    mutating("patch-two-documents", DEFAULTS, Fault("bad-patch", "operation 0")),
    mutating("patch-malformed-path", DEFAULTS, Fault("bad-patch", "operation 0")),
    mutating("patch-long-path", MUCH_TIME, Fault("bad-patch", "/a/a/a")),
    mutating("patch-deep", DEFAULTS, Fault("bad-patch", "/spec/deep")),
    mutating("patch-deep-by-steps", MUCH_TIME, Fault("bad-patch", "deep")),
    mutating("patch-copy-bomb", DEFAULTS, Fault("bad-patch", "adds more than")),
    mutating("patch-on-delete", DEFAULTS, Fault("bad-patch", "DELETE")).of("patch-valid").shown(Subject::DeletedPod),
    mutating("object-lossy", DEFAULTS, Fault("lossy-object", "/spec")),
    mutating("object-other-kind", DEFAULTS, Fault("bad-patch", "kind")),
    mutating("object-not-an-object", DEFAULTS, Fault("bad-patch", "of type array")),
    mutating("object-duplicate-keys", DEFAULTS, Fault("bad-patch", "kind")),
    // Patches that are expensive for the host.
    mutating("patch-many-copies", MUCH_TIME, Fault("bad-patch", "adds more than")).shown(Subject::LargePod),
    mutating("patch-many-inserts", MUCH_TIME, Fault("bad-patch", "steps")).shown(Subject::LargePod),
    mutating("merge-long-list", MUCH_TIME, Allowed(1)).shown(Subject::LargePod),
    mutating("merge-huge-list", MUCH_TIME, Allowed(1)).shown(Subject::LargePod),
    mutating("patch-many-places", MUCH_TIME, Allowed(1)),
    // A hostile object, which no plugin is shown.
    mutating("deep-object", DEFAULTS, Fault("unreadable", "requests.maxDepth")).of("patch-valid").shown(Subject::DeepPod),
    // A harmless patch.
    mutating("patch-valid", DEFAULTS, Allowed(1)),
    // WASI gives no access to anything.
    validating("wasi-environment", DEFAULTS, Allowed(0)),
];

impl Subject {
    fn review(self) -> Value {
        let review = match self {
            Self::Pod => Review::create(pod("target")),
            Self::LargePod => {
                let mut object = pod("target");
                object["spec"]["list"] = (0..20_000).map(Value::from).collect();
                Review::create(object)
            }
            Self::DeepPod => Review::create(nested_pod("target", 1000)),
            Self::DeletedPod => Review::delete(pod("target")),
        };
        review.build()
    }
}

fn path(endpoint: Endpoint, plugin: &str) -> String {
    match endpoint {
        Endpoint::Mutate => format!("/mutate/{plugin}"),
        Endpoint::Validate => format!("/validate/{plugin}"),
    }
}

fn phase(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Mutate => "mutate",
        Endpoint::Validate => "validate",
    }
}

/// Starts a server with every case as a plugin of that failure policy, and a harmless plugin among them.
fn server(failure_policy: &str, kept_instances: u32, cache: &std::path::Path) -> Server {
    let modules = hostile::all();
    let mut configuration = Configuration::new()
        .with("engine.cacheDirectory", cache.to_string_lossy())
        // Every call runs.
        .with("engine.answerCache", 0)
        .with("engine.keptInstances", kept_instances);
    for case in CASES {
        let module = modules
            .get(case.fixture)
            .unwrap_or_else(|| panic!("there is no fixture {}", case.fixture));
        let mut keys: Value = serde_json::from_str(case.configuration)
            .unwrap_or_else(|error| panic!("{}: {error} in {}", case.name, case.configuration));
        keys["failurePolicy"] = json!(failure_policy);
        configuration.plugin_of(case.name, module, keys);
    }
    configuration.plugin_of("harmless", &hostile::harmless(), json!({}));
    Server::start(configuration)
}

/// Sends the case's review, and in parallel a review to the harmless plugin, which must allow it.
async fn ask(server: &Server, case: &Case) -> (Answer, Checked) {
    let review = case.subject.review();
    let hostile_path = path(case.endpoint, case.name);
    let good_review = Review::create(pod("neighbour")).build();
    let (answer, neighbour) = tokio::join!(
        server.post(&hostile_path, &review),
        server.post("/validate/harmless", &good_review)
    );
    let neighbour = neighbour.checked(Endpoint::Validate, &good_review);
    assert!(
        neighbour.allowed,
        "{}: the harmless plugin denies a request",
        case.name
    );
    let checked = answer.checked(case.endpoint, &review);
    (answer, checked)
}

fn fault(case: &Case) -> Option<(&'static str, &'static str)> {
    match case.expected {
        NotLoaded(words) => Some(("not-loaded", words)),
        Fault(kind, words) => Some((kind, words)),
        Denied(_) | Allowed(_) | Unsnapshotted(_) => None,
    }
}

fn message(checked: &Checked) -> String {
    let text = checked
        .status
        .as_ref()
        .and_then(|status| status["message"].as_str());
    text.unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_hostile_module_ends_in_its_fault() {
    every_case_holds(0, 1).await;
}

/// The second call of a plugin gets the instance of the first, if that one could be kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_hostile_module_ends_in_its_fault_in_a_kept_instance() {
    every_case_holds(64, 2).await;
}

/// Collects all mismatches for all cases, so that one run shows everything. Each plugin is called this often, and the last
/// answers count.
async fn every_case_holds(kept_instances: u32, calls: usize) {
    let cache = tempfile::tempdir().expect("a temporary folder can be made: is TMPDIR writable?");
    let failing_closed = server("Fail", kept_instances, cache.path());
    let failing_open = server("Ignore", kept_instances, cache.path());
    let mut wrong = Vec::new();
    let mut table = String::from(
        "fixture | fault | Fail: HTTP, allowed, code, message | Ignore: HTTP, allowed\n",
    );
    for case in CASES {
        for _ in 1..calls {
            ask(&failing_closed, case).await;
            ask(&failing_open, case).await;
        }
        let (closed_answer, closed) = ask(&failing_closed, case).await;
        let (open_answer, open) = ask(&failing_open, case).await;
        let mut expect = |holds: bool, what: String| {
            if !holds {
                wrong.push(format!("{}: {what}", case.name));
            }
        };
        let code = closed
            .status
            .as_ref()
            .map_or(Value::Null, |status| status["code"].clone());
        let said = message(&closed);
        let kind = closed
            .audit_annotations
            .get(&format!("{}.fault", case.name))
            .map_or("–", String::as_str);
        let shown = &said[..said.floor_char_boundary(160)];
        let _ = writeln!(
            table,
            "{} | {kind} | {}, {}, {}, {shown} | {}, {}",
            case.name,
            closed_answer.status,
            closed.allowed,
            code.as_u64()
                .map_or_else(|| "–".to_owned(), |code| code.to_string()),
            open_answer.status,
            open.allowed
        );
        match case.expected {
            Denied(words) => {
                for checked in [&closed, &open] {
                    expect(
                        !checked.allowed,
                        "the request is allowed, although the plugin denies it".to_owned(),
                    );
                    let said = message(checked);
                    expect(
                        said.contains(words),
                        format!("`{words}` is not in `{said}`"),
                    );
                }
                expect(code == 403, format!("the code of the denial is {code}"));
            }
            Allowed(_) | Unsnapshotted(_) => {
                let operations = if let Allowed(operations) = case.expected {
                    operations
                } else {
                    0
                };
                for checked in [&closed, &open] {
                    expect(checked.allowed, format!("refused: {}", message(checked)));
                    let found = checked.patch.len();
                    expect(
                        found == operations,
                        format!("{found} operations, not {operations}"),
                    );
                }
            }
            NotLoaded(_) | Fault(..) => {
                let (kind, words) = fault(case).unwrap_or_default();
                expect(
                    !closed.allowed,
                    "the plugin fails, and the request is allowed under Fail".to_owned(),
                );
                expect(code == 500, format!("the code is {code}"));
                expect(
                    said.contains(case.name),
                    format!("the plugin's name is not in `{said}`"),
                );
                expect(
                    said.contains(words),
                    format!("`{words}` is not in `{said}`"),
                );
                let annotated = closed
                    .audit_annotations
                    .get(&format!("{}.fault", case.name));
                expect(
                    annotated.is_some_and(|found| found == kind),
                    format!("the fault is {annotated:?}, not {kind}"),
                );
                expect(
                    open.allowed,
                    format!(
                        "it fails, and the request does not pass under Ignore: {}",
                        message(&open)
                    ),
                );
                expect(
                    open.patch.is_empty(),
                    "it fails, and the object is changed".to_owned(),
                );
                let annotated = open
                    .audit_annotations
                    .get(&format!("{}.failed-open", case.name));
                expect(
                    annotated.is_some_and(|found| found == kind),
                    format!("it failed open by {annotated:?}, not {kind}"),
                );
            }
        }
        for answer in [&closed_answer, &open_answer] {
            let took = answer.took;
            expect(
                took.as_secs() < 10,
                format!("it took {} s", took.as_secs_f64()),
            );
            if took.as_millis() > 400 {
                println!("slow: {}: {} ms", case.name, took.as_millis());
            }
        }
    }
    println!("{table}");
    for (server, failure_policy) in [(&failing_closed, "Fail"), (&failing_open, "Ignore")] {
        let page = server.metrics().await;
        for case in CASES {
            let Some((kind, _)) = fault(case) else {
                continue;
            };
            let labels = [
                ("plugin", case.name),
                ("phase", phase(case.endpoint)),
                ("fault", kind),
                ("failure_policy", failure_policy),
            ];
            let count = metric(&page, "tollgate_plugin_faults_total", &labels);
            if count < 1.0 {
                wrong.push(format!("{}: no fault is counted for {labels:?}", case.name));
            }
        }
    }
    for case in CASES {
        let configured = failing_closed.plugin_status(case.name).await["configured"].clone();
        let reason = configured["reason"].as_str().unwrap_or_default();
        match case.expected {
            Unsnapshotted(words) if reason.contains(words) => {
                println!("{}: configured in every call: {reason}", case.name)
            }
            Unsnapshotted(words) => wrong.push(format!(
                "{}: `{words}` is not in {configured} of /plugins",
                case.name
            )),
            NotLoaded(_) => {}
            // The changes that this module makes to its table in a call cannot be snapshotted either.
            _ if case.fixture == "table-bomb" => {}
            _ if configured["once"] == true => {}
            _ => wrong.push(format!("{}: there is no snapshot: {configured}", case.name)),
        }
    }
    for server in [failing_closed, failing_open] {
        let stopped = server.stop();
        assert!(
            stopped.status.success(),
            "tollgate ended with {}",
            stopped.status
        );
        let panicked = stopped
            .logs
            .iter()
            .find(|line| line.contains("panicked") && !line.contains("snapshot"));
        assert_eq!(panicked, None, "the host panicked");
    }
    assert!(
        wrong.is_empty(),
        "{} expectations do not hold:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Runs more computing calls than there are processors. The time that one call lost went to other calls, not to sleep.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn computing_call_is_not_reported_as_sleeping() {
    const CALLS: usize = 8;
    let mut configuration = Configuration::new().with("engine.maxConcurrentCalls", CALLS);
    let limits =
        json!({"fuel": "1000G", "cpuTime": "20s", "timeout": "300ms", "concurrency": CALLS});
    let modules = hostile::all();
    configuration.plugin_of(
        "spin",
        &modules["validate-loop"],
        json!({ "limits": limits }),
    );
    configuration.plugin_of("sleep", &modules["wasi-sleep"], json!({ "limits": limits }));
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    let review = Review::create(pod("target")).build();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..CALLS {
        let request = server
            .default_client()
            .post(server.url("/validate/spin"))
            .header("content-type", "application/json")
            .body(as_sent(&review));
        calls.spawn(async move { request.send().await?.json::<Value>().await });
    }
    for answer in calls.join_all().await {
        let answer = answer.expect("every review is answered");
        let said = answer["response"]["status"]["message"].to_string();
        assert!(said.contains("the plugin ran for"), "{said}");
        assert!(!said.contains("slept"), "{said}");
    }
    let answer = server.post("/validate/sleep", &review).await;
    let said = message(&answer.checked(Endpoint::Validate, &review));
    assert!(said.contains("slept for"), "{said}");
    let stopped = server.stop();
    let faults = stopped
        .logs
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| line["plugin"] == "spin" && line["fault"] == "deadline");
    let mut seen = 0;
    for fault in faults {
        println!("{fault}");
        seen += 1;
        let cpu_milliseconds = fault["cpu_milliseconds"].as_f64().unwrap_or_default();
        let fuel = fault["fuel"].as_f64().unwrap_or_default();
        // A loop of two instructions uses more than a million units of fuel per millisecond on any current machine.
        assert!(
            cpu_milliseconds < 2.0 || fuel >= 1e6,
            "{fuel} of fuel in {cpu_milliseconds} ms"
        );
    }
    assert_eq!(seen, CALLS);
}

/// Applying, comparing and checking a plugin's answer is work for the host. Fuel and epoch ticks do not limit this
/// work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_work_on_answer_is_bounded() {
    let mut configuration = Configuration::new();
    configuration.plugin_of("hostile", &hostile::all()["merge-huge-list"], json!({}));
    configuration.plugin_of("harmless", &hostile::harmless(), json!({}));
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    let mut object = pod("target");
    // 200,000 numbers of two digits in random order: 600 kB, which etcd would accept.
    let mut state = 7_u32;
    let numbers = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Value::from(10 + (state >> 16) % 90)
    });
    object["spec"]["list"] = numbers.take(200_000).collect();
    let review = Review::create(object).build();
    let good_review = Review::create(pod("neighbour")).build();
    let path = "/mutate/hostile?timeout=2s";
    let finished = std::cell::Cell::new(false);
    let hostile_calls = async {
        let answers = tokio::join!(
            server.post(path, &review),
            server.post(path, &review),
            server.post(path, &review)
        );
        finished.set(true);
        [answers.0, answers.1, answers.2]
    };
    let neighbours = async {
        let mut slowest = Duration::ZERO;
        while !finished.get() {
            slowest = slowest.max(server.post("/validate/harmless", &good_review).await.took);
            slowest = slowest.max(server.get_admin("/livez").await.took);
        }
        slowest
    };
    let (answers, slowest_neighbour) = tokio::join!(hostile_calls, neighbours);
    let slowest = answers
        .iter()
        .map(|answer| answer.took)
        .max()
        .unwrap_or_default();
    println!(
        "three at once with ?timeout=2s: {slowest:?}; the slowest call beside them: {slowest_neighbour:?}"
    );
    // A generous limit: without a bound, this takes tens of seconds.
    assert!(
        slowest < Duration::from_secs(6),
        "{slowest:?} for a request that was given two seconds"
    );
    assert!(
        slowest_neighbour < Duration::from_secs(2),
        "a call beside them took {slowest_neighbour:?}"
    );
}

/// Starts a server with one module under some engine limits. Returns the server and the time that it took to start.
fn server_with(module: &[u8], limits: Value) -> Server {
    let mut configuration = Configuration::new();
    for (key, value) in limits.as_object().into_iter().flatten() {
        configuration = configuration.with(&format!("engine.{key}"), value.clone());
    }
    configuration.plugin_of("slow", module, json!({}));
    configuration.plugin_of("harmless", &hostile::harmless(), json!({}));
    Server::start(configuration)
}

async fn assert_not_loaded(server: Server, words: &str) {
    let status = server.plugin_status("slow").await;
    assert_eq!(status["state"], "failed", "{status}");
    let reason = status["reason"].as_str().unwrap_or_default();
    assert!(reason.contains(words), "`{words}` is not in `{reason}`");
    println!("not loaded: {reason}");
    let review = Review::create(pod("target")).build();
    let checked = server
        .validate(&review)
        .await
        .checked(Endpoint::Validate, &review);
    assert!(
        !checked.allowed && message(&checked).contains("not-loaded"),
        "{}",
        message(&checked)
    );
    let harmless = server
        .post("/validate/harmless", &review)
        .await
        .checked(Endpoint::Validate, &review);
    assert!(harmless.allowed, "the harmless plugin does not work");
}

#[tokio::test]
async fn stops_compilation_at_load_timeout() {
    let module = hostile::slow_to_compile(3000, 1000);
    assert!(
        module.len() < 40_000,
        "the module must be small, and has {} bytes",
        module.len()
    );
    let server = server_with(&module, json!({"loadTimeout": "3s", "loadMemory": "8Gi"}));
    assert_not_loaded(server, "engine.loadTimeout").await;
}

#[tokio::test]
async fn stops_compilation_at_load_memory() {
    let module = hostile::slow_to_compile(3000, 1000);
    let server = server_with(
        &module,
        json!({"loadTimeout": "60s", "loadMemory": "256Mi"}),
    );
    assert_not_loaded(server, "engine.loadMemory").await;
}

/// Loads more sleeping plugins than are prepared in parallel, and a harmless one after them.
#[tokio::test]
async fn sleeping_plugins_do_not_delay_loading() {
    let modules = hostile::all();
    let mut configuration = Configuration::new();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let sleepers = processors.clamp(1, 8) * 2 + 1;
    for number in 0..sleepers {
        let name = ["start-sleep", "describe-sleep", "configure-sleep"][number % 3];
        let keys = json!({"failurePolicy": "Ignore", "mode": "audit"});
        configuration.plugin_of(&format!("{name}-{number}"), &modules[name], keys);
    }
    configuration.plugin_of("harmless", &hostile::harmless(), json!({}));
    let began = std::time::Instant::now();
    let server = Server::start(configuration);
    let took = began.elapsed();
    println!(
        "{sleepers} plugins that sleep for a day: every plugin is loaded or has failed after {took:?}"
    );
    assert_eq!(server.plugin_status("harmless").await["state"], "loaded");
    // A sleeper has a second to load. Without that limit it would have minutes.
    assert!(took < Duration::from_secs(60), "{took:?}");
}

/// Reads a `/proc` file of a child process, while there is one.
fn of_child(server: &Server, file: &str) -> Option<String> {
    let id = server.process();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).ok()?;
    let children = children.into_iter().chain(
        threads
            .flatten()
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok()),
    );
    let children: Vec<String> = children.collect();
    let child = children
        .iter()
        .flat_map(|ids| ids.split_whitespace())
        .next()?;
    std::fs::read_to_string(format!("/proc/{child}/{file}")).ok()
}

/// Checks both children: the one that runs guest code works first, and the one that compiles works most of the time.
#[tokio::test]
async fn kernel_confines_children_that_prepare_plugins() {
    let mut configuration = Configuration::new();
    configuration.plugin_of("slow", &hostile::slow_to_compile(400, 400), json!({}));
    let server = Start::default().at_once().start(configuration);
    let mut seen = std::collections::BTreeMap::new();
    let began = std::time::Instant::now();
    while seen.len() < 2 && began.elapsed() < Duration::from_secs(120) {
        let read = |file| of_child(&server, file).unwrap_or_default();
        let (status, oom_score_adj) = (read("status"), read("oom_score_adj"));
        let line = |key: &str| {
            let line = status.lines().find(|line| line.starts_with(key));
            line.map(|line| line[key.len()..].trim().to_owned())
        };
        if let (Some(process), Some("2")) = (line("Pid:"), line("Seccomp:").as_deref()) {
            assert_eq!(line("NoNewPrivs:").as_deref(), Some("1"), "{status}");
            // The file is empty if the child has ended meanwhile.
            if !oom_score_adj.is_empty() {
                assert_eq!(oom_score_adj.trim(), "1000");
                seen.insert(process, line("Threads:"));
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    println!("children, with their threads: {seen:?}");
    assert_eq!(
        seen.len(),
        2,
        "one child runs guest code, and another one compiles"
    );
    let missing = "less confined";
    assert!(
        !server.logs().iter().any(|line| line.contains(missing)),
        "the kernel lacks protections"
    );
}

#[tokio::test]
async fn loads_plugin_without_snapshot_when_child_is_lost() {
    let modules = hostile::all();
    let mut configuration = Configuration::new().with("engine.loadMemory", "384Mi");
    let keys =
        json!({"limits": {"memory": "256Mi", "fuel": "10G", "cpuTime": "20s", "timeout": "20s"}});
    configuration.plugin_of("large", &modules["snapshot-too-large"], keys);
    let server = Server::start(configuration);
    let status = server.plugin_status("large").await;
    assert_eq!(status["state"], "loaded", "{status}");
    assert_eq!(status["configured"]["once"], false, "{status}");
    let reason = status["configured"]["reason"].as_str().unwrap_or_default();
    println!("no snapshot: {reason}");
    assert!(reason.contains("engine.loadMemory"), "{reason}");
    let review = Review::create(pod("target")).build();
    let checked = server
        .validate(&review)
        .await
        .checked(Endpoint::Validate, &review);
    assert!(checked.allowed, "{}", message(&checked));
}

#[tokio::test]
async fn compiles_in_child_processes() {
    let server = server_with(
        &hostile::slow_to_compile(1200, 300),
        json!({"loadTimeout": "60s"}),
    );
    assert_eq!(server.plugin_status("slow").await["state"], "loaded");
    let (own, children) = server.cpu_time();
    println!("CPU time: the server's own {own:?}, its children's {children:?}");
    assert!(
        children.as_millis() > 300,
        "compilation is too fast to compare: {children:?}"
    );
    assert!(
        own * 4 < children,
        "the server itself used {own:?}, its children {children:?}"
    );
}

#[tokio::test]
async fn refuses_plugin_file_over_size_limit() {
    let server = server_with(&hostile::larger_than(2 << 20), json!({"maxPlugin": "1Mi"}));
    assert_not_loaded(server, "engine.maxPlugin").await;
    let server = server_with(&hostile::larger_than(2 << 20), json!({}));
    assert_eq!(server.plugin_status("slow").await["state"], "loaded");
}

#[test]
fn every_fixture_is_tested_and_documented() {
    let table = include_str!("../hostile/README.md");
    let source = include_str!("hostile.rs");
    for name in hostile::all().keys() {
        assert!(
            table.contains(&format!("| `{name}` |")),
            "hostile/README.md does not list {name}"
        );
        assert!(
            source.contains(&format!("\"{name}\"")),
            "no test uses {name}"
        );
    }
    assert!(CASES.len() >= 20);
}
