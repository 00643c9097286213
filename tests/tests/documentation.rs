//! The configurations in the documentation load as they are, beside the files of the plugins. The crates of the host
//! use each other as the documentation says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tollgate_tests::registry::Key;
use tollgate_tests::{binary, guests};

/// The page with the graph of the crates.
const ARCHITECTURE: &str = "docs/architecture.md";
const GRAPH_BEGIN: &str = "<!-- crates: begin -->";
const GRAPH_END: &str = "<!-- crates: end -->";

/// The rank of each crate under `host/`, by the name of its folder. A crate may use only crates of a lower rank.
const LAYERS: &[(&str, u8)] = &[
    ("authority", 0),
    ("component", 0),
    ("gatekeeper", 0),
    ("json", 0),
    ("shape", 0),
    ("admission", 1),
    ("cel", 1),
    ("recording", 1),
    ("config", 2),
    ("telemetry", 2),
    ("import", 3),
    ("lookups", 3),
    ("oci", 3),
    ("rollout", 3),
    ("otlp", 3),
    ("engine", 4),
    ("gate", 5),
    ("registration", 5),
    ("server", 5),
    ("cluster", 6),
    ("tollgate", 6),
    ("scan", 7),
    ("cli", 8),
];

/// Crates that know nothing about how plugins are loaded and called.
const WITHOUT_PLUGINS: [&str; 3] = ["cluster", "registration", "server"];
/// Crates that load and call plugins. They have lower ranks than [`WITHOUT_PLUGINS`], which must not use them.
const OF_PLUGINS: [&str; 3] = ["component", "engine", "oci"];

/// The crates under `host/`, each with the crates under `host/` that it uses.
type Crates = BTreeMap<String, BTreeSet<String>>;

/// Returns the configurations on a page.
fn configurations(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    text.split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .filter(|example| example.contains("plugins:"))
        .map(str::to_owned)
        .collect()
}

/// Returns the README pages of the plugins.
fn pages_of_plugins() -> Vec<PathBuf> {
    let folder = binary::workspace().join("plugins");
    let entries = std::fs::read_dir(&folder);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut pages: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path().join("README.md"))
        .collect();
    pages.sort();
    pages
}

/// Puts the plugins that a configuration names beside it, and checks it.
fn assert_loads(configuration: &str, folder: &Path) {
    for line in configuration.lines() {
        let Some((_, file)) = line.split_once("source: file:./") else {
            continue;
        };
        let (file, package) = (file.trim(), file.trim().trim_end_matches(".wasm"));
        let plugin = guests::build(&package.replace('_', "-"));
        std::fs::copy(&plugin, folder.join(file))
            .unwrap_or_else(|error| panic!("{}: {error}", plugin.display()));
    }
    if configuration.contains("key: ./release.pub") {
        let key = Key::p256();
        std::fs::copy(key.public(), folder.join("release.pub"))
            .unwrap_or_else(|error| panic!("release.pub: {error}"));
    }
    let path = folder.join("tollgate.yaml");
    // A shared cache, so that each plugin is compiled only once.
    let text = format!("{configuration}\nengine: {{ cacheDirectory: ./code }}\n");
    std::fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let output = Command::new(binary::tollgate())
        .arg("check")
        .arg("--config")
        .arg(&path)
        .output()
        .unwrap_or_else(|error| panic!("tollgate cannot be run: {error}"));
    assert!(
        output.status.success(),
        "{configuration}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Reads from the manifests which crates under `host/` use each other. Development dependencies do not count.
fn host_crates() -> Crates {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(binary::workspace())
        .output()
        .unwrap_or_else(|error| panic!("cargo cannot be run: {error}"));
    assert!(
        output.status.success(),
        "`cargo metadata` fails:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let host = Path::new(text(&metadata["workspace_root"])).join("host");
    let crates: Crates = list(&metadata["packages"])
        .filter_map(|package| {
            let manifest = Path::new(text(&package["manifest_path"]));
            let name = folder_in(&host, manifest.parent()?)?;
            let used: BTreeSet<String> = list(&package["dependencies"])
                .filter(|dependency| dependency["kind"] != "dev")
                .filter_map(|dependency| folder_in(&host, Path::new(dependency["path"].as_str()?)))
                .collect();
            Some((name, used))
        })
        .collect();
    assert!(!crates.is_empty(), "no package lies in {}", host.display());
    crates
}

/// Returns a text of cargo's metadata.
fn text(value: &Value) -> &str {
    value.as_str().expect("cargo's metadata has a text here")
}

/// Returns the elements of a list of cargo's metadata.
fn list(value: &Value) -> impl Iterator<Item = &Value> {
    let list = value.as_array();
    list.expect("cargo's metadata has a list here").iter()
}

/// Returns the name of a folder that lies directly in `parent`.
fn folder_in(parent: &Path, folder: &Path) -> Option<String> {
    if folder.parent() != Some(parent) {
        return None;
    }
    Some(folder.file_name()?.to_str()?.to_owned())
}

/// Returns whether a crate uses another one, itself or through others. Ends because cargo refuses cycles.
fn uses(crates: &Crates, user: &str, used: &str) -> bool {
    crates.get(user).is_some_and(|direct| {
        direct
            .iter()
            .any(|next| next == used || uses(crates, next, used))
    })
}

/// Draws the crates as a graph. Leaves out uses that follow from others.
fn graph_of(crates: &Crates) -> String {
    let mut graph = String::from("```mermaid\ngraph TD\n");
    for (user, direct) in crates {
        for used in direct {
            if !direct.iter().any(|other| uses(crates, other, used)) {
                graph.push_str(&format!("    {user} --> {used}\n"));
            }
        }
    }
    graph.push_str("```");
    graph
}

/// Returns the rank of a crate.
fn rank(name: &str) -> u8 {
    let layer = LAYERS.iter().find(|(known, _)| *known == name);
    let (_, rank) = layer.unwrap_or_else(|| {
        panic!(
            "host/{name} has no rank: add it to LAYERS in tests/tests/documentation.rs, above every crate that it uses"
        )
    });
    *rank
}

/// Returns the reason why one crate must not use another one.
fn violation(user: &str, used: &str) -> Option<String> {
    let (upper, lower) = (rank(user), rank(used));
    if lower >= upper {
        return Some(format!(
            "host/{user} (rank {upper}) uses host/{used} (rank {lower}), which is not below it"
        ));
    }
    (WITHOUT_PLUGINS.contains(&user) && OF_PLUGINS.contains(&used)).then(|| {
        format!("host/{user} uses host/{used}, but must not know how plugins are loaded and called")
    })
}

#[test]
fn crate_graph_matches_manifests() {
    let page = binary::workspace().join(ARCHITECTURE);
    let page = std::fs::read_to_string(&page)
        .unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    let (_, rest) = page
        .split_once(GRAPH_BEGIN)
        .unwrap_or_else(|| panic!("{ARCHITECTURE} has no line {GRAPH_BEGIN}"));
    let (written, _) = rest
        .split_once(GRAPH_END)
        .unwrap_or_else(|| panic!("{ARCHITECTURE} has no line {GRAPH_END} after {GRAPH_BEGIN}"));
    let expected = graph_of(&host_crates());
    assert!(
        written.trim() == expected,
        "the graph in {ARCHITECTURE} differs from the manifests. Replace it with:\n\n{GRAPH_BEGIN}\n{expected}\n{GRAPH_END}\n"
    );
}

/// With more than one, the names in `host/cli/layout` are wrong after any change of a crate.
#[test]
fn each_crate_of_the_host_is_released_as_one_codegen_unit() {
    let manifest = binary::workspace().join("Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).expect("the workspace has a manifest");
    for name in host_crates().into_keys() {
        let package = match name.as_str() {
            "tollgate" => name.clone(),
            _ => format!("tollgate-{name}"),
        };
        let profile = format!("[profile.release.package.{package}]\ncodegen-units = 1\n");
        assert!(manifest.contains(&profile), "Cargo.toml lacks\n{profile}");
    }
}

#[test]
fn crates_use_only_lower_layers() {
    let crates = host_crates();
    let violations: Vec<String> = crates
        .iter()
        .flat_map(|(user, direct)| direct.iter().filter_map(move |used| violation(user, used)))
        .collect();
    assert!(
        violations.is_empty(),
        "{}\nMove what both crates need into a crate below both (types that crates exchange are in host/admission), or \
         pass it in from host/cli. To change the layers, change LAYERS in tests/tests/documentation.rs and add a decision record.",
        violations.join("\n")
    );
}

#[test]
fn documented_configurations_load() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made: is TMPDIR writable?");
    let tutorial = configurations(&binary::workspace().join("docs/guides/classic-webhooks.md"));
    assert!(tutorial.len() > 3, "{}", tutorial.len());
    for configuration in tutorial {
        assert_loads(&configuration, folder.path());
    }
    for page in pages_of_plugins() {
        let own = configurations(&page);
        assert!(!own.is_empty(), "{} has no configuration", page.display());
        for configuration in own {
            assert_loads(&configuration, folder.path());
        }
    }
}
