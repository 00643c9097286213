//! Conditions that cost much are evaluated on another thread.

use std::path::Path;

use serde_json::json;
use tollgate_admission::review::decode::decode;
use tollgate_config::{Config, Limits};
use tollgate_engine::{EngineSettings, Tier};
use tollgate_telemetry::metrics::Metrics;

use super::*;

/// A plugin that never loaded, with one condition. The tests only ask whether it would be called.
fn plugin(condition: &str) -> Arc<Plugin> {
    let rule = "{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']}";
    let conditions = format!("[{{name: pairs, expression: '{condition}'}}]");
    let matching = format!("{{rules: [{rule}], matchConditions: {conditions}}}");
    let text = format!("plugins: [{{name: a, source: 'file:a', match: {matching}}}]");
    let mut config = Config::parse(&text, Path::new(".")).expect("the configuration is valid");
    Arc::new(Plugin {
        config: config.plugins.remove(0),
        digest: None,
        state: PluginState::Failed {
            reason: "it is not there".to_owned(),
        },
        metrics: Metrics::new().plugin("a"),
        group: None,
    })
}

/// A request that creates a Pod with a list of `length` numbers.
fn request(length: usize) -> Arc<AdmissionRequest> {
    let list: Vec<usize> = (0..length).collect();
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u", "operation": "CREATE", "name": "web",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": {"list": list},
        }
    });
    let review = decode(review.to_string().as_bytes(), 32).expect("the review can be read");
    Arc::new(review.request)
}

fn engine() -> Engine {
    let engine = Engine::new(&EngineSettings {
        max_concurrent_calls: 1,
        max_wasm_stack_bytes: 64 * 1024,
        largest: Limits::default(),
        tier: Tier::default(),
        kept_instances: 0,
    });
    engine.expect("the engine can be created")
}

const PAIRS: &str = "object.list.all(x, object.list.all(y, x <= y || x >= y))";

/// On a single-threaded runtime, nothing else runs while its thread evaluates.
#[tokio::test]
async fn costly_condition_does_not_block_thread() {
    let (engine, plugin) = (engine(), plugin(PAIRS));
    let turn = Turn {
        plugin: &plugin,
        phase: Phase::Validate,
    };
    let later = Instant::now() + Duration::from_secs(60);
    for (length, is_costly) in [(5, false), (150, true)] {
        let request = request(length);
        let begin = turn.begin(&engine, &request, request.object.as_ref(), later);
        let mut turns_of_others = 0;
        let others = async {
            loop {
                turns_of_others += 1;
                tokio::task::yield_now().await;
            }
        };
        let beginning = tokio::select! {
            biased;
            beginning = begin => beginning,
            () = others => unreachable!("they never end"),
        };
        assert!(matches!(beginning, Beginning::Call), "{length}");
        assert_eq!(turns_of_others > 0, is_costly, "{length}");
    }
}

#[tokio::test]
async fn costly_condition_without_place_before_deadline_is_unclear() {
    let (engine, plugin) = (engine(), plugin(PAIRS));
    let turn = Turn {
        plugin: &plugin,
        phase: Phase::Validate,
    };
    let request = request(150);
    let past = Instant::now();
    let mut places = Vec::new();
    while let Some(place) = engine.offload().try_place() {
        places.push(place);
    }
    let begin = turn.begin(&engine, &request, request.object.as_ref(), past);
    let Beginning::Report(report) = begin.await else {
        panic!("it was decided without a place");
    };
    let Ended::Faulted(fault) = &report.ended else {
        panic!("{:?}", report.ended);
    };
    assert_eq!(fault.kind, "match-condition");
    assert!(
        fault.message.contains("`pairs` could not be evaluated"),
        "{}",
        fault.message
    );
}

#[test]
fn mutation_of_a_validator_is_a_fault() {
    assert!(matches!(verdict(Ok(Answer::Allow)), Ok(None)));
    let fault = verdict(Ok(Answer::Unchanged)).unwrap_err();
    assert_eq!(fault.kind(), "contract-violation");
}
