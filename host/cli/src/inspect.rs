//! `tollgate inspect`

mod remote;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tollgate::setup::{Options, Setup};
use tollgate_component::{componentize, exports, imports};
use tollgate_config::{Config, Match, PluginConfig, Reference, Signatures};
use tollgate_gate::plugin::Manifest;
use tollgate_oci::{Order, Signed};

pub(super) use remote::Remote;
#[cfg(test)]
pub(super) use remote::sample;

use super::build::to_check;
use super::registry::{Access, Signers, block_on, reference};
use super::terminal::{BAD, FAINT, GOOD, NOTABLE, STRONG, grouped, plain, say};
use super::{FAILURE, build};

/// Show what a plugin is, from a file or from an artifact in a registry. The plugin's code runs only to describe
/// itself.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Inspect {
    /// Plugin file, or a reference such as oci://registry.example.com/policies/image-rewrite:1.4
    #[arg(value_name = "FILE|REFERENCE")]
    plugin: String,
    /// Output format.
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: Format,
    /// Show what the manifest in the registry says, without pulling the layer and without running the plugin.
    #[arg(long, conflicts_with_all = ["key", "identity"])]
    metadata: bool,
    #[command(flatten)]
    signers: Signers,
    #[command(flatten)]
    access: Access,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Everything that `inspect` prints about a plugin.
struct Inspected {
    source: String,
    digest: String,
    size_bytes: u64,
    is_component: bool,
    exports: Vec<String>,
    imports: Vec<String>,
    /// The plugin's description of itself, or the reason why the host would not load it.
    manifest: Result<Manifest, String>,
    /// The signatures in the registry. None for a file.
    signed: Option<Signed>,
}

const EXAMPLES: &str = "\
Examples:
  tollgate inspect dist/image_rewrite.wasm
  tollgate inspect oci://registry.example.com/policies/image-rewrite:1.4 --key cosign.pub
  tollgate inspect oci://registry.example.com/policies/image-rewrite:1.4 --metadata
  tollgate inspect plugin.wasm -o json

Exit code: 0 when the host accepts the plugin, 1 when it rejects the plugin, 2 when the plugin could not be read.";

/// Prefix of the name of every interface in the contract.
const CONTRACT: &str = "tollgate:admission/";

// === impl Inspect ===

impl Inspect {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if self.metadata {
            return self.of_metadata();
        }
        let inspected = match self.reference()? {
            Some(reference) => self.of_reference(&reference)?,
            None => {
                anyhow::ensure!(
                    self.signers.policy().is_none(),
                    "--key and --identity: expected a reference of a registry, because a file has no signatures"
                );
                let path = Path::new(self.plugin.strip_prefix("file:").unwrap_or(&self.plugin));
                let bytes = std::fs::read(path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                let digest = format!("sha256:{:x}", Sha256::digest(&bytes));
                inspect(path.display().to_string(), digest, bytes, None)?
            }
        };
        match self.output {
            Format::Text => inspected.print(),
            Format::Json => say!("{:#}", inspected.json()),
        }
        Ok(if inspected.manifest.is_ok() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(FAILURE)
        })
    }

    /// Shows what the manifest of an artifact says.
    fn of_metadata(&self) -> anyhow::Result<ExitCode> {
        let reference = self.reference()?.ok_or_else(|| {
            anyhow::anyhow!(
                "--metadata: expected a reference of a registry, because a file has no manifest"
            )
        })?;
        let (registry, _) = self.access.registry(&reference)?;
        let remote = Remote {
            source: format!("oci://{reference}"),
            described: block_on(registry.describe(&reference))??,
        };
        match self.output {
            Format::Text => remote.print(),
            Format::Json => say!("{:#}", remote.json()),
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns None for a file. Text that has no scheme and names no file is read as a reference.
    fn reference(&self) -> anyhow::Result<Option<Reference>> {
        let text = self.plugin.as_str();
        let is_file = text.starts_with("file:") || Path::new(text).exists();
        if is_file {
            return Ok(None);
        }
        reference(text).map(Some).map_err(|error| {
            anyhow::anyhow!("{text}: no such file, and not a registry reference: {error}")
        })
    }

    fn of_reference(&self, reference: &Reference) -> anyhow::Result<Inspected> {
        let (registry, limit_bytes) = self.access.registry(reference)?;
        let registry = registry.without_cache();
        let signatures = self.access.signatures(&self.signers)?;
        let signed = block_on(registry.signatures(reference, &signatures))??;
        let pinned = Reference {
            digest: Some(signed.digest.clone()),
            ..reference.clone()
        };
        // A plugin that is not trusted can be inspected, too. Its code runs only to describe itself.
        let order = Order {
            reference: &pinned,
            signatures: &Signatures::default(),
            have: None,
            limit_bytes,
        };
        let pulled = block_on(registry.pull(order))??;
        let bytes = pulled.bytes.unwrap_or_default();
        let source = format!("oci://{reference}");
        inspect(source, pulled.digest, bytes, Some(signed))
    }
}

fn inspect(
    source: String,
    digest: String,
    bytes: Vec<u8>,
    signed: Option<Signed>,
) -> anyhow::Result<Inspected> {
    let size_bytes = bytes.len() as u64;
    let is_component = is_component(&bytes);
    let (exports, imports, manifest) = match componentize(bytes) {
        Ok(component) => {
            let (exports, imports) = (exports(&component), imports(&component));
            // Inspection grants the clock to a plugin that imports it. The plugin's configuration decides what is
            // granted later.
            let (config, plugin) = to_check("inspected", Path::new(&source), None, &imports)?;
            let manifest = describe(&config, &plugin, component)?;
            (exports, imports, manifest)
        }
        Err(error) => {
            let reason = tollgate_admission::chain(&error);
            (Vec::new(), Vec::new(), Err(reason))
        }
    };
    Ok(Inspected {
        source,
        digest,
        size_bytes,
        is_component,
        exports,
        imports,
        manifest,
        signed,
    })
}

/// Asks a plugin for its description. The inner error is the reason why the host rejects the plugin.
pub(super) fn describe_component(
    file: &Path,
    component: &[u8],
) -> anyhow::Result<Result<Manifest, String>> {
    let (config, plugin) = to_check("described", file, None, &imports(component))?;
    describe(&config, &plugin, component.to_vec())
}

/// Asks the plugin for its description, in a child process.
fn describe(
    config: &Config,
    plugin: &PluginConfig,
    component: Vec<u8>,
) -> anyhow::Result<Result<Manifest, String>> {
    let setup = Setup::new(config, &Options::default())?;
    let described = block_on(setup.loader.describe(plugin, &component))?;
    Ok(described.map_err(|error| tollgate_admission::chain(&error)))
}

fn is_component(bytes: &[u8]) -> bool {
    // The magic number, then the version, then the layer: 0 for modules, 1 for components.
    bytes.starts_with(b"\0asm") && bytes.get(6) == Some(&1)
}

// === impl Inspected ===

impl Inspected {
    /// Returns the contract versions that the imports and exports name. Normally this is a single version.
    fn contract(&self) -> Vec<String> {
        let names = self.exports.iter().chain(&self.imports);
        let versions = names.filter_map(|name| {
            let (_, version) = name.strip_prefix(CONTRACT)?.split_once('@')?;
            Some(format!("{}@{version}", CONTRACT.trim_end_matches('/')))
        });
        let versions: std::collections::BTreeSet<String> = versions.collect();
        versions.into_iter().collect()
    }

    fn rules(manifest: &Manifest) -> Result<Vec<String>, String> {
        if manifest.rules.is_empty() {
            return Ok(Vec::new());
        }
        let rules = Match::from_manifest_rules(&build::rules_of(manifest));
        let rules = rules.map_err(|error| error.to_string())?;
        Ok(rules.rules().iter().map(ToString::to_string).collect())
    }

    fn print(&self) {
        say!("{STRONG}{}{STRONG:#}", plain(&self.source));
        say!("  digest       {}", self.digest);
        say!("  size         {} bytes", grouped(self.size_bytes));
        match self.is_component {
            true => say!("  kind         component"),
            false => say!(
                "  kind         core module, which is converted to a component when it is loaded or pushed"
            ),
        }
        say!("  contract     {}", plain(&or_none(&self.contract(), ", ")));
        say!("  exports      {}", plain(&or_none(&self.exports, ", ")));
        say!("  imports      {}", plain(&or_none(&self.imports, ", ")));
        match &self.manifest {
            Ok(manifest) => print_manifest(manifest),
            Err(reason) => {
                say!("  {BAD}REJECTED BY THE HOST:{BAD:#} {}", plain(reason));
            }
        }
        if let Some(signed) = &self.signed {
            print_signatures(signed);
        }
    }

    fn json(&self) -> Value {
        let mut value = json!({
            "source": self.source,
            "digest": self.digest,
            "size": self.size_bytes,
            "kind": if self.is_component { "component" } else { "module" },
            "contract": self.contract(),
            "exports": self.exports,
            "imports": self.imports,
        });
        match &self.manifest {
            Ok(manifest) => {
                let schema = manifest.settings_schema.as_deref();
                let labels: serde_json::Map<String, Value> = manifest
                    .labels
                    .iter()
                    .map(|(key, value)| (key.clone(), value.as_str().into()))
                    .collect();
                value["manifest"] = json!({
                    "name": manifest.name,
                    "version": manifest.version,
                    "description": manifest.description,
                    "labels": labels,
                    "rules": manifest.rules,
                });
                // The schema is parsed as JSON. If that fails, it is printed as text.
                value["settingsSchema"] = schema.map_or(Value::Null, |schema| {
                    serde_json::from_str(schema).unwrap_or_else(|_| schema.into())
                });
            }
            Err(reason) => value["refused"] = reason.as_str().into(),
        }
        if let Some(signed) = &self.signed {
            let found = signed.found.iter();
            let found = found.map(|found| json!({"trusted": found.is_trusted, "what": found.text}));
            value["signatures"] = found.collect();
            if let Some(policy) = &signed.policy {
                value["policy"] = json!({
                    "name": policy,
                    "met": signed.is_trusted(),
                    "missing": signed.missing,
                });
                if let Some(root) = &signed.root {
                    value["policy"]["root"] = root.as_str().into();
                }
            }
        }
        value
    }
}

fn print_manifest(manifest: &Manifest) {
    let Manifest {
        name,
        version,
        description,
        ..
    } = manifest;
    say!("  name         {} {}", plain(name), plain(version));
    if !description.is_empty() {
        say!("  description  {}", plain(description));
    }
    for (key, value) in &manifest.labels {
        say!("  label        {}: {}", plain(key), plain(value));
    }
    match Inspected::rules(manifest) {
        Ok(rules) if rules.is_empty() => {
            say!("  rules        {NOTABLE}none: its configuration needs `match`{NOTABLE:#}");
        }
        Ok(rules) => say!("  rules        {}", plain(&rules.join("; "))),
        Err(reason) => say!("  rules        {BAD}not valid:{BAD:#} {}", plain(&reason)),
    }
    let schema = schema_lines(manifest);
    if schema.is_empty() {
        say!("  settings     {FAINT}the plugin has no settings schema{FAINT:#}");
        return;
    }
    say!("  settings");
    for line in schema {
        say!("    {line}");
    }
}

/// The lines of a plugin's settings schema, without what a terminal must not get. There are none if it has no schema.
pub(super) fn schema_lines(manifest: &Manifest) -> Vec<String> {
    let Some(schema) = &manifest.settings_schema else {
        return Vec::new();
    };
    // If the schema is not JSON, it is shown as text.
    let indented = serde_json::from_str::<Value>(schema).map(|schema| format!("{schema:#}"));
    let lines = indented.as_deref().unwrap_or(schema).lines();
    lines
        .map(|line| {
            let text = line.trim_start();
            let indent = line.len() - text.len();
            format!("{:indent$}{}", "", plain(text))
        })
        .collect()
}

fn print_signatures(signed: &Signed) {
    if signed.found.is_empty() {
        say!(
            "  signatures   {NOTABLE}none{NOTABLE:#}, under the tag {} and among the referrers",
            signed.tag
        );
    } else if signed.policy.is_none() {
        say!(
            "  signatures   {}, {NOTABLE}not verified{NOTABLE:#}: pass --key, --identity or --config",
            signed.found.len()
        );
        return;
    }
    for found in &signed.found {
        let text = plain(&found.text);
        match found.is_trusted {
            true => say!("  signature    {GOOD}{text}{GOOD:#}"),
            false => say!("  signature    {BAD}{text}{BAD:#}"),
        }
    }
    if let Some(policy) = &signed.policy {
        match signed.is_trusted() {
            true => say!("  policy       {GOOD}{} is met{GOOD:#}", plain(policy)),
            false => say!("  policy       {BAD}{} is not met{BAD:#}", plain(policy)),
        }
    }
    if let Some(root) = &signed.root {
        say!("  root         {}", plain(root));
    }
    for missing in &signed.missing {
        say!("               {BAD}{}{BAD:#}", plain(missing));
    }
}

fn or_none(names: &[String], separator: &str) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.join(separator),
    }
}
