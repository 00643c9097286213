//! `tollgate dev`: builds, serves and tests a project at every change, and shows each review.

use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tollgate_tests::binary::tollgate;
use tollgate_tests::playground::Project;
use tollgate_tests::reviews::{Review, pod};

#[tokio::test(flavor = "multi_thread")]
async fn serves_last_good_version_after_failed_build() {
    let project = Project::new();
    let running = project.start(&["--review", "../objects"]);
    let at = running.until(0, "waiting for a change");
    let said = running.said();
    for words in [
        "serving  marker ",
        "tollgate review --config tollgate.yaml FILE -o request |",
        "ok     marks a Pod",
        "reviewing 1 object(s)",
        "version: one",
        "1 object(s): 1 allowed (1 changed), 0 denied, 0 in error",
    ] {
        assert!(said.contains(words), "`{words}` is not in:\n{said}");
    }
    assert!(!said.contains('\u{1b}'), "no colours without a terminal");

    let review = Review::create(pod("web")).build();
    let (status, body) = running.mutate(&review).await;
    assert_eq!(status, 200, "{body}");
    let at = running.until(at, "changed  mutate    CREATE Pod ");
    let at = running.until(at, "version: one");

    // A source that does not compile: the version before keeps answering.
    project.write("policy/policy.c", "broken");
    let at = running.until(at, "NOT SERVED:");
    let at = running.until(at, "still serving the version of ");
    let (status, _) = running.mutate(&review).await;
    assert_eq!(status, 200);
    let at = running.until(at, "version: one");

    // A source that compiles and does not pass its suite is served, so that it can be tried.
    project.write("policy/policy.c", "two");
    let at = running.until(at, "serving  marker ");
    let at = running.until(at, "FAIL   marks a Pod");
    let at = running.until(at, "reviewing 1 object(s)");
    let at = running.until(at, "waiting for a change");
    let (status, _) = running.mutate(&review).await;
    assert_eq!(status, 200);
    running.until(at, "version: two");
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_project_can_be_repaired_and_ends_on_interrupt() {
    let project = Project::new();
    project.write("policy/policy.c", "broken");
    let mut running = project.start(&["--no-test"]);
    let at = running.until(0, "nothing is served yet: reviews get 503");
    let at = running.until(at, "waiting for a change");
    project.write("policy/policy.c", "one");
    let at = running.until(at, "serving  marker ");
    running.until(at, "waiting for a change");
    assert!(!running.said().contains("marks a Pod"), "no suite is run");
    let scratch = running.between("--cacert ", "/tls/");
    assert!(Path::new(&scratch).is_dir());

    let process = i32::try_from(running.child.id()).expect("a process id is small");
    let process = Pid::from_raw(process).expect("a process id is not 0");
    kill_process(process, Signal::INT).expect("it runs");
    let status = running.child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0));
    assert!(!Path::new(&scratch).exists(), "nothing stays behind");
}

#[test]
fn taken_port_is_reported_with_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it is bound").to_string();
    let project = Project::new();
    let output = Command::new(tollgate())
        .args(["dev", "--listen", &address])
        .current_dir(project.path("policy"))
        .output()
        .expect("tollgate can be run");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("choose another address with --listen"),
        "{said}"
    );
}

#[test]
fn request_of_a_manifest_is_printed() {
    let project = Project::new();
    let output = Command::new(tollgate())
        .args(["review", "--config", "tollgate.yaml", "-o", "request"])
        .arg("../objects/pod.json")
        .current_dir(project.path("policy"))
        .output()
        .expect("tollgate can be run");
    assert_eq!(output.status.code(), Some(0));
    let review: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(review["kind"], "AdmissionReview");
    assert_eq!(review["request"]["object"]["metadata"]["name"], "existing");
}
