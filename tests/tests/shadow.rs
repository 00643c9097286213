//! Shadows: called after the answers with the same input as their plugins, compared, and without effect on requests.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_tests::checker::{Checked, Endpoint};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::registry::misbehaving::{Behaviour, Fault, Misbehaving};
use tollgate_tests::reviews::{Review, as_sent, pod, secret};
use tollgate_tests::server::{Server, Start, metric};
use tollgate_tests::wat::marker;
use tollgate_tests::{guests, hostile};

/// Time limit for work that happens after the answers.
const PATIENCE: Duration = Duration::from_secs(90);
const REQUESTS_VARIABLE: &str = "TOLLGATE_REQUESTS";

fn edit(server: &Server, change: impl FnOnce(&mut Value)) {
    let path = server.configuration().folder().join("tollgate.yaml");
    let text = std::fs::read(&path).expect("the configuration is there");
    let mut root = serde_json::from_slice(&text).expect("the suites write it as JSON");
    change(&mut root);
    replace(&path, root.to_string().as_bytes());
}

/// Replaces a file in one step.
fn replace(path: &Path, content: &[u8]) {
    let new = path.with_extension("new");
    std::fs::write(&new, content).unwrap_or_else(|error| panic!("{}: {error}", new.display()));
    std::fs::rename(&new, path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn source(path: &Path) -> String {
    format!("file:{}", path.display())
}

fn write(configuration: &Configuration, name: &str, wasm: &[u8]) -> PathBuf {
    let path = configuration.folder().join(format!("{name}.wasm"));
    std::fs::write(&path, wasm).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path
}

/// Waits until `/plugins` shows the wanted status of a plugin.
async fn until_status(server: &Server, name: &str, is: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let status = server.plugin_status(name).await;
        if is(&status) {
            return status;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{name} did not get there: {status:#}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn until_loaded(server: &Server, name: &str) -> Value {
    until_status(server, name, |status| status["shadow"]["state"] == "loaded").await
}

/// Returns the entry of a plugin in `/shadows`, or null.
async fn shadow(server: &Server, name: &str) -> Value {
    let page = server.get_admin("/shadows").await.json();
    let shadows = page["shadows"].as_array().cloned().unwrap_or_default();
    let found = shadows.into_iter().find(|shadow| shadow["plugin"] == name);
    found.unwrap_or(Value::Null)
}

/// Waits until all calls have been compared or dropped.
async fn until_compared(server: &Server, name: &str, calls: u64) -> Value {
    let began = Instant::now();
    loop {
        let shadow_status = shadow(server, name).await;
        let done: u64 = ["compared", "unfinished", "dropped"]
            .iter()
            .filter_map(|key| shadow_status[*key].as_u64())
            .sum();
        if done >= calls {
            return shadow_status;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{done} of {calls}: {shadow_status:#}\n{:#?}",
            server.logs()
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn evaluate(server: &Server, endpoint: Endpoint, review: &Value) -> Checked {
    let answer = match endpoint {
        Endpoint::Mutate => server.mutate(review).await,
        Endpoint::Validate => server.validate(review).await,
    };
    answer.checked(endpoint, review)
}

fn uids(shadow_status: &Value) -> Vec<String> {
    let differences = shadow_status["differences"]
        .as_array()
        .into_iter()
        .flatten();
    let mut uids: Vec<String> = differences
        .filter_map(|difference| difference["uid"].as_str().map(str::to_owned))
        .collect();
    uids.sort();
    uids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_exactly_the_requests_that_differ() {
    let actor = guests::build("actor");
    let mut configuration = Configuration::new();
    configuration.plugin(
        "policy",
        &actor,
        json!({
            "settings": {"forbid": {"/metadata/name": "web-3"}},
            "shadow": {
                "source": source(&actor),
                "settings": {
                    "forbid": {"/metadata/name": "web-7"},
                    "set_all": {"/metadata/labels/odd": "changed by the shadow"},
                },
            },
        }),
    );
    let server = Server::start(configuration);
    let loaded = until_loaded(&server, "policy").await;
    assert_eq!(loaded["state"], "loaded");
    for index in 0..30 {
        let mut object = pod(&format!("web-{}", index % 10));
        object["metadata"]["labels"] = json!({});
        if index % 10 == 5 {
            object["metadata"]["labels"]["odd"] = json!("value of the object");
        }
        let uid = format!("uid-{index:02}");
        let review = Review::create(object).uid(&uid).build();
        let checked = evaluate(&server, Endpoint::Validate, &review).await;
        assert_eq!(
            checked.allowed,
            index % 10 != 3,
            "the shadow must not decide"
        );
        let checked = evaluate(&server, Endpoint::Mutate, &review).await;
        assert!(
            checked.allowed
                && checked
                    .patched_object
                    .is_none_or(|it| it == review["request"]["object"])
        );
    }
    let shadow_status = until_compared(&server, "policy", 60).await;
    println!("{shadow_status:#}");
    assert_eq!(
        (&shadow_status["compared"], &shadow_status["differed"]),
        (&json!(60), &json!(9))
    );
    assert_eq!(
        uids(&shadow_status),
        [
            "uid-03", "uid-05", "uid-07", "uid-13", "uid-15", "uid-17", "uid-23", "uid-25",
            "uid-27"
        ]
    );
    for difference in shadow_status["differences"].as_array().expect("a list") {
        let uid = difference["uid"].as_str().unwrap_or_default();
        let (phase, live, shadow, pointer) = match &uid[5..] {
            "3" => ("validate", "denied", "allowed", "/metadata/name"),
            "5" => ("mutate", "unchanged", "patched", "/metadata/labels/odd"),
            _ => ("validate", "allowed", "denied", "/metadata/name"),
        };
        assert_eq!(difference["phase"], phase, "{difference}");
        assert_eq!(difference["live"], live, "{difference}");
        assert_eq!(difference["shadow"], shadow, "{difference}");
        assert_eq!(difference["pointers"], json!([pointer]), "{difference}");
    }
    let page = server.metrics().await;
    let counted = |result: &str| {
        let labels = [("plugin", "policy"), ("result", result)];
        metric(&page, "tollgate_shadow_comparisons_total", &labels)
    };
    assert_eq!((counted("same"), counted("different")), (51.0, 9.0));
    let status = server.plugin_status("policy").await;
    assert_eq!(status["shadow"]["comparison"]["differed"], 9);
    let logged = server.logs().join("\n");
    assert_eq!(logged.matches("the shadow's result differs").count(), 9);
    for said in [logged, shadow_status.to_string(), page] {
        assert!(!said.contains("value of the object") && !said.contains("changed by the"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shadow_sees_same_object_as_plugin_in_every_mode() {
    let actor = guests::build("actor");
    let label = |pointer: &str, text: &str| json!({"settings": {"set_all": {pointer: text}}});
    for mode in ["enforce", "warn", "audit"] {
        let mut configuration = Configuration::new();
        configuration.plugin("first", &actor, label("/metadata/labels/at", "the first"));
        let mut second = label("/metadata/labels/at", "the second");
        second["mode"] = mode.into();
        second["shadow"] = json!({
            "source": source(&actor),
            // Both change the value that the first plugin wrote. On the user's object, they would not differ.
            "settings": {"set_all": {"/metadata/labels/at": "the first"}},
        });
        configuration.plugin("second", &actor, second);
        let server = Server::start(configuration);
        until_loaded(&server, "second").await;
        let mut object = pod("web");
        object["metadata"]["labels"] = json!({"at": "the user"});
        let review = Review::create(object).uid("there").build();
        let checked = evaluate(&server, Endpoint::Mutate, &review).await;
        let labels = checked.patched_object.expect("a patch")["metadata"]["labels"].clone();
        let last = if mode == "enforce" {
            "the second"
        } else {
            "the first"
        };
        assert_eq!(labels, json!({"at": last}), "{mode}");
        let shadow_status = until_compared(&server, "second", 1).await;
        let difference = &shadow_status["differences"][0];
        assert_eq!(difference["live"], "patched", "{mode}: {shadow_status:#}");
        assert_eq!(
            difference["shadow"], "unchanged",
            "{mode}: {shadow_status:#}"
        );
        assert_eq!(
            difference["pointers"],
            json!(["/metadata/labels/at"]),
            "{mode}"
        );
        assert_eq!(shadow(&server, "first").await, Value::Null);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spinning_shadow_delays_no_answers() {
    let spins = &hostile::all()["validate-loop"];
    // Only one call may run at a time. If the shadow took this place, no review would be answered.
    let mut configuration = Configuration::new().with("engine.maxConcurrentCalls", 1);
    let file = write(&configuration, "spins", spins);
    configuration.plugin("policy", &guests::build("actor"), json!({}));
    let server = Server::start(configuration);
    let review = Review::create(pod("web")).build();
    let answer = async || {
        let answer = server.validate(&review).await;
        let checked = answer.checked(Endpoint::Validate, &review);
        assert!(checked.allowed, "{:?}", checked.status);
        answer.took
    };
    let mut alone = Vec::new();
    while alone.len() < 300 {
        alone.push(answer().await);
    }
    edit(&server, |root| {
        root["plugins"][0]["shadow"] = json!({
            "source": source(&file),
            "limits": {"fuel": "1T", "cpuTime": "30s", "timeout": "30s"},
        });
    });
    until_loaded(&server, "policy").await;
    let before = server.cpu_time().0;
    let mut times = Vec::new();
    // Until the shadow has used the processor for a while and its queue has overflowed.
    while times.len() < 300 || server.cpu_time().0.saturating_sub(before) < Duration::from_secs(2) {
        times.push(answer().await);
    }
    let shadow_status = shadow(&server, "policy").await;
    let answered = times.len();
    let (alone, times) = (median(alone), median(times));
    println!(
        "{answered} answers while it spins, the median {times:?}; without it {alone:?}: {shadow_status:#}"
    );
    // If the shadow blocked a thread that answers, half of the answers would wait for its ticks. Other tests use the
    // machine too.
    assert!(
        times < alone * 3 + Duration::from_millis(2),
        "{times:?} with it, {alone:?} without"
    );
    assert_eq!(
        shadow_status["compared"], 0,
        "no call of the spinning shadow ends: {shadow_status:#}"
    );
    assert!(
        shadow_status["dropped"].as_u64() >= Some(300 - 258),
        "{shadow_status:#}"
    );
    let labels = [("plugin", "policy"), ("result", "dropped")];
    let page = server.metrics().await;
    assert!(metric(&page, "tollgate_shadow_comparisons_total", &labels) >= 42.0);
    assert_eq!(metric(&page, "tollgate_audit_dropped_total", &[]), 0.0);
    let stopped = server.stop();
    assert!(
        stopped.status.success(),
        "the shutdown must not wait for the shadow"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_fuel_near_and_over_limit() {
    let actor = guests::build("actor");
    let mut configuration = Configuration::new();
    let settings = json!({"forbid": {"/spec/containers/*/image": "none"}});
    configuration.plugin(
        "policy",
        &actor,
        json!({"settings": settings, "shadow": {"source": source(&actor)}}),
    );
    let server = Server::start(configuration);
    until_loaded(&server, "policy").await;
    let small = Review::create(pod("small")).build();
    let mut object = pod("large");
    let container = object["spec"]["containers"][0].clone();
    object["spec"]["containers"] = (0..200)
        .map(|index| {
            let mut container = container.clone();
            container["name"] = format!("c{index}").into();
            container
        })
        .collect();
    let large = Review::create(object).build();
    let send = async |review: &Value, times: usize| {
        for _ in 0..times {
            assert!(evaluate(&server, Endpoint::Validate, review).await.allowed);
        }
    };
    send(&large, 1).await;
    let shadow_status = until_compared(&server, "policy", 1).await;
    let most = shadow_status["fuel"]["most"].as_u64().expect("a number");
    assert_eq!(
        shadow_status["fuel"]["mean"],
        shadow_status["fuel"]["meanOfLive"]
    );
    assert_eq!(shadow_status["differed"], 0);
    send(&small, 1).await;
    let mean = until_compared(&server, "policy", 2).await["fuel"]["mean"].as_u64();
    assert!(
        mean < Some(most * 3 / 4),
        "the large review must use more fuel: {mean:?} and {most}"
    );

    for (limit, stopped, near) in [
        (most * 19 / 20, 3, 3),
        (most * 10 / 9, 0, 3),
        (most * 2, 0, 0),
    ] {
        edit(&server, |root| {
            root["plugins"][0]["shadow"]["limits"] = json!({"fuel": limit});
        });
        let is = |status: &Value| {
            let shadow = &status["shadow"];
            shadow["state"] == "loaded" && shadow["comparison"]["compared"] == 0
        };
        until_status(&server, "policy", is).await;
        send(&small, 7).await;
        send(&large, 3).await;
        let shadow_status = until_compared(&server, "policy", 10).await;
        println!("{limit}: {shadow_status:#}");
        assert_eq!(
            shadow_status["wouldHaveStopped"],
            format!("{stopped} of 10")
        );
        assert_eq!(shadow_status["differed"], stopped);
        assert_eq!(shadow_status["fuel"]["above80Percent"], near);
        if stopped > 0 {
            assert_eq!(shadow_status["faults"], json!({"out-of-fuel": stopped}));
            assert_eq!(shadow_status["differences"][0]["fault"], "out-of-fuel");
        }
    }
    let near = metric(
        &server.metrics().await,
        "tollgate_shadow_near_fuel_limit_total",
        &[("plugin", "policy")],
    );
    assert_eq!(near, 6.0);
    let faults = metric(
        &server.metrics().await,
        "tollgate_plugin_faults_total",
        &[("plugin", "policy")],
    );
    assert_eq!(
        faults, 0.0,
        "faults of the shadow must not count for its plugin"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_shadow_is_reported_and_changes_nothing() {
    let mut configuration = Configuration::new();
    let missing = configuration.folder().join("next.wasm");
    configuration.plugin_of(
        "colour",
        &marker("colour", "1"),
        json!({"shadow": {"source": source(&missing)}}),
    );
    let server = Server::start(configuration);
    // Before its first attempt has failed, a pending shadow has no reason yet.
    let failed_once = |status: &Value| {
        status["shadow"]["state"] == "pending" && status["shadow"]["desired"]["reason"].is_string()
    };
    let status = until_status(&server, "colour", failed_once).await;
    println!("{:#}", status["shadow"]);
    assert_eq!(status["state"], "loaded");
    let reason = status["shadow"]["desired"]["reason"].as_str();
    assert!(
        reason.is_some_and(|reason| reason.contains("next.wasm")),
        "{reason:?}"
    );
    let ready = server.get_admin("/readyz?verbose").await;
    assert_eq!(ready.status, 200);
    assert!(ready.text().contains("the shadow of plugin colour"));
    let mut object = pod("web");
    object["metadata"]["labels"] = json!({});
    let review = Review::create(object).build();
    let checked = evaluate(&server, Endpoint::Mutate, &review).await;
    let labelled = checked.patched_object.expect("a patch");
    assert_eq!(labelled["metadata"]["labels"], json!({"colour": "1"}));
    let degraded =
        |page: &str, plugin: &str| metric(page, "tollgate_plugin_degraded", &[("plugin", plugin)]);
    let page = server.metrics().await;
    assert_eq!(degraded(&page, "colour"), 0.0);
    assert_eq!(degraded(&page, "colour.shadow"), 1.0);

    std::fs::write(&missing, marker("colour", "2")).expect("a file can be written");
    until_loaded(&server, "colour").await;
    assert_eq!(degraded(&server.metrics().await, "colour.shadow"), 0.0);
    evaluate(&server, Endpoint::Mutate, &review).await;
    let shadow_status = until_compared(&server, "colour", 1).await;
    assert_eq!(shadow_status["differed"], 1, "{shadow_status:#}");
    // A path names plugins, and a shadow is not one.
    let answer = server.post("/mutate/colour.shadow", &review).await;
    assert_eq!(answer.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follows_shadow_tag_and_hanging_registry_delays_nothing() {
    let of = |shade: &str| Behaviour::of(marker("colour", shade));
    let registry = Misbehaving::start(of("1").with(Fault::Silent)).await;
    let hosts = json!([{"host": registry.host(), "plainHTTP": true}]);
    // Longer than the test waits for work that does not depend on the registry.
    let registries = json!({"pollInterval": "1s", "timeout": "20s", "hosts": hosts});
    let mut configuration = Configuration::new().with("registries", registries);
    let reference = format!("oci://{}/colour:1", registry.host());
    configuration.plugin_of(
        "colour",
        &marker("colour", "1"),
        json!({"shadow": {"source": reference}}),
    );
    let file = configuration.folder().join("colour.wasm");
    let server = Server::start(configuration);
    // By now the host has asked the registry, which does not answer.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let digest = server.plugin_status("colour").await["digest"].clone();
    replace(&file, &marker("colour", "2"));
    let began = Instant::now();
    until_status(&server, "colour", |status| status["digest"] != digest).await;
    let took = began.elapsed();
    println!("the plugin's own file was in force after {took:?}");
    assert!(
        took < Duration::from_secs(10),
        "the plugin's file waited for the shadow"
    );

    registry.behave(of("2"));
    let first = until_loaded(&server, "colour").await["shadow"]["digest"].clone();
    registry.behave(of("3"));
    let moved = |status: &Value| status["shadow"]["digest"] != first;
    until_status(&server, "colour", moved).await;
    let mut object = pod("web");
    object["metadata"]["labels"] = json!({});
    let review = Review::create(object).uid("moved").build();
    evaluate(&server, Endpoint::Mutate, &review).await;
    assert_eq!(uids(&until_compared(&server, "colour", 1).await), ["moved"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configuration_change_promotes_shadow() {
    let mut configuration = Configuration::new();
    let next = write(&configuration, "next", &marker("colour", "2"));
    configuration.plugin_of("colour", &marker("colour", "1"), json!({}));
    let server = Server::start(configuration);
    let mut object = pod("web");
    object["metadata"]["labels"] = json!({});
    let review = Review::create(object).build();
    let colour = async || {
        let checked = evaluate(&server, Endpoint::Mutate, &review).await;
        checked.patched_object.expect("a patch")["metadata"]["labels"]["colour"].clone()
    };
    edit(&server, |root| {
        root["plugins"][0]["shadow"] = json!({"source": source(&next)});
    });
    let status = until_loaded(&server, "colour").await;
    let digest = status["shadow"]["digest"].clone();
    assert_eq!(colour().await, "1");
    until_compared(&server, "colour", 1).await;

    // Another failure policy keeps the same code, so the comparisons so far stay.
    edit(&server, |root| {
        root["plugins"][0]["failurePolicy"] = json!("Ignore");
    });
    until_status(&server, "colour", |status| {
        status["failurePolicy"] == "Ignore"
    })
    .await;
    let shadow_status = shadow(&server, "colour").await;
    assert_eq!(shadow_status["compared"], 1, "{shadow_status:#}");

    edit(&server, |root| {
        let plugin = root["plugins"][0].as_object_mut().expect("an object");
        let shadow = plugin.remove("shadow").expect("a shadow");
        plugin["source"] = shadow["source"].clone();
    });
    let status = until_status(&server, "colour", |status| status["digest"] == digest).await;
    assert!(status["shadow"].is_null(), "{status:#}");
    assert_eq!(colour().await, "2");
    assert_eq!(shadow(&server, "colour").await, Value::Null);
    let reloaded = server.logs().join("\n");
    assert!(!reloaded.contains("failed to load plugin"), "{reloaded}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_nothing_about_secrets() {
    const MARKER: &str = "Xq7HunterTwoZebra42KestrelVw9";
    let (actor, leaker) = (guests::build("actor"), guests::build("leaker"));
    let rules = json!({"rules": [{
        "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"],
    }]});
    let mut configuration = Configuration::new();
    configuration.plugin(
        "policy",
        &actor,
        json!({"match": rules, "shadow": {"source": source(&leaker)}}),
    );
    let server = Start::default()
        .environment("TOLLGATE_LOG", "trace,h2=info,hyper=info")
        .start(configuration);
    until_loaded(&server, "policy").await;
    let ways = [
        "say",
        "panic",
        "deny-message",
        "deny-field",
        "deny-field-below",
        "copy-as-key",
        "copy-as-deep-key",
        "copy-to-data",
        "bad-path",
    ];
    for way in ways {
        let mut object = secret("password", "aHVudGVyMg==", MARKER, MARKER);
        object["metadata"]["labels"] = json!({"leak": way});
        let review = Review::create(object).uid(way).build();
        assert!(evaluate(&server, Endpoint::Validate, &review).await.allowed);
        assert!(evaluate(&server, Endpoint::Mutate, &review).await.allowed);
    }
    let calls = 2 * u64::try_from(ways.len()).expect("a small number");
    let shadow_status = until_compared(&server, "policy", calls).await;
    println!("{shadow_status:#}");
    assert_eq!(shadow_status["compared"], calls);
    assert!(
        shadow_status["differed"].as_u64() > Some(5),
        "{shadow_status:#}"
    );
    let everything = [
        shadow_status.to_string(),
        server.get_admin("/plugins").await.text(),
        server.metrics().await,
        server.logs().join("\n"),
    ]
    .join("\n")
    .to_lowercase();
    let reversed: String = MARKER.chars().rev().collect();
    for forms in [MARKER, &reversed] {
        for start in 0..=forms.len() - 10 {
            let piece = forms[start..start + 10].to_lowercase();
            assert!(
                !everything.contains(&piece),
                "{piece} is shown:\n{everything}"
            );
        }
    }
    assert!(!everything.contains("ahvudgvymg"));
}

/// Measures how long answers take with and without a shadow that spins: `cargo test --test shadow -- --ignored
/// --nocapture`. The servers take turns while the others are stopped, so other load on the machine affects all of them
/// alike. `spinning_shadow_delays_no_answers` has the assertions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: it prints without pass or fail"]
async fn measures_answer_times_with_spinning_shadow() {
    const TURNS: usize = 40;
    let requests = std::env::var(REQUESTS_VARIABLE).ok();
    let requests: usize = requests.and_then(|text| text.parse().ok()).unwrap_or(8000);
    let spins = &hostile::all()["validate-loop"];
    let actor = guests::build("actor");
    let review = as_sent(&Review::create(pod("web")).build());
    let mut servers = Vec::new();
    for what in ["none", "the plugin itself", "one that spins"] {
        let mut configuration = Configuration::new();
        let more = match what {
            "none" => json!({}),
            "one that spins" => {
                let file = write(&configuration, "spins", spins);
                json!({"shadow": {"source": source(&file)}})
            }
            _ => json!({"shadow": {"source": source(&actor)}}),
        };
        configuration.plugin("policy", &actor, more);
        let server = Server::start(configuration);
        if what != "none" {
            until_loaded(&server, "policy").await;
        }
        signal(&server, "STOP");
        servers.push((what, server, Vec::with_capacity(requests)));
    }
    for turn in 0..TURNS {
        for (_, server, times) in &mut servers {
            signal(server, "CONT");
            for index in 0..20 + requests / TURNS {
                let client = server.default_client();
                let answer = server.post_bytes(client, "/validate", review.clone()).await;
                assert_eq!(answer.status, 200);
                // The first answers include the time to wake up.
                if turn > 0 && index >= 20 {
                    times.push(answer.took);
                }
                // Half of the rate that one connection could reach.
                tokio::time::sleep(answer.took).await;
            }
            signal(server, "STOP");
        }
    }
    for (what, server, mut times) in servers {
        signal(&server, "CONT");
        times.sort();
        let at = |part: usize| times[times.len() * part / 1000].as_secs_f64() * 1e6;
        let shadow_status = shadow(&server, "policy").await;
        println!(
            "shadow {what}: {} answers, p50 {:.0} µs, p90 {:.0} µs, p99 {:.0} µs, p99.9 {:.0} µs; compared {}, dropped {}",
            times.len(),
            at(500),
            at(900),
            at(990),
            at(999),
            shadow_status["compared"],
            shadow_status["dropped"]
        );
    }
}

fn signal(server: &Server, name: &str) {
    let process = server.process().to_string();
    let status = std::process::Command::new("kill")
        .args(["-s", name, &process])
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "kill -s {name}"
    );
}
