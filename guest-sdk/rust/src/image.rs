//! Container image references, read like container runtimes read them.
//!
//! A policy must compare the parts of a reference. A policy that compares text takes `registry.example.com.evil.io/app`
//! for an image of `registry.example.com`, and misses that `nginx` is `docker.io/library/nginx:latest`.

use std::fmt;

/// An image reference, split into its parts, with Docker's abbreviations resolved.
///
/// ```
/// use tollgate_sdk::image::ImageReference;
///
/// let image: ImageReference = "nginx:1.29".parse()?;
/// assert_eq!((image.registry(), image.repository()), ("docker.io", "library/nginx"));
/// assert_eq!((image.tag(), image.digest()), (Some("1.29"), None));
/// assert_eq!(image.to_string(), "docker.io/library/nginx:1.29");
/// # Ok::<(), tollgate_sdk::image::ImageError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageReference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<String>,
}

/// A registry, or a registry and the beginning of a repository's path: `registry.example.com/team`. A prefix has whole
/// components: `registry.example.com/team` is not a prefix of `registry.example.com/teams/app`.
///
/// Nothing is filled in. A prefix always names the registry, and `docker.io/nginx` means the repositories of the user
/// `nginx`. The official image is `docker.io/library/nginx`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImagePrefix {
    registry: String,
    path: String,
}

/// The reason why a text is not an image reference or prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageError {
    /// The registry's host or port is malformed, or a prefix begins with none.
    Registry,
    /// The repository's path is empty, or has characters other than lower-case letters, digits and separators.
    Repository,
    /// The tag is malformed.
    Tag,
    /// The digest is malformed.
    Digest,
}

/// The registry of a reference without one.
const DEFAULT_REGISTRY: &str = "docker.io";
/// Another name of the default registry.
const LEGACY_REGISTRY: &str = "index.docker.io";
/// The folder of repositories without a slash in the default registry.
const OFFICIAL: &str = "library/";

// === impl ImageReference ===

impl ImageReference {
    /// The registry's host in lower case, with the port if there is one.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The path within the registry, such as `library/nginx`.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag. With a digest, no tag does not mean `latest`.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest with its algorithm, such as `sha256:…`.
    #[must_use]
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// Replaces one prefix with another. Tag and digest stay. None if the reference does not begin with `from`, or if
    /// no path would be left for the repository.
    #[must_use]
    pub fn rebase(&self, from: &ImagePrefix, to: &ImagePrefix) -> Option<Self> {
        if !from.matches(self) {
            return None;
        }
        let rest = self.repository[from.path.len()..].trim_start_matches('/');
        let repository = match (to.path.as_str(), rest) {
            ("", "") => return None,
            ("", rest) => rest.to_owned(),
            // Docker would read `docker.io/app` as `docker.io/library/app`, which is a different image.
            (path, "") if to.registry == DEFAULT_REGISTRY && !path.contains('/') => return None,
            (path, "") => path.to_owned(),
            (path, rest) => format!("{path}/{rest}"),
        };
        Some(Self {
            registry: to.registry.clone(),
            repository: in_registry(&to.registry, &repository),
            ..self.clone()
        })
    }
}

impl std::str::FromStr for ImageReference {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) if is_digest(digest) => (rest, Some(digest.to_owned())),
            Some(_) => return Err(ImageError::Digest),
            None => (text, None),
        };
        // A colon before the last slash belongs to a port.
        let (name, tag) = match rest.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => {
                if !is_tag(tag) {
                    return Err(ImageError::Tag);
                }
                (name, Some(tag.to_owned()))
            }
            _ => (rest, None),
        };
        let (registry, repository) = match name.split_once('/') {
            Some((host, repository)) if looks_like_host(host) => (host_of(host)?, repository),
            _ => (DEFAULT_REGISTRY.to_owned(), name),
        };
        if !is_path(repository) {
            return Err(ImageError::Repository);
        }
        let repository = in_registry(&registry, repository);
        Ok(Self {
            registry,
            repository,
            tag,
            digest,
        })
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each `write!` costs some hundred units of fuel more.
        f.write_str(&self.registry)?;
        f.write_str("/")?;
        f.write_str(&self.repository)?;
        for (mark, part) in [(":", &self.tag), ("@", &self.digest)] {
            if let Some(part) = part {
                f.write_str(mark)?;
                f.write_str(part)?;
            }
        }
        Ok(())
    }
}

// === impl ImagePrefix ===

impl ImagePrefix {
    /// Whether the prefix covers a reference.
    #[must_use]
    pub fn matches(&self, image: &ImageReference) -> bool {
        self.registry == image.registry && begins_with(&image.repository, &self.path)
    }

    /// Whether a text begins with the registry of this prefix. If it does not, the prefix does not match the reference.
    ///
    /// This costs a small part of reading the reference, so ask this first.
    #[must_use]
    pub fn may_match(&self, text: &str) -> bool {
        let host = match text.split_once('/') {
            Some((host, _)) if looks_like_host(host) => host,
            _ => DEFAULT_REGISTRY,
        };
        host.eq_ignore_ascii_case(&self.registry)
            || self.registry == DEFAULT_REGISTRY && host.eq_ignore_ascii_case(LEGACY_REGISTRY)
    }

    /// Whether this prefix covers every reference that `other` covers.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.registry == other.registry && begins_with(&other.path, &self.path)
    }

    /// The number of components. Of two matching prefixes, the longer one is more exact.
    #[must_use]
    pub fn length(&self) -> usize {
        if self.path.is_empty() {
            1
        } else {
            2 + self.path.matches('/').count()
        }
    }
}

impl std::str::FromStr for ImagePrefix {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        let text = text.strip_suffix('/').unwrap_or(text);
        let (host, path) = text.split_once('/').unwrap_or((text, ""));
        if !looks_like_host(host) {
            return Err(ImageError::Registry);
        }
        let registry = host_of(host)?;
        if path.is_empty() && text == host {
            return Ok(Self {
                registry,
                path: String::new(),
            });
        }
        if !is_path(path) {
            return Err(ImageError::Repository);
        }
        Ok(Self {
            registry,
            path: path.to_owned(),
        })
    }
}

impl fmt::Display for ImagePrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.registry)?;
        if self.path.is_empty() {
            Ok(())
        } else {
            write!(f, "/{}", self.path)
        }
    }
}

// === impl ImageError ===

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Registry => "begins with no registry host such as registry.example.com or localhost:5000",
            Self::Repository => {
                "the path is made of lower-case letters and digits, separated by dots, dashes, underscores and slashes"
            }
            Self::Tag => "a tag is made of at most 128 letters, digits, dots, dashes and underscores",
            Self::Digest => "a digest is an algorithm, a colon and at least 32 hexadecimal digits",
        })
    }
}

impl std::error::Error for ImageError {}

/// Docker's rule: the first component is a host if it has a dot, a port or upper case, or is localhost. Otherwise it is
/// part of the path.
fn looks_like_host(component: &str) -> bool {
    component == "localhost"
        || component
            .bytes()
            .any(|byte| matches!(byte, b'.' | b':' | b'A'..=b'Z'))
}

fn host_of(text: &str) -> Result<String, ImageError> {
    let (host, port) = match text.strip_prefix('[') {
        // An IPv6 address.
        Some(rest) => {
            let (address, port) = rest.split_once(']').ok_or(ImageError::Registry)?;
            if address.is_empty()
                || !address
                    .bytes()
                    .all(|byte| byte.is_ascii_hexdigit() || byte == b':')
            {
                return Err(ImageError::Registry);
            }
            if !port.is_empty() && !port.starts_with(':') {
                return Err(ImageError::Registry);
            }
            (None, port.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(text), None),
        },
    };
    let host_is_good = host.is_none_or(|host| host.split('.').all(is_host_label));
    let port_is_good =
        port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
    if !(host_is_good && port_is_good) {
        return Err(ImageError::Registry);
    }
    let registry = text.to_ascii_lowercase();
    Ok(if registry == LEGACY_REGISTRY {
        DEFAULT_REGISTRY.to_owned()
    } else {
        registry
    })
}

fn is_host_label(label: &str) -> bool {
    !label.is_empty()
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn in_registry(registry: &str, repository: &str) -> String {
    if registry == DEFAULT_REGISTRY && !repository.contains('/') {
        format!("{OFFICIAL}{repository}")
    } else {
        repository.to_owned()
    }
}

fn is_path(path: &str) -> bool {
    path.split('/').all(is_path_component)
}

/// Whether this is lower-case letters and digits, separated by a dot, one or two underscores, or any number of dashes.
fn is_path_component(component: &str) -> bool {
    let mut rest = component.as_bytes();
    // Each turn takes a separator away, and the word behind it. The first word has no separator.
    loop {
        let word = rest.iter().take_while(|byte| is_word(**byte)).count();
        rest = &rest[word..];
        if word == 0 {
            return false;
        }
        let length = match rest {
            [] => return true,
            [b'_', b'_', ..] => 2,
            [b'.' | b'_', ..] => 1,
            _ => rest.iter().take_while(|byte| **byte == b'-').count(),
        };
        rest = &rest[length..];
    }
}

/// Whether a word of a path can have this byte.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(is_word)
        && tag
            .bytes()
            .all(|byte| is_word(byte) || byte == b'.' || byte == b'-')
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, hex)| {
        algorithm
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphabetic())
            && algorithm
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+.-_".contains(&byte))
            && hex.len() >= 32
            && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

fn begins_with(path: &str, prefix: &str) -> bool {
    prefix.is_empty()
        || path
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:1782cafde43390b032f960c0fad3def745fac18994ced169003cb56e9a93c028";

    fn image(text: &str) -> ImageReference {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn prefix(text: &str) -> ImagePrefix {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn references_are_taken_apart_as_docker_does() {
        for (text, full) in [
            ("nginx", "docker.io/library/nginx"),
            ("nginx:1.29", "docker.io/library/nginx:1.29"),
            ("bitnami/nginx", "docker.io/bitnami/nginx"),
            ("docker.io/nginx", "docker.io/library/nginx"),
            ("index.docker.io/library/nginx", "docker.io/library/nginx"),
            ("localhost/app", "localhost/app"),
            ("localhost:5000/app:1", "localhost:5000/app:1"),
            ("registry:5000/app", "registry:5000/app"),
            (
                "Registry.Example.com/a/b/c:T_1",
                "registry.example.com/a/b/c:T_1",
            ),
            ("[2001:db8::1]:5000/app:1", "[2001:db8::1]:5000/app:1"),
            ("k8s.gcr.io/pause", "k8s.gcr.io/pause"),
            ("a__b/c--d.e", "docker.io/a__b/c--d.e"),
        ] {
            assert_eq!(image(text).to_string(), full, "{text}");
            assert_eq!(image(full), image(text), "{text}");
        }
        let both = image(&format!("ghcr.io/a/b:1@{DIGEST}"));
        assert_eq!((both.tag(), both.digest()), (Some("1"), Some(DIGEST)));
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        for (text, error) in [
            ("", ImageError::Repository),
            ("Nginx", ImageError::Repository),
            ("a//b", ImageError::Repository),
            ("ghcr.io/", ImageError::Repository),
            ("ghcr.io/a___b", ImageError::Repository),
            ("ghcr.io/-a", ImageError::Repository),
            ("nginx:", ImageError::Tag),
            ("nginx:-1", ImageError::Tag),
            ("nginx@sha256:12", ImageError::Digest),
            ("nginx@", ImageError::Digest),
            ("ghcr..io/a", ImageError::Registry),
            ("ghcr.io:x/a", ImageError::Registry),
            ("[::1/a", ImageError::Registry),
            ("https://ghcr.io/a", ImageError::Registry),
            (" nginx", ImageError::Repository),
        ] {
            assert_eq!(text.parse::<ImageReference>(), Err(error), "{text:?}");
        }
    }

    #[test]
    fn may_match_tells_the_registry_of_a_reference() {
        let registries = [
            "docker.io",
            "index.docker.io",
            "ghcr.io",
            "localhost:5000",
            "[::1]:80",
        ];
        let references = [
            "nginx",
            "nginx:1",
            "a/b",
            "a/b:1",
            "docker.io/a",
            "Index.Docker.IO/a/b",
            "ghcr.io/a",
            "GHCR.io/a:1",
            "localhost:5000/app",
            "localhost/app",
            "[::1]:80/app",
            "ghcr.io.evil.io/a",
        ];
        let mut matched = 0;
        for text in references {
            let reference = image(text);
            let with_digest = format!("{text}@{DIGEST}");
            for registry in registries {
                let prefix = prefix(registry);
                let is_its = prefix.matches(&reference);
                assert_eq!(prefix.may_match(text), is_its, "{registry}, {text}");
                assert_eq!(prefix.may_match(&with_digest), is_its, "{registry}, {text}");
                matched += usize::from(is_its);
            }
        }
        assert_eq!(matched, 6 * 2 + 4);
        assert!(!prefix("docker.io").may_match("quay.io/a"));
    }

    #[test]
    fn a_prefix_ends_at_a_component() {
        assert!(prefix("registry.example.com").matches(&image("registry.example.com/app")));
        assert!(prefix("registry.example.com/").matches(&image("registry.example.com/team/app")));
        assert!(
            prefix("registry.example.com/team").matches(&image("registry.example.com/team/app:1"))
        );
        for other in [
            "registry.example.com.evil.io/app",
            "registry.example.com:5000/app",
            "evil.io/registry.example.com/app",
            "registry.example.com/teams/app",
            "registry.example.com",
        ] {
            assert!(
                !prefix("registry.example.com/team").matches(&image(other)),
                "{other}"
            );
        }
        assert!(prefix("docker.io/library").matches(&image("nginx")));
    }

    #[test]
    fn a_prefix_names_its_registry() {
        for text in ["", "/", "library", "nginx/", "library/nginx"] {
            assert_eq!(
                text.parse::<ImagePrefix>(),
                Err(ImageError::Registry),
                "{text:?}"
            );
        }
        assert_eq!(
            "ghcr.io//".parse::<ImagePrefix>(),
            Err(ImageError::Repository)
        );
        assert_eq!(
            "ghcr.io/a:1".parse::<ImagePrefix>(),
            Err(ImageError::Repository)
        );
    }

    #[test]
    fn a_reference_moves_from_one_prefix_to_another() {
        let moved = |text: &str, from: &str, to: &str| {
            image(text)
                .rebase(&prefix(from), &prefix(to))
                .map(|image| image.to_string())
        };
        let pinned = format!("k8s.gcr.io/sig/pause:3.9@{DIGEST}");
        assert_eq!(
            moved(&pinned, "k8s.gcr.io/", "registry.k8s.io/"),
            Some(format!("registry.k8s.io/sig/pause:3.9@{DIGEST}"))
        );
        assert_eq!(
            moved("nginx", "docker.io", "mirror.example.com/hub").as_deref(),
            Some("mirror.example.com/hub/library/nginx")
        );
        assert_eq!(
            moved("ghcr.io/a/b", "ghcr.io/a/b", "quay.io/c").as_deref(),
            Some("quay.io/c")
        );
        assert_eq!(moved("ghcr.io/a/b", "ghcr.io/a/b", "quay.io"), None);
        assert_eq!(moved("quay.io/a", "ghcr.io", "quay.io"), None);
        assert_eq!(
            moved("quay.io/a", "quay.io", "docker.io").as_deref(),
            Some("docker.io/library/a")
        );
        assert_eq!(moved("quay.io/a", "quay.io/a", "docker.io/b"), None);
    }
}
