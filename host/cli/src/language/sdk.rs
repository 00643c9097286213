//! The SDKs that are built into the binary. A project gets its own copy, in the version that this host understands.

use std::path::{Path, PathBuf};

/// The SDK of a language.
pub(crate) struct Sdk {
    /// The SDK's folder in `guest-sdk`.
    pub(super) name: &'static str,
    /// Path and content of each file.
    files: &'static [(&'static str, &'static str)],
}

/// Folder of the SDK in a project.
pub(super) const FOLDER: &str = "sdk";

/// Manifest of the repository's workspace. The Rust SDK's manifest takes values from it.
const WORKSPACE: &str = include_str!("../../../../Cargo.toml");

macro_rules! sdk {
    ($name:literal, $($file:literal)*) => {
        Sdk {
            name: $name,
            files: &[$(($file, include_str!(concat!("../../../../guest-sdk/", $name, "/", $file)))),*],
        }
    };
}

pub(super) static RUST: Sdk = sdk!(
    "rust",
    "Cargo.toml" "README.md"
    "src/access.rs" "src/allocator.rs" "src/bindings.rs" "src/clock.rs" "src/cluster.rs" "src/denial.rs" "src/export.rs" "src/host.rs" "src/image.rs"
    "src/images.rs" "src/lib.rs" "src/log.rs" "src/manifest.rs" "src/panic.rs" "src/patch.rs" "src/pattern.rs" "src/pattern/automaton.rs" "src/pointer.rs" "src/pointer/check.rs" "src/policy.rs"
    "src/qualified_name.rs" "src/review.rs" "src/settings.rs" "src/testing.rs" "src/testing/access.rs" "src/testing/host.rs" "src/testing/images.rs" "src/testing/lookups.rs"
    "src/testing/namespace.rs"
    "src/testing/outcome.rs" "src/testing/patch.rs" "src/testing/request.rs" "src/tree.rs"
    "wit/access.wit" "wit/cluster.wit" "wit/images.wit" "wit/review.wit" "wit/types.wit" "wit/world.wit"
);

pub(super) static GO: Sdk = sdk!(
    "go",
    "LICENSE" "README.md" "go.mod" "go.sum"
    "access/access.go" "access/access_wasip1.go" "clock/clock.go" "clock/clock_wasip1.go" "cluster/cluster.go" "cluster/cluster_wasip1.go" "denial.go" "doc.go" "host.go" "images/images.go" "images/images_wasip1.go"
    "internal/guest/fault_wasip1.go"
    "internal/guest/guest.go" "internal/guest/host_wasip1.go" "internal/guest/lifecycle_wasip1.go"
    "internal/guest/mutating/mutating.go" "internal/guest/mutating/mutating_wasip1.go"
    "internal/guest/validating/validating.go" "internal/guest/validating/validating_wasip1.go"
    "internal/guest/words_wasip1.go" "internal/settings/schema.go" "internal/settings/settings.go" "internal/tree/tree.go"
    "mutator/mutator.go" "patch.go"
    "plugin/plugin.go" "pointer.go" "policy.go" "review.go" "settings.go" "tollgatetest/access.go" "tollgatetest/host.go"
    "tollgatetest/images.go" "tollgatetest/lookup.go" "tollgatetest/namespace.go" "tollgatetest/review.go" "validator/validator.go" "value.go"
);

pub(super) static JAVASCRIPT: Sdk = sdk!(
    "js",
    "LICENSE" "README.md" "package.json" "bin/tollgate-js.js" "build/build.js" "build/calls.js" "build/globals.js"
    "src/access.d.ts" "src/access.js" "src/check.js" "src/clock.d.ts" "src/clock.js" "src/cluster.d.ts" "src/cluster.js" "src/component.js" "src/denial.js" "src/globals.js" "src/host.js"
    "src/images.d.ts" "src/images.js" "src/index.d.ts" "src/index.js" "src/listed.js" "src/log.js" "src/lookups.js" "src/missing.js" "src/patch.js" "src/pointer.js" "src/policy.js" "src/promise.js"
    "src/review.js" "src/rights.js" "src/settings.js" "src/testing.d.ts" "src/testing.js" "src/tree.js" "src/web.js" "src/words.js"
    "wit/access.wit" "wit/cluster.wit" "wit/images.wit" "wit/review.wit" "wit/types.wit" "wit/world.wit"
);

pub(super) static PYTHON: Sdk = sdk!(
    "python",
    "LICENSE" "README.md" "pyproject.toml"
    "tollgate_sdk/__init__.py" "tollgate_sdk/_base.py" "tollgate_sdk/_check.py" "tollgate_sdk/_component.py" "tollgate_sdk/_denial.py"
    "tollgate_sdk/_host.py" "tollgate_sdk/_listed.py" "tollgate_sdk/_log.py" "tollgate_sdk/_lookups.py" "tollgate_sdk/_manifest.py" "tollgate_sdk/_patch.py"
    "tollgate_sdk/_pointer.py" "tollgate_sdk/_policy.py" "tollgate_sdk/_project.py" "tollgate_sdk/_review.py" "tollgate_sdk/_rights.py" "tollgate_sdk/_room.py" "tollgate_sdk/_settings.py"
    "tollgate_sdk/_system.py" "tollgate_sdk/_tree.py" "tollgate_sdk/access.py" "tollgate_sdk/build.py" "tollgate_sdk/clock.py" "tollgate_sdk/cluster.py"
    "tollgate_sdk/images.py"
    "tollgate_sdk/py.typed" "tollgate_sdk/testing.py" "tollgate_sdk/wit/access.wit" "tollgate_sdk/wit/cluster.wit" "tollgate_sdk/wit/images.wit" "tollgate_sdk/wit/review.wit" "tollgate_sdk/wit/types.wit" "tollgate_sdk/wit/world.wit"
);

pub(super) static C: Sdk = sdk!("c", "LICENSE" "README.md" "include/tollgate.h" "src/tollgate.c");

// === impl Sdk ===

impl Sdk {
    /// Writes the SDK into a project and returns its folder.
    pub(crate) fn write(&self, project: &Path) -> std::io::Result<PathBuf> {
        let folder = project.join(FOLDER);
        for (file, content) in self.files {
            let path = folder.join(file);
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            match *file {
                "Cargo.toml" => std::fs::write(&path, standalone(content, WORKSPACE))?,
                _ => std::fs::write(&path, content)?,
            }
        }
        Ok(folder)
    }
}

/// Fills the values that a package takes from its workspace into the package's manifest.
fn standalone(manifest: &str, workspace: &str) -> String {
    let mut text = String::with_capacity(manifest.len());
    let mut section = "";
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        }
        if section == "[lints]" {
            continue;
        }
        text.push_str(&inherited(line, section, workspace).unwrap_or_else(|| line.to_owned()));
        text.push('\n');
    }
    text
}

/// Returns the line with the value of the workspace, if it takes one from there.
fn inherited(line: &str, section: &str, workspace: &str) -> Option<String> {
    let optional = line.strip_suffix(" = { workspace = true, optional = true }");
    let key = optional.or_else(|| line.strip_suffix(".workspace = true"))?;
    let from = match section {
        "[package]" => "[workspace.package]",
        _ => "[workspace.dependencies]",
    };
    let (_, values) = workspace.split_once(from)?;
    let beginning = format!("{key} = ");
    let value = values
        .lines()
        .find_map(|line| line.strip_prefix(&beginning))?;
    Some(match (optional, value.strip_suffix(" }")) {
        (None, _) => format!("{beginning}{value}"),
        (Some(_), Some(table)) => format!("{beginning}{table}, optional = true }}"),
        (Some(_), None) => format!("{beginning}{{ version = {value}, optional = true }}"),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Files that a project does not get: tests of the SDK, and files that building or testing creates.
    const LEFT_OUT: [&str; 11] = [
        ".gitignore",
        ".mypy_cache",
        "__pycache__",
        "node_modules",
        "package-lock.json",
        "policy_test.go",
        "schema_test.go",
        "test",
        "tests",
        "tests.rs",
        "tollgate_sdk.egg-info",
    ];

    fn walk(root: &Path, folder: &Path, files: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if LEFT_OUT.contains(&name) {
                continue;
            }
            if path.is_dir() {
                walk(root, &path, files);
            } else {
                let file = path.strip_prefix(root).unwrap();
                files.insert(file.to_str().unwrap().to_owned());
            }
        }
    }

    #[test]
    fn bundles_every_file_of_every_sdk() {
        for sdk in [&RUST, &GO, &JAVASCRIPT, &PYTHON, &C] {
            let root = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../guest-sdk")
                .join(sdk.name);
            let mut there = BTreeSet::new();
            walk(&root, &root, &mut there);
            let brought = sdk.files.iter().map(|(file, _)| (*file).to_owned());
            assert_eq!(brought.collect::<BTreeSet<_>>(), there, "{}", sdk.name);
        }
    }

    #[test]
    fn rust_sdk_manifest_does_not_need_a_workspace() {
        let manifest = RUST.files.iter().find(|(file, _)| *file == "Cargo.toml");
        let text = standalone(manifest.unwrap().1, WORKSPACE);
        assert!(!text.contains("workspace"), "{text}");
        for line in [
            "edition = \"2024\"",
            "serde_json = \"1\"",
            "[features]",
            "regex-lite = { version = \"0.1\", optional = true }",
        ] {
            assert!(text.lines().any(|found| found == line), "{text}");
        }
    }
}
