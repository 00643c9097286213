//! Gives Pods the tolerations of their namespace and limits the tolerations that they may have, like the admission
//! plugin PodTolerationRestriction of kube-apiserver.

mod toleration;

use serde::Deserialize as _;
use serde_json::Value as Json;
use tollgate_sdk::prelude::*;

use toleration::{EXISTS, Entry, Lenient, NO_SCHEDULE, Toleration};

/// The annotation of a Namespace with the tolerations that its Pods get.
const DEFAULT: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
/// The annotation of a Namespace with the tolerations that its Pods may have.
const WHITELIST: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
/// The taint of nodes that are short of memory. Only Pods without requests and limits have to avoid them.
const MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";

/// Places of the resources of containers. Ephemeral containers have none.
const OF_CONTAINERS: [&str; 2] = [
    "/spec/containers/*/resources",
    "/spec/initContainers/*/resources",
];

/// The policy, which consists of its settings: what counts in namespaces without the annotations.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PodTolerationRestriction {
    default: Vec<Toleration>,
    whitelist: Vec<Toleration>,
}

// === impl PodTolerationRestriction ===

impl Policy for PodTolerationRestriction {
    type Settings = Self;

    fn configure(settings: Self) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        for (name, list) in [
            ("default", &settings.default),
            ("whitelist", &settings.whitelist),
        ] {
            for (index, toleration) in list.iter().enumerate() {
                if let Some(error) = toleration.error() {
                    errors.at(pointer![name, index], error);
                }
            }
        }
        errors.or(settings)
    }
}

impl Mutate for PodTolerationRestriction {
    fn mutate(&self, review: &Review) -> Result<Mutation, Denial> {
        if !is_pod(review) {
            return Ok(Mutation::Unchanged);
        }
        let before = tolerations(review)?;
        let extra = self.extra(review)?;
        let after = if extra.is_empty() {
            before.clone()
        } else {
            let extra = extra.into_iter().map(Entry::from);
            toleration::merge(&before.iter().cloned().chain(extra).collect::<Vec<_>>())
        };
        self.check(review, &after)?;
        if after == before {
            return Ok(Mutation::Unchanged);
        }
        let list: Json = after.into_iter().map(|entry| entry.json).collect();
        Ok(Patch::new()
            .set(review.object(), "/spec/tolerations", list)
            .into())
    }
}

impl Validate for PodTolerationRestriction {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        if !is_pod(review) {
            return Ok(());
        }
        self.check(review, &tolerations(review)?)
    }
}

impl PodTolerationRestriction {
    /// Returns the tolerations that the Pod gets: those of its namespace when it is created, and one for nodes that are
    /// short of memory unless it is of the class BestEffort.
    fn extra(&self, review: &Review) -> Result<Vec<Toleration>, Denial> {
        let mut extra = Vec::new();
        if review.operation() == Operation::Create {
            let of_namespace = annotation(review, DEFAULT)?;
            extra = of_namespace.unwrap_or_else(|| self.default.clone());
        }
        if !is_best_effort(review.object()) {
            extra.push(Toleration {
                key: MEMORY_PRESSURE.to_owned(),
                operator: EXISTS.to_owned(),
                effect: NO_SCHEDULE.to_owned(),
                ..Toleration::default()
            });
        }
        Ok(extra)
    }

    /// Denies tolerations that are not in the list of the namespace, or else in that of the settings.
    fn check(&self, review: &Review, entries: &[Entry]) -> Result<(), Denial> {
        if entries.is_empty() {
            return Ok(());
        }
        let of_namespace = annotation(review, WHITELIST)?;
        let (whitelist, scope) = match &of_namespace {
            Some(whitelist) => (whitelist, "namespace"),
            None => (&self.whitelist, "cluster"),
        };
        let tolerations: Vec<Toleration> = entries
            .iter()
            .map(|entry| entry.toleration.clone())
            .collect();
        if toleration::are_listed(&tolerations, whitelist) {
            return Ok(());
        }
        Err(Denial::new(format!(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
        )))
    }
}

fn is_pod(review: &Review) -> bool {
    let resource = review.request_document().text("/resource/resource");
    review.sub_resource().is_none() && resource.as_deref() == Some("pods")
}

/// Returns the tolerations in an annotation of the Namespace. None without the annotation. An empty one is an empty
/// list, which overrides the settings.
fn annotation(review: &Review, key: &str) -> Result<Option<Vec<Toleration>>, Denial> {
    let Some(text) = review
        .namespace()
        .text(pointer!["metadata", "annotations", key])
    else {
        return Ok(None);
    };
    if text.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let list = toleration::parse(&text).ok_or_else(|| {
        Denial::new(format!(
            "the annotation {key} of the Namespace is not a JSON list of tolerations"
        ))
    })?;
    Ok(Some(list))
}

/// Returns the tolerations of the Pod, with their JSON, so that fields that the plugin does not know stay.
fn tolerations(review: &Review) -> Result<Vec<Entry>, Denial> {
    let malformed = || Denial::new("spec.tolerations is not a list of tolerations");
    let list: Option<Option<Vec<Json>>> = review
        .object()
        .read("/spec/tolerations")
        .map_err(|_| malformed())?;
    let entry = |json: Json| {
        let Lenient(toleration) = Lenient::deserialize(&json).map_err(|_| malformed())?;
        Ok(Entry { toleration, json })
    };
    list.flatten()
        .unwrap_or_default()
        .into_iter()
        .map(entry)
        .collect()
}

/// Whether the Pod asks for no processor time and no memory, neither as a request nor as a limit. Resources of the Pod
/// itself count in place of those of its containers.
fn is_best_effort(pod: Document) -> bool {
    if let Some(class) = pod
        .text("/status/qosClass")
        .filter(|class| !class.is_empty())
    {
        return class == "BestEffort";
    }
    let mut places = Vec::new();
    if pod.length("/spec/resources").is_some() {
        places.push("/spec/resources".to_owned());
    } else {
        let nodes = OF_CONTAINERS.iter().flat_map(|place| pod.select(place));
        places.extend(nodes.map(|node| node.pointer));
    }
    let quantities = places.iter().flat_map(|place| {
        ["requests", "limits"].into_iter().flat_map(move |list| {
            ["cpu", "memory"].map(|resource| pod.text(format!("{place}/{list}/{resource}")))
        })
    });
    !quantities.flatten().any(|quantity| is_positive(&quantity))
}

/// Whether a quantity such as `500m` or `1e3` is more than zero. Its digits tell, whatever its suffix.
fn is_positive(quantity: &str) -> bool {
    let is_mantissa = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'+');
    let mut mantissa = quantity.bytes().take_while(|byte| is_mantissa(byte));
    mantissa.any(|byte| matches!(byte, b'1'..=b'9'))
}

tollgate_sdk::plugin! {
    PodTolerationRestriction,
    rules: [Rule::on([Operation::Create, Operation::Update], "", "v1", ["pods"])],
    settings_schema: include_str!("../settings-schema.json"),
    labels: [("licence", "Apache-2.0")],
}

#[cfg(test)]
mod tests;
