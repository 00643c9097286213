//! Admits container images only if they are signed as the configuration requires.
//!
//! The settings say which images need which policy. The policies themselves, with keys and identities, are in the
//! configuration of the plugin under `images`, and the host verifies them. In Pods, tags are replaced by the digests that
//! were verified, so that a node pulls the same image.

mod places;
mod settings;

use std::collections::BTreeSet;

use tollgate_sdk::images::{Failure, Request, Verified, verify};
use tollgate_sdk::prelude::*;

use places::Place;
pub use settings::Settings;
use settings::{Demand, Rules, Tags, Unavailable};

/// The policy.
pub struct VerifyImages {
    rules: Rules,
    tags: Tags,
    unavailable: Unavailable,
    verify_unchanged: bool,
}

/// What is known about an image of the object.
enum Finding {
    /// Its rule requires no signature.
    Exempt,
    /// It meets its policy.
    Verified(Verified),
    /// It must not run, for this reason.
    Refused(String),
    /// Its registry does not answer.
    Unknown(String),
}

const REFUSED: &str = "images must be signed";

// === impl VerifyImages ===

impl Policy for VerifyImages {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        Ok(Self {
            rules: Rules::read(&settings.rules)?,
            tags: settings.tags,
            unavailable: settings.unavailable,
            verify_unchanged: settings.verify_unchanged,
        })
    }
}

impl Mutate for VerifyImages {
    fn mutate(&self, review: &Review) -> Result<Mutation, Denial> {
        if self.tags != Tags::Replace {
            return Ok(Mutation::Unchanged);
        }
        // A template keeps its tags, and the Pods that are made of it lose theirs. Another image would restart a container
        // that the request does not change.
        let mut places = self.places(review);
        places.retain(|place| place.is_of_pod && place.is_new && !place.image.contains('@'));
        let findings = self.examine(&places);
        let mut patch = Patch::new();
        for (place, finding) in places.into_iter().zip(findings) {
            // The validator refuses all others.
            if let Finding::Verified(verified) = finding {
                let pinned = format!("{}@{}", place.image, verified.digest);
                patch = patch.replace(place.at, pinned);
            }
        }
        Ok(patch.into())
    }
}

impl Validate for VerifyImages {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        let places = self.places(review);
        let mut findings = Findings::new(REFUSED);
        for (place, finding) in places.iter().zip(self.examine(&places)) {
            let image = &place.image;
            let refusal = match finding {
                Finding::Exempt => continue,
                Finding::Verified(verified) => match self.objects_to(place, &verified) {
                    Some(refusal) => refusal,
                    None => continue,
                },
                Finding::Unknown(reason) if self.unavailable == Unavailable::Warn => {
                    review.warn(format!("{image} was not verified: {reason}"));
                    continue;
                }
                Finding::Refused(reason) | Finding::Unknown(reason) => reason,
            };
            findings.push(Cause::at(place.at.clone(), format!("{image}: {refusal}")));
        }
        findings.verdict()
    }
}

impl VerifyImages {
    /// Returns the images that have to be verified.
    fn places(&self, review: &Review) -> Vec<Place> {
        let object = review.object();
        // A mirror Pod is the kubelet's copy of a static Pod. Denying it has no effect on the node.
        if object
            .get("/metadata/annotations/kubernetes.io~1config.mirror")
            .is_some()
        {
            return Vec::new();
        }
        let mut places = places::all(object);
        if review.operation() == Operation::Update {
            let old = places::all(review.old_object());
            let old: BTreeSet<&str> = old.iter().map(|place| place.image.as_str()).collect();
            for place in &mut places {
                place.is_new = !old.contains(place.image.as_str());
            }
            // The others were verified when they came. An object must be changeable while a registry is away.
            places.retain(|place| place.is_new || self.verify_unchanged);
        }
        places
    }

    /// Finds out about images, all at the same time.
    fn examine(&self, places: &[Place]) -> Vec<Finding> {
        let demands: Vec<Result<&Demand, String>> = places
            .iter()
            .map(|place| self.rules.demand(&place.image))
            .collect();
        let requests = places.iter().zip(&demands);
        let requests = requests.filter_map(|(place, demand)| match demand {
            Ok(Demand::Policy(policy)) => Some(Request::new(&place.image, policy)),
            _ => None,
        });
        let requests: Vec<Request> = requests.collect();
        let mut answers = match requests.is_empty() {
            true => Vec::new(),
            false => verify(requests),
        }
        .into_iter();
        let findings = demands.into_iter().map(|demand| match demand {
            Err(refusal) => Finding::Refused(refusal),
            Ok(Demand::Nothing) => Finding::Exempt,
            Ok(Demand::Policy(policy)) => match answers.next() {
                Some(answer) => finding(answer, policy),
                None => Finding::Unknown("the host gave no answer".to_owned()),
            },
        });
        findings.collect()
    }

    /// Says why a verified image must not run after all.
    fn objects_to(&self, place: &Place, verified: &Verified) -> Option<String> {
        if verified.pinned || !place.is_of_pod || !place.is_new {
            return None;
        }
        match self.tags {
            // Another mutator has set the tag after this plugin.
            Tags::Replace | Tags::Refuse => Some(format!(
                "must name its digest, such as {}@{}: the tag can move",
                place.image, verified.digest
            )),
            Tags::Allow if verified.last_known_good => Some(
                "the registry does not answer, so the tag may have moved; name the digest"
                    .to_owned(),
            ),
            Tags::Allow => None,
        }
    }
}

fn finding(answer: Result<Verified, Failure>, policy: &str) -> Finding {
    match answer {
        Ok(verified) => Finding::Verified(verified),
        Err(Failure::Unavailable(reason)) => {
            Finding::Unknown(format!("cannot be verified now: {reason}"))
        }
        Err(Failure::Unsigned(refusal)) => Finding::Refused(format!(
            "is not signed (policy {policy}): {}",
            refusal.reason
        )),
        Err(Failure::Untrusted(refusal)) => Finding::Refused(format!(
            "is not signed as the policy {policy} requires: {}",
            refusal.reason
        )),
        Err(failure) => Finding::Refused(failure.to_string()),
    }
}

tollgate_sdk::plugin! {
    VerifyImages,
    rules: [
        Rule::on(
            [Operation::Create, Operation::Update],
            "",
            "v1",
            ["pods", "podtemplates", "replicationcontrollers"],
        ),
        Rule::on([Operation::Update], "", "v1", ["pods/ephemeralcontainers"]),
        Rule::on(
            [Operation::Create, Operation::Update],
            "apps",
            "v1",
            ["daemonsets", "deployments", "replicasets", "statefulsets"],
        ),
        Rule::on([Operation::Create, Operation::Update], "batch", "v1", ["cronjobs", "jobs"]),
    ],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests;
