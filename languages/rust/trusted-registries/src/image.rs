//! Image references, taken apart as container runtimes do, and as the other languages' policies do.
//!
//! The SDK's own `image` is stricter: it refuses what is no reference.

/// A reference taken apart, Docker's abbreviations resolved.
#[derive(Debug, PartialEq)]
pub(crate) struct Image {
    /// With the registry and without a tag.
    pub(crate) name: String,
    pub(crate) tag: Option<String>,
    /// Whether there is a tag or a digest.
    pub(crate) is_pinned: bool,
}

/// Docker's rule.
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
        // A colon before the last slash is a port's.
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

    /// By component: `registry.example.com` is no prefix of `registry.example.com.evil.io`.
    pub(crate) fn is_within(&self, prefix: &str) -> bool {
        let rest = self.name.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}
