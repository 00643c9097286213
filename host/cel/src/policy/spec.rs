//! The objects of a policy as they are written. Unknown fields are errors, so that nothing is dropped silently.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The settings of a policy.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// The policy.
    pub policy: WrittenPolicy,
    /// The bindings of the policy.
    #[serde(default)]
    pub bindings: Vec<Binding>,
    /// The parameters: whole objects of the policy's `paramKind`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<serde_json::Value>,
}

/// The kinds of the objects.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Kind {
    /// A policy that allows or denies.
    ValidatingAdmissionPolicy,
    /// The binding of such a policy.
    ValidatingAdmissionPolicyBinding,
    /// A policy that changes objects.
    MutatingAdmissionPolicy,
    /// The binding of such a policy.
    MutatingAdmissionPolicyBinding,
}

/// A policy.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct WrittenPolicy {
    /// `admissionregistration.k8s.io/` and a version.
    pub api_version: String,
    /// The kind.
    pub kind: Kind,
    /// The metadata, of which only the name is used.
    pub metadata: Metadata,
    /// The specification.
    pub spec: PolicySpec,
    /// The status, which is ignored.
    #[serde(default, skip_serializing)]
    pub status: Option<serde_json::Value>,
}

/// The metadata of an object.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Metadata {
    /// The name.
    pub name: String,
}

/// The specification of both kinds of policies.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PolicySpec {
    /// The result if the policy cannot be evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<FailurePolicy>,
    /// The kind of the parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param_kind: Option<ParamKind>,
    /// The requests that the policy is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_constraints: Option<MatchResources>,
    /// Conditions on the requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_conditions: Vec<MatchCondition>,
    /// Variables, in an order in which each one uses only those before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<MatchCondition>,
    /// The rules of a validating policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validations: Vec<Expression>,
    /// The audit annotations of a validating policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audit_annotations: Vec<AuditAnnotation>,
    /// The changes of a mutating policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mutations: Vec<Mutation>,
    /// Whether the policy is called again after later changes. The host's own setting decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reinvocation_policy: Option<String>,
}

/// The result if a policy cannot be evaluated.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum FailurePolicy {
    /// The request is denied.
    #[default]
    Fail,
    /// The policy counts as passed.
    Ignore,
}

/// The kind of the parameters.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ParamKind {
    /// The group and version.
    pub api_version: String,
    /// The kind.
    pub kind: String,
}

/// The requests that a policy or a binding is for.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct MatchResources {
    /// Selects by the labels of the object's Namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<Selector>,
    /// Selects by the labels of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_selector: Option<Selector>,
    /// The rules, of which one must match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_rules: Vec<NamedRule>,
    /// The rules, of which none may match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude_resource_rules: Vec<NamedRule>,
    /// `Exact` or `Equivalent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_policy: Option<MatchPolicy>,
}

/// Whether a rule also matches the same object in another version.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum MatchPolicy {
    /// Rules match only the version of the request.
    Exact,
    /// The version into which kube-apiserver converted the object counts, too.
    #[default]
    Equivalent,
}

/// A rule.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct NamedRule {
    /// The groups, or `*`.
    pub api_groups: Vec<String>,
    /// The versions, or `*`.
    pub api_versions: Vec<String>,
    /// The operations, or `*`.
    pub operations: Vec<String>,
    /// The resources, such as `pods`, `pods/status`, `*` and `*/*`.
    pub resources: Vec<String>,
    /// The names of objects. Empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// `Namespaced`, `Cluster` or `*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// A label selector.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Selector {
    /// Labels that must have these values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements, which must all hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<SelectorRequirement>,
}

/// A requirement of a label selector.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SelectorRequirement {
    /// The key of the label.
    pub key: String,
    /// The operator.
    pub operator: SelectorOperator,
    /// The values of `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// The operator of a requirement.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum SelectorOperator {
    /// The label has one of the values.
    In,
    /// The label is missing or has none of the values.
    NotIn,
    /// The label exists.
    Exists,
    /// The label is missing.
    DoesNotExist,
}

/// A match condition or a variable: an expression with a name.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct MatchCondition {
    /// The name.
    pub name: String,
    /// The expression.
    pub expression: String,
}

/// A rule of a validating policy.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Expression {
    /// The expression, which is true for a permitted request.
    pub expression: String,
    /// The message of a denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// An expression for the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_expression: Option<String>,
    /// The reason of a denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

/// The reasons of a denial.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Reason {
    /// HTTP 401.
    Unauthorized,
    /// HTTP 403.
    Forbidden,
    /// HTTP 422.
    #[default]
    Invalid,
    /// HTTP 413.
    RequestEntityTooLarge,
}

/// An audit annotation.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AuditAnnotation {
    /// The key.
    pub key: String,
    /// The expression for the value.
    pub value_expression: String,
}

/// A change.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Mutation {
    /// `ApplyConfiguration` or `JSONPatch`.
    pub patch_type: PatchType,
    /// The expression of the type `ApplyConfiguration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_configuration: Option<MutationExpression>,
    /// The expression of the type `JSONPatch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json_patch: Option<MutationExpression>,
}

/// The type of a change.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum PatchType {
    /// The expression returns the fields to set.
    ApplyConfiguration,
    /// The expression returns the operations of a JSON Patch.
    JSONPatch,
}

/// The expression of a change.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MutationExpression {
    /// The expression.
    pub expression: String,
}

/// A binding.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Binding {
    /// `admissionregistration.k8s.io/` and a version.
    pub api_version: String,
    /// The kind.
    pub kind: Kind,
    /// The metadata, of which only the name is used.
    pub metadata: Metadata,
    /// The specification.
    pub spec: BindingSpec,
}

/// The specification of a binding.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct BindingSpec {
    /// The name of the policy.
    pub policy_name: String,
    /// The parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param_ref: Option<ParamRef>,
    /// The requests that the binding is for. All requests of the policy when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_resources: Option<MatchResources>,
    /// The effects of a failed validation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validation_actions: Vec<ValidationAction>,
}

/// The effect of a failed validation.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum ValidationAction {
    /// The request is denied.
    Deny,
    /// The user gets a warning.
    Warn,
    /// The audit log gets an annotation.
    Audit,
}

/// The parameters of a binding.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ParamRef {
    /// The name of one object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The namespace. That of the request when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Selects objects by their labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// The action if there is no such object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter_not_found_action: Option<NotFoundAction>,
}

/// The action if parameters do not exist.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum NotFoundAction {
    /// The binding does not apply.
    Allow,
    /// The policy fails, and its failure policy decides.
    Deny,
}
