//! The root file system of a container.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{allow_all, binary, guests};

/// Variable with the OCI layout that `cargo xtask image` wrote.
const LAYOUT: &str = "TOLLGATE_IMAGE";

/// The image that pods run.
#[derive(Debug)]
pub enum Image {
    /// An OCI layout of `cargo xtask image`.
    Layout(PathBuf),
    /// The files of the image, with the binary beside the tests instead of a static one. This machine's libraries are
    /// mounted for it.
    Development,
}

// === impl Image ===

impl Image {
    /// Returns the image that `TOLLGATE_IMAGE` names, or the development one.
    #[must_use]
    pub fn find() -> Self {
        match std::env::var_os(LAYOUT) {
            Some(layout) => Self::Layout(layout.into()),
            None => Self::Development,
        }
    }

    /// Writes the files of the image. Returns the arguments for bwrap that mount them.
    pub(super) fn unpack(&self, root: &Path) -> Vec<String> {
        fs::create_dir(root).expect("a folder can be made");
        allow_all(root, 0o755);
        let mut arguments = vec![
            "--ro-bind".to_owned(),
            root.display().to_string(),
            "/".to_owned(),
        ];
        match self {
            Self::Layout(layout) => unpack(layout, root),
            Self::Development => {
                copy(&binary::tollgate(), &root.join("tollgate"), 0o755);
                for folder in ["plugins", "tmp"] {
                    fs::create_dir(root.join(folder)).expect("a folder can be made");
                }
                let plugin = guests::build("required-labels");
                copy(&plugin, &root.join("plugins/required_labels.wasm"), 0o644);
                for folder in ["/lib", "/lib64", "/usr/lib"] {
                    let place = root.join(folder.trim_start_matches('/'));
                    fs::create_dir_all(place).expect("a folder can be made");
                    arguments.extend(["--ro-bind-try", folder, folder].map(str::to_owned));
                }
            }
        }
        arguments
    }
}

fn copy(from: &Path, to: &Path, mode: u32) {
    let copied = fs::copy(from, to);
    copied.unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    allow_all(to, mode);
}

/// Unpacks the layers of an OCI layout.
fn unpack(layout: &Path, root: &Path) {
    let read = |path: &Path| -> Value {
        let bytes = fs::read(path);
        let bytes = bytes.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"]
            .as_str()
            .expect("a descriptor has a digest");
        layout.join("blobs").join(digest.replace(':', "/"))
    };
    let index = read(&layout.join("index.json"));
    let manifest = read(&blob(&index["manifests"][0]));
    for layer in manifest["layers"].as_array().into_iter().flatten() {
        let status = Command::new("tar")
            .args(["--extract", "--gzip", "--file"])
            .arg(blob(layer))
            .arg("--directory")
            .arg(root)
            .status();
        assert!(status.expect("tar can be started").success());
    }
}
