use serde_json::{Value, json};

use crate::format::Origin;
use crate::read::Recording;

use super::*;

#[derive(Default)]
struct Counts {
    written: AtomicU64,
    bytes: AtomicU64,
    dropped: Mutex<Vec<(DropReason, u64)>>,
    failures: AtomicU64,
}

impl Observer for Counts {
    fn written(&self, written: Written) {
        self.written.fetch_add(written.reviews, Ordering::Relaxed);
        self.bytes.fetch_add(written.bytes, Ordering::Relaxed);
    }

    fn dropped(&self, reason: DropReason, reviews: u64) {
        self.dropped.lock().unwrap().push((reason, reviews));
    }

    fn failed(&self, _: &Path, _: &io::Error) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}

fn options(max_bytes: u64, max_queue_bytes: u64) -> RecorderOptions {
    RecorderOptions {
        ring: RingOptions {
            max_bytes,
            origin: Origin::Server,
            host: "test".to_owned(),
        },
        max_queue_bytes,
        redact: Vec::new(),
    }
}

fn captured(index: u64, object: Value) -> Captured {
    let body = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": format!("u-{index}"),
            "kind": {"group": "", "version": "v1", "kind": object["kind"]},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "operation": "CREATE", "object": object,
        },
    });
    let answer = json!({"response": {"uid": format!("u-{index}"), "allowed": true}});
    Captured {
        time: SystemTime::now(),
        endpoint: Endpoint::Validate,
        only: None,
        set: Arc::default(),
        calls: Vec::new(),
        body: body.to_string().into_bytes(),
        answer: answer.to_string().into_bytes(),
    }
}

fn offer(recorder: &Recorder, captured: Captured) {
    let bytes = captured.body.len() + captured.answer.len();
    recorder.offer(bytes, || captured);
}

#[test]
fn writes_redacted_reviews_and_counts_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let counts = Arc::new(Counts::default());
    let recorder =
        Recorder::start(folder.path(), options(1 << 20, 1 << 20), counts.clone()).unwrap();
    let secret = json!({"kind": "Secret", "apiVersion": "v1", "stringData": {"a": "marker-4d1f"}});
    for index in 0..20 {
        offer(&recorder, captured(index, secret.clone()));
    }
    let mut broken = captured(21, json!({}));
    broken.body.truncate(20);
    offer(&recorder, broken);
    offer(
        &recorder,
        captured(22, json!({"padding": "x".repeat(2 << 20)})),
    );
    assert!(recorder.finish(Duration::from_secs(30)));
    assert_eq!(counts.written.load(Ordering::Relaxed), 20);
    let mut dropped = counts.dropped.lock().unwrap().clone();
    dropped.sort_by_key(|(reason, _)| reason.as_str());
    assert_eq!(
        dropped,
        [(DropReason::Queue, 1), (DropReason::Unreadable, 1)]
    );
    assert_eq!(
        Recording::open(folder.path()).unwrap().records().count(),
        20
    );
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = zstd::decode_all(std::fs::File::open(entry.unwrap().path()).unwrap()).unwrap();
        assert!(!String::from_utf8(bytes).unwrap().contains("marker-4d1f"));
    }
    // After the end nothing is taken, and nobody waits.
    offer(&recorder, captured(23, json!({})));
    assert_eq!(counts.dropped.lock().unwrap().len(), 3);
}

#[test]
fn drops_and_says_so_while_the_folder_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let counts = Arc::new(Counts::default());
    // No review fits into 128 bytes.
    let recorder = Recorder::start(folder.path(), options(128, 1 << 20), counts.clone()).unwrap();
    for index in 0..5 {
        offer(&recorder, captured(index, json!({"kind": "Pod"})));
    }
    assert!(recorder.finish(Duration::from_secs(30)));
    assert_eq!(counts.written.load(Ordering::Relaxed), 0);
    let dropped = counts.dropped.lock().unwrap();
    assert_eq!(dropped.iter().map(|(_, reviews)| reviews).sum::<u64>(), 5);
    assert!(
        dropped
            .iter()
            .all(|(reason, _)| *reason == DropReason::Write)
    );
    assert_eq!(counts.failures.load(Ordering::Relaxed), 1);
}

#[test]
fn folder_that_cannot_be_used_is_an_error_of_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let counts = Arc::new(Counts::default());
    let error = Recorder::start(&file, options(1 << 20, 1 << 20), counts)
        .err()
        .unwrap();
    assert!(error.to_string().contains("record.directory"), "{error}");
}

/// Prints bytes per review and reviews per second of the thread. Run it alone, with --nocapture.
#[test]
#[ignore = "a measurement"]
fn measures_100_000_reviews() {
    let folder = tempfile::tempdir().unwrap();
    let counts = Arc::new(Counts::default());
    let recorder =
        Recorder::start(folder.path(), options(1 << 32, 1 << 30), counts.clone()).unwrap();
    let pod = |index: u64| {
        let container = |name: &str| {
            json!({
                "name": name, "image": format!("registry.example.com/team-{}/{name}:1.{}", index % 37, index % 11),
                "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
                "env": [{"name": "MODE", "value": "production"}, {"name": "POD", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
                "volumeMounts": [{"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "kube-api-access", "readOnly": true}],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent",
                "securityContext": {"allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}},
            })
        };
        json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {
                "name": format!("web-{:x}-{:05x}", index / 7, index.wrapping_mul(2_654_435_761) % 1_048_576),
                "namespace": format!("team-{}", index % 37), "uid": format!("{:032x}", u128::from(index) * 0x9e37_79b9_7f4a_7c15),
                "labels": {"app": format!("web-{}", index % 97), "team": format!("team-{}", index % 37), "pod-template-hash": format!("{:x}", index / 7)},
            },
            "spec": {"containers": [container("app"), container("sidecar")], "serviceAccountName": "default", "restartPolicy": "Always",
                "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]},
        })
    };
    let raw: usize = (0..100)
        .map(|index| captured(index, pod(index)).body.len())
        .sum();
    let began = Instant::now();
    for index in 0..100_000 {
        offer(&recorder, captured(index, pod(index)));
        while recorder.queued_bytes.load(Ordering::Relaxed) > 1 << 29 {
            std::thread::sleep(PAUSE);
        }
    }
    let offered = began.elapsed();
    assert!(recorder.finish(Duration::from_secs(300)));
    let took = began.elapsed();
    let written = counts.written.load(Ordering::Relaxed);
    println!(
        "{written} reviews of {} bytes: {} bytes each in the recording; made and offered in {offered:?}, written in {took:?}",
        raw / 100,
        counts.bytes.load(Ordering::Relaxed) / written.max(1)
    );
    let began = Instant::now();
    let read = Recording::open(folder.path()).unwrap().records().count();
    println!("{read} reviews read in {:?}", began.elapsed());
}
