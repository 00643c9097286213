//! The container of a pod: its mounts, user, filter of system calls, and variables.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{SECCOMP_PROFILE, allow_all, binary};
use crate::kubernetes::Cluster;

/// Where kubelet puts the token of a pod.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What is mounted in a container.
pub(super) struct Mounts<'c> {
    pub(super) cluster: &'c Cluster,
    pub(super) namespace: &'c str,
    pub(super) folder: &'c Path,
    pub(super) root: &'c Path,
    pub(super) arguments: Vec<String>,
    pub(super) https: SocketAddr,
    pub(super) probes: SocketAddr,
}

// === impl Mounts ===

impl Mounts<'_> {
    /// Mounts the volumes of a container, its token, and what every container has.
    pub(super) fn all(&mut self, spec: &Value, container: &Value) {
        assert_eq!(
            container["securityContext"]["readOnlyRootFilesystem"], true,
            "{container:#}"
        );
        let volumes = spec["volumes"].as_array().into_iter().flatten();
        let volumes: Vec<&Value> = volumes.collect();
        for mount in container["volumeMounts"].as_array().into_iter().flatten() {
            let path = mount["mountPath"].as_str().expect("a mount has a path");
            let volume = volumes
                .iter()
                .find(|volume| volume["name"] == mount["name"]);
            let volume = volume.unwrap_or_else(|| panic!("no volume for {mount}"));
            if let Some(name) = volume["configMap"]["name"].as_str() {
                self.config_map(name, path);
            } else if volume["emptyDir"]["medium"] == "Memory" {
                let limit = volume["emptyDir"]["sizeLimit"].as_str();
                self.memory(path, limit.expect("the volume has a limit"));
            } else {
                panic!("a volume that is not known here: {volume:#}");
            }
        }
        if spec["automountServiceAccountToken"] == true {
            self.token(
                spec["serviceAccountName"]
                    .as_str()
                    .expect("the pod has an account"),
            );
        }
        self.point("/proc");
        self.point("/dev");
        self.point("/etc");
        self.arguments
            .extend(["--proc", "/proc", "--dev", "/dev"].map(str::to_owned));
    }

    fn config_map(&mut self, name: &str, path: &str) {
        let get = ["get", "configmap", name, "-n", self.namespace, "-o", "json"];
        let object: Value = serde_json::from_str(&self.cluster.kubectl(&get).succeed())
            .expect("kubectl prints JSON");
        let files = object["data"].as_object().into_iter().flatten();
        let files = files.map(|(file, text)| {
            let text = text.as_str().expect("a ConfigMap holds texts");
            // The only change: see the module. The default of `admin.listen` has one port, too.
            let own = [(self.https, "0.0.0.0:8443"), (self.probes, "0.0.0.0:8080")];
            let text = own.iter().fold(text.to_owned(), |text, (address, usual)| {
                assert!(text.contains(usual), "{usual} is not in {text}");
                text.replace(usual, &address.to_string())
            });
            assert!(!text.contains("\nadmin:"), "{text}");
            (
                file.clone(),
                format!("{text}admin:\n  listen: 127.0.0.1:0\n"),
            )
        });
        let files: Vec<(String, String)> = files.collect();
        self.folder(&format!("config-{name}"), path, &files);
    }

    fn token(&mut self, account: &str) {
        let create = ["create", "token", account, "-n", self.namespace];
        let token = self.cluster.kubectl(&create).succeed();
        let ca = fs::read_to_string(self.cluster.folder().join("ca.crt"));
        let files = [
            ("token", token.trim().to_owned()),
            ("ca.crt", ca.expect("the cluster has a CA")),
            ("namespace", self.namespace.to_owned()),
        ];
        let files = files.map(|(name, text)| (name.to_owned(), text));
        self.folder("token", TOKEN, &files);
    }

    /// Mounts a folder with files that nobody can write to.
    fn folder(&mut self, name: &str, path: &str, files: &[(String, String)]) {
        let folder = self.folder.join(name);
        fs::create_dir(&folder).expect("a folder can be made");
        for (file, text) in files {
            let file = folder.join(file);
            fs::write(&file, text).expect("a file can be written");
            allow_all(&file, 0o644);
        }
        allow_all(&folder, 0o755);
        self.point(path);
        let from = folder.display().to_string();
        self.arguments
            .extend(["--ro-bind".to_owned(), from, path.to_owned()]);
    }

    fn memory(&mut self, path: &str, limit: &str) {
        let mebibytes = limit
            .strip_suffix("Mi")
            .and_then(|limit| limit.parse::<u64>().ok());
        let bytes = mebibytes.unwrap_or_else(|| panic!("{limit} is not in Mi")) << 20;
        self.point(path);
        let size = bytes.to_string();
        let arguments = ["--perms", "0777", "--size", &size, "--tmpfs", path];
        self.arguments.extend(arguments.map(str::to_owned));
    }

    /// Makes the place for a mount, as a runtime does.
    fn point(&self, path: &str) {
        let place = self.root.join(path.trim_start_matches('/'));
        fs::create_dir_all(&place).expect("a place for a mount can be made");
    }
}

/// Returns the user and the group of the container. Panics if its security context asks for more than is done here.
pub(super) fn user(spec: &Value, container: &Value) -> (u64, u64) {
    let pod = &spec["securityContext"];
    assert_eq!(pod["runAsNonRoot"], true, "{pod:#}");
    assert_eq!(pod["seccompProfile"]["type"], "RuntimeDefault", "{pod:#}");
    let own = &container["securityContext"];
    assert_eq!(own["allowPrivilegeEscalation"], false, "{own:#}");
    assert_eq!(own["capabilities"]["drop"][0], "ALL", "{own:#}");
    let id = |key: &str| {
        pod[key]
            .as_u64()
            .unwrap_or_else(|| panic!("no {key} in {pod:#}"))
    };
    (id("runAsUser"), id("runAsGroup"))
}

/// Creates the command of a container without its mounts. The shell opens the files that bwrap gets by number.
pub(super) fn bubblewrap(folder: &Path, (user, group): (u64, u64)) -> Command {
    let filter = Command::new("/usr/bin/python3")
        .arg(binary::workspace().join("tests/pod/filter.py"))
        .arg(SECCOMP_PROFILE)
        .output()
        .expect("python can be started");
    let errors = String::from_utf8_lossy(&filter.stderr);
    assert!(filter.status.success(), "no seccomp filter: {errors}");
    fs::write(folder.join("filter"), &filter.stdout).expect("the filter can be written");
    let script = "exec setpriv --reuid \"$1\" --regid \"$2\" --clear-groups bwrap --uid \"$1\" --gid \"$2\" \
                  --seccomp 3 --info-fd 4 \"${@:3}\" 3<\"$FOLDER/filter\" 4>\"$FOLDER/info\"";
    let mut command = Command::new("bash");
    command
        .args(["-c", script, "pod", &user.to_string(), &group.to_string()])
        .env("FOLDER", folder)
        .args([
            "--unshare-user",
            "--unshare-pid",
            "--unshare-ipc",
            "--unshare-uts",
        ])
        .args([
            "--as-pid-1",
            "--new-session",
            "--cap-drop",
            "ALL",
            "--clearenv",
        ]);
    command
}

/// Returns the variables of a container, with those that kubelet adds.
pub(super) fn environment(
    cluster: &Cluster,
    container: &Value,
    name: &str,
    namespace: &str,
) -> Vec<(String, String)> {
    let server = cluster.address();
    let mut all = vec![
        (
            "PATH".to_owned(),
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        ),
        ("HOSTNAME".to_owned(), name.to_owned()),
        (
            "KUBERNETES_SERVICE_HOST".to_owned(),
            server.ip().to_string(),
        ),
        (
            "KUBERNETES_SERVICE_PORT".to_owned(),
            server.port().to_string(),
        ),
    ];
    for variable in container["env"].as_array().into_iter().flatten() {
        let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            None => variable["value"].as_str().unwrap_or_default(),
            Some("metadata.name") => name,
            Some("metadata.namespace") => namespace,
            Some(other) => panic!("a field that is not known here: {other}"),
        };
        let key = variable["name"].as_str().expect("a variable has a name");
        all.push((key.to_owned(), value.to_owned()));
    }
    all
}
