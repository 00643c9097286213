//! Runs the pod of a Deployment, as kubelet and a container runtime would.
//!
//! The container has the image's root file system, the arguments, variables, volumes and service account of the pod, and
//! its security context: the user, a root that nobody can write to, no capabilities, no new privileges, and the seccomp
//! profile that runtimes use by default. [`Pod`] differs in two points. The pod shares the network of the machine, so
//! each pod listens on free ports of 127.0.0.1. No cgroup limits its memory and time.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::kubernetes::Cluster;
use crate::{binary, guests, left_out, port};

mod container;
mod root;

use container::{Mounts, bubblewrap, environment, user};
pub use root::Image;

/// The programs and files that a pod needs, each with its Debian package.
const NEEDED: [(&str, &str); 4] = [
    ("/usr/bin/bwrap", "bubblewrap"),
    ("/usr/bin/setpriv", "util-linux"),
    (
        "/usr/share/doc/python3-seccomp/copyright",
        "python3-seccomp",
    ),
    (SECCOMP_PROFILE, "golang-github-containers-common"),
];
/// The profile `RuntimeDefault` of CRI-O and podman.
const SECCOMP_PROFILE: &str = "/usr/share/containers/seccomp.json";
const LIMIT: Duration = Duration::from_secs(120);

/// A running pod. It is killed when this is dropped.
pub struct Pod {
    bwrap: Child,
    /// The container's first process.
    process: u32,
    folder: tempfile::TempDir,
    https: SocketAddr,
    probes: SocketAddr,
}

/// Whether pods can be run here. Reports what is missing.
#[must_use]
pub fn can_run() -> bool {
    let mut missing = Vec::new();
    for (file, package) in NEEDED {
        if !Path::new(file).exists() {
            missing.push(package);
        }
    }
    if !rustix::process::geteuid().is_root() {
        missing.push("root, who can become the user of the pod");
    }
    if missing.is_empty() {
        return true;
    }
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    left_out(&format!(
        "{test} was NOT run: missing {}",
        missing.join(", ")
    ));
    false
}

// === impl Pod ===

impl Pod {
    /// Starts a pod of a Deployment of the cluster.
    ///
    /// # Panics
    /// Panics if the Deployment asks for something that is not done here, or if the container does not start.
    #[must_use]
    pub fn start(cluster: &Cluster, image: &Image, deployment: &[&str; 2], name: &str) -> Self {
        let [namespace, deployment] = *deployment;
        let get = [
            "get",
            "deployment",
            deployment,
            "-n",
            namespace,
            "-o",
            "json",
        ];
        let deployment: Value =
            serde_json::from_str(&cluster.kubectl(&get).succeed()).expect("kubectl prints JSON");
        let spec = &deployment["spec"]["template"]["spec"];
        let folder = tempfile::Builder::new().prefix("tollgate-pod-").tempdir();
        let folder = folder.expect("a temporary folder can be made");
        allow_all(folder.path(), 0o755);
        let address = || SocketAddr::from(([127, 0, 0, 1], port::free()));
        let (https, probes) = (address(), address());
        let root = folder.path().join("root");
        let mut mounts = Mounts {
            cluster,
            namespace,
            folder: folder.path(),
            root: &root,
            arguments: image.unpack(&root),
            https,
            probes,
        };
        let container = &spec["containers"][0];
        mounts.all(spec, container);
        let arguments = mounts.arguments;
        let user = user(spec, container);
        let mut command = bubblewrap(folder.path(), user);
        command.args(arguments);
        for (key, value) in environment(cluster, container, name, namespace) {
            command.args(["--setenv", &key, &value]);
        }
        command.args(["--", "/tollgate"]);
        let given = container["args"].as_array().into_iter().flatten();
        command.args(given.map(|argument| argument.as_str().expect("arguments are texts")));
        let log = fs::File::create(folder.path().join("log")).expect("a log can be made");
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file can be shared"))
            .stderr(log);
        let bwrap = command.spawn().expect("bwrap can be started");
        let mut pod = Self {
            bwrap,
            process: 0,
            folder,
            https,
            probes,
        };
        pod.process = pod.wait("the container starts", |pod| {
            let text = fs::read_to_string(pod.folder.path().join("info")).ok()?;
            let info: Value = serde_json::from_str(&text).ok()?;
            u32::try_from(info["child-pid"].as_u64()?).ok()
        });
        pod
    }

    /// Where reviews are answered.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.https
    }

    /// Waits until the readiness probe is answered with 200. Returns the time that it took.
    ///
    /// # Panics
    /// Panics if the pod ends, or is not ready in time.
    pub fn wait_until_ready(&mut self) -> Duration {
        let began = Instant::now();
        self.wait("the pod is ready", |pod| is_ready(pod.probes).then_some(()));
        began.elapsed()
    }

    /// Returns a line of `/proc/PID/status` of the container's first process.
    ///
    /// # Panics
    /// Panics if the process or the line is not there.
    #[must_use]
    pub fn status(&self, key: &str) -> String {
        let text = self.proc("status");
        let mut lines = text.lines();
        let found = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        found
            .unwrap_or_else(|| panic!("no {key} in {text}"))
            .trim()
            .to_owned()
    }

    /// The mounted file systems that can be written to, without those that the kernel provides.
    ///
    /// # Panics
    /// Panics if the process is gone.
    #[must_use]
    pub fn writable(&self) -> Vec<String> {
        let mounts = self.proc("mounts");
        let writable = mounts.lines().filter_map(|line| {
            let mut parts = line.split(' ');
            let (_, path, kind) = (parts.next()?, parts.next()?, parts.next()?);
            let is_kernels = path == "/proc" || path == "/dev" || path.starts_with("/dev/");
            let is_writable = parts.next()?.split(',').any(|option| option == "rw");
            (is_writable && !is_kernels).then(|| format!("{path} ({kind})"))
        });
        writable.collect()
    }

    /// The files that are in a folder of the container now.
    ///
    /// # Panics
    /// Panics if the folder is not there.
    #[must_use]
    pub fn files(&self, folder: &str) -> Vec<String> {
        let path = format!("/proc/{}/root{folder}", self.process);
        let entries = fs::read_dir(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let names = entries.map(|entry| entry.expect("a folder can be read").file_name());
        let mut names: Vec<String> = names
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// What the container printed.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Stops the pod as kubelet does. Returns whether the process ended by itself with success, and the time.
    ///
    /// # Panics
    /// Panics if it does not end within its grace of 35 seconds.
    pub fn stop(mut self) -> (bool, Duration) {
        let began = Instant::now();
        let sent = self.signal(rustix::process::Signal::TERM);
        sent.expect("the container runs");
        loop {
            if let Some(status) = self.bwrap.try_wait().expect("bwrap is a child") {
                return (status.success(), began.elapsed());
            }
            assert!(began.elapsed() < Duration::from_secs(35), "{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal to the container's first process, if it has started.
    fn signal(&self, signal: rustix::process::Signal) -> rustix::io::Result<()> {
        let process = i32::try_from(self.process).ok();
        match process.and_then(rustix::process::Pid::from_raw) {
            Some(process) => rustix::process::kill_process(process, signal),
            None => Ok(()),
        }
    }

    fn proc(&self, file: &str) -> String {
        let path = format!("/proc/{}/{file}", self.process);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn wait<T>(&mut self, what: &str, found: impl Fn(&Self) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            if let Some(status) = self.bwrap.try_wait().expect("bwrap is a child") {
                panic!("{what}: the pod ended with {status}:\n{}", self.log());
            }
            assert!(
                began.elapsed() < LIMIT,
                "{what}: not in time:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // It may have ended.
        let _: rustix::io::Result<()> = self.signal(rustix::process::Signal::KILL);
        drop(self.bwrap.kill());
        drop(self.bwrap.wait());
    }
}

/// Asks the readiness probe, as kubelet does.
fn is_ready(probes: SocketAddr) -> bool {
    let answer = || {
        let mut stream = TcpStream::connect(probes)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        let request =
            format!("GET /readyz HTTP/1.1\r\nhost: {probes}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    answer().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// Sets the mode of a file.
fn allow_all(path: &Path, mode: u32) {
    let set = fs::set_permissions(path, fs::Permissions::from_mode(mode));
    set.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
