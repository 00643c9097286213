//! `--strict-paths`: checks every place that a plugin reads against the fields of the object's kind.
//!
//! For a plugin, a misspelt field is an absent field. The results of the cases do not show the
//! difference.

mod crd;
mod fields;
mod written;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::LazyLock;

use tollgate_admission::review::template::{VERSION, WORKLOADS};
use tollgate_config::{PluginConfig, PluginName};
use tollgate_engine::{Read, ReadDocument, Reads};
use tollgate_json::document::Json;

use self::fields::{Catalogue, Kind, Type, Wrong};
pub(super) use self::written::Written;
use super::compare::Failure;
use super::run::{documents, prepare};
use super::suite::{Parts, Suite};
use crate::terminal::plain;

/// The kinds that can be checked, and the sources of the plugins.
pub(super) struct Paths {
    catalogue: Catalogue,
    written: Written,
}

/// The check of one suite.
pub(super) struct Strict<'p> {
    catalogue: &'p Catalogue,
    written: &'p Written,
    plugins: Vec<PluginConfig>,
    /// The kinds of all cases. A policy for several kinds asks for the fields of each, whichever it gets.
    kinds: BTreeSet<Kind>,
    /// The plugins that get the pod templates of workloads, as Pods.
    templates: BTreeSet<PluginName>,
    /// The places that have failed a case already.
    told: BTreeSet<(String, ReadDocument, String)>,
}

/// The fields of Kubernetes' own kinds.
const KUBERNETES: &str = include_str!("paths/kubernetes.fields");
/// The request of an AdmissionReview, which is no kind that kube-apiserver stores.
const REQUEST: &str = "\
request: uid kind=gvk resource=gvr subResource requestKind=gvk requestResource=gvr requestSubResource name namespace \
         operation userInfo=authentication.v1.UserInfo object=* oldObject=* dryRun options=*
gvk: group version kind
gvr: group version resource
";
/// Maximum number of fields that a message lists.
const MOST_LISTED: usize = 12;

// === impl Paths ===

impl Paths {
    /// Reads Kubernetes' own kinds, and those of the CustomResourceDefinitions in files.
    ///
    /// # Errors
    /// When a file cannot be read, or has no CustomResourceDefinition.
    pub(super) fn read(files: &[PathBuf], written: Written) -> anyhow::Result<Self> {
        let mut catalogue = Catalogue::default();
        catalogue.add_lines(KUBERNETES);
        catalogue.add_lines(REQUEST);
        for file in files {
            crd::read(file, &mut catalogue)?;
        }
        Ok(Self { catalogue, written })
    }

    /// Begins the check of a suite.
    pub(super) fn of_suite(&self, suite: &Suite) -> Strict<'_> {
        let cases = suite.cases.iter();
        let reviews = cases.flat_map(|case| {
            let documents = documents(case).into_iter();
            documents.filter_map(move |(_, document)| prepare(case, document.ok()?).ok())
        });
        Strict {
            catalogue: &self.catalogue,
            written: &self.written,
            plugins: suite.config.plugins.clone(),
            kinds: reviews
                .filter_map(|prepared| kind(&prepared.review))
                .collect(),
            templates: suite
                .config
                .plugins
                .iter()
                .filter(|plugin| {
                    let matching = plugin.matching.as_ref();
                    matching.is_some_and(|matching| matching.pod_templates)
                })
                .map(|plugin| plugin.name.clone())
                .collect(),
            told: BTreeSet::new(),
        }
    }
}

// === impl Strict ===

impl Strict<'_> {
    /// Returns the failures of one case. A place fails only the first case that reads it.
    pub(super) fn failures(&mut self, reads: &Reads, review: &Json) -> Vec<Failure> {
        let kind = kind(review);
        let overflowed = reads.overflowed().into_iter();
        let mut failures: Vec<Failure> = overflowed
            .map(|plugin| Failure::new(too_many(plugin.as_str())))
            .collect();
        for read in reads.all() {
            let Some(what) = self.wrong(&read, kind.as_ref()) else {
                continue;
            };
            let key = (read.plugin.to_string(), read.document, read.at.clone());
            if !self.told.insert(key) {
                continue;
            }
            let lines = self.written.lines(&self.plugins, &read.plugin, &read.at);
            let lines = match &lines[..] {
                [] => String::new(),
                lines => format!(" ({})", lines.join(", ")),
            };
            failures.push(Failure::new(plain(&format!("{what}{lines}"))));
        }
        failures
    }

    /// Returns a failure for each place that a case changes and that its object cannot have.
    pub(super) fn edits(&self, parts: &Parts, review: &Json) -> Vec<Failure> {
        let Some(kind) = kind(review) else {
            return Vec::new();
        };
        let Some(of) = self.catalogue.of_kind(&kind) else {
            return Vec::new();
        };
        let set = parts.set.iter().map(|(pointer, _)| ("set", pointer));
        let unset = parts.unset.iter().map(|pointer| ("unset", pointer));
        let wrong = set.chain(unset).filter_map(|(key, pointer)| {
            // `-` stands for the next element of a list.
            let elements: Vec<&str> = pointer
                .split('/')
                .map(|token| if token == "-" { "0" } else { token })
                .collect();
            let wrong = self.catalogue.check(of, &elements.join("/"), false).err()?;
            Some(format!(
                "strict paths: {key} {pointer}: {kind} {}",
                wrong.described()
            ))
        });
        wrong.map(|text| Failure::new(plain(&text))).collect()
    }

    /// Describes the mistake of a read, if there is one.
    fn wrong(&self, read: &Read, kind: Option<&Kind>) -> Option<String> {
        let (of, name) = match read.document {
            ReadDocument::Object | ReadDocument::OldObject => {
                let pod = Kind::new("v1", "Pod");
                let gets_pod = self.templates.contains(&read.plugin);
                let kind = match kind? {
                    kind if gets_pod && has_template(kind) => &pod,
                    kind => kind,
                };
                let Some(of) = self.catalogue.of_kind(kind) else {
                    return (!read.at.is_empty()).then(|| unknown(kind));
                };
                (of, kind.to_string())
            }
            ReadDocument::Namespace => {
                let kind = Kind::new("v1", "Namespace");
                (self.catalogue.of_kind(&kind)?, kind.to_string())
            }
            ReadDocument::Request => {
                let of = self.catalogue.named("request")?;
                (of, "an AdmissionRequest".to_owned())
            }
            // Options differ by operation, and few policies read them.
            ReadDocument::Options => return None,
        };
        let wrong = self.catalogue.check(of, &read.at, read.is_pattern).err()?;
        if self.fits_another_kind(read) {
            return None;
        }
        Some(format!(
            "strict paths: {} reads {} of {}, and {name} {}",
            read.plugin,
            read.at,
            part(read.document),
            wrong.described()
        ))
    }

    /// Whether another kind of the suite has the place. A kind that is open to any member has every place, which says
    /// nothing about the others. So it counts only if it names the first member.
    fn fits_another_kind(&self, read: &Read) -> bool {
        let is_object = matches!(
            read.document,
            ReadDocument::Object | ReadDocument::OldObject
        );
        let fits = |of: &Type| {
            self.catalogue.names_first(of, &read.at, read.is_pattern)
                && self.catalogue.check(of, &read.at, read.is_pattern).is_ok()
        };
        is_object
            && self
                .kinds
                .iter()
                .filter_map(|kind| self.catalogue.of_kind(kind))
                .any(fits)
    }
}

/// Describes the mistake in a pattern for objects of one of Kubernetes' own kinds, if there is one. It is certain unless another
/// release may have the field.
pub(crate) fn mistake(api_version: &str, kind: &str, pattern: &str) -> Option<(String, bool)> {
    static KNOWN: LazyLock<Catalogue> = LazyLock::new(|| {
        let mut catalogue = Catalogue::default();
        catalogue.add_lines(KUBERNETES);
        catalogue
    });
    let kind = Kind::new(api_version, kind);
    let wrong = KNOWN.check(KNOWN.of_kind(&kind)?, pattern, true).err()?;
    let is_certain = !matches!(wrong, Wrong::Field { meant: None, .. });
    Some((format!("{kind} {}", wrong.described()), is_certain))
}

/// Whether objects of the kind have a pod template.
fn has_template(kind: &Kind) -> bool {
    WORKLOADS.iter().any(|workload| {
        let version = match workload.group {
            "" => VERSION.to_owned(),
            group => format!("{group}/{VERSION}"),
        };
        Kind::new(&version, workload.kind) == *kind
    })
}

fn too_many(plugin: &str) -> String {
    format!(
        "strict paths: {plugin} reads more than {} places in this case, or a place of more than {} bytes, and not all of them \
         can be checked; read the object as a whole, or test the plugin without --strict-paths",
        Reads::MOST_PLACES,
        Reads::LONGEST_PLACE_BYTES
    )
}

fn unknown(kind: &Kind) -> String {
    format!(
        "strict paths: the fields of {kind} are not known; pass the file with its CustomResourceDefinition with --crds"
    )
}

/// Returns the kind of a review's object. A CONNECT has options in the object's place.
fn kind(review: &Json) -> Option<Kind> {
    let request = review.member("request")?;
    if request.member("operation").and_then(Json::as_text) == Some("CONNECT") {
        return None;
    }
    let objects = ["object", "oldObject"].into_iter();
    let object = objects
        .filter_map(|name| request.member(name))
        .find(|object| !object.is_null())?;
    let text = |name: &str| object.member(name)?.as_text();
    Some(Kind::new(text("apiVersion")?, text("kind")?))
}

fn part(document: ReadDocument) -> &'static str {
    match document {
        ReadDocument::Object => "the object",
        ReadDocument::OldObject => "the old object",
        ReadDocument::Options => "the options",
        ReadDocument::Request => "the request",
        ReadDocument::Namespace => "the namespace",
    }
}

// === impl Wrong ===

impl Wrong {
    fn described(&self) -> String {
        match self {
            Self::Field {
                at,
                meant: Some(meant),
                ..
            } => format!("has no field {at}; did you mean {meant}?"),
            Self::Field { at, known, .. } if known.is_empty() => {
                format!("has no field {at}: kube-apiserver removes every field there")
            }
            Self::Field { at, known, .. } => {
                let mut names: Vec<&str> = known.iter().map(String::as_str).collect();
                let more = names.len().saturating_sub(MOST_LISTED);
                names.truncate(MOST_LISTED);
                let more = match more {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                format!(
                    "has no field {at}; the fields there are {}{more}",
                    names.join(", ")
                )
            }
            Self::Index { list } => {
                format!("has a list at {list}: write an index such as {list}/0, or select {list}/*")
            }
            Self::Members { value } => format!("has a value without members at {value}"),
        }
    }
}

#[cfg(test)]
mod tests;
