//! Tests the confinement. Every test runs this test program again, which confines itself and then tries forbidden
//! actions.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, test_kill_process};

use super::*;

const MEMORY_BYTES: u64 = 1 << 30;
const FOLDER: &str = "TOLLGATE_TEST_FOLDER";
const PORT: &str = "TOLLGATE_TEST_PORT";
const CONFINED: &str = "TOLLGATE_TEST_CONFINED";

/// The attempts of another process, and whether each succeeded.
struct Attempts {
    succeeded: BTreeMap<String, bool>,
    /// The kernel's status of the thread that made the attempts.
    status: String,
    oom_score_adj: String,
    open_files: usize,
}

/// Runs all attempts in another process.
fn attempts(confined: bool) -> Attempts {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("code"), "machine code").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let inherited = File::open(folder.path().join("code")).unwrap();
    // Clear close-on-exec, so that a child inherits the file.
    rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "plugin::prepare::confine::tests::try_everything"])
        .args(["--ignored", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder.path())
        .env(PORT, listener.local_addr().unwrap().port().to_string())
        .env(CONFINED, confined.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut succeeded = BTreeMap::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines.by_ref() {
        let line = line.unwrap();
        if line == "done" {
            break;
        }
        if let Some((_, attempt)) = line.split_once("attempt ") {
            let (name, result) = attempt.split_once(": ").unwrap();
            succeeded.insert(name.to_owned(), result == "succeeded");
        }
    }
    let of_child = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", child.id()));
    let oom_score_adj = of_child("oom_score_adj").unwrap().trim().to_owned();
    let open_files = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    let open_files = open_files.count();
    let threads = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    let statuses = threads.map(|thread| {
        std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap_or_default()
    });
    let status = statuses.max_by_key(|status| status.contains("Seccomp:\t2"));
    child.stdin.take().unwrap().write_all(b"end\n").unwrap();
    let ended = child.wait().unwrap();
    assert!(ended.success(), "{ended}");
    Attempts {
        succeeded,
        status: status.unwrap(),
        oom_score_adj,
        open_files,
    }
}

/// The process that [`attempts`] starts, declared as a test so that the test program can run it.
#[test]
#[ignore = "run by the other tests here, in its own process"]
fn try_everything() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    let port: u16 = std::env::var(PORT).unwrap().parse().unwrap();
    let confined = std::env::var(CONFINED).unwrap();
    let mut attempts: Vec<(&str, std::io::Result<()>)> = Vec::new();
    let host = std::os::unix::process::parent_id();
    if confined == "true" {
        assert_eq!(confine(60, MEMORY_BYTES).unwrap(), Vec::<String>::new());
    }
    let code = folder.join("code");
    let mut attempt = |name, result: std::io::Result<()>| attempts.push((name, result));
    attempt("read /etc/passwd", File::open("/etc/passwd").map(drop));
    attempt("read the code", std::fs::read(&code).map(drop));
    attempt("overwrite the code", std::fs::write(&code, "other code"));
    attempt("create a file", File::create(folder.join("new")).map(drop));
    attempt("make a folder", std::fs::create_dir(folder.join("folder")));
    attempt("link", std::fs::hard_link(&code, folder.join("link")));
    attempt("rename", std::fs::rename(&code, folder.join("renamed")));
    attempt("delete", std::fs::remove_file(folder.join("renamed")));
    attempt("list a folder", std::fs::read_dir(folder).map(drop));
    attempt(
        "read the host's memory",
        File::open(format!("/proc/{host}/mem")).map(drop),
    );
    attempt(
        "connect by TCP",
        TcpStream::connect(("127.0.0.1", port)).map(drop),
    );
    attempt(
        "send by UDP",
        UdpSocket::bind("127.0.0.1:0")
            .and_then(|socket| socket.send_to(b"hello", ("127.0.0.1", port)).map(drop)),
    );
    attempt("listen", TcpListener::bind("127.0.0.1:0").map(drop));
    attempt("make a socket pair", UnixStream::pair().map(drop));
    attempt(
        "run a program",
        Command::new("/bin/true").status().map(drop),
    );
    attempt(
        "signal the host",
        Pid::from_raw(host.cast_signed())
            .map_or(Ok(()), test_kill_process)
            .map_err(Into::into),
    );
    attempt(
        "raise its priority again",
        rustix::process::nice(1).map(drop).map_err(Into::into),
    );
    attempt(
        "raise a limit",
        setrlimit(
            Resource::Core,
            Rlimit {
                current: Some(0),
                maximum: Some(0),
            },
        )
        .map_err(Into::into),
    );
    // The following attempts must succeed.
    attempt(
        "start a thread",
        std::thread::Builder::new()
            .name("named".to_owned())
            .spawn(|| std::thread::sleep(std::time::Duration::from_millis(1)))
            .map(|thread| thread.join().unwrap()),
    );
    let memory = std::hint::black_box(vec![1_u8; 64 << 20]);
    attempt("take memory", Ok(()));
    drop(memory);
    for (name, result) in attempts {
        match result {
            Ok(()) => println!("attempt {name}: succeeded"),
            Err(error) => println!("attempt {name}: {error}"),
        }
    }
    println!("done");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

const NEEDED: [&str; 2] = ["start a thread", "take memory"];

#[test]
fn confined_process_has_no_files_network_or_processes() {
    let free = attempts(false);
    let confined = attempts(true);
    for (name, could) in &free.succeeded {
        println!("{name}: {could}, confined {}", confined.succeeded[name]);
    }
    assert!(free.succeeded.len() >= 20);
    // The confined process has its standard streams only, and no inherited file.
    assert!(free.open_files > 3 && confined.open_files == 3);
    assert!(
        free.succeeded.values().all(|could| *could),
        "every attempt must succeed without confinement, or the test shows nothing: {:?}",
        free.succeeded
    );
    for (name, could) in confined.succeeded {
        assert_eq!(could, NEEDED.contains(&&*name), "{name}");
    }
}

#[test]
fn kernel_reports_confinement() {
    let confined = attempts(true);
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(
            confined.status.contains(line),
            "no {line:?}: {}",
            confined.status
        );
    }
    assert_eq!(confined.oom_score_adj, "1000");
}
