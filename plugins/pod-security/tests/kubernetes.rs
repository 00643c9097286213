//! Compares verdicts and texts with Kubernetes' own admission controller, at every level and version.
//!
//! `tests/kubernetes` wraps its library. The inputs are the Pods with which Kubernetes tests the library, and random
//! Pods.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use pod_security::PodSecurity;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use serde_json::{Map, Value as Json, json};
use tollgate_sdk::testing::TestReview;

/// Prints a skipped test past the test harness, which swallows the output of passing tests.
macro_rules! skipped {
    ($($message:tt)*) => {
        writeln!(std::io::stderr(), "SKIPPED: {}", format_args!($($message)*)).expect("stderr takes it")
    };
}

/// The number of standards: three levels in 38 versions and the latest.
const STANDARDS: usize = 3 * 39;
const RANDOM_PODS: usize = 500;

/// The violations of a Pod, for each standard.
type Verdicts = BTreeMap<String, String>;

#[test]
fn kubernetes_says_the_same_in_the_same_words() {
    let Some((program, fixtures)) = library() else {
        return;
    };
    let mut pods = fixtures;
    let known = pods.len();
    pods.extend(random_pods());
    let expected = run(&program, &pods);
    let (mut allowed, mut denied) = (0, 0);
    for (pod, verdicts) in pods.iter().zip(&expected) {
        assert_eq!(verdicts.len(), STANDARDS);
        for (standard, violations) in verdicts {
            let (level, version) = standard.split_once(':').expect("level:version");
            let outcome = TestReview::create(pod.clone())
                .settings(json!({"level": level, "version": version}))
                .validate::<PodSecurity>();
            if violations.is_empty() {
                allowed += 1;
                assert_eq!(outcome.answer(), Ok(&()), "{standard}: {pod}");
                continue;
            }
            denied += 1;
            assert!(!outcome.is_allowed(), "{standard}: {violations}: {pod}");
            assert_eq!(
                outcome.denial().message,
                format!("violates PodSecurity \"{standard}\": {violations}"),
                "{pod}"
            );
            let fields = outcome.fields();
            assert!(!fields.is_empty(), "{standard}: {violations}");
            let distinct: BTreeSet<_> = fields.iter().collect();
            assert_eq!(distinct.len(), fields.len(), "{fields:?}");
        }
    }
    assert!(known >= 100, "only {known} fixtures are there");
    assert!(allowed > 1000 && denied > 1000, "{allowed}, {denied}");
    eprintln!(
        "Kubernetes' library agrees: {known} fixtures and {RANDOM_PODS} random Pods, {allowed} times allowed, {denied} times denied"
    );
}

/// Builds `tests/kubernetes`, and returns it with the Pods with which Kubernetes tests the library.
fn library() -> Option<(PathBuf, Vec<Json>)> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubernetes-pod-security");
    go(Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg("."))?;
    let module = go(Command::new("go").args([
        "list",
        "-m",
        "-f",
        "{{.Dir}}",
        "k8s.io/pod-security-admission",
    ]))?;
    let module = String::from_utf8(module.stdout).expect("a path in UTF-8");
    Some((
        program,
        fixtures(&Path::new(module.trim()).join("test/testdata")),
    ))
}

fn go(command: &mut Command) -> Option<Output> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubernetes");
    match command.current_dir(source).output() {
        Ok(output) if output.status.success() => Some(output),
        Ok(output) => {
            let reason = String::from_utf8_lossy(&output.stderr).into_owned();
            // Without the module proxy, a failed build is not an error of this code. Otherwise it is.
            assert!(
                is_offline(&reason),
                "go cannot build tests/kubernetes: {reason}"
            );
            skipped!(
                "Kubernetes' library could not be fetched, so pod-security was NOT compared with it: {reason}"
            );
            None
        }
        Err(error) => {
            skipped!(
                "pod-security was NOT compared with Kubernetes' library, as `go` does not run ({error}); install Go"
            );
            None
        }
    }
}

fn is_offline(reason: &str) -> bool {
    ["dial tcp", "proxy", "no such host", "lookup", "i/o timeout"]
        .iter()
        .any(|sign| reason.contains(sign))
}

/// Returns every Pod once, because most of them are equal in all versions.
fn fixtures(folder: &Path) -> Vec<Json> {
    let mut texts = BTreeSet::new();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("it was listed");
            open.extend(entries.map(|entry| entry.expect("it was listed").path()));
        } else if path.extension().is_some_and(|name| name == "yaml") {
            texts.insert(std::fs::read_to_string(&path).expect("it was listed"));
        }
    }
    let pods = texts.iter().map(|text| serde_saphyr::from_str(text));
    pods.collect::<Result<_, _>>().expect("YAML")
}

fn run(program: &Path, pods: &[Json]) -> Vec<Verdicts> {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program was built just now");
    let mut stdin = child.stdin.take().expect("it is piped");
    let input: String = pods.iter().map(|pod| format!("{pod}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let verdicts: Vec<Verdicts> = stdout
        .lines()
        .map(|line| serde_json::from_str(&line.expect("UTF-8")).expect("verdicts"))
        .collect();
    let written = writer.join().expect("the writer does not panic");
    assert!(
        child.wait().expect("it runs").success(),
        "it cannot read a Pod"
    );
    written.expect("the program reads all of its input");
    assert_eq!(verdicts.len(), pods.len());
    verdicts
}

fn random_pods() -> Vec<Json> {
    let config = ProptestConfig::default();
    let mut runner = TestRunner::new_with_rng(
        config,
        TestRng::from_seed(RngAlgorithm::ChaCha, b"the Pod Security Standards: pods"),
    );
    (0..RANDOM_PODS)
        .map(|_| {
            pod()
                .new_tree(&mut runner)
                .expect("nothing is filtered")
                .current()
        })
        .collect()
}

/// Generates one of some values. With few values, a Pod can be valid as well as invalid.
fn any_of(values: Json) -> BoxedStrategy<Json> {
    let Json::Array(values) = values else {
        panic!("a list")
    };
    prop::sample::select(values).boxed()
}

/// Generates an object in which each member is present or not.
fn object(members: Vec<(&'static str, BoxedStrategy<Json>)>) -> BoxedStrategy<Json> {
    let (names, values): (Vec<_>, Vec<_>) = members
        .into_iter()
        .map(|(name, value)| (name, prop::option::weighted(0.35, value)))
        .unzip();
    values
        .prop_map(move |values| {
            let members = names.iter().zip(values);
            let members = members.filter_map(|(name, value)| Some(((*name).to_owned(), value?)));
            Json::Object(members.collect::<Map<_, _>>())
        })
        .boxed()
}

fn list(element: BoxedStrategy<Json>, most: usize) -> BoxedStrategy<Json> {
    prop_oneof![
        1 => Just(Json::Null),
        9 => prop::collection::vec(element, 0..=most).prop_map(Json::Array),
    ]
    .boxed()
}

/// Generates a security context with the fields of Pods and containers. Each ignores the other's fields.
fn security_context() -> BoxedStrategy<Json> {
    let profile = |kinds: Json| object(vec![("type", any_of(kinds))]);
    let capabilities = json!(["ALL", "CHOWN", "NET_BIND_SERVICE", "NET_RAW", "SYS_ADMIN"]);
    object(vec![
        ("privileged", any_of(json!([null, false, true]))),
        (
            "allowPrivilegeEscalation",
            any_of(json!([null, false, false, true])),
        ),
        (
            "procMount",
            any_of(json!([null, "Default", "Unmasked", "", "Other"])),
        ),
        ("runAsNonRoot", any_of(json!([null, true, true, false]))),
        ("runAsUser", any_of(json!([null, 0, 1, 1000]))),
        (
            "capabilities",
            object(vec![
                ("add", list(any_of(capabilities.clone()), 2)),
                ("drop", list(any_of(capabilities), 3)),
            ]),
        ),
        (
            "seccompProfile",
            profile(json!([
                null,
                "RuntimeDefault",
                "Localhost",
                "Unconfined",
                ""
            ])),
        ),
        (
            "appArmorProfile",
            profile(json!([
                null,
                "RuntimeDefault",
                "Localhost",
                "Unconfined",
                "b\"ad"
            ])),
        ),
        (
            "seLinuxOptions",
            object(vec![
                (
                    "type",
                    any_of(json!([
                        null,
                        "",
                        "container_t",
                        "container_engine_t",
                        "spc_t",
                        "a_t"
                    ])),
                ),
                ("user", any_of(json!([null, "", "system_u"]))),
                ("role", any_of(json!([null, "", "system_r"]))),
                ("level", any_of(json!(["s0"]))),
            ]),
        ),
        (
            "windowsOptions",
            object(vec![("hostProcess", any_of(json!([null, false, true])))]),
        ),
        (
            "sysctls",
            list(
                object(vec![(
                    "name",
                    any_of(json!([
                        "kernel.shm_rmid_forced",
                        "net.ipv4.ip_local_reserved_ports",
                        "net.ipv4.tcp_fin_timeout",
                        "net.ipv4.tcp_rmem",
                        "net.ipv4.tcp_notsent_lowat",
                        "kernel.msgmax",
                    ])),
                )]),
                2,
            ),
        ),
    ])
}

fn container() -> BoxedStrategy<Json> {
    let action = || {
        let host = || any_of(json!([null, "", "127.0.0.1", "a\"b"]));
        object(vec![
            (
                "httpGet",
                object(vec![("host", host()), ("port", any_of(json!([80])))]),
            ),
            ("tcpSocket", object(vec![("host", host())])),
            ("exec", any_of(json!([{"command": ["host"]}]))),
        ])
    };
    let optional = object(vec![
        ("name", any_of(json!(["a", "b", "c", "quoted\"name"]))),
        ("image", any_of(json!(["pause"]))),
        ("securityContext", security_context()),
        ("securityContext", security_context()),
        (
            "ports",
            list(
                object(vec![
                    ("containerPort", any_of(json!([80]))),
                    ("hostPort", any_of(json!([null, 0, 80, 9, 8080]))),
                ]),
                3,
            ),
        ),
        ("livenessProbe", action()),
        ("readinessProbe", action()),
        ("startupProbe", action()),
        (
            "lifecycle",
            object(vec![("postStart", action()), ("preStop", action())]),
        ),
    ]);
    // Two thirds have none of the members that make almost every Pod invalid.
    let calm = object(vec![
        ("name", any_of(json!(["a", "b"]))),
        (
            "securityContext",
            any_of(json!([
                null,
                {},
                {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                {
                    "allowPrivilegeEscalation": false,
                    "runAsNonRoot": true,
                    "capabilities": {"drop": ["ALL"]},
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
            ])),
        ),
        ("livenessProbe", any_of(json!([{"httpGet": {"port": 80}}]))),
    ]);
    prop_oneof![1 => optional, 2 => calm].boxed()
}

fn volume() -> BoxedStrategy<Json> {
    let sources = [
        "hostPath",
        "gcePersistentDisk",
        "awsElasticBlockStore",
        "gitRepo",
        "secret",
        "nfs",
        "iscsi",
        "glusterfs",
        "persistentVolumeClaim",
        "rbd",
        "flexVolume",
        "cinder",
        "cephfs",
        "flocker",
        "downwardAPI",
        "fc",
        "azureFile",
        "configMap",
        "vsphereVolume",
        "quobyte",
        "azureDisk",
        "photonPersistentDisk",
        "projected",
        "portworxVolume",
        "scaleIO",
        "storageos",
        "csi",
        "ephemeral",
        "image",
        "emptyDir",
    ];
    let source = (
        prop::sample::select(sources.to_vec()),
        any_of(json!([null, {}, {}])),
    );
    let name = any_of(json!(["v", "w", null]));
    (name, prop::collection::vec(source, 0..=2))
        .prop_map(|(name, sources)| {
            let mut volume = json!({"name": name});
            for (source, value) in sources {
                volume[source] = value;
            }
            volume
        })
        .boxed()
}

fn pod() -> BoxedStrategy<Json> {
    let profiles = || {
        any_of(json!([
            "",
            "runtime/default",
            "docker/default",
            "localhost/x",
            "unconfined",
            "it's \"x\"\\\n\u{7}\u{a0}\u{1f600}",
        ]))
    };
    let annotations = object(vec![
        (
            "container.apparmor.security.beta.kubernetes.io/a",
            profiles(),
        ),
        (
            "container.apparmor.security.beta.kubernetes.io/other",
            profiles(),
        ),
        (
            "container.seccomp.security.alpha.kubernetes.io/a",
            profiles(),
        ),
        (
            "container.seccomp.security.alpha.kubernetes.io/other",
            profiles(),
        ),
        ("seccomp.security.alpha.kubernetes.io/pod", profiles()),
        ("example.com/unconfined", profiles()),
    ]);
    let flag = || any_of(json!([null, false, false, true]));
    let spec = object(vec![
        ("hostNetwork", flag()),
        ("hostPID", flag()),
        ("hostIPC", flag()),
        ("hostUsers", any_of(json!([null, false, false, true]))),
        (
            "os",
            any_of(json!([null, {}, {"name": "linux"}, {"name": "windows"}, {"name": "windows"}])),
        ),
        ("securityContext", security_context()),
        ("volumes", list(volume(), 3)),
        ("initContainers", list(container(), 2)),
        ("ephemeralContainers", list(container(), 2)),
    ]);
    let containers = prop::collection::vec(container(), 0..=3);
    let is_annotated = prop::bool::weighted(0.3);
    (spec, containers, annotations, is_annotated)
        .prop_map(|(mut spec, containers, annotations, is_annotated)| {
            spec["containers"] = Json::Array(containers);
            let mut pod =
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
            if is_annotated {
                pod["metadata"]["annotations"] = annotations;
            }
            pod
        })
        .boxed()
}
