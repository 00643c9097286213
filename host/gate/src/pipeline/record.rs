//! Builds the record of a decision from the data at hand after the decision.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_admission::Phase;
use tollgate_admission::namespaces::LookedUp;
use tollgate_admission::review::request::{
    AdmissionRequest, GroupVersionKind, GroupVersionResource, Operation, RequestDocument,
};
use tollgate_admission::trace::Observed;
use tollgate_admission::{Call, Endpoint, Reply};
use tollgate_config::{Match, Mode};
use tollgate_json::document::{Account, Json};

use super::gate::{Reviewed, phase_of, verdict};
use super::outcome::Report;
use super::passed_over::Reason;
use crate::decision::{Called, Decision, KeptDecision, NotCalled};
use crate::plugin::{Plugin, PluginSet, PluginState};

/// Records a review: names, places, numbers and hashes.
pub(super) fn decision(
    call: &Call,
    plugins: &PluginSet,
    review: &Reviewed,
    reply: &Reply,
) -> Decision {
    Decision {
        plugins: review.called(plugins),
        ..about(call, review, reply)
    }
}

/// Records a review in the form in which it is kept.
pub(super) fn kept(
    call: &Call,
    plugins: &PluginSet,
    review: &Reviewed,
    reply: &Reply,
) -> KeptDecision {
    KeptDecision::new(about(call, review, reply), review.rules(plugins))
}

/// Records a review without the parts of the plugins.
fn about(call: &Call, review: &Reviewed, reply: &Reply) -> Decision {
    let request = &review.request;
    let mut decision = Decision::about(request, call.endpoint, call.plugin.as_deref())
        .with_duration(call.received.elapsed());
    if let Some(outcome) = &review.outcome {
        decision = decision.with_outcome(outcome, verdict(outcome));
    } else if matches!(reply, Reply::Internal(_)) {
        decision.verdict = Cow::Borrowed("error");
    }
    decision.passed_over.clone_from(&review.passed_over);
    decision
}

impl Reviewed {
    /// Whether the request is allowed.
    pub(crate) fn is_allowed(&self) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| outcome.allowed)
    }

    /// Returns the part of each plugin that was called.
    pub(crate) fn called(&self, plugins: &PluginSet) -> Vec<Called> {
        let called = self.rules(plugins);
        called
            .map(|(report, rule)| Called::of(report, rule))
            .collect()
    }

    /// Returns the reports, each with the index of the plugin's first rule that matched.
    fn rules(&self, plugins: &PluginSet) -> impl Iterator<Item = (&Report, Option<usize>)> {
        // Reports come in the order of the plugins, so one pass finds all of them.
        let mut rest = plugins.iter();
        self.reports.iter().map(move |report| {
            // In a rollout, the other version of a plugin may have a report of its own.
            let plugin = match report.plugin.shadow_of() {
                Some(entry) => plugins.get(entry),
                None => rest.find(|plugin| plugin.config.name == report.plugin),
            };
            let matching = plugin.and_then(|plugin| matching(plugin));
            let rule = matching.and_then(|matching| matching.matching_rule(&self.request));
            (report, rule)
        })
    }
}

/// Builds an entry of the list: which review it was, and how each plugin's call ended.
pub(super) fn overview(decision: &Decision) -> Value {
    let mut value = json!(decision);
    let plugins: Vec<Value> = decision
        .plugins
        .iter()
        .map(|called| json!({ "name": &*called.name, "ended": called.ended }))
        .collect();
    value["plugins"] = plugins.into();
    value
}

/// Builds the whole record. The reasons why plugins were not called are known only while the plugin set is in use.
pub(super) fn whole(mut decision: Decision, plugins: Option<Arc<PluginSet>>) -> Value {
    if let Some(plugins) = plugins {
        decision.not_called = not_called(&decision, &plugins);
    }
    json!(decision)
}

/// Lists the plugins that were not called, with the reasons. The host works this out on demand from recorded data, so
/// reviews hardly pay for it.
pub(super) fn not_called(decision: &Decision, plugins: &PluginSet) -> Vec<NotCalled> {
    let is_undecided = decision.verdict == "error" && decision.plugins.is_empty();
    if is_undecided || decision.verdict == "overloaded" {
        return Vec::new();
    }
    let request = request(decision);
    let phase = phase_of(endpoint(decision));
    let mut ended_by: Option<&str> = None;
    let mut not_called = Vec::new();
    for (index, plugin) in plugins.iter().enumerate() {
        let name = plugin.config.name.as_str();
        if let Some(called) = decision.plugins.iter().find(|called| *called.name == *name) {
            if phase == Phase::Mutate && called.ends_chain() {
                ended_by = Some(&called.name);
            }
            continue;
        }
        let why = if decision.only.as_deref().is_some_and(|only| only != name) {
            Cow::Borrowed("the request path selects another plugin only")
        } else if decision.only.is_none() && plugin.config.name.namespace().is_some() {
            Cow::Borrowed("it is a plugin of a namespace, which has a path of its own")
        } else {
            let mut passed_over = decision.passed_over.iter();
            match passed_over.find(|passed_over| passed_over.is_of(index)) {
                Some(passed_over) => passed_over.reason().describe(matching(plugin)),
                None => why_not(plugin, phase, &request, ended_by),
            }
        };
        let name = name.to_owned();
        not_called.push(NotCalled { name, why });
    }
    not_called
}

fn why_not(
    plugin: &Plugin,
    phase: Phase,
    request: &AdmissionRequest,
    ended_by: Option<&str>,
) -> Cow<'static, str> {
    if matches!(plugin.state, PluginState::Disabled) {
        return Cow::Borrowed("it is disabled");
    }
    if let PluginState::Loaded(loaded) = &plugin.state {
        let interfaces = loaded.interfaces();
        match phase {
            Phase::Mutate if !interfaces.mutating => return Cow::Borrowed("it does not mutate"),
            Phase::Validate if !interfaces.validating => {
                return Cow::Borrowed("it does not validate");
            }
            _ => {}
        }
    }
    if let Some(matching) = matching(plugin) {
        if matching.matching_rule(request).is_none() {
            return Cow::Borrowed("none of its rules matches");
        }
        if let Some(mismatch) = matching.leaves_out(request) {
            return Reason::Match(mismatch).describe(Some(matching));
        }
    }
    match ended_by {
        Some(earlier) => Cow::Owned(format!("a fault of {earlier} ended the chain")),
        None if plugin.config.mode == Mode::Audit => {
            Cow::Borrowed("it runs after the answer (mode audit)")
        }
        // The host could not read the object. Labels and conditions count as met then, so only these two reasons are
        // left.
        None => Cow::Borrowed(
            "a rule matches, but `excludeGroups` or an exception excludes the request",
        ),
    }
}

/// Returns the plugin's `match`, from the loaded plugin if there is one, otherwise from the configuration.
fn matching(plugin: &Plugin) -> Option<&Match> {
    match &plugin.state {
        PluginState::Loaded(loaded) => Some(&loaded.matching),
        _ => plugin.config.matching.as_ref(),
    }
}

fn endpoint(decision: &Decision) -> Endpoint {
    if decision.endpoint == Endpoint::Mutate.name() {
        Endpoint::Mutate
    } else {
        Endpoint::Validate
    }
}

/// Rebuilds the request from the recorded names, to compare rules with it.
fn request(decision: &Decision) -> AdmissionRequest {
    AdmissionRequest {
        uid: decision.uid.clone(),
        operation: Operation::parse(&decision.operation).unwrap_or(Operation::Create),
        kind: GroupVersionKind {
            group: decision.group.clone(),
            version: decision.version.clone(),
            kind: decision.kind.clone(),
        },
        resource: GroupVersionResource {
            group: decision.group.clone(),
            version: decision.version.clone(),
            resource: decision.resource.clone(),
        },
        sub_resource: decision.sub_resource.clone(),
        name: decision.name.clone(),
        namespace: decision.namespace.clone(),
        dry_run: decision.dry_run,
        object: None,
        old_object: None,
        options: None,
        document: RequestDocument::of(Json::from(
            json!({ "userInfo": { "username": decision.user } }),
        )),
        memory: Account::unlimited(),
        looked_up: LookedUp::default(),
        observed: Observed::default(),
        template: None,
    }
}
