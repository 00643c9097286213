//! A server under load and faults: reloads, plugins that spin and trap, new certificates, a failing registry, clients
//! that hang. No review may fail, and memory may not grow.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use reqwest::Client;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tollgate_tests::checker::{Endpoint, check};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::floods::{ATTACKER, Flood, hold};
use tollgate_tests::kubernetes::authority::{Authority, Issued};
use tollgate_tests::registry::misbehaving::{Behaviour, Fault, Misbehaving};
use tollgate_tests::reviews::{Review, as_sent, pod};
use tollgate_tests::server::{Server, Start};
use tollgate_tests::{guests, hostile};

/// Variable for the minutes that the whole soak lasts.
const MINUTES: &str = "TOLLGATE_SOAK_MINUTES";
/// The load, in percent of the rate that the server can reach.
const LOAD_PERCENT: u64 = 70;
/// Most requests that wait for answers in parallel.
const AT_ONCE: usize = 64;
/// kube-apiserver's default `timeoutSeconds`, and its pause before a retry.
const TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Of this many requests, one goes to a plugin that spins and one to a plugin that traps.
const FAULTING_PART: u64 = 50;
/// Allowed growth between the first sixth of the time and its end, in percent.
const GROWTH_PERCENT: u64 = 10;

/// The server and its environment.
struct Soak {
    server: Server,
    folder: PathBuf,
    authority: Authority,
    registry: Misbehaving,
    counted: Counted,
}

/// The counters of the soak.
#[derive(Default)]
struct Counted {
    requests: AtomicU64,
    retried: AtomicU64,
    failed: AtomicU64,
    reloads: AtomicUsize,
    certificates: AtomicUsize,
    registry_faults: AtomicUsize,
}

/// Paths and endpoints of the requests.
const ROUTES: [(&str, Endpoint); 3] = [
    ("/validate/required-labels", Endpoint::Validate),
    ("/mutate/image-rewrite", Endpoint::Mutate),
    ("/validate/pulled", Endpoint::Validate),
];
const SPINNER: (&str, Endpoint) = ("/validate/spinner", Endpoint::Validate);
const TRAPPER: (&str, Endpoint) = ("/validate/trapper", Endpoint::Validate);

// === impl Soak ===

impl Soak {
    async fn start() -> Arc<Self> {
        let modules = hostile::all();
        let registry = Misbehaving::start(good()).await;
        let authority = Authority::new("soak");
        let mut configuration = Configuration::new();
        let folder = configuration.folder().to_owned();
        write_certificate(&folder, &leaf(&authority));
        let ca = folder.join("ca.pem");
        replace(&ca, authority.certificate().as_bytes());
        let pair = json!({"certificate": folder.join("tls.crt"), "key": folder.join("tls.key")});
        configuration = configuration.with("tls", pair).with(
            "registries",
            json!({
                "pollInterval": "1s",
                "timeout": "2s",
                "cacheDirectory": folder.join("pulled"),
                "hosts": [{"host": registry.host(), "plainHTTP": true}],
            }),
        );
        let labels = std::fs::read(guests::build("required-labels")).expect("it has been built");
        // Long limits, because this test is not about machines that are short of processors.
        let patient = json!({"timeout": "8s", "cpuTime": "5s"});
        let settings = json!({"settings": {"labels": {"app": ".*"}}, "limits": patient});
        configuration.plugin_of("required-labels", &labels, settings);
        let rewrite = json!({"settings": rewrite_to("mirror-0"), "limits": patient});
        configuration.plugin("image-rewrite", &guests::build("image-rewrite"), rewrite);
        let limits = json!({"cpuTime": "20ms", "fuel": "1G"});
        for (name, fixture) in [("spinner", "validate-loop"), ("trapper", "unreachable")] {
            let more = json!({"failurePolicy": "Ignore", "limits": limits});
            configuration.plugin_of(name, &modules[fixture], more);
        }
        let mut configuration = configuration;
        configuration.plugin_from(
            "pulled",
            &format!("oci://{}/pulled:1", registry.host()),
            json!({"limits": patient}),
        );
        let server = Start::default().trusting(ca).start(configuration);
        server.assert_all_loaded().await;
        Arc::new(Self {
            server,
            folder,
            authority,
            registry,
            counted: Counted::default(),
        })
    }

    fn clients(&self) -> [Client; 2] {
        [
            self.server.client(|builder| builder),
            self.server.client(|builder| builder.http1_only()),
        ]
    }

    /// Sends a review until it is answered, as kube-apiserver does.
    async fn request(&self, client: &Client, number: u64) {
        let (path, endpoint) = match number % FAULTING_PART {
            0 => SPINNER,
            1 => TRAPPER,
            rest => ROUTES[usize::try_from(rest).expect("it is small") % ROUTES.len()],
        };
        let review = Review::create(pod("web"))
            .uid(&format!("00000000-0000-4000-8000-{number:012}"))
            .build();
        let answered = async {
            loop {
                let request = client
                    .post(self.server.url(path))
                    .header("content-type", "application/json")
                    .body(as_sent(&review));
                let response = request.send().await.map_err(|error| format!("{error:?}"))?;
                let status = response.status().as_u16();
                let body = response
                    .bytes()
                    .await
                    .map_err(|error| format!("{error:?}"))?;
                if status == 429 {
                    self.counted.retried.fetch_add(1, Relaxed);
                    sleep(RETRY_AFTER).await;
                    continue;
                }
                let checked = check(endpoint, &review, status, "application/json", &body)
                    .map_err(|violations| violations.join("; "))?;
                return if checked.allowed {
                    Ok(())
                } else {
                    Err(String::from_utf8_lossy(&body).into_owned())
                };
            }
        };
        let answered: Result<(), String> = timeout(TIMEOUT, answered)
            .await
            .unwrap_or_else(|_| Err("no answer within 10 s".to_owned()));
        self.counted.requests.fetch_add(1, Relaxed);
        if let Err(why) = answered {
            self.counted.failed.fetch_add(1, Relaxed);
            println!("request {number} to {path}: {why}");
        }
    }

    /// Measures the requests per second that the server can answer.
    async fn saturation(self: &Arc<Self>, lasts: Duration) -> u64 {
        let (began, before) = (Instant::now(), self.counted.requests.load(Relaxed));
        let mut workers = JoinSet::new();
        for worker in 0..8 {
            let soak = Arc::clone(self);
            workers.spawn(async move {
                let clients = soak.clients();
                let mut number = worker;
                while began.elapsed() < lasts {
                    soak.request(&clients[usize::from(number % 2 == 0)], number)
                        .await;
                    number += 8;
                }
            });
        }
        workers.join_all().await;
        let requests = self.counted.requests.load(Relaxed) - before;
        requests * 1_000 / u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Sends this many requests per second, and prints the state now and then.
    async fn load(self: &Arc<Self>, rate: u64, lasts: Duration) -> (u64, u64) {
        let clients = self.clients();
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut requests = JoinSet::new();
        let period = Duration::from_secs(1) / u32::try_from(rate.max(1)).unwrap_or(u32::MAX);
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let began = Instant::now();
        let (mut early, mut reported) = (None, Duration::ZERO);
        let mut number = 1_000_000;
        while began.elapsed() < lasts {
            ticks.tick().await;
            let place = Arc::clone(&places).acquire_owned().await;
            let (soak, client) = (
                Arc::clone(self),
                clients[usize::from(number % 4 == 3)].clone(),
            );
            requests.spawn(async move {
                soak.request(&client, number).await;
                drop(place);
            });
            while requests.try_join_next().is_some() {}
            number += 1;
            if early.is_none() && began.elapsed() >= lasts / 6 {
                early = Some(self.server.resident_kib());
            }
            if began.elapsed() >= reported {
                self.report(began.elapsed());
                reported += lasts / 10;
            }
        }
        requests.join_all().await;
        self.report(began.elapsed());
        (early.unwrap_or_default(), self.server.resident_kib())
    }

    fn report(&self, since: Duration) {
        let counted = &self.counted;
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            since.as_secs(),
            counted.requests.load(Relaxed),
            counted.failed.load(Relaxed),
            counted.retried.load(Relaxed),
            counted.reloads.load(Relaxed),
            counted.certificates.load(Relaxed),
            counted.registry_faults.load(Relaxed),
            self.server.resident_kib(),
        );
    }

    /// Causes faults repeatedly, each at its own interval.
    fn disturb(self: &Arc<Self>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        repeat(
            &mut tasks,
            self,
            Duration::from_millis(1_700),
            |soak, round| async move {
                soak.reload(round);
            },
        );
        repeat(
            &mut tasks,
            self,
            Duration::from_millis(2_900),
            |soak, _| async move {
                write_certificate(&soak.folder, &leaf(&soak.authority));
                soak.counted.certificates.fetch_add(1, Relaxed);
            },
        );
        repeat(
            &mut tasks,
            self,
            Duration::from_millis(2_300),
            |soak, round| async move {
                let faults = [
                    Fault::Status(503),
                    Fault::Silent,
                    Fault::Truncated,
                    Fault::Altered,
                ];
                let fault = match round % 2 {
                    0 => faults[round / 2 % faults.len()].clone(),
                    _ => Fault::None,
                };
                soak.registry.behave(good().with(fault));
                soak.counted.registry_faults.fetch_add(1, Relaxed);
            },
        );
        for flood in [
            Flood::SlowBodies,
            Flood::HalfHeads,
            Flood::HeaderOnlyStreams,
        ] {
            let mut held = hold(flood, &self.server, ATTACKER);
            tasks.spawn(async move { while held.join_next().await.is_some() {} });
        }
        tasks
    }

    /// Changes the settings of one plugin and the file of another one.
    fn reload(&self, round: usize) {
        let path = self.folder.join("tollgate.yaml");
        let text = std::fs::read(&path).expect("the server was started with it");
        let mut root: Value = serde_json::from_slice(&text).expect("it was written as JSON");
        root["plugins"][1]["settings"] = rewrite_to(&format!("mirror-{round}"));
        replace(&path, root.to_string().as_bytes());
        let labels = std::fs::read(guests::build("required-labels")).expect("it has been built");
        let other = guests::with_section(&labels, "round", round.to_string().as_bytes());
        replace(&self.folder.join("required-labels.wasm"), &other);
        self.counted.reloads.fetch_add(1, Relaxed);
    }
}

fn repeat<F: Future<Output = ()> + Send>(
    tasks: &mut JoinSet<()>,
    soak: &Arc<Soak>,
    period: Duration,
    work: impl Fn(Arc<Soak>, usize) -> F + Send + Sync + 'static,
) {
    let soak = Arc::clone(soak);
    tasks.spawn(async move {
        for round in 0.. {
            sleep(period).await;
            work(Arc::clone(&soak), round).await;
        }
    });
}

fn rewrite_to(mirror: &str) -> Value {
    json!({"rewrite": [{"from": "registry.example.com/", "to": format!("{mirror}.example.com/")}]})
}

fn good() -> Behaviour {
    Behaviour::of(hostile::harmless())
}

fn leaf(authority: &Authority) -> Issued {
    authority.server(&["localhost", "127.0.0.1"])
}

fn write_certificate(folder: &Path, issued: &Issued) {
    replace(&folder.join("tls.key"), issued.key.as_bytes());
    replace(&folder.join("tls.crt"), issued.certificate.as_bytes());
}

/// Replaces a file in one step.
fn replace(path: &Path, bytes: &[u8]) {
    let new = path.with_extension("new");
    let written = std::fs::write(&new, bytes).and_then(|()| std::fs::rename(&new, path));
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Runs the soak. Returns the resident memory after a sixth of the time and at the end, in KiB.
async fn soak(saturated: Duration, lasts: Duration, most: u64) -> (u64, u64) {
    let soak = Soak::start().await;
    let saturation = soak.saturation(saturated).await;
    let rate = (saturation * LOAD_PERCENT / 100).clamp(1, most);
    println!("{saturation} requests a second are all that it can; {rate} are sent");
    println!(
        "| seconds | requests | failed | tried again | reloads | certificates | registry | resident KiB |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let disturbers = soak.disturb();
    let (early, late) = soak.load(rate, lasts).await;
    drop(disturbers);
    let counted = &soak.counted;
    assert_eq!(counted.failed.load(Relaxed), 0, "requests failed");
    let seconds = usize::try_from(lasts.as_secs()).unwrap_or(usize::MAX);
    for (what, times) in [
        ("reloads", &counted.reloads),
        ("certificates", &counted.certificates),
        ("registry", &counted.registry_faults),
    ] {
        let times = times.load(Relaxed);
        assert!(times >= seconds / 10, "{what}: {times} in {seconds} s");
    }
    (early, late)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_review_fails_during_faults_around_it() {
    soak(Duration::from_secs(2), Duration::from_secs(20), 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: `cargo xtask soak`"]
async fn memory_does_not_grow_during_minutes_of_faults() {
    let minutes = std::env::var(MINUTES).ok();
    let minutes: u64 = minutes.and_then(|text| text.parse().ok()).unwrap_or(3);
    let lasts = Duration::from_secs(60 * minutes);
    let (early, late) = soak(Duration::from_secs(10), lasts, u64::MAX).await;
    println!(
        "{early} KiB resident after {} s, {late} KiB at the end",
        lasts.as_secs() / 6
    );
    let most = early + early * GROWTH_PERCENT / 100;
    assert!(late <= most, "{late} KiB at the end, {early} KiB before");
}
