//! Parts of the reference of an image: `registry.example.com/team/app:1.0`.

use regex_lite::Regex;

/// The parts that a mutator sets. An empty part stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) domain: String,
    pub(super) path: String,
    /// The tag or the digest, with `:` or `@`.
    pub(super) tag: String,
}

const DOMAIN: &str = r"^(?:\w[\w-]*\.[\w.-]*\w|localhost)(?::\d+)?$";
const PATH: &str = r"^[a-z0-9]+(?:(?:[._/]|__|-*)[a-z0-9]+)*$";
const TAG: &str =
    r"^(?::\w[\w.-]{0,127}|@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9A-Fa-f]{32,})$";

// === impl Image ===

impl Image {
    /// Splits a reference.
    fn parse(text: &str) -> Self {
        let (domain, rest) = split_domain(text);
        let end = rest.find([':', '@']).unwrap_or(rest.len());
        Self {
            domain: domain.to_owned(),
            path: rest[..end].to_owned(),
            tag: rest[end..].to_owned(),
        }
    }

    /// Returns a reference with the parts that are set.
    pub(super) fn changed(&self, current: &str) -> String {
        let current = Self::parse(current);
        let part = |own: &str, old: String| match own.is_empty() {
            true => old,
            false => own.to_owned(),
        };
        let mut text = part(&self.domain, current.domain);
        if !text.is_empty() {
            text.push('/');
        }
        text + &part(&self.path, current.path) + &part(&self.tag, current.tag)
    }

    /// Returns the parts that would be read otherwise in the changed reference, each with the reason.
    pub(super) fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        let fits = |pattern: &str, text: &str| {
            text.is_empty() || Regex::new(pattern).is_ok_and(|regex| regex.is_match(text))
        };
        if *self == Self::default() {
            let message = "has none of assignDomain, assignPath and assignTag";
            problems.push(("", message.to_owned()));
        }
        if !fits(DOMAIN, &self.domain) {
            let message = "expected a domain, such as registry.example.com:5000";
            problems.push(("assignDomain", message.to_owned()));
        }
        if !fits(PATH, &self.path) {
            problems.push(("assignPath", "expected a path, such as team/app".to_owned()));
        }
        if self.domain.is_empty() && !split_domain(&self.path).0.is_empty() {
            let message = "begins like a domain; set assignDomain, too";
            problems.push(("assignPath", message.to_owned()));
        }
        if !fits(TAG, &self.tag) {
            let message = "expected `:TAG` or `@ALGORITHM:DIGEST`";
            problems.push(("assignTag", message.to_owned()));
        }
        problems
    }
}

/// Splits the domain from a reference. A first part without a dot and a port is no domain.
fn split_domain(text: &str) -> (&str, &str) {
    match text.split_once('/') {
        Some((domain, rest)) if domain.contains(['.', ':']) || domain == "localhost" => {
            (domain, rest)
        }
        _ => ("", text),
    }
}
