//! `images` of an entry under `plugins`: the images that the plugin may have verified, and who must have signed them.

mod name;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::limit;
use super::plugin::is_label;
use super::read::{Fields, Node};
use super::registry::Reference;
use super::signature::{SignaturePolicy, TrustedRoot, TufSource, read_image_policies};

pub use name::ImageNameError;

/// What a plugin with the capability `images` may have verified, and how long answers count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// The registries that may be asked: hosts in lower case, with a port if references have one.
    pub registries: Vec<Box<str>>,
    /// The namespaces whose Pods bring credentials along, in their `imagePullSecrets`.
    pub pull_secret_namespaces: Vec<Box<str>>,
    /// The policies that the plugin may name.
    pub policies: Vec<SignaturePolicy>,
    /// How long a verified digest counts as verified.
    pub verified_for: Duration,
    /// How long a refused digest, or a missing tag, counts as such.
    pub refused_for: Duration,
    /// How long a tag counts as leading to its digest.
    pub resolved_for: Duration,
    /// How long a verified digest counts when its registry does not answer.
    pub last_known_good_for: Duration,
}

/// Why a plugin may not have an image verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageRefusal {
    /// No policy has this name.
    #[error("images.policies of the plugin has no policy `{policy}`")]
    NoPolicy {
        /// The name, escaped and cut.
        policy: String,
    },
    /// The registry is not in the list.
    #[error("the registry {registry} is not in images.registries of the plugin")]
    Registry {
        /// The registry.
        registry: String,
    },
    /// The policy does not cover the repository.
    #[error("the policy `{policy}` does not cover the repository {repository} (images.policies)")]
    Uncovered {
        /// The policy.
        policy: Box<str>,
        /// Registry and repository.
        repository: String,
    },
}

/// The largest number of registries.
const MOST_REGISTRIES: usize = 32;
/// The largest number of namespaces whose `imagePullSecrets` are read.
const MOST_NAMESPACES: usize = 256;
/// Maximum length of a policy's name in a message, in characters.
const LONGEST_SHOWN: usize = 63;

const KEY: &str = "images";
const REGISTRIES_EXPECTED: &str = "a list of the registries that may be asked, such as [registry.example.com, docker.io]; an image of another \
     registry is refused";
const REGISTRY_EXPECTED: &str =
    "a host in lower case with an optional port, such as registry.example.com:5000";
const NAMESPACES_EXPECTED: &str = "a list of at most 256 namespaces, such as [shop]; Tollgate reads the imagePullSecrets of Pods in these only";
const NAMESPACE_EXPECTED: &str =
    "the name of a namespace: at most 63 characters of a-z, 0-9 and -; there are no patterns";

// === impl Images ===

impl Images {
    /// Reads the section. None if the entry has none. The section alone grants the capability, as `lookups` do.
    /// `root` is the trusted root of the file, for a section without its own.
    pub(super) fn read(
        fields: &mut Fields<'_>,
        folder: &Path,
        root: Option<&TrustedRoot>,
    ) -> Option<Self> {
        let node = fields.optional(KEY)?;
        let mut section = node.object()?;
        let registries = section
            .required("registries", REGISTRIES_EXPECTED)
            .and_then(|node| read_registries(&node));
        let namespaces = section.optional("pullSecretNamespaces");
        let namespaces = namespaces.map_or(Some(Vec::new()), |node| read_namespaces(&node));
        let own = section
            .optional("trustedRoot")
            .and_then(|node| node.path_in(folder))
            .map(TrustedRoot::File);
        let policies = read_image_policies(&mut section, folder, own.as_ref().or(root));
        let verified_for = section.duration(
            &limit::IMAGES_VERIFIED,
            limit::IMAGES_VERIFIED.default_duration(),
        );
        let refused_for = section.duration(
            &limit::IMAGES_REFUSED,
            limit::IMAGES_REFUSED.default_duration(),
        );
        let resolved_for = section.duration(
            &limit::IMAGES_RESOLVED,
            limit::IMAGES_RESOLVED.default_duration(),
        );
        let last_known_good_for = section.duration(
            &limit::IMAGES_LAST_KNOWN_GOOD,
            limit::IMAGES_LAST_KNOWN_GOOD.default_duration(),
        );
        section.finish();
        Some(Self {
            registries: registries?,
            pull_secret_namespaces: namespaces?,
            policies: policies?,
            verified_for,
            refused_for,
            resolved_for,
            last_known_good_for,
        })
    }

    /// Finds the policy of this name, if the plugin may have the image verified by it.
    ///
    /// # Errors
    /// When the configuration does not grant it.
    pub fn policy(
        &self,
        image: &Reference,
        policy: &str,
    ) -> Result<&SignaturePolicy, ImageRefusal> {
        let mut policies = self.policies.iter();
        let Some(found) = policies.find(|own| *own.name == *policy) else {
            let shown = policy.chars().take(LONGEST_SHOWN);
            return Err(ImageRefusal::NoPolicy {
                policy: shown.flat_map(char::escape_default).collect(),
            });
        };
        if !self.registries.iter().any(|own| **own == *image.registry) {
            return Err(ImageRefusal::Registry {
                registry: image.registry.clone(),
            });
        }
        let repository = image.name();
        if !found.covers(&repository) {
            return Err(ImageRefusal::Uncovered {
                policy: found.name.clone(),
                repository,
            });
        }
        Ok(found)
    }

    /// Whether the `imagePullSecrets` of Pods in a namespace may be read.
    #[must_use]
    pub fn reads_pull_secrets_in(&self, namespace: &str) -> bool {
        let mut listed = self.pull_secret_namespaces.iter();
        listed.any(|listed| **listed == *namespace)
    }

    /// Lists the TUF repositories that publish the trusted roots of the policies.
    pub fn tuf_sources(&self) -> impl Iterator<Item = &Arc<TufSource>> {
        self.policies.iter().filter_map(SignaturePolicy::tuf_source)
    }

    /// Lists the files that the policies read: keys and trusted roots.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.policies.iter().flat_map(SignaturePolicy::files)
    }
}

fn read_namespaces(node: &Node<'_>) -> Option<Vec<Box<str>>> {
    let nodes = node.elements("namespaces")?;
    if nodes.len() > MOST_NAMESPACES {
        node.reject(NAMESPACES_EXPECTED);
        return None;
    }
    let namespaces: Vec<Option<Box<str>>> = nodes
        .iter()
        .map(|node| {
            let text = node.text(NAMESPACE_EXPECTED)?;
            if !is_label(text, LONGEST_SHOWN) {
                node.reject(NAMESPACE_EXPECTED);
                return None;
            }
            Some(text.into())
        })
        .collect();
    namespaces.into_iter().collect()
}

fn read_registries(node: &Node<'_>) -> Option<Vec<Box<str>>> {
    let nodes = node.elements("registries")?;
    if nodes.is_empty() || nodes.len() > MOST_REGISTRIES {
        node.reject(REGISTRIES_EXPECTED);
        return None;
    }
    let registries: Vec<Option<Box<str>>> = nodes
        .iter()
        .map(|node| {
            let text = node.text(REGISTRY_EXPECTED)?;
            // A host is one that a reference can have, and that the reading of an image leaves as it is.
            let read = Reference::of_image(&format!("{text}/a/b:1"));
            if read.is_ok_and(|read| read.registry == text) {
                return Some(text.into());
            }
            node.reject(REGISTRY_EXPECTED);
            None
        })
        .collect();
    registries.into_iter().collect()
}
