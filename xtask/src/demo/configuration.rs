//! The configuration that the demo serves. This is the first configuration that newcomers see, so it is written for
//! them.

use std::path::PathBuf;

use anyhow::Context as _;

use crate::terminal::{FAINT, GOOD};
use crate::workspace::Workspace;

/// The packages of the plugins.
pub(super) const PLUGINS: [&str; 3] = ["image-rewrite", "always-pull-images", "required-labels"];

/// The part to show. `SOURCE/` stands for the folder with the built plugins.
const PLUGIN_ENTRIES: &str = r#"plugins:
  - name: image-rewrite                    # mutators run in this order, each on the output of the one before
    source: file:SOURCE/image_rewrite.wasm
    settings:
      rewrite:
        - { from: k8s.gcr.io/, to: registry.k8s.io/ }
        - { from: docker.io/, to: mirror.example.com/hub/ }

  - name: always-pull-images               # mutates and validates; no settings, and it has its own rules
    source: file:SOURCE/always_pull_images.wasm

  - name: required-labels                  # validates
    source: file:SOURCE/required_labels.wasm
    settings:
      labels: { app.kubernetes.io/name: null, team: "[a-z][a-z0-9-]*" }

  - name: ask-for-an-owner                 # the same plugin with other settings, on trial: it only warns
    source: file:SOURCE/required_labels.wasm
    settings:
      annotations: { example.com/owner: ".+@example[.]com" }
    mode: warn

  # Two that fail: they get less fuel than they need. What that means for a request is decided for each plugin.
  - name: starved
    source: file:SOURCE/required_labels.wasm
    match:
      namespaces: [shop]
      rules: [{ operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps] }]
    settings: { labels: { team: null } }
    limits: { fuel: 1k }
    failurePolicy: Fail                    # the default
  - name: starved-optional
    source: file:SOURCE/required_labels.wasm
    match:
      namespaces: [sandbox]
      rules: [{ operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps] }]
    settings: { labels: { team: null } }
    limits: { fuel: 1k }
    failurePolicy: Ignore
"#;

/// Writes the file and returns its path.
pub(super) fn write(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let folder = workspace.target().join("demo");
    let file = folder.join("tollgate.yaml");
    let plugins = workspace.guest_file("plugin");
    let plugins = plugins
        .parent()
        .context("the plugin files are in a folder")?;
    let entries = PLUGIN_ENTRIES.replace("SOURCE", &plugins.display().to_string());
    let text = format!(
        "# Written by `cargo xtask demo`. docs/reference/configuration.md explains every key.\n\
         listen: 127.0.0.1:0                        # a free port\n\
         admin: {{ listen: 127.0.0.1:0 }}\n\
         probes: {{ listen: 127.0.0.1:0 }}\n\
         tls: {{ selfSigned: {{ directory: ./tls }} }}  # creates a CA, and ca.crt for use as caBundle\n\
         engine: {{ cacheDirectory: ./code }}         # compiled plugins are kept here for the next start\n\n{entries}"
    );
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    // The host requires private permissions for its cache of compiled code, whatever the umask is.
    private(&folder.join("code"))?;
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// Prints the part to show.
pub(super) fn show() {
    for line in PLUGIN_ENTRIES.replace("file:SOURCE/", "file:…/").lines() {
        match line.split_once(" #") {
            Some((key, comment)) => anstream::println!("  {key} {FAINT}#{comment}{FAINT:#}"),
            None if line.trim_start().starts_with("- name") => {
                anstream::println!("  {GOOD}{line}{GOOD:#}")
            }
            None => println!("  {line}"),
        }
    }
}

fn private(folder: &std::path::Path) -> anyhow::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt};
    let mut builder = std::fs::DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .and_then(|()| std::fs::set_permissions(folder, PermissionsExt::from_mode(0o700)))
        .with_context(|| format!("cannot make {} private", folder.display()))
}
