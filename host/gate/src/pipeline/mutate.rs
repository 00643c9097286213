//! Calls the mutators one after another on the changing object, and then reinvokes those that ask for it.

mod reinvoke;
mod workload;

use std::sync::Arc;
use std::time::Instant;

use tollgate_admission::Phase;
use tollgate_admission::chain;
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_config::{Conflicts, Mode, PluginConfig, PluginName, ReinvocationPolicy};
use tollgate_engine::{
    Answer, Engine, Fault, Mutation, Overload, Secrecy, Subject, goes_by_content,
};
use tollgate_json::document::{Account, Json, NoRoom};
use tollgate_json::patch::{
    AnswerForm, ApplyError, ApplyErrorKind, ApplyLimits, Conflict, Operation, Provenance, apply,
    apply_within, check, diff_within, merge_patch_within,
};
use tollgate_telemetry::metrics::Metrics;

use super::audit::Audit;
use super::blocking::blocking_if;
use super::compare::Comparison;
use super::outcome::{Ended, Report};
use super::passed_over::{PassedOver, Reason};
use super::rollout::{AfterChain, follow_mutators, kind, outcome};
use super::template::Templates;
use super::turn::{Answered, Beginning, Called, Turn, is_final};
use crate::plugin::{Answering, FollowUp, Outcome, Plugin, PluginSet};
use crate::shadow::Verdict;
use tollgate_admission::text::{Limit, one_line};

/// The result of all mutators.
pub(super) struct Mutated {
    pub(super) reports: Vec<Report>,
    /// Turns the request's object into the final object.
    pub(super) patch: Vec<Operation>,
    pub(super) audits: Vec<Audit>,
    pub(super) comparisons: Vec<Comparison>,
    pub(super) passed_over: Vec<PassedOver>,
}

/// Why the mutators give no answer.
pub(super) enum MutateError {
    /// The host is overloaded.
    Overload(Overload),
    /// The merged patch failed verification. This is a defect of the host, and the patch is never sent.
    Unproven(&'static str),
}

/// The inputs of every call in the chain.
struct Round<'r> {
    engine: &'r Engine,
    metrics: &'r Metrics,
    plugins: &'r PluginSet,
    templates: &'r Templates<'r>,
    deadline: Instant,
    max_depth: u32,
}

/// The state of the chain after the mutators called so far.
struct Chain {
    /// Whether a change so far was more than [`Effort::SMALL`], or had many operations.
    heavy: bool,
    request: Arc<AdmissionRequest>,
    original: Option<Json>,
    current: Option<Json>,
    /// The number of changes so far.
    version: u64,
    /// How much of a Secret the mutators that changed the object had read. Member names may contain the content that
    /// they read.
    secrecy: Secrecy,
    provenance: Provenance<usize>,
    /// Memory of the answers and copies that `current` consists of.
    memory: Vec<Account>,
    /// Whether plugins that are called later keep earlier versions of the object.
    keeps_versions: bool,
}

/// A mutation that passed all checks.
struct Change {
    /// Whether it was made with more than [`Effort::SMALL`].
    heavy: bool,
    after: Json,
    operations: Vec<Operation>,
    /// Memory of `after`, without the parts that it shares with the previous object.
    memory: Account,
    /// Whether `after` shares nothing with the previous object.
    is_whole: bool,
}

/// How much work a comparison or a patch may be.
#[derive(Clone, Copy)]
struct Effort {
    /// Most steps of applying operations, of a few nanoseconds each.
    most_steps: usize,
    /// Most values that the search for differences looks at.
    most_values: usize,
}

/// The result of one mutator's answer, before it joins the chain.
struct Applied {
    ended: Result<Ended, Fault>,
    change: Option<Change>,
    /// Whether the answer copies what counts as a Secret's content, or its outcome reveals something about that
    /// content.
    goes_by_content: bool,
}

/// A mutator's answer after all checks.
struct Evaluated {
    ended: Result<Ended, Fault>,
    change: Option<Change>,
    called: Called,
    /// How much of a Secret this mutator knows, and the mutators whose changes it has seen.
    known_secrecy: Secrecy,
}

/// A mutator's answer in a rollout.
struct Rolled<'r> {
    /// The turn of the version whose answer counts.
    turn: Turn<'r>,
    evaluated: Evaluated,
    /// The version that answers with the reason, and whether its answer still has to be counted.
    why: Option<(Arc<str>, bool)>,
}

/// Limits for applying one plugin's patch, which fuel does not meter. Within them, a patch takes about 100 ms at
/// worst.
const LIMITS: ApplyLimits = ApplyLimits {
    max_depth: 0,
    max_added_nodes: 500_000,
    max_added_bytes: 16 << 20,
    max_steps: 10_000_000,
};
/// Fault of a mutator that would move a Secret's content to where it could be read unnoticed. The text is the host's
/// and contains nothing from the plugin.
const SPREADS_CONTENT: &str = "the plugin read, tested or copied the content of a Secret and changed more than its \
    data, stringData and annotations; a plugin that labels Secrets must not read, test or copy their content \
    (`get-json` of the whole object reads it)";
/// A patch with more operations is applied where other requests can continue meanwhile.
const HEAVY_OPERATIONS: usize = 256;
/// An answer with this many JSON values in all, or more, is applied there too.
const HEAVY_NODES: usize = 5_000;
/// No limits, for the host's own patch.
const UNLIMITED: ApplyLimits = ApplyLimits {
    max_depth: u32::MAX,
    max_added_nodes: usize::MAX,
    max_added_bytes: usize::MAX,
    max_steps: usize::MAX,
};

/// Runs every mutator that matches. `only` limits the run to one plugin.
pub(super) async fn mutate(
    engine: &Engine,
    metrics: &Metrics,
    plugins: &PluginSet,
    only: Option<&str>,
    request: &Arc<AdmissionRequest>,
    deadline: Instant,
    max_depth: u32,
) -> Result<Mutated, MutateError> {
    let mut chain = Chain {
        heavy: false,
        request: request.clone(),
        original: request.object.clone(),
        current: request.object.clone(),
        version: 0,
        secrecy: Secrecy::of(request.is_secret()),
        provenance: Provenance::new(),
        memory: Vec::new(),
        keeps_versions: false,
    };
    let templates = Templates::of(request);
    let round = Round {
        engine,
        metrics,
        plugins,
        templates: &templates,
        deadline,
        max_depth,
    };
    let mut reports: Vec<Report> = Vec::new();
    let mut audits = Vec::new();
    let mut comparisons = Vec::new();
    let mut passed_over = Vec::new();
    let mut seats = Vec::new();
    let mut after_chain: Vec<AfterChain<'_>> = Vec::new();
    for (index, plugin) in plugins.iter().enumerate() {
        if !plugin.is_asked_by(only) {
            continue;
        }
        let answering = plugins.answering(plugin, request.namespace.as_deref());
        let plugin = answering.plugin;
        let turn = Turn {
            plugin,
            phase: Phase::Mutate,
        };
        let object = chain.current.as_ref();
        let (beginning, pod) = templates.begin(&turn, engine, object, deadline).await;
        match beginning {
            Beginning::Call => {}
            Beginning::NotCalled(mismatch) => {
                passed_over.extend(PassedOver::by_match(index, mismatch));
                continue;
            }
            Beginning::Report(report) => {
                let settled = is_final(&report);
                reports.push(*report);
                if settled {
                    break;
                }
                continue;
            }
        }
        let pod = pod.as_deref();
        let subject = chain.subject(pod);
        let shadow = answering.shadow(plugins);
        chain.keeps_versions |= plugin.config.mode == Mode::Audit || shadow.is_some();
        chain.keeps_versions |= pod.is_some();
        if plugin.config.mode == Mode::Audit {
            audits.push(Audit {
                plugin: plugin.clone(),
                phase: Phase::Mutate,
                subject,
                shadow: shadow.cloned(),
            });
            continue;
        }
        let input = answering.rollout.map(|_| subject.clone());
        chain.keeps_versions |= input.is_some();
        let shadowed = shadow.map(|shadow| (shadow.clone(), subject.clone()));
        let until = answering.deadline(deadline);
        let answered = turn.call(engine, &subject, until).await;
        // Otherwise the chain would copy what it changes.
        drop(subject);
        let answered = match answered {
            Ok(answered) => answered,
            // A plugin in mode warn has no effect on the verdict, so the request passes without its answer.
            Err(_) if plugin.config.mode == Mode::Warn => {
                metrics.audit_dropped();
                passed_over.push(PassedOver::new(index, Reason::NoRoom));
                continue;
            }
            Err(overload) => return Err(MutateError::Overload(overload)),
        };
        let evaluated = chain.evaluate(&turn, answered, pod, max_depth);
        comparisons.extend(shadowed.map(|(shadow, subject)| Comparison {
            shadow,
            phase: Phase::Mutate,
            live: evaluated.verdict(subject.object.as_ref()),
            live_fuel: evaluated.called.fuel,
            subject,
        }));
        let current = chain.current.as_ref();
        let evaluated = evaluated.into_workload(pod, current, max_depth);
        let Rolled {
            turn,
            evaluated,
            why,
        } = match (answering.rollout, &input) {
            (Some(_), Some(input)) => {
                let following = round.fall_back(&chain, answering, evaluated, input.clone(), pod);
                // Boxed, because few plugins have a rollout.
                Box::pin(following).await?
            }
            _ => Rolled {
                turn,
                evaluated,
                why: None,
            },
        };
        let (ended, plugin) = (evaluated.outcome(), turn.plugin);
        let has_new_answer = why.as_ref().is_none_or(|(_, answers_new)| *answers_new);
        let mut report = chain.take(&turn, index, plugins, metrics, evaluated, pod);
        report.rollout = why.map(|(text, _)| text);
        if let (Some(rollout), Some(subject)) = (answering.rollout, input)
            && has_new_answer
        {
            after_chain.push(AfterChain {
                rollout,
                what: rollout.follow_up(ended),
                subject,
                report: reports.len(),
            });
        }
        let settled = is_final(&report);
        if report.mode == Mode::Enforce
            && plugin.config.reinvocation_policy == ReinvocationPolicy::IfNeeded
        {
            chain.keeps_versions = true;
            seats.push(reinvoke::Seat::new(plugin, index, reports.len(), &chain));
        }
        reports.push(report);
        if settled {
            break;
        }
    }
    // If the request is denied anyway, second calls are not worth their cost.
    if !seats.is_empty() && !reports.iter().any(Report::refuses) {
        reinvoke::reinvoke(&round, &mut chain, seats, &mut reports).await?;
    }
    follow_mutators(
        after_chain,
        engine,
        metrics,
        deadline,
        max_depth,
        &mut reports,
    )
    .await;
    let (proof, _) = inline_if_small(chain.heavy, |effort| chain.prove(effort));
    let patch = proof.map_err(MutateError::Unproven)?;
    Ok(Mutated {
        reports,
        patch,
        audits,
        comparisons,
        passed_over,
    })
}

// === impl Round ===

impl<'r> Round<'r> {
    /// Follows up on the first call in a rollout: if the new version faulted, the old version answers.
    async fn fall_back(
        &self,
        chain: &Chain,
        answering: Answering<'r>,
        evaluated: Evaluated,
        subject: Subject,
        pod: Option<&Subject>,
    ) -> Result<Rolled<'r>, MutateError> {
        let phase = Phase::Mutate;
        let turn = Turn {
            plugin: answering.plugin,
            phase,
        };
        let Some(rollout) = answering.rollout else {
            let why = None;
            return Ok(Rolled {
                turn,
                evaluated,
                why,
            });
        };
        if !matches!(rollout.follow_up(evaluated.outcome()), FollowUp::CallOld) {
            let why = Some((rollout.why(), true));
            return Ok(Rolled {
                turn,
                evaluated,
                why,
            });
        }
        rollout.faulted();
        // Counts and logs the fault.
        let fault = turn.report(&subject.request, evaluated.called, evaluated.ended);
        let why = rollout.why_old(kind(&fault.ended));
        let turn = Turn {
            plugin: rollout.old,
            phase,
        };
        let answered = turn.call(self.engine, &subject, self.deadline).await;
        drop(subject);
        let answered = answered.map_err(MutateError::Overload)?;
        let evaluated = chain.evaluate(&turn, answered, pod, self.max_depth);
        let current = chain.current.as_ref();
        let evaluated = evaluated.into_workload(pod, current, self.max_depth);
        rollout.old_called(evaluated.called.cpu);
        Ok(Rolled {
            turn,
            evaluated,
            why: Some((why, false)),
        })
    }
}

// === impl Chain ===

impl Chain {
    /// Returns the input of a call: the current object, or the Pod that its template would become.
    fn subject(&self, pod: Option<&Subject>) -> Subject {
        pod.cloned().unwrap_or_else(|| Subject {
            request: self.request.clone(),
            object: self.current.clone(),
        })
    }

    /// Reads a plugin's answer, given the object that the plugin got.
    fn evaluate(
        &self,
        turn: &Turn<'_>,
        (answer, called): Answered,
        pod: Option<&Subject>,
        max_depth: u32,
    ) -> Evaluated {
        let before = pod.map_or(self.current.as_ref(), |pod| pod.object.as_ref());
        let config = &turn.plugin.config;
        let applied = evaluate(config, answer, before, called.secrecy, max_depth);
        Evaluated::new(applied, called, self.secrecy)
    }

    /// Adds a plugin's answer to the chain and returns its report.
    fn take(
        &mut self,
        turn: &Turn<'_>,
        index: usize,
        plugins: &PluginSet,
        metrics: &Metrics,
        evaluated: Evaluated,
        pod: Option<&Subject>,
    ) -> Report {
        let Evaluated {
            ended,
            change,
            called,
            known_secrecy,
        } = evaluated;
        let request = pod.map_or_else(|| self.request.clone(), |pod| pod.request.clone());
        let counts = turn.plugin.config.mode == Mode::Enforce;
        let conflicts = match (&change, self.current.clone()) {
            (Some(change), Some(before)) if counts => self.conflicts(turn, index, &before, change),
            _ => Vec::new(),
        };
        let shown = |pointer: &str| known_secrecy.pointer(pointer, self.original.as_ref());
        let conflicts: Vec<(String, PluginName)> = conflicts
            .iter()
            .filter_map(|conflict| {
                let earlier = plugins.iter().nth(conflict.earlier)?;
                Some((shown(conflict.path.as_str()), earlier.config.name.clone()))
            })
            .collect();
        if !conflicts.is_empty() && turn.plugin.config.conflicts == Conflicts::Deny {
            let what = refused(&conflicts);
            return turn.report(&request, called, Err(Fault::Conflict { what }));
        }
        let mut report = turn.report(&request, called, ended);
        let Some(change) = change.filter(|_| counts && self.current.is_some()) else {
            return report;
        };
        report.changed = change
            .operations
            .iter()
            .map(|operation| shown(operation.path().as_str()))
            .collect();
        for (_, earlier) in &conflicts {
            metrics.conflict(turn.plugin.config.name.as_str(), earlier.as_str());
        }
        report.conflicts = conflicts;
        if change.is_whole && !self.keeps_versions {
            self.memory.clear();
        }
        self.memory.push(change.memory);
        self.current = Some(change.after);
        self.version += 1;
        self.secrecy = known_secrecy;
        report
    }

    /// Finds where a change undoes the work of others. The change is recorded, unless `conflicts: deny` rejects it.
    fn conflicts(
        &mut self,
        turn: &Turn<'_>,
        index: usize,
        before: &Json,
        change: &Change,
    ) -> Vec<Conflict<usize>> {
        let is_last = turn.plugin.config.conflicts == Conflicts::Last;
        let many = change.operations.len() > HEAVY_OPERATIONS;
        self.heavy |= change.heavy || many;
        // `conflicts: deny` copies the whole record.
        let heavy = change.heavy || many || (self.heavy && !is_last);
        blocking_if(heavy, || {
            if is_last {
                return self.provenance.record(index, before, &change.operations);
            }
            let mut attempt = self.provenance.clone();
            let conflicts = attempt.record(index, before, &change.operations);
            if conflicts.is_empty() {
                self.provenance = attempt;
            }
            conflicts
        })
    }

    /// Returns the merged patch, after checking that it turns the original object into the final one. Returns nothing if
    /// that takes more than the effort.
    fn prove(&self, effort: Effort) -> Option<Result<Vec<Operation>, &'static str>> {
        let (Some(original), Some(current)) = (&self.original, &self.current) else {
            return Some(Ok(Vec::new()));
        };
        if original.is_same(current) {
            return Some(Ok(Vec::new()));
        }
        let patch = diff_within(original, current, effort.most_values)?;
        let limits = ApplyLimits {
            max_steps: effort.most_steps,
            ..UNLIMITED
        };
        match apply(original, &patch, &limits) {
            Ok(result) if result == *current => Some(Ok(patch)),
            // The error names no place, because a member's name can contain a Secret's content.
            Ok(_) => Some(Err("the merged patch does not produce the final object")),
            Err(error) if effort.is_exceeded_by(&error) => None,
            Err(_) => Some(Err("the merged patch cannot be applied")),
        }
    }
}

// === impl Effort ===

impl Effort {
    /// Some hundred microseconds of work, which a serving thread may do.
    const SMALL: Self = Self {
        most_steps: 20_000,
        most_values: 5_000,
    };
    const ANY: Self = Self {
        most_steps: usize::MAX,
        most_values: usize::MAX,
    };

    fn is_exceeded_by(self, error: &ApplyError) -> bool {
        matches!(error.kind, ApplyErrorKind::TooManySteps { max_steps } if max_steps == self.most_steps)
    }
}

// === impl Evaluated ===

impl Evaluated {
    /// `earlier` is how much of a Secret the mutators had read whose changes are in the object.
    fn new(applied: Applied, called: Called, earlier: Secrecy) -> Self {
        let secrecy = applied.secrecy(called.secrecy);
        let Applied { ended, change, .. } = applied;
        // Names made by an earlier mutator are withheld in the same way as the plugin's own.
        let known_secrecy = secrecy.max(earlier);
        let (ended, change) = match change {
            Some(change) if !change.is_allowed(secrecy) => {
                let what = SPREADS_CONTENT.to_owned();
                (Err(Fault::BadPatch { what }), None)
            }
            change if known_secrecy.withholds() => {
                (ended.map_err(Fault::without_plugins_words), change)
            }
            change => (ended, change),
        };
        Self {
            ended,
            change,
            called,
            known_secrecy,
        }
    }

    /// Returns how the call ended, as far as a rollout looks at it.
    fn outcome(&self) -> Outcome {
        self.ended.as_ref().map_or(Outcome::Faults, outcome)
    }

    /// Returns the verdict on this object alone.
    fn verdict(&self, before: Option<&Json>) -> Verdict {
        let after = self.change.as_ref().map(|change| &change.after);
        Verdict::new(&self.ended, after.or(before).cloned(), self.known_secrecy)
    }
}

// === impl Applied ===

impl Applied {
    fn without_change(ended: Result<Ended, Fault>) -> Self {
        Self {
            ended,
            change: None,
            goes_by_content: false,
        }
    }

    /// Returns how much of a Secret the mutator knows. `read` is how much it had read before it answered.
    fn secrecy(&self, read: Secrecy) -> Secrecy {
        if self.goes_by_content {
            read.going_by_content()
        } else {
            read
        }
    }
}

// === impl Change ===

impl Change {
    /// Whether the change spreads nothing of the Secrets that the mutator has read.
    fn is_allowed(&self, secrecy: Secrecy) -> bool {
        let mut operations = self.operations.iter();
        operations.all(|operation| secrecy.may_write(operation.path().as_str()))
    }
}

/// Returns the nesting depth at the place of an operation. The rest of the object is unchanged.
fn depth_of(operation: &Operation) -> u32 {
    let above = operation
        .path()
        .as_str()
        .bytes()
        .filter(|byte| *byte == b'/')
        .count();
    let below = operation.value().map_or(0, Json::depth);
    u32::try_from(above)
        .unwrap_or(u32::MAX)
        .saturating_add(below)
}

fn too_deep(depth: u32, max_depth: u32) -> Fault {
    Fault::BadPatch {
        what: format!(
            "the patched object would be nested {depth} levels deep; at most {max_depth} are allowed \
             (requests.maxDepth)"
        ),
    }
}

/// Builds the fault text for a mutator with `conflicts: deny`. It names the first places.
fn refused(conflicts: &[(String, PluginName)]) -> String {
    const MOST: usize = 5;
    let places: Vec<String> = conflicts
        .iter()
        .take(MOST)
        .map(|(place, whose)| {
            let place = one_line(place, Limit::Bytes(256));
            format!("{place}, written by {whose}")
        })
        .collect();
    let more = match conflicts.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!(", and {more} more places"),
    };
    format!(
        "it would change {}{more} (conflicts: deny)",
        places.join("; ")
    )
}

/// Evaluates a mutator's answer, and returns the change if there is one. `secrecy` is how much of a Secret it had
/// read.
fn evaluate(
    config: &PluginConfig,
    answer: Result<Answer, Fault>,
    before: Option<&Json>,
    secrecy: Secrecy,
    max_depth: u32,
) -> Applied {
    let (mutation, memory) = match answer {
        Err(fault) => return Applied::without_change(Err(fault)),
        Ok(Answer::Unchanged) => return Applied::without_change(Ok(Ended::Unchanged)),
        Ok(Answer::Allow) => {
            let what = "a mutator answered with a verdict".to_owned();
            return Applied::without_change(Err(Fault::ContractViolation { what }));
        }
        Ok(Answer::Deny(denial)) => return Applied::without_change(Ok(Ended::Denied(denial))),
        Ok(Answer::Mutation(mutation, memory)) => (mutation, memory),
    };
    let goes_by_content = match &mutation {
        _ if secrecy == Secrecy::Open => false,
        Mutation::Operations(operations) => operations.iter().any(goes_by_content),
        // A merge patch applies to any object, so it reveals nothing.
        Mutation::MergePatch(_) => false,
        // The host compares a whole object with the current one. A fault would reveal which fields the current one
        // has.
        Mutation::Object(_) => true,
    };
    let is_heavy = is_heavy(&mutation, before);
    let (changed, heavy) = inline_if_small(is_heavy, |effort| {
        let held = memory.bytes();
        let changed = change(config, &mutation, &memory, before, max_depth, effort);
        if changed.is_none() {
            memory.give_back(memory.bytes() - held);
        }
        changed
    });
    let (ended, change) = match changed {
        Ok(Some(change)) => (Ok(Ended::Patched), Some(Change { heavy, ..change })),
        Ok(None) => (Ok(Ended::Unchanged), None),
        Err(fault) => (Err(fault), None),
    };
    Applied {
        ended,
        change,
        goes_by_content,
    }
}

/// Does work on this thread if it is small. Otherwise, the runtime first moves its other tasks to another thread. Also
/// returns whether it has moved them.
///
/// `work` returns nothing if it takes more than the effort that it is given. It then begins anew, after the move.
fn inline_if_small<T>(is_heavy: bool, mut work: impl FnMut(Effort) -> Option<T>) -> (T, bool) {
    let done = (!is_heavy).then(|| work(Effort::SMALL)).flatten();
    if let Some(done) = done {
        return (done, false);
    }
    let done = blocking_if(true, || work(Effort::ANY));
    (done.expect("nothing takes more than any effort"), true)
}

/// Whether applying and comparing this mutation is likely to take more than a millisecond.
///
/// A whole object shares nothing with the one that it replaces, so it is compared in full. A merge patch copies what it
/// changes, and its steps are not counted. The same goes for the way to a value that an operation reads.
fn is_heavy(mutation: &Mutation, before: Option<&Json>) -> bool {
    let is_large = |json: &Json| json.count_nodes(HEAVY_NODES) >= HEAVY_NODES;
    match mutation {
        Mutation::Operations(operations) => {
            let values = operations.iter().filter_map(Operation::value);
            let counted = values.scan(0, |sum, value| {
                *sum += value.count_nodes(HEAVY_NODES);
                Some(*sum)
            });
            // Finding a value to read builds the containers on its way, and counts as a step for each.
            let read = |operation: &Operation| !is_write(operation);
            operations.len() > HEAVY_OPERATIONS
                || counted.into_iter().any(|sum| sum >= HEAVY_NODES)
                || (operations.iter().any(read) && before.is_some_and(is_large))
        }
        Mutation::MergePatch(json) | Mutation::Object(json) => {
            is_large(json) || before.is_some_and(is_large)
        }
    }
}

/// Whether an operation reads nothing of the object. Applying it counts the containers that it changes.
fn is_write(operation: &Operation) -> bool {
    match operation {
        Operation::Add { .. } | Operation::Replace { .. } | Operation::Remove { .. } => true,
        Operation::Move { .. } | Operation::Copy { .. } | Operation::Test { .. } => false,
    }
}

/// Applies a mutation and checks the result. Returns nothing if that takes more than the effort.
fn change(
    config: &PluginConfig,
    mutation: &Mutation,
    memory: &Account,
    before: Option<&Json>,
    max_depth: u32,
    effort: Effort,
) -> Option<Result<Option<Change>, Fault>> {
    if matches!(mutation, Mutation::Operations(operations) if operations.is_empty()) {
        return Some(Ok(None));
    }
    let bad = |what: String| Fault::BadPatch { what };
    let Some(before) = before else {
        let what = "cannot patch a request without an object (DELETE); answer `unchanged`";
        return Some(Err(bad(what.to_owned())));
    };
    let no_room = |error: NoRoom| Fault::OutputTooLarge {
        what: format!("its patch cannot be applied: {error}"),
    };
    let after = match mutation {
        Mutation::Operations(operations) => {
            let limits = ApplyLimits {
                max_depth,
                max_steps: effort.most_steps.min(LIMITS.max_steps),
                ..LIMITS
            };
            match apply_within(before, operations, &limits, memory) {
                Err(error) if effort.is_exceeded_by(&error) => return None,
                applied => applied.map_err(|error| match error.kind {
                    ApplyErrorKind::NoRoom(error) => no_room(error),
                    _ => bad(chain(&error)),
                }),
            }
        }
        Mutation::MergePatch(patch) => merge_patch_within(before, patch, memory).map_err(no_room),
        Mutation::Object(object) => Ok(object.clone()),
    };
    let after = match after {
        Ok(after) => after,
        Err(fault) => return Some(Err(fault)),
    };
    let operations = diff_within(before, &after, effort.most_values)?;
    if operations.is_empty() {
        return Some(Ok(None));
    }
    let is_whole = matches!(mutation, Mutation::Object(_));
    let form = match is_whole {
        true => AnswerForm::WholeObject {
            allow_removals: config.allow_removals,
        },
        false => AnswerForm::Operations,
    };
    Some(
        permitted(before, &after, &operations, form, max_depth).map(|()| {
            Some(Change {
                heavy: false,
                after,
                operations,
                memory: memory.clone(),
                is_whole,
            })
        }),
    )
}

/// Checks a change that was made.
fn permitted(
    before: &Json,
    after: &Json,
    operations: &[Operation],
    form: AnswerForm,
    max_depth: u32,
) -> Result<(), Fault> {
    let depth = operations.iter().map(depth_of).max().unwrap_or_default();
    if depth > max_depth {
        return Err(too_deep(depth, max_depth));
    }
    check(before, after, operations, form).map_err(|error| {
        let what = chain(&error);
        match error.is_lossy() {
            true => Fault::LossyObject { what },
            false => Fault::BadPatch { what },
        }
    })
}

/// Runs a mutator outside the chain, and returns its report and its verdict.
pub(super) async fn alone(
    engine: &Engine,
    plugin: &Arc<Plugin>,
    subject: Subject,
    deadline: Instant,
    max_depth: u32,
) -> Result<(Report, Verdict), Overload> {
    let turn = Turn {
        plugin,
        phase: Phase::Mutate,
    };
    let (request, before) = (subject.request.clone(), subject.object.clone());
    let (answer, called) = turn.call(engine, &subject, deadline).await?;
    drop(subject);
    let secrecy = called.secrecy;
    let applied = evaluate(&plugin.config, answer, before.as_ref(), secrecy, max_depth);
    // It is no longer known what earlier mutators made their names of, so the host assumes the worst.
    let has_others_names = request.is_secret() && request.object != before;
    let earlier = if has_others_names {
        Secrecy::Broken
    } else {
        called.secrecy
    };
    let evaluated = Evaluated::new(applied, called, earlier);
    let verdict = evaluated.verdict(before.as_ref());
    let report = turn.report(&request, evaluated.called, evaluated.ended);
    Ok((report, verdict))
}

#[cfg(test)]
mod tests;
