//! A policy with its bindings, and the requests that it is tried on.

use serde_json::{Value, json};

use crate::fixtures::deployment;

pub(super) const VERSION: &str = "admissionregistration.k8s.io/v1";
/// The label of the namespaces of a case, with its name.
pub(super) const OF_CASE: &str = "case";

/// Policies that are installed together, and the requests for which both sides must give the same answer.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) policies: Vec<Policy>,
    /// Objects that exist before the policies: parameters, and objects that requests change or delete.
    pub(super) existing: Vec<Value>,
    /// What users may do, as the key `access` of a suite has it.
    pub(super) rights: Vec<Value>,
    pub(super) requests: Vec<Request>,
    /// The places of a changed object that are compared. Without any, the whole objects are.
    pub(super) places: Vec<&'static str>,
}

/// A policy with its bindings.
pub(super) struct Policy {
    pub(super) name: String,
    spec: Value,
    bindings: Vec<Value>,
}

/// A request to kube-apiserver.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) operation: &'static str,
    pub(super) object: Value,
    pub(super) subresource: Option<&'static str>,
    /// The user. None is the administrator.
    pub(super) user: Option<&'static str>,
    /// The version into which kube-apiserver converts the object for a webhook with rules for that version.
    pub(super) converted: Option<&'static str>,
}

/// Returns a validating policy, which denies, and which ConfigMaps of the namespace of the case are tried on.
pub(super) fn validating(name: &'static str, spec: Value) -> Case {
    Case::new(name).policy(name, spec)
}

/// Returns a policy with these mutations.
pub(super) fn mutating(name: &'static str, mutations: &[Value]) -> Case {
    Case::new(name).policy(name, json!({"mutations": mutations}))
}

pub(super) fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

pub(super) fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

/// Returns the namespace of a case.
pub(super) fn namespace_of(case: &str) -> String {
    format!("cel-{case}")
}

pub(super) fn create(object: Value) -> Request {
    Request::new("CREATE", object)
}

pub(super) fn update(object: Value) -> Request {
    Request::new("UPDATE", object)
}

pub(super) fn delete(object: Value) -> Request {
    Request::new("DELETE", object)
}

/// A ConfigMap in the namespace of a case.
pub(super) fn map(case: &str, name: &str, data: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace_of(case)},
        "data": data,
    })
}

/// A Namespace that belongs to a case.
pub(super) fn namespace(case: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, OF_CASE: case}},
    })
}

/// A Deployment in the namespace of a case.
pub(super) fn sized(case: &str, name: &str, replicas: u32) -> Value {
    let mut object = deployment(&namespace_of(case), name);
    object["spec"]["replicas"] = json!(replicas);
    object
}

/// Rules for every operation on resources of a group in version 1.
pub(super) fn on(group: &str, resources: &[&str]) -> Value {
    json!({"resourceRules": [{
        "operations": ["*"], "apiGroups": [group], "apiVersions": ["v1"], "resources": resources,
    }]})
}

// === impl Case ===

impl Case {
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            policies: Vec::new(),
            existing: Vec::new(),
            rights: Vec::new(),
            requests: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Adds a policy. Without `matchConstraints`, it is for ConfigMaps. It is mutating if it has mutations.
    pub(super) fn policy(mut self, name: &str, mut spec: Value) -> Self {
        if spec["matchConstraints"]["resourceRules"].is_null() {
            let rules = on("", &["configmaps"])["resourceRules"].take();
            spec["matchConstraints"]["resourceRules"] = rules;
        }
        if spec["mutations"].is_array() && spec["reinvocationPolicy"].is_null() {
            spec["reinvocationPolicy"] = json!("Never");
        }
        self.policies.push(Policy {
            name: name.to_owned(),
            spec,
            bindings: Vec::new(),
        });
        self
    }

    /// Makes the last policy one for other resources.
    pub(super) fn matching(mut self, constraints: Value) -> Self {
        self.last().spec["matchConstraints"] = constraints;
        self
    }

    /// Adds a binding of the last policy. Without a `namespaceSelector`, it is for the namespaces of the case.
    pub(super) fn binding(mut self, spec: Value) -> Self {
        self.last().bindings.push(spec);
        self
    }

    /// Adds a binding of the last policy with these actions.
    pub(super) fn actions(self, actions: &[&str]) -> Self {
        self.binding(json!({"validationActions": actions}))
    }

    pub(super) fn existing(mut self, objects: impl IntoIterator<Item = Value>) -> Self {
        self.existing.extend(objects);
        self
    }

    pub(super) fn rights(mut self, rights: impl IntoIterator<Item = Value>) -> Self {
        self.rights.extend(rights);
        self
    }

    pub(super) fn requests(mut self, requests: impl IntoIterator<Item = Request>) -> Self {
        self.requests.extend(requests);
        self
    }

    /// Adds the creations of these objects.
    pub(super) fn creates(self, objects: impl IntoIterator<Item = Value>) -> Self {
        self.requests(objects.into_iter().map(create))
    }

    /// Adds the creations of ConfigMaps with these names and this data.
    pub(super) fn maps(self, names: &[&str], data: &Value) -> Self {
        let name = self.name;
        let maps = names.iter().map(|one| map(name, one, data.clone()));
        self.creates(maps)
    }

    pub(super) fn at(mut self, places: &[&'static str]) -> Self {
        self.places.extend(places);
        self
    }

    fn last(&mut self) -> &mut Policy {
        self.policies
            .last_mut()
            .expect("a policy was added before it")
    }

    pub(super) fn is_mutating(&self) -> bool {
        self.policies.iter().any(Policy::is_mutating)
    }

    pub(super) fn namespace(&self) -> String {
        namespace_of(self.name)
    }
}

// === impl Policy ===

impl Policy {
    fn is_mutating(&self) -> bool {
        self.spec["mutations"].is_array()
    }

    /// The prefix of the kinds and resources.
    fn kind(&self) -> &'static str {
        match self.is_mutating() {
            true => "Mutating",
            false => "Validating",
        }
    }

    pub(super) fn written(&self) -> Value {
        json!({
            "apiVersion": VERSION,
            "kind": format!("{}AdmissionPolicy", self.kind()),
            "metadata": {"name": self.name},
            "spec": self.spec,
        })
    }

    pub(super) fn bindings(&self, case: &str) -> Vec<Value> {
        let own = if self.bindings.is_empty() {
            vec![json!({})]
        } else {
            self.bindings.clone()
        };
        let own = own.into_iter().enumerate().map(|(index, mut spec)| {
            spec["policyName"] = json!(self.name);
            if !self.is_mutating() && spec["validationActions"].is_null() {
                spec["validationActions"] = json!(["Deny"]);
            }
            if spec["matchResources"]["namespaceSelector"].is_null() {
                spec["matchResources"]["namespaceSelector"] =
                    json!({"matchLabels": {OF_CASE: case}});
            }
            json!({
                "apiVersion": VERSION,
                "kind": format!("{}AdmissionPolicyBinding", self.kind()),
                "metadata": {"name": format!("{}-bound-{index}", self.name)},
                "spec": spec,
            })
        });
        own.collect()
    }

    /// The namespaces of the first binding.
    pub(super) fn selector(&self, case: &str) -> Value {
        let bindings = self.bindings(case);
        bindings[0]["spec"]["matchResources"]["namespaceSelector"].clone()
    }

    /// The settings of the plugin, with the objects that are of the kind of the parameters.
    pub(super) fn settings(&self, case: &Case) -> Value {
        let kind = &self.spec["paramKind"];
        let is_param = |object: &&Value| {
            object["apiVersion"] == kind["apiVersion"] && object["kind"] == kind["kind"]
        };
        let params: Vec<&Value> = case.existing.iter().filter(is_param).collect();
        json!({
            "policy": self.written(),
            "bindings": self.bindings(case.name),
            "params": params,
        })
    }

    pub(super) fn reinvocation(&self) -> Value {
        self.spec["reinvocationPolicy"].clone()
    }
}

// === impl Request ===

impl Request {
    fn new(operation: &'static str, object: Value) -> Self {
        Self {
            operation,
            object,
            subresource: None,
            user: None,
            converted: None,
        }
    }

    pub(super) fn of(mut self, subresource: &'static str) -> Self {
        self.subresource = Some(subresource);
        self
    }

    pub(super) fn by(mut self, user: &'static str) -> Self {
        self.user = Some(user);
        self
    }

    pub(super) fn converted_to(mut self, version: &'static str) -> Self {
        self.converted = Some(version);
        self
    }
}
