//! Names of images, as container runtimes read them.

use crate::registry::{Reference, ReferenceError};

/// The reason why a text names no image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageNameError {
    /// The text is too long.
    #[error("it has more than {LONGEST} characters")]
    Long,
    /// The text has another form.
    #[error(
        "expected an image such as nginx:1.29 or registry.example.com/app@sha256:…, with a repository in lower case"
    )]
    Shape,
    /// The digest has another algorithm, or is malformed.
    #[error("expected a digest of `sha256:` and 64 hexadecimal digits in lower case")]
    Digest,
}

/// Maximum length of an image's name: a host, a repository, a tag and a digest.
const LONGEST: usize = 1024;
/// The registry of an image without one.
const DEFAULT_REGISTRY: &str = "docker.io";
/// Another name of the default registry.
const LEGACY_REGISTRY: &str = "index.docker.io";
/// The folder of repositories without a slash in the default registry.
const OFFICIAL: &str = "library/";
/// The tag of an image with neither a tag nor a digest.
const DEFAULT_TAG: &str = "latest";

// === impl Reference ===

impl Reference {
    /// Reads the name of an image, with Docker's abbreviations: `nginx` is `docker.io/library/nginx:latest`. The registry
    /// is in lower case.
    ///
    /// # Errors
    /// When no container runtime could pull the image, or its digest is not SHA-256.
    pub fn of_image(text: &str) -> Result<Self, ImageNameError> {
        if text.len() > LONGEST {
            return Err(ImageNameError::Long);
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        let (registry, path) = match rest.split_once('/') {
            Some((host, path)) if looks_like_host(host) => (host.to_ascii_lowercase(), path),
            _ => (DEFAULT_REGISTRY.to_owned(), rest),
        };
        let registry = match registry.as_str() {
            LEGACY_REGISTRY => DEFAULT_REGISTRY.to_owned(),
            _ => registry,
        };
        let folder = match registry == DEFAULT_REGISTRY && !path.contains('/') {
            true => OFFICIAL,
            false => "",
        };
        // The registry is cut off, so a colon belongs to a tag.
        let end = match (path.contains(':'), digest) {
            (_, Some(digest)) => format!("@{digest}"),
            (true, None) => String::new(),
            (false, None) => format!(":{DEFAULT_TAG}"),
        };
        Self::parse(&format!("{registry}/{folder}{path}{end}")).map_err(|error| match error {
            ReferenceError::DigestAlgorithm
            | ReferenceError::DigestLength { .. }
            | ReferenceError::DigestDigits => ImageNameError::Digest,
            _ => ImageNameError::Shape,
        })
    }
}

/// Docker's rule: the first component is a host if it has a dot, a port or upper case, or is localhost. Otherwise it is
/// part of the path.
fn looks_like_host(component: &str) -> bool {
    component == "localhost"
        || component.contains(['.', ':'])
        || component.contains(|character: char| character.is_ascii_uppercase())
}
