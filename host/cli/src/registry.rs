//! `tollgate push`, `tollgate pull` and `tollgate verify`

pub(super) mod metadata;
mod progress;
mod signers;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use tollgate_config::{
    Config, EngineConfig, Reference, Registries, RegistryHost, Signatures, folder_of,
};
use tollgate_oci::{Order, Registry};

pub(super) use signers::Signers;
pub(super) use verify::Verify;

use super::terminal::{plain, say};
use metadata::About;

/// Push a plugin to a registry, with annotations that describe it.
#[derive(Args, Debug)]
pub(super) struct Push {
    /// Plugin file: a component, or a core module with embedded WIT. A core module is pushed as a component.
    #[arg(value_name = "PLUGIN.wasm")]
    plugin: PathBuf,
    /// Reference to push to, such as oci://registry.example.com/policies/image-rewrite:1.4
    #[arg(value_name = "REFERENCE", value_parser = reference)]
    to: Reference,
    #[command(flatten)]
    about: About,
    #[command(flatten)]
    access: Access,
}

/// Pull a plugin from a registry into a file.
#[derive(Args, Debug)]
pub(super) struct Pull {
    /// Reference to pull, such as oci://registry.example.com/policies/image-rewrite:1.4
    #[arg(value_name = "REFERENCE", value_parser = reference)]
    from: Reference,
    /// File to write [default: the last part of the repository's name and `.wasm`, in the working directory]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    signers: Signers,
    #[command(flatten)]
    access: Access,
}

/// Flags for access to the registry.
#[derive(Args, Debug)]
pub(super) struct Access {
    /// Configuration file to take `registries`, `signatures` and `engine.maxPlugin` from.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Config file of docker or podman with credentials [default: where docker and podman look for theirs]
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// PEM file of the CAs to trust for the registry, instead of the system's CAs.
    #[arg(long, value_name = "FILE", conflicts_with = "plain_http")]
    ca: Option<PathBuf>,
    /// Connect to the registry without TLS.
    #[arg(long)]
    plain_http: bool,
}

/// Reads a reference, with or without its scheme.
pub(super) fn reference(text: &str) -> Result<Reference, String> {
    let text = text.strip_prefix("oci://").unwrap_or(text);
    Reference::parse(text).map_err(|error| error.to_string())
}

// === impl Push ===

impl Push {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let path = self.plugin.display();
        let bytes = std::fs::read(&self.plugin).with_context(|| format!("cannot read {path}"))?;
        let component =
            tollgate_component::componentize(bytes).with_context(|| path.to_string())?;
        let (registry, _) = self.access.registry(&self.to)?;
        let size = component.len();
        let described = match self.about.no_describe {
            true => None,
            false => Some(super::inspect::describe_component(
                &self.plugin,
                &component,
            )?),
        };
        let interfaces = (
            tollgate_component::exports(&component),
            tollgate_component::imports(&component),
        );
        let annotations = self.about.annotations(
            &self.plugin,
            (&interfaces.0, &interfaces.1),
            described
                .as_ref()
                .and_then(|described| described.as_ref().ok()),
        );
        let digest = block_on(registry.push(&self.to, component, annotations))??;
        let Reference {
            registry,
            repository,
            ..
        } = &self.to;
        say!("pushed {} ({size} bytes)", self.to);
        if let Some(Err(reason)) = described {
            say!(
                "the artifact does not say what the plugin says about itself, because the host rejects the plugin: {}",
                plain(&reason)
            );
        }
        say!("source: oci://{registry}/{repository}@{digest}");
        Ok(ExitCode::SUCCESS)
    }
}

// === impl Pull ===

impl Pull {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let (registry, max_plugin_bytes) = self.access.registry(&self.from)?;
        let signatures = self.access.signatures(&self.signers)?;
        let pulled = block_on(registry.pull(Order {
            reference: &self.from,
            signatures: &signatures,
            have: None,
            limit_bytes: max_plugin_bytes,
        }))??;
        if let Some(reason) = &pulled.stale {
            say!("used the cached copy, because the pull failed: {reason}");
        }
        let name = self.from.repository.rsplit('/').next().unwrap_or_default();
        let path = self
            .output
            .unwrap_or_else(|| Path::new(name).with_extension("wasm"));
        let bytes = pulled.bytes.unwrap_or_default();
        std::fs::write(&path, &bytes)
            .with_context(|| format!("cannot write {}", path.display()))?;
        say!(
            "pulled {} to {} ({} bytes)",
            self.from,
            path.display(),
            bytes.len()
        );
        say!("digest: {}", pulled.digest);
        Ok(ExitCode::SUCCESS)
    }
}

// === impl Access ===

impl Access {
    /// Returns what must be proven about an artifact: as the flags say, or else as the configuration says.
    pub(super) fn signatures(&self, signers: &Signers) -> anyhow::Result<Signatures> {
        Ok(match (signers.policy(), &self.config) {
            (Some(policy), _) => policy,
            (None, Some(path)) => Config::load_without_plugins(path)?.signatures(folder_of(path)),
            (None, None) => Signatures::default(),
        })
    }

    /// Returns the registry client and the maximum size of a plugin.
    pub(super) fn registry(&self, reference: &Reference) -> anyhow::Result<(Registry, u64)> {
        let (mut registries, engine): (Registries, Option<EngineConfig>) = match &self.config {
            Some(path) => {
                let config = Config::load_without_plugins(path)?;
                (config.registries, Some(config.engine))
            }
            None => (Registries::default(), None),
        };
        if self.credentials.is_some() {
            registries.credentials.clone_from(&self.credentials);
        }
        if self.plain_http || self.ca.is_some() {
            let host = reference.registry.clone();
            registries.hosts.retain(|known| known.host != host);
            registries.hosts.push(RegistryHost {
                host,
                ca: self.ca.clone(),
                plain_http: self.plain_http,
            });
        }
        let max_plugin_bytes = match engine {
            Some(engine) => engine.max_plugin_bytes,
            None => {
                Config::parse("allowEmpty: true", Path::new("."))?
                    .engine
                    .max_plugin_bytes
            }
        };
        let registry = Registry::new(registries).with_progress(progress::on_a_terminal());
        Ok((registry, max_plugin_bytes))
    }
}

/// Runs an asynchronous registry operation to its end.
pub(super) fn block_on<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    Ok(runtime.context("cannot start the runtime")?.block_on(work))
}
