//! Asks a registry for the manifests that hold signatures of another manifest.
//!
//! Source: OCI distribution specification 1.1, "Listing Referrers" and the referrers tag schema.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use reqwest::{Method, StatusCode, Url};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use tokio::time::Instant;

use super::manifest::is_digest;
use super::session::{Session, accept};
use super::signature::{self, MAX_SIGNATURES, Place, bundle};
use super::{MAX_MANIFEST_BYTES, RegistryError, link};

/// The names of the manifests in one place that may hold signatures, in the order in which they count. The pages of a list
/// are asked for when their names are needed.
pub(super) struct Names {
    waiting: Candidates,
    /// The next page of the list.
    next: Option<Url>,
    /// How many names were taken.
    taken: usize,
    /// How many pages were asked for.
    pages: usize,
    /// How many bytes the pages had.
    bytes: u64,
    begun: Instant,
    /// No further page is asked for after this time.
    longest: Duration,
    /// Why the list was not read to its end.
    cut: Option<Cut>,
}

/// Why a list of referrers is not read to its end.
#[derive(Debug, PartialEq, Eq)]
enum Cut {
    Names,
    Pages,
    Bytes,
    Time,
    /// The next page is at another origin.
    Elsewhere(String),
    /// The next page is at no URL that Tollgate requests.
    Unusable,
}

/// A page of the list of what refers to a manifest.
#[derive(Default, Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Candidates,
}

/// The digests of a list that may be bundles. The others are dropped while the list is read, so a list of any length takes no
/// room.
#[derive(Default)]
struct Candidates {
    /// Those that the list says to be bundles.
    bundles: VecDeque<String>,
    /// Those of which the list does not say what they are.
    unknown: VecDeque<String>,
    /// Whether some were dropped because there are too many.
    were_dropped: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Referrer {
    digest: String,
    #[serde(default)]
    artifact_type: Option<String>,
}

/// Media type of the config of an artifact without one.
const EMPTY_CONFIG: &str = "application/vnd.oci.empty.v1+json";
/// Maximum size of the manifest of a bundle, in bytes. cosign writes about 1 KiB.
const MAX_BYTES: u64 = 256 << 10;
/// Maximum size of the manifest under the tag, in bytes. It has a layer for each signature, of some KiB. A parsed manifest
/// takes several times its size.
const MAX_TAGGED_BYTES: u64 = 1 << 20;
/// Maximum number of pages and of manifests in a list, together.
const MAX_REQUESTS: usize = 57;
/// Maximum size of all pages of a list, in bytes.
const MAX_LIST_BYTES: u64 = 2 * MAX_MANIFEST_BYTES;
/// No further page is asked for after this time, or after half of `registries.timeout` if that is shorter.
const LONGEST_LIST: Duration = Duration::from_secs(10);

// === impl Session ===

impl Session<'_> {
    /// The names of the manifests in this place that may hold signatures of the manifest with this digest. A place that does
    /// not exist has none.
    pub(super) async fn signature_names(
        &mut self,
        place: Place,
        digest: &str,
    ) -> Result<Names, RegistryError> {
        let mut names = Names::new(LONGEST_LIST.min(self.timeout() / 2));
        match place {
            Place::Tag => names.waiting.bundles.push_back(signature::tag(digest)),
            Place::Referrers => self.first_page(&mut names, digest).await?,
        }
        Ok(names)
    }

    /// The next one of these names. Those that are said to be bundles come first, from all pages.
    pub(super) async fn next_name(
        &mut self,
        names: &mut Names,
    ) -> Result<Option<String>, RegistryError> {
        while names.waiting.bundles.is_empty()
            && let Some(page) = names.next_page()
        {
            self.page(names, page).await?;
        }
        Ok(names.take())
    }

    /// One of these manifests, with its digest. None if it does not exist.
    pub(super) async fn signature(
        &mut self,
        place: Place,
        name: &str,
    ) -> Result<Option<(String, Vec<u8>)>, RegistryError> {
        let limit_bytes = match place {
            Place::Tag => MAX_TAGGED_BYTES,
            Place::Referrers => MAX_BYTES,
        };
        let (digest, manifest) = match (self.manifest(name, limit_bytes).await, place) {
            // Whoever may push can add such a manifest. It proves nothing, and hides no other.
            (Err(RegistryError::TooLarge { .. }), _) => (name.to_owned(), Vec::new()),
            (manifest, Place::Tag) => return manifest.map(Some).or_else(absent),
            (manifest, Place::Referrers) => manifest?,
        };
        if place == Place::Referrers && digest != name {
            return Err(RegistryError::Digest {
                what: "the manifest of a signature",
                wanted: name.to_owned(),
                found: digest,
            });
        }
        Ok(Some((digest, manifest)))
    }

    /// Asks for the first page of the bundles about this manifest.
    async fn first_page(&mut self, names: &mut Names, digest: &str) -> Result<(), RegistryError> {
        let kind = bundle::BUNDLE_V03.replace('/', "%2F").replace('+', "%2B");
        let path = format!("{}?artifactType={kind}", self.path("referrers", digest));
        let page = self.url(&path)?;
        match self.page(names, page).await {
            // A registry without the list. Whoever pushes a referrer there also writes it under a tag.
            Err(error) if is_unsupported(&error) => {
                let tag = digest.replace(':', "-");
                let manifest = self.manifest(&tag, MAX_MANIFEST_BYTES);
                let manifest = manifest.await.map(Some).or_else(absent)?;
                if let Some((_, list)) = manifest {
                    names.add(&list);
                }
                Ok(())
            }
            read => read,
        }
    }

    /// Reads a page of the list.
    async fn page(&mut self, names: &mut Names, page: Url) -> Result<(), RegistryError> {
        names.pages += 1;
        let asked = self.ask(Method::GET, page.as_str(), accept(), None);
        let response = asked.await?;
        let next = link::next(response.headers());
        let limit_bytes = MAX_MANIFEST_BYTES.min(MAX_LIST_BYTES - names.bytes);
        let too_large = || RegistryError::TooLarge {
            what: "the list of referrers",
            limit_bytes,
            setting: "the limit of the distribution specification",
        };
        let list = match self.body(response, limit_bytes, too_large).await {
            // What the pages before it name still counts.
            Err(RegistryError::TooLarge { .. }) if names.pages > 1 => {
                names.cut = Some(Cut::Bytes);
                return Ok(());
            }
            list => list?,
        };
        names.bytes += list.len() as u64;
        names.add(&list);
        match next.map(|link| at_home(&page, &link)) {
            Some(Ok(next)) => names.next = Some(next),
            Some(Err(cut)) => names.cut = Some(cut),
            None => {}
        }
        Ok(())
    }
}

/// The URL of a link on a page, if it is one of the same registry.
fn at_home(page: &Url, link: &str) -> Result<Url, Cut> {
    let next = page.join(link).map_err(|_| Cut::Unusable)?;
    let is_http = matches!(next.scheme(), "http" | "https");
    // A login in the URL would become one of the request.
    if !is_http || !next.username().is_empty() || next.password().is_some() {
        return Err(Cut::Unusable);
    }
    match next.origin() == page.origin() {
        true => Ok(next),
        false => Err(Cut::Elsewhere(next.origin().ascii_serialization())),
    }
}

/// The URL of the next page that a `Link` header names, if it is one of the same registry.
pub(super) fn next_page(page: &str, header: &str) -> Option<String> {
    let page = Url::parse(page).ok()?;
    let next = at_home(&page, link::next_in(header)?).ok()?;
    Some(next.into())
}

/// The digests in a list of referrers that are bundles. A list that is no list is empty.
pub(super) fn bundles_in(list: &[u8]) -> Vec<String> {
    let mut names = Names::new(LONGEST_LIST);
    names.add(list);
    std::iter::from_fn(|| names.take()).collect()
}

// === impl Names ===

impl Names {
    fn new(longest: Duration) -> Self {
        Self {
            longest,
            waiting: Candidates::default(),
            next: None,
            taken: 0,
            pages: 0,
            bytes: 0,
            begun: Instant::now(),
            cut: None,
        }
    }

    /// Adds the names on a page. A page that is no list has none.
    ///
    /// cosign 2.6 writes the type of the empty config into the list under a tag, and some registries do so in their answer.
    /// The manifest says what such a referrer is, so it counts after those that the list says to be bundles.
    fn add(&mut self, list: &[u8]) {
        let index: Index = serde_json::from_slice(list).unwrap_or_default();
        let Candidates {
            bundles,
            unknown,
            were_dropped,
        } = index.manifests;
        self.waiting.were_dropped |= were_dropped;
        bundles
            .into_iter()
            .for_each(|name| self.waiting.add(name, true));
        unknown
            .into_iter()
            .for_each(|name| self.waiting.add(name, false));
    }

    /// The next page, if the list goes on and no bound is reached.
    fn next_page(&mut self) -> Option<Url> {
        let next = self.next.take()?;
        self.cut = if self.pages + self.taken + self.waiting.len() >= MAX_REQUESTS {
            Some(Cut::Pages)
        } else if self.taken >= MAX_SIGNATURES {
            Some(Cut::Names)
        } else if self.bytes >= MAX_LIST_BYTES {
            Some(Cut::Bytes)
        } else if self.begun.elapsed() >= self.longest {
            Some(Cut::Time)
        } else {
            None
        };
        self.cut.is_none().then_some(next)
    }

    fn take(&mut self) -> Option<String> {
        if self.taken == MAX_SIGNATURES || self.pages + self.taken >= MAX_REQUESTS {
            let has_more = self.waiting.len() > 0 || self.waiting.were_dropped;
            if has_more || self.next.is_some() {
                self.cut.get_or_insert(Cut::Names);
            }
            return None;
        }
        let waiting = &mut self.waiting;
        let name = waiting
            .bundles
            .pop_front()
            .or_else(|| waiting.unknown.pop_front());
        match &name {
            Some(_) => self.taken += 1,
            None if waiting.were_dropped => self.cut = Some(Cut::Names),
            None => {}
        }
        name
    }

    /// Whether the list is not read to its end because the registry is too slow. Such a list says nothing about what is missing.
    pub(super) fn is_too_slow(&self) -> bool {
        self.cut == Some(Cut::Time)
    }

    /// Says how much of the list was looked at, if it was not all of it.
    pub(super) fn unread(&self) -> Option<String> {
        let why = match self.cut.as_ref()? {
            Cut::Names => "there are more, and Tollgate looks at no more of them".to_owned(),
            Cut::Pages => "the list has more pages, and Tollgate asks for no more".to_owned(),
            Cut::Bytes => format!("the list has more than {} MiB", MAX_LIST_BYTES >> 20),
            Cut::Time => format!(
                "the list goes on, and it took more than {} s so far",
                self.longest.as_secs_f64()
            ),
            Cut::Elsewhere(origin) => format!(
                "the list goes on at {}, and Tollgate asks no other host than the registry",
                signature::shown(origin)
            ),
            Cut::Unusable => {
                "the link to the next page is no URL that Tollgate requests".to_owned()
            }
        };
        let (taken, pages) = (self.taken, self.pages);
        let pages = match pages {
            1 => "1 page".to_owned(),
            pages => format!("{pages} pages"),
        };
        Some(format!(
            "looked at {taken} of the referrers, on {pages} of their list: {why}"
        ))
    }
}

// === impl Candidates ===

impl Candidates {
    fn add(&mut self, name: String, is_bundle: bool) {
        let sort = match is_bundle {
            true => &mut self.bundles,
            false => &mut self.unknown,
        };
        match sort.len() < MAX_SIGNATURES {
            true => sort.push_back(name),
            false => self.were_dropped = true,
        }
    }

    fn len(&self) -> usize {
        self.bundles.len() + self.unknown.len()
    }
}

impl<'de> Deserialize<'de> for Candidates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Sorting)
    }
}

/// Sorts the elements of a list while it is read.
struct Sorting;

impl<'de> Visitor<'de> for Sorting {
    type Value = Candidates;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of referrers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Candidates, A::Error> {
        let mut candidates = Candidates::default();
        while let Some(referrer) = list.next_element::<Referrer>()? {
            let is_bundle = referrer.is_bundle();
            if is_digest(&referrer.digest) && (is_bundle || referrer.may_be_bundle()) {
                candidates.add(referrer.digest, is_bundle);
            }
        }
        Ok(candidates)
    }
}

// === impl Referrer ===

impl Referrer {
    fn is_bundle(&self) -> bool {
        self.artifact_type.as_deref().is_some_and(bundle::is_bundle)
    }

    /// Whether the list does not say what this is.
    fn may_be_bundle(&self) -> bool {
        self.artifact_type.as_deref() == Some(EMPTY_CONFIG)
    }
}

/// Turns "not found" into nothing.
fn absent<T>(error: RegistryError) -> Result<Option<T>, RegistryError> {
    match error {
        RegistryError::Status {
            status: StatusCode::NOT_FOUND,
            ..
        } => Ok(None),
        error => Err(error),
    }
}

/// Whether a registry does not list referrers. The specification asks for 404; some answer with the others.
fn is_unsupported(error: &RegistryError) -> bool {
    let RegistryError::Status { status, .. } = error else {
        return false;
    };
    matches!(
        *status,
        StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::BAD_REQUEST
            | StatusCode::NOT_IMPLEMENTED
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_links_of_the_registry_alone() {
        let page =
            Url::parse("https://registry.example.com/v2/a/referrers/b?artifactType=c").unwrap();
        for (link, next) in [
            (
                "/v2/a/referrers/b?page=2",
                "https://registry.example.com/v2/a/referrers/b?page=2",
            ),
            (
                "?page=2",
                "https://registry.example.com/v2/a/referrers/b?page=2",
            ),
            (
                "https://REGISTRY.example.com:443/next",
                "https://registry.example.com/next",
            ),
        ] {
            assert_eq!(at_home(&page, link).unwrap().as_str(), next);
        }
        for link in [
            "https://other.example.com/v2/a",
            "//169.254.169.254/latest/meta-data",
            "http://registry.example.com/v2/a",
            "https://registry.example.com:444/v2/a",
            "https://registry.example.com.other.example.com/",
        ] {
            let cut = at_home(&page, link).unwrap_err();
            assert!(matches!(cut, Cut::Elsewhere(_)), "{link}: {cut:?}");
        }
        for link in [
            "https://user:password@registry.example.com/v2/a",
            "file:///etc/passwd",
            "https://[::1",
        ] {
            assert_eq!(at_home(&page, link), Err(Cut::Unusable), "{link}");
        }
    }

    #[test]
    fn asks_for_no_page_after_a_bound() {
        type Change = fn(&mut Names);
        let waiting = |names: &mut Names, index| names.waiting.add(format!("{index}"), false);
        let mut full = Names::new(LONGEST_LIST);
        (0..MAX_SIGNATURES).for_each(|index| waiting(&mut full, index));
        full.pages = MAX_REQUESTS - MAX_SIGNATURES;
        let page = Url::parse("https://registry.example.com/v2/").unwrap();
        let bounds: [(Change, &str); 4] = [
            (|names| names.pages = MAX_REQUESTS, "has more pages"),
            (
                |names| names.taken = MAX_SIGNATURES,
                "looks at no more of them",
            ),
            (|names| names.bytes = MAX_LIST_BYTES, "more than 8 MiB"),
            (
                |names| names.begun = Instant::now().checked_sub(LONGEST_LIST).unwrap(),
                "took more than 10 s so far",
            ),
        ];
        for (change, words) in bounds {
            let mut names = Names::new(LONGEST_LIST);
            names.next = Some(page.clone());
            names.pages = 1;
            change(&mut names);
            assert_eq!(names.next_page(), None, "{words}");
            let unread = names.unread().unwrap();
            assert!(unread.contains(words), "{unread}");
        }
        // Names that wait need a request each.
        full.next = Some(page.clone());
        assert_eq!(full.next_page(), None);
        full.next = Some(page.clone());
        full.pages -= 1;
        assert_eq!(full.next_page(), Some(page));
    }

    #[test]
    fn finds_bundles_among_referrers() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let other = format!("sha256:{}", "b".repeat(64));
        let list = serde_json::json!({"manifests": [
            {"digest": other, "artifactType": EMPTY_CONFIG},
            {"digest": digest, "artifactType": bundle::BUNDLE_V03},
            {"digest": digest, "artifactType": "application/spdx+json"},
            {"digest": digest},
            {"digest": "../../etc", "artifactType": bundle::BUNDLE_V03},
        ]});
        assert_eq!(bundles_in(list.to_string().as_bytes()), [digest, other]);
        assert!(bundles_in(b"not a list").is_empty());
        assert!(bundles_in(b"{}").is_empty());
    }

    #[test]
    fn list_of_any_length_names_a_few() {
        let digest = |index: usize| format!("sha256:{index:064x}");
        let entry =
            |index, kind: &str| serde_json::json!({"digest": digest(index), "artifactType": kind});
        let mut all: Vec<_> = (0..2_000).map(|index| entry(index, EMPTY_CONFIG)).collect();
        all.extend((2_000..4_000).map(|index| entry(index, bundle::BUNDLE_V03)));
        let list = serde_json::json!({ "manifests": all }).to_string();
        let found = bundles_in(list.as_bytes());
        assert_eq!(found.len(), MAX_SIGNATURES);
        assert_eq!(found[0], digest(2_000));
        let mut names = Names::new(LONGEST_LIST);
        names.add(list.as_bytes());
        assert_eq!(names.unread(), None);
        while names.take().is_some() {}
        assert!(
            names
                .unread()
                .unwrap()
                .contains("looked at 50 of the referrers")
        );
        let deep = format!(r#"{{"manifests": {}"#, "[".repeat(1 << 20));
        assert!(bundles_in(deep.as_bytes()).is_empty());
    }
}
