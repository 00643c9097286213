//! Image references, split like in container runtimes and in the other languages' policies.
//!
//! The SDK's own `image` is stricter: it rejects invalid references.

/// A reference, split into its parts, with Docker's abbreviations resolved.
#[derive(Debug, PartialEq)]
pub(crate) struct Image {
    /// The name, including the registry and without the tag.
    pub(crate) name: String,
    pub(crate) tag: Option<String>,
    /// Whether there is a tag or a digest.
    pub(crate) is_pinned: bool,
}

/// Whether the first component is a host, by Docker's rule.
pub(crate) fn looks_like_host(component: &str) -> bool {
    component == "localhost" || component.contains(['.', ':'])
}

// === impl Image ===

impl Image {
    pub(crate) fn parse(reference: &str) -> Self {
        let (named, digest) = match reference.split_once('@') {
            Some((named, digest)) => (named, Some(digest)),
            None => (reference, None),
        };
        // A colon before the last slash belongs to a port.
        let (name, tag) = match named.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => {
                (name, Some(tag).filter(|tag| !tag.is_empty()))
            }
            _ => (named, None),
        };
        let is_host =
            |head: &str| looks_like_host(head) || head.contains(|c: char| c.is_ascii_uppercase());
        let (host, path) = match name.split_once('/') {
            Some((head, path)) if is_host(head) => (head.to_ascii_lowercase(), path),
            _ => ("docker.io".to_owned(), name),
        };
        let host = if host == "index.docker.io" {
            "docker.io"
        } else {
            &host
        };
        let library = if host == "docker.io" && !path.contains('/') {
            "library/"
        } else {
            ""
        };
        Self {
            name: format!("{host}/{library}{path}"),
            is_pinned: digest.is_some() || tag.is_some(),
            tag: tag.map(str::to_owned),
        }
    }

    /// Compares components: `registry.example.com` is not a prefix of `registry.example.com.evil.io`.
    pub(crate) fn is_within(&self, prefix: &str) -> bool {
        let rest = self.name.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}
