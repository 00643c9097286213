//! The behaviour of the command line with unusual input and output.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;
use tollgate_tests::binary;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::hostile;

const PATIENCE: Duration = Duration::from_secs(60);

fn configuration() -> Configuration {
    let mut configuration = Configuration::new();
    for index in 0..40 {
        configuration.plugin_of(
            &format!("plugin-{index}"),
            &hostile::harmless(),
            json!({"enabled": false}),
        );
    }
    configuration
}

fn tollgate(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary::tollgate());
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Returns every command that prints something without further input.
fn printing(path: &Path, manifest: &Path) -> Vec<Vec<String>> {
    let (path, manifest) = (path.display().to_string(), manifest.display().to_string());
    [
        vec!["check", "--config", &path],
        vec!["check", "--config", &path, "--no-plugins"],
        vec!["review", "--config", &path, &manifest],
        vec!["review", "--config", &path, &manifest, "-o", "json"],
        vec!["review", "--config", &path, &manifest, "-o", "request"],
        vec!["scan", "--config", &path, &manifest],
        vec!["scan", "--config", &path, &manifest, "-o", "json"],
        vec!["scan", "--config", &path, &manifest, "-o", "reports"],
        vec![
            "manifests",
            "--config",
            &path,
            "--url",
            "https://gate.example.com",
        ],
        vec!["doctor", "--live", &manifest],
        vec!["completions", "bash"],
        vec!["schema", "suite"],
        vec!["explain"],
        vec!["rollout", "status"],
        vec!["inspect", "/nowhere.wasm"],
        vec!["test", "/nowhere"],
        vec!["--help"],
        vec!["--version"],
    ]
    .into_iter()
    .map(|arguments| arguments.into_iter().map(str::to_owned).collect())
    .collect()
}

fn ends(command: &mut Command) -> Output {
    let began = Instant::now();
    let mut child = command.spawn().expect("tollgate can be run");
    while child.try_wait().expect("a child can be asked").is_none() {
        if began.elapsed() > PATIENCE {
            drop(child.kill());
            panic!("{command:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().expect("it has ended")
}

#[test]
fn does_not_panic_when_reader_closes_output() {
    let configuration = configuration();
    let path = configuration.write();
    let manifest = configuration.folder().join("pod.yaml");
    std::fs::write(
        &manifest,
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n",
    )
    .expect("the folder can be written to");
    for arguments in printing(&path, &manifest) {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let usual = ends(
            tollgate(&arguments)
                .stdout(Stdio::null())
                .stderr(Stdio::null()),
        );
        // Nobody reads this output, from the start on.
        for closed in ["stdout", "stderr"] {
            let (reader, writer) = std::io::pipe().expect("a pipe can be made");
            drop(reader);
            let mut command = tollgate(&arguments);
            if closed == "stdout" {
                command.stdout(writer).stderr(Stdio::piped());
            } else {
                command.stdout(Stdio::null()).stderr(writer);
            }
            let output = ends(&mut command);
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!text.contains("panicked"), "{arguments:?}: {text}");
            assert_eq!(output.status.signal(), None, "{arguments:?}: {text}");
            assert_eq!(
                output.status.code(),
                usual.status.code(),
                "{arguments:?} without {closed}: {text}"
            );
        }
    }
}

#[test]
fn first_line_of_check_can_be_read_alone() {
    let configuration = configuration();
    let path = configuration.write().display().to_string();
    let mut child = tollgate(&["check", "--config", &path])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tollgate can be run");
    let mut line = String::new();
    // Nobody reads the rest of the output.
    let mut stdout = BufReader::with_capacity(1, child.stdout.take().expect("it is piped"));
    stdout.read_line(&mut line).expect("it prints a line");
    drop(stdout);
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(line, "configuration: valid, 40 plugin(s)\n");
    assert_eq!((output.status.code(), &*text), (Some(0), ""));
}

#[test]
fn fails_if_output_cannot_be_written_completely() {
    let configuration = configuration();
    let path = configuration.write().display().to_string();
    for arguments in [&["check", "--config", &path][..], &["completions", "bash"]] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let output = ends(
            tollgate(arguments)
                .stdout(full.expect("Linux has it"))
                .stderr(Stdio::piped()),
        );
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(
            text.contains("cannot write to standard output"),
            "{arguments:?}: {text}"
        );
    }
}

fn named_pipe(folder: &TempDir, name: &str) -> String {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let path = folder.path().join(name);
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe can be made");
    path.display().to_string()
}

#[test]
fn names_non_files_without_waiting_for_them() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let pipe = named_pipe(&folder, "pipe.wasm");
    let directory = folder.path().display().to_string();
    for (source, found) in [
        (&pipe, "found a named pipe"),
        (&directory, "found a folder"),
        (&"/dev/zero".to_owned(), "found a device"),
    ] {
        let mut configuration = Configuration::new();
        configuration.plugin("odd", Path::new(source), json!({}));
        let path = configuration.write().display().to_string();
        let output = ends(
            tollgate(&["check", "--config", &path])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        );
        let text = String::from_utf8_lossy(&output.stdout);
        println!("{text}");
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("odd: NOT LOADED"), "{text}");
        assert!(text.contains("expected a regular file"), "{text}");
        assert!(text.contains(found), "{text}");
    }
    // Credential files are read by the same rule.
    let configuration = Configuration::new()
        .with("allowEmpty", true)
        .with("tls", json!({"certificate": pipe, "key": pipe}));
    let path = configuration.write().display().to_string();
    let output = ends(
        tollgate(&["check", "--config", &path])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("found a named pipe"), "{text}");
}
