//! The pod template of a workload, as the Pod that it would become.
//!
//! A rule about Pods should tell the author of a Deployment, and not only the controller that creates the Pods later.
//! The host therefore derives a second request from the request for the workload: the creation of a Pod. A plugin that
//! knows Pods alone gets that request. What it finds in the Pod, and what it changes there, goes back to the
//! template.
//!
//! The Pod has what Kubernetes' controllers give a new Pod (pkg/controller/controller_utils.go, `GetPodFromTemplate`):
//! the template's spec, labels, annotations and finalizers, the namespace, `generateName`, and a reference to its owner.
//! It has nothing else of the template's metadata, because controllers drop the rest.
//!
//! The derived request is always a CREATE. An UPDATE of a workload makes new Pods, and never changes existing ones.

mod put;

use std::cmp::Reverse;
use std::sync::Arc;

use tollgate_json::document::{Json, Object};

use super::request::{
    AdmissionRequest, GroupVersionKind, GroupVersionResource, Operation, RequestDocument,
};
use crate::text::field_path;
use crate::{Cause, Denial};

pub use put::PutError;

/// A kind of object with a pod template.
#[derive(Debug, PartialEq, Eq)]
pub struct Workload {
    /// The API group.
    pub group: &'static str,
    /// The resource, in the plural.
    pub resource: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The members on the way to the template.
    path: &'static [&'static str],
    owner: Owner,
}

/// The owner that the controller writes into a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// No controller creates Pods from the template.
    None,
    /// The workload.
    Itself,
    /// An object that the workload's controller creates first: its group, and its kind. Its name begins with the
    /// workload's name.
    Between(&'static str, &'static str),
}

/// The origin of a derived request.
#[derive(Clone, Debug)]
pub struct Template {
    /// The kind of the object that has the template.
    pub workload: &'static Workload,
    /// The request for that object.
    pub request: Arc<AdmissionRequest>,
    /// The Pod of the old object's template. None on CREATE.
    pub old_pod: Option<Json>,
}

/// A template that the host cannot read. Names a place and a type, never a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the pod template: {place} must be an object, but is {found}")]
pub struct TemplateError {
    place: String,
    found: &'static str,
}

/// The only version of the workloads' groups that Kubernetes serves.
pub const VERSION: &str = "v1";
/// The path of most templates.
const USUAL: &[&str] = &["spec", "template"];
/// The workloads, sorted by group.
pub static WORKLOADS: [Workload; 8] = [
    Workload {
        path: &["template"],
        owner: Owner::None,
        ..Workload::usual("", "podtemplates", "PodTemplate")
    },
    Workload::usual("", "replicationcontrollers", "ReplicationController"),
    Workload::usual("apps", "daemonsets", "DaemonSet"),
    Workload {
        owner: Owner::Between("apps", "ReplicaSet"),
        ..Workload::usual("apps", "deployments", "Deployment")
    },
    Workload::usual("apps", "replicasets", "ReplicaSet"),
    Workload::usual("apps", "statefulsets", "StatefulSet"),
    Workload {
        path: &["spec", "jobTemplate", "spec", "template"],
        owner: Owner::Between("batch", "Job"),
        ..Workload::usual("batch", "cronjobs", "CronJob")
    },
    Workload::usual("batch", "jobs", "Job"),
];
/// Metadata that controllers copy from the template into the Pod.
const COPIED: [&str; 3] = ["labels", "annotations", "finalizers"];
/// Longest text of a denial in which the host maps field paths. No longer text is shown to a user.
const LONGEST_MAPPED_BYTES: usize = 16 << 10;
/// Most causes whose field paths the host maps in texts.
const MOST_MAPPED_CAUSES: usize = 32;

// === impl Workload ===

impl Workload {
    const fn usual(group: &'static str, resource: &'static str, kind: &'static str) -> Self {
        Self {
            group,
            resource,
            kind,
            path: USUAL,
            owner: Owner::Itself,
        }
    }

    /// Returns the workload that a request creates or updates. None for any other request, such as one for a
    /// subresource.
    #[must_use]
    pub fn of(request: &AdmissionRequest) -> Option<&'static Self> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        if !writes || request.sub_resource.is_some() || request.resource.version != VERSION {
            return None;
        }
        let GroupVersionResource {
            group, resource, ..
        } = &request.resource;
        WORKLOADS
            .iter()
            .find(|workload| workload.resource == resource && workload.group == group)
    }

    /// Returns the place of the template in Kubernetes' notation, such as `spec.template`.
    #[must_use]
    pub fn field(&self) -> String {
        self.path.join(".")
    }

    /// Whether a controller made the object from a template of its own, which plugins see there.
    ///
    /// A controller of ReplicaSets finds the one that it made by comparing templates. If a webhook changed the
    /// template, the controller would create ReplicaSets without end. The host therefore shows no template of such a
    /// ReplicaSet. The Pods are shown when they are created.
    #[must_use]
    pub fn is_made_by_controller(&self, object: &Json) -> bool {
        let metadata = object.member("metadata");
        let owners = metadata.and_then(|metadata| metadata.member("ownerReferences"));
        let mut owners = owners.and_then(Json::as_array).unwrap_or_default().iter();
        let controller = owners.find(|owner| {
            let controller = owner.member("controller");
            controller.and_then(Json::as_bool) == Some(true)
        });
        controller.is_some_and(|controller| {
            let text = |name| controller.member(name).and_then(Json::as_text);
            let group = text("apiVersion")
                .unwrap_or_default()
                .rsplit_once('/')
                .map_or("", |(group, _)| group);
            let is_workload =
                |other: &Self| Some(other.kind) == text("kind") && other.group == group;
            self.kind == "ReplicaSet" || WORKLOADS.iter().any(is_workload)
        })
    }

    /// Returns the Pod that the template of `object` would become.
    ///
    /// # Errors
    /// When the template, its spec or its metadata is not an object.
    pub fn pod(&self, object: &Json, namespace: Option<&str>) -> Result<Json, TemplateError> {
        let mut here = object;
        for depth in 0..self.path.len() {
            here = self.member(here, depth)?;
        }
        let mut pod = Object::default();
        pod.insert(Arc::from("apiVersion"), Json::text("v1"));
        pod.insert(Arc::from("kind"), Json::text("Pod"));
        pod.insert(
            Arc::from("metadata"),
            self.metadata(object, here, namespace)?,
        );
        let spec = here.member("spec").unwrap_or(&Json::Null);
        pod.insert(Arc::from("spec"), self.object_at(spec, "spec")?.clone());
        Ok(Json::from(pod))
    }

    fn metadata(
        &self,
        object: &Json,
        template: &Json,
        namespace: Option<&str>,
    ) -> Result<Json, TemplateError> {
        let given = template.member("metadata").filter(|json| !json.is_null());
        if let Some(given) = given {
            self.object_at(given, "metadata")?;
        }
        let own = |name: &str| object.member("metadata")?.member(name)?.as_text();
        let (name, generated) = (own("name").unwrap_or_default(), own("generateName"));
        let prefix = match (name, generated) {
            ("", generated) => generated.unwrap_or_default().to_owned(),
            (name, _) => format!("{name}-"),
        };
        let mut metadata = Object::default();
        metadata.insert(Arc::from("generateName"), Json::text(&prefix));
        if let Some(namespace) = namespace {
            metadata.insert(Arc::from("namespace"), Json::text(namespace));
        }
        for name in COPIED {
            let value = given.and_then(|given| given.member(name));
            if let Some(value) = value.filter(|json| !json.is_null()) {
                metadata.insert(Arc::from(name), value.clone());
            }
        }
        let owner = match self.owner {
            Owner::None => return Ok(Json::from(metadata)),
            Owner::Itself => (self.group, self.kind, own("uid").unwrap_or_default()),
            Owner::Between(group, kind) => (group, kind, ""),
        };
        let owner = owner_reference(owner, if name.is_empty() { &prefix } else { name });
        let owners = Json::from(vec![owner]);
        metadata.insert(Arc::from("ownerReferences"), owners);
        Ok(Json::from(metadata))
    }

    /// Derives the request that creates the Pod.
    ///
    /// # Errors
    /// When the template of the object cannot be read. An old object whose template cannot be read counts as none.
    pub fn derive(
        &'static self,
        request: &Arc<AdmissionRequest>,
    ) -> Result<AdmissionRequest, TemplateError> {
        let namespace = request.namespace.as_deref();
        let object = request.object.as_ref().unwrap_or(&Json::Null);
        let pod = self.pod(object, namespace)?;
        let old_pod = request.old_object.as_ref();
        let old_pod = old_pod.and_then(|old| self.pod(old, namespace).ok());
        let name = |name: &str| name.to_owned();
        Ok(AdmissionRequest {
            uid: request.uid.clone(),
            operation: Operation::Create,
            kind: GroupVersionKind {
                group: String::new(),
                version: name("v1"),
                kind: name("Pod"),
            },
            resource: GroupVersionResource {
                group: String::new(),
                version: name("v1"),
                resource: name("pods"),
            },
            sub_resource: None,
            name: String::new(),
            namespace: request.namespace.clone(),
            dry_run: request.dry_run,
            object: Some(pod),
            old_object: None,
            options: request.options.as_ref().map(create_options),
            document: RequestDocument::of(create_document(request.document.get())),
            memory: request.memory.clone(),
            looked_up: request.looked_up.clone(),
            observed: request.observed.clone(),
            template: Some(Arc::new(Template {
                workload: self,
                request: request.clone(),
                old_pod,
            })),
        })
    }

    /// Maps a pointer into the Pod to the place in the workload, and also a path in Kubernetes' notation. Any other
    /// text stays as it is.
    #[must_use]
    pub fn pointer(&self, pointer: &str) -> String {
        let is_path = || {
            let rest = ["spec", "metadata"]
                .into_iter()
                .find_map(|first| pointer.strip_prefix(first));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        match pointer {
            "/metadata/name" | "/metadata/generateName" => "/metadata/name".to_owned(),
            "/metadata/namespace" => pointer.to_owned(),
            _ if pointer.is_empty() || pointer.starts_with('/') => {
                format!("/{}{pointer}", self.path.join("/"))
            }
            _ if is_path() => format!("{}.{pointer}", self.field()),
            _ => pointer.to_owned(),
        }
    }

    fn member<'j>(&self, parent: &'j Json, depth: usize) -> Result<&'j Json, TemplateError> {
        let found = parent.member(self.path[depth]).unwrap_or(&Json::Null);
        match found.as_object() {
            Some(_) => Ok(found),
            None => Err(TemplateError {
                place: self.path[..=depth].join("."),
                found: found.type_name(),
            }),
        }
    }

    fn object_at<'j>(&self, value: &'j Json, name: &str) -> Result<&'j Json, TemplateError> {
        match value.as_object() {
            Some(_) => Ok(value),
            None => Err(TemplateError {
                place: format!("{}.{name}", self.field()),
                found: value.type_name(),
            }),
        }
    }
}

/// Returns the reference to a Pod's controller. The uid is empty where nobody knows it yet.
fn owner_reference((group, kind, uid): (&str, &str, &str), name: &str) -> Json {
    let version = match group {
        "" => VERSION.to_owned(),
        group => format!("{group}/{VERSION}"),
    };
    let members = [
        ("apiVersion", Json::text(&version)),
        ("kind", Json::text(kind)),
        ("name", Json::text(name)),
        ("uid", Json::text(uid)),
        ("controller", Json::Bool(true)),
        ("blockOwnerDeletion", Json::Bool(true)),
    ];
    let members = members.map(|(name, value)| (Arc::from(name), value));
    Json::Object(Arc::new(members.into_iter().collect()))
}

/// Returns the AdmissionRequest's document for the creation of the Pod.
fn create_document(document: &Json) -> Json {
    let Json::Object(members) = document else {
        return document.clone();
    };
    let mut members = (***members).clone();
    // The Pod has no name yet.
    members.shift_remove("name");
    let named = |last: &str, value: &str| {
        let members = [("group", ""), ("version", "v1"), (last, value)];
        let members = members.map(|(name, value)| (Arc::from(name), Json::text(value)));
        Json::Object(Arc::new(members.into_iter().collect()))
    };
    members.insert(Arc::from("operation"), Json::text("CREATE"));
    members.insert(Arc::from("kind"), named("kind", "Pod"));
    members.insert(Arc::from("resource"), named("resource", "pods"));
    for (key, value) in [
        ("requestKind", named("kind", "Pod")),
        ("requestResource", named("resource", "pods")),
    ] {
        if members.contains_key(key) {
            members.insert(Arc::from(key), value);
        }
    }
    Json::from(members)
}

/// Returns the options as those of a CREATE.
fn create_options(options: &Json) -> Json {
    let Json::Object(members) = options else {
        return options.clone();
    };
    let mut members = (***members).clone();
    if members.contains_key("kind") {
        members.insert(Arc::from("kind"), Json::text("CreateOptions"));
    }
    Json::from(members)
}

// === impl Template ===

impl Template {
    /// Maps the fields of a denial to the workload, and the paths of these fields in its texts.
    #[must_use]
    pub fn locate(&self, denial: Denial) -> Denial {
        let fields = denial
            .causes
            .iter()
            .filter_map(|cause| cause.field.as_deref());
        let mut moved: Vec<(String, String)> = Vec::new();
        for field in fields.take(MOST_MAPPED_CAUSES) {
            let here = self.workload.pointer(field);
            if let (Some(from), Some(to)) = (field_path(field), field_path(&here)) {
                moved.push((from, to));
            }
            moved.push((field.to_owned(), here));
        }
        moved.retain(|(from, _)| !from.is_empty());
        // The longest path wins where one begins with another.
        moved.sort_unstable_by_key(|(from, _)| Reverse(from.len()));
        let cause = |cause: Cause| Cause {
            field: cause.field.map(|field| self.workload.pointer(&field)),
            message: relocated(cause.message, &moved),
            ..cause
        };
        Denial {
            message: relocated(denial.message, &moved),
            causes: denial.causes.into_iter().map(cause).collect(),
            ..denial
        }
    }
}

/// Replaces whole paths in a text, each at most once per place.
fn relocated(text: String, moved: &[(String, String)]) -> String {
    if text.len() > LONGEST_MAPPED_BYTES || moved.is_empty() {
        return text;
    }
    let is_part = |character: char| character.is_alphanumeric() || "_-./]".contains(character);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(character) = rest.chars().next() {
        let begins = !out.chars().next_back().is_some_and(is_part);
        let ends = |from: &str| {
            let next = rest[from.len()..].chars().next();
            !next.is_some_and(|next| next.is_alphanumeric() || matches!(next, '_' | '-'))
        };
        let found = moved
            .iter()
            .find(|(from, _)| begins && rest.starts_with(from.as_str()) && ends(from));
        match found {
            Some((from, to)) => {
                out.push_str(to);
                rest = &rest[from.len()..];
            }
            None => {
                out.push(character);
                rest = &rest[character.len_utf8()..];
            }
        }
    }
    out
}

// === impl AdmissionRequest ===

impl AdmissionRequest {
    /// Returns the request that kube-apiserver sent: for a derived request, the one for the workload.
    #[must_use]
    pub fn received(&self) -> &Self {
        match &self.template {
            Some(template) => &template.request,
            None => self,
        }
    }
}

#[cfg(test)]
mod tests;
