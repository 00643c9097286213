use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tollgate_admission::namespaces::{Lookup, Namespace, Pending};
use tollgate_config::Limits;

use super::*;
use crate::{EngineSettings, Tier};

/// A source that knows nothing without waiting, and counts its lookups.
#[derive(Debug)]
struct Slow {
    lookups: AtomicUsize,
    delay: Duration,
}

impl Namespaces for Slow {
    fn known(&self, _name: &str) -> Option<Lookup> {
        None
    }

    fn look_up<'a>(&'a self, name: &'a str) -> Pending<'a> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        let object = json!({"metadata": {"name": name}});
        Box::pin(async move {
            tokio::time::sleep(self.delay).await;
            Lookup::Found(Namespace::of(&Json::from(object)))
        })
    }
}

fn engine(namespaces: Option<Arc<dyn Namespaces>>) -> Engine {
    let engine = Engine::new(&EngineSettings {
        max_concurrent_calls: 1,
        max_wasm_stack_bytes: 64 * 1024,
        largest: Limits::default(),
        tier: Tier::default(),
        kept_instances: 0,
    });
    let engine = engine.expect("the engine can be created");
    match namespaces {
        Some(namespaces) => engine.with_namespaces(namespaces),
        None => engine,
    }
}

fn request() -> AdmissionRequest {
    crate::testing::request(&json!(null))
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[tokio::test]
async fn looks_a_namespace_up_once_for_a_review() {
    let slow = Arc::new(Slow {
        lookups: AtomicUsize::new(0),
        delay: Duration::ZERO,
    });
    let engine = engine(Some(slow.clone()));
    let request = request();
    assert!(!engine.has_namespace(&request, None));
    for _ in 0..3 {
        let lookup = engine.look_up_namespace(&request, None, later()).await;
        assert_eq!(lookup, Ok(()));
    }
    assert!(engine.has_namespace(&request, None));
    assert_eq!(slow.lookups.load(Ordering::Relaxed), 1);
    let OfRequest::Known(namespace) = request.namespace_of(None) else {
        panic!("it was looked up");
    };
    assert_eq!(namespace.name(), Some("shop"));
}

#[tokio::test]
async fn lookup_ends_at_deadline_and_may_be_tried_again() {
    let slow = Slow {
        lookups: AtomicUsize::new(0),
        delay: Duration::from_secs(3600),
    };
    let engine = engine(Some(Arc::new(slow)));
    let request = request();
    let now = Instant::now();
    let lookup = engine.look_up_namespace(&request, None, now).await;
    assert_eq!(
        lookup.expect_err("the deadline has passed"),
        "cannot look up the namespace `shop`: no answer before the deadline"
    );
    assert_eq!(request.namespace_of(None), OfRequest::Awaited("shop"));
}

#[tokio::test]
async fn host_without_source_says_what_to_configure() {
    let engine = engine(None);
    let request = request();
    assert!(engine.has_namespace(&request, None));
    let OfRequest::Failed(what) = request.namespace_of(None) else {
        panic!("there is no source");
    };
    assert!(what.starts_with("cannot look up the namespace `shop`: this host has no source"));
    assert!(what.contains("`cluster`") && what.contains("--namespaces FILE"));
}
