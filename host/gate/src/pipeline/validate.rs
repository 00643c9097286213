//! Runs all validators on the object as it came in.

mod caller;
mod existing;
pub(super) mod group;

#[doc(hidden)]
pub use existing::fuzzing;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::Semaphore;
use tollgate_admission::Phase;
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_config::Mode;
use tollgate_engine::{Answer, Engine, Fault, Overload, Subject};
use tollgate_telemetry::metrics::Metrics;

use super::audit::Audit;
use super::compare::Comparison;
use super::outcome::{Ended, Report};
use super::passed_over::{PassedOver, Reason};
use super::rollout::{Followed, follow_validator};
use super::template::{Shown, Templates};
use super::turn::{Answered, Beginning, Called, Later, Turn, verdict};
use crate::plugin::{Answering, Plugin, PluginSet};
use crate::shadow::Verdict;
use caller::Caller;
use existing::Excusing;

/// The results of all validators.
#[derive(Default)]
pub(super) struct Validated {
    pub(super) reports: Vec<Report>,
    pub(super) audits: Vec<Audit>,
    pub(super) comparisons: Vec<Comparison>,
    pub(super) passed_over: Vec<PassedOver>,
}

/// The results that are there, while some validators are still under way.
struct Results {
    validated: Validated,
    /// Results that came before that of an earlier plugin, with the plugins' indexes, to restore the configured order. There
    /// are none if all plugins are called and none pauses, or if all answers are known.
    out_of_order: Vec<(usize, Evaluated)>,
}

/// The result of one validator.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are reports, and a box would be one allocation more in each call"
)]
enum Evaluated {
    /// The report, the comparison to make, and the report of a version that only warns. The plugin was called, or was
    /// not called for a reason that is reported.
    Reported(Report, Option<Comparison>, Option<Box<Report>>),
    /// The plugin is in mode audit, so it is called after the answer.
    Audited(Audit),
    /// The plugin was passed over.
    PassedOver(Option<PassedOver>),
}

/// What the evaluation of one validator begins with, and how it has come out. It stays where it is, because it takes
/// hundreds of bytes.
struct Evaluation<'r> {
    index: usize,
    answering: Answering<'r>,
    /// The pod template, if the plugin gets that instead of the object.
    pod: Option<Arc<Subject>>,
    /// The work to do before it is known whether the plugin is called.
    later: Option<Later>,
    known: Known,
    step: Step,
}

/// How far one validator has come.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all have answered, and a box would be one allocation more in each call"
)]
enum Step {
    /// The plugin has not answered.
    Begun,
    /// The plugin has answered, and its turn has no further steps unless the answer needs some.
    Answered(Answered),
    /// The plugin has its result. Boxed, because nearly all have answered.
    Ended(Box<Evaluated>),
}

/// The evaluation of a validator that has taken a step.
type Stepped<'s, 'r> = Result<&'s mut Evaluation<'r>, Overload>;

/// Runs the calls of validators.
type ValidatorCaller<'s, 'r> = Caller<'s, &'s mut Evaluation<'r>, Stepped<'s, 'r>>;

/// What is known of a validator's answer when its turn goes on. It is small, because it is moved.
enum Known {
    /// This answer of an earlier call.
    Answer(Box<Answered>),
    /// Perhaps something, which the call finds out.
    Perhaps,
    /// Nothing, and the turn has no further steps after the call unless the answer needs some.
    Nothing,
}

/// The inputs of every validator's call.
#[derive(Clone, Copy)]
struct Round<'r> {
    engine: &'r Engine,
    metrics: &'r Metrics,
    plugins: &'r PluginSet,
    subject: &'r Subject,
    deadline: Instant,
    first_turns: &'r FirstTurns,
}

/// Whether every validator has had its first turn. A second call, and the host's own work for it, waits until then.
/// Otherwise it could use up the time of a plugin that has not begun.
pub(super) struct FirstTurns(Semaphore);

/// Runs every validator that matches. `only` limits the run to one plugin.
///
/// The host takes all plugins through one step before the next: it finds out which plugins to call, calls them, and
/// reports their answers. The code of all steps together is larger than a processor's first cache for code. With one
/// plugin after another, each would fetch all of it again.
///
/// All calls run concurrently on this task. A call that finishes at its first poll adds no overhead. A longer call
/// yields to the others at every tick.
///
/// Nearly all calls finish at their first poll, so they reuse the memory of one [`Caller`] one after another. This
/// memory stays in the processor's caches.
pub(super) async fn validate(
    engine: &Engine,
    metrics: &Metrics,
    plugins: &PluginSet,
    only: Option<&str>,
    request: &Arc<AdmissionRequest>,
    deadline: Instant,
) -> Result<Validated, Overload> {
    let subject = Subject {
        request: request.clone(),
        object: request.object.clone(),
    };
    let templates = Templates::of(request);
    let first_turns = FirstTurns::ahead();
    let round = Round {
        engine,
        metrics,
        plugins,
        subject: &subject,
        deadline,
        first_turns: &first_turns,
    };
    let mut results = Results {
        validated: Validated::with_room_for(plugins, only),
        out_of_order: Vec::new(),
    };
    let mut evaluations = Vec::new();
    for (index, plugin) in plugins.iter().enumerate() {
        if !plugin.is_asked_by(only) {
            continue;
        }
        let answering = plugins.answering(plugin, request.namespace.as_deref());
        let is_next = evaluations.is_empty();
        evaluations.extend(round.begin(index, answering, &templates, &mut results, is_next));
    }

    let mut under_way = FuturesUnordered::new();
    let mut first = Vec::with_capacity(evaluations.len());
    let mut idle = None;
    for evaluation in &mut evaluations {
        let mut caller = idle.take().unwrap_or_else(|| round.caller());
        caller.begin(evaluation);
        match poll_fn(|context| Poll::Ready(caller.poll_unpin(context))).await {
            Poll::Ready(Ok(evaluation)) => {
                idle = Some(caller);
                first.push(evaluation);
            }
            Poll::Ready(Err(overload)) => {
                // The calls before are counted and logged all the same.
                for evaluation in first {
                    drop(round.end(evaluation, &mut results, false));
                }
                return Err(overload);
            }
            Poll::Pending => under_way.push(caller),
        }
    }
    first_turns.are_over();

    for evaluation in first {
        let is_next = under_way.is_empty();
        under_way.extend(round.end(evaluation, &mut results, is_next));
    }
    while let Some(evaluation) = under_way.next().await {
        under_way.extend(round.end(evaluation?, &mut results, false));
    }
    Ok(results.in_order())
}

// === impl Results ===

impl Results {
    /// Adds the result of a plugin. `is_next` means that no earlier plugin is under way, or waits for its call or its report.
    fn add(&mut self, index: usize, evaluated: Evaluated, is_next: bool) {
        if is_next && self.out_of_order.is_empty() {
            self.validated.add(evaluated);
        } else {
            self.out_of_order.push((index, evaluated));
        }
    }

    /// Adds the report of a plugin that has nothing else. See [`Results::add`].
    fn report(&mut self, index: usize, report: Report, is_next: bool) {
        if is_next && self.out_of_order.is_empty() {
            self.validated.reports.push(report);
        } else {
            let evaluated = Evaluated::Reported(report, None, None);
            self.out_of_order.push((index, evaluated));
        }
    }

    fn in_order(mut self) -> Validated {
        self.out_of_order.sort_by_key(|(index, _)| *index);
        for (_, evaluated) in self.out_of_order {
            self.validated.add(evaluated);
        }
        self.validated
    }
}

// === impl Validated ===

impl Validated {
    /// Has room for the reports of as many plugins as most sets have.
    fn with_room_for(plugins: &PluginSet, only: Option<&str>) -> Self {
        const MOST: usize = 32;
        let called = match only {
            Some(_) => 1,
            None => plugins.iter().size_hint().0.min(MOST),
        };
        Self {
            reports: Vec::with_capacity(called),
            ..Self::default()
        }
    }

    /// Adds the result of the next plugin in the configured order.
    fn add(&mut self, evaluated: Evaluated) {
        match evaluated {
            Evaluated::Reported(report, comparison, warned) => {
                self.reports.push(report);
                self.reports.extend(warned.map(|warned| *warned));
                self.comparisons.extend(comparison);
            }
            Evaluated::Audited(audit) => self.audits.push(audit),
            Evaluated::PassedOver(passed) => self.passed_over.extend(passed),
        }
    }
}

// === impl Round ===

impl<'r> Round<'r> {
    /// Returns the inputs of the call of a plugin that gets a pod template. Without a Pod, the plugin gets the object.
    fn about<'p>(self, pod: Option<&'p Subject>) -> Round<'p>
    where
        'r: 'p,
    {
        Round {
            subject: pod.unwrap_or(self.subject),
            ..self
        }
    }

    /// Makes a caller for validators of this review.
    fn caller<'s>(self) -> ValidatorCaller<'s, 'r>
    where
        'r: 's,
    {
        Caller::new(move |evaluation| self.evaluate(evaluation))
    }

    /// Begins the turn of a validator. Returns what to evaluate, unless the validator already has its result.
    fn begin(
        self,
        index: usize,
        answering: Answering<'r>,
        templates: &Templates<'_>,
        results: &mut Results,
        is_next: bool,
    ) -> Option<Evaluation<'r>> {
        let turn = Turn::validating(answering.plugin);
        let Shown { pod, settled } = templates.show(&turn, self.subject.object.as_ref());
        let begun = match settled {
            Some(settled) => Ok(settled),
            None => {
                let subject = pod.as_deref().unwrap_or(self.subject);
                turn.begin_inline(self.engine, &subject.request, subject.object.as_ref())
            }
        };
        let round = self.about(pod.as_deref());
        let later = match begun {
            Ok(Beginning::Call) if turn.plugin.config.mode == Mode::Audit => {
                results.validated.audits.push(round.audit(answering));
                return None;
            }
            Ok(Beginning::Call) => None,
            Ok(Beginning::NotCalled(mismatch)) => {
                let passed_over = PassedOver::by_match(index, mismatch);
                results.validated.passed_over.extend(passed_over);
                return None;
            }
            Ok(Beginning::Report(report)) => {
                results.report(index, *report, is_next);
                return None;
            }
            Err(later) => Some(later),
        };
        let known = match &later {
            None => round.recall(&turn, answering, index, results, is_next)?,
            Some(_) => Known::Perhaps,
        };
        Some(Evaluation {
            index,
            answering,
            pod,
            later,
            known,
            step: Step::Begun,
        })
    }

    /// Reports a validator whose answer is known from an earlier call. This needs no future of a call, which takes
    /// kilobytes. Returns what is known if the plugin's turn goes on.
    fn recall(
        &self,
        turn: &Turn<'_>,
        answering: Answering<'_>,
        index: usize,
        results: &mut Results,
        is_next: bool,
    ) -> Option<Known> {
        let has_further_steps = answering.rollout.is_some()
            || turn.plugin.group.is_some()
            || answering.shadow(self.plugins).is_some()
            || self.subject.request.observed.is_on();
        if has_further_steps {
            return Some(Known::Perhaps);
        }
        match turn.recall(self.engine, self.subject, self.deadline) {
            Some(answered) => self.settle(turn, answered, index, results, is_next),
            None => Some(Known::Nothing),
        }
    }

    /// Reports a validator that has answered and has no further steps. Returns its answer if it is a denial that may be
    /// excused, which takes further steps.
    fn settle(
        &self,
        turn: &Turn<'_>,
        (answer, called): Answered,
        index: usize,
        results: &mut Results,
        is_next: bool,
    ) -> Option<Known> {
        let request = &self.subject.request;
        if !matches!(answer, Ok(Answer::Allow)) && Excusing::of(turn.plugin, request).is_some() {
            return Some(Known::Answer(Box::new((answer, called))));
        }
        let ended = verdict(answer).map(|denial| denial.map_or(Ended::Allowed, Ended::Denied));
        results.report(index, turn.report(request, called, ended), is_next);
        None
    }

    /// Ends the turn of a validator that has taken its first step. Returns a caller if that takes a second call.
    fn end<'s>(
        self,
        evaluation: &'s mut Evaluation<'r>,
        results: &mut Results,
        is_next: bool,
    ) -> Option<ValidatorCaller<'s, 'r>> {
        let index = evaluation.index;
        let answered = match std::mem::replace(&mut evaluation.step, Step::Begun) {
            // Every step has a result. Without one, the plugin's failure policy decides, and not silence.
            Step::Begun => {
                let what = "the host lost the result of the call".to_owned();
                let called = Called::nothing(&self.subject.request);
                (Err(Fault::EngineError { what }), called)
            }
            Step::Ended(evaluated) => {
                results.add(index, *evaluated, is_next);
                return None;
            }
            Step::Answered(answered) => answered,
        };
        let turn = Turn::validating(evaluation.answering.plugin);
        let round = self.about(evaluation.pod.as_deref());
        evaluation.known = round.settle(&turn, answered, index, results, is_next)?;
        let mut caller = self.caller();
        caller.begin(evaluation);
        Some(caller)
    }

    /// Takes one validator as far as it comes without the other plugins.
    async fn evaluate<'s>(self, evaluation: &'s mut Evaluation<'r>) -> Stepped<'s, 'r> {
        let ended = |evaluated| Step::Ended(Box::new(evaluated));
        let index = evaluation.index;
        let later = evaluation.later.take();
        let pod = evaluation.pod.clone();
        let round = self.about(pod.as_deref());
        let turn = Turn::validating(evaluation.answering.plugin);
        if let Some(later) = later {
            let request = &round.subject.request;
            let object = round.subject.object.as_ref();
            let beginning =
                turn.begin_elsewhere(later, round.engine, request, object, round.deadline);
            let evaluated = match Box::pin(beginning).await {
                Beginning::Call if turn.plugin.config.mode == Mode::Audit => {
                    Some(Evaluated::Audited(round.audit(evaluation.answering)))
                }
                Beginning::Call => None,
                Beginning::NotCalled(mismatch) => {
                    let passed_over = PassedOver::by_match(index, mismatch);
                    Some(Evaluated::PassedOver(passed_over))
                }
                Beginning::Report(report) => Some(Evaluated::Reported(*report, None, None)),
            };
            if let Some(evaluated) = evaluated {
                evaluation.step = ended(evaluated);
                return Ok(evaluation);
            }
        }
        let called = match std::mem::replace(&mut evaluation.known, Known::Nothing) {
            Known::Nothing => {
                let called = turn.call_anew(round.engine, round.subject, round.deadline);
                called.await.map(Step::Answered)
            }
            // Boxed, because few plugins need more than one call.
            known => Box::pin(round.call(evaluation.answering, known))
                .await
                .map(ended),
        };
        evaluation.step = match called {
            Ok(step) => step,
            // If the host has no room, it skips a plugin in mode warn: the plugin's verdict does not affect the request.
            Err(_)
                if turn.plugin.config.mode == Mode::Warn
                    && evaluation.answering.rollout.is_none() =>
            {
                self.metrics.audit_dropped();
                let passed_over = PassedOver::new(index, Reason::NoRoom);
                ended(Evaluated::PassedOver(Some(passed_over)))
            }
            Err(overload) => return Err(overload),
        };
        Ok(evaluation)
    }

    fn audit(&self, answering: Answering<'_>) -> Audit {
        Audit {
            plugin: answering.plugin.clone(),
            phase: Phase::Validate,
            subject: self.subject.clone(),
            shadow: answering.shadow(self.plugins).cloned(),
        }
    }

    /// Runs one validator with all further steps, and returns its report with the comparison to make.
    async fn call(&self, answering: Answering<'_>, known: Known) -> Result<Evaluated, Overload> {
        let shadow = answering.shadow(self.plugins).cloned();
        let (engine, subject, first_turns) = (self.engine, self.subject, self.first_turns);
        let deadline = answering.deadline(self.deadline);
        let turn = Turn::validating(answering.plugin);
        let answered = match known {
            Known::Answer(answered) => *answered,
            Known::Perhaps | Known::Nothing => turn.call(engine, subject, deadline).await?,
        };
        let concluded = conclude(turn, answered, engine, subject, deadline, Some(first_turns));
        let (report, live) = concluded.await?;
        let comparison = shadow.map(|shadow| Comparison {
            shadow,
            phase: Phase::Validate,
            subject: self.subject.clone(),
            live,
            live_fuel: report.cost.fuel,
        });
        let Some(rollout) = answering.rollout else {
            return Ok(Evaluated::Reported(report, comparison, None));
        };
        // Boxed, because few plugins have a rollout.
        let following =
            follow_validator(rollout, engine, subject, self.deadline, first_turns, report);
        let Followed { report, warned } = Box::pin(following).await?;
        Ok(Evaluated::Reported(report, comparison, warned))
    }
}

// === impl FirstTurns ===

impl FirstTurns {
    fn ahead() -> Self {
        Self(Semaphore::new(0))
    }

    fn are_over(&self) {
        self.0.close();
    }

    /// Waits until all validators have had their first turn.
    pub(super) async fn done(&self) {
        // The semaphore never has a permit, and closing it ends every wait.
        let _: Result<_, _> = self.0.acquire().await;
    }
}

/// Runs one validator, and returns its report and its verdict. It is not made to wait for the other validators of a review.
pub(super) async fn run(
    engine: &Engine,
    plugin: &Arc<Plugin>,
    subject: &Subject,
    deadline: Instant,
) -> Result<(Report, Verdict), Overload> {
    let turn = Turn::validating(plugin);
    let answered = turn.call(engine, subject, deadline).await?;
    conclude(turn, answered, engine, subject, deadline, None).await
}

/// Ends the turn of a validator that has answered, and returns its report and its verdict. With `first_turns`, a second
/// call waits until the other validators of the review have had their first turn.
async fn conclude(
    turn: Turn<'_>,
    (answer, mut called): Answered,
    engine: &Engine,
    subject: &Subject,
    deadline: Instant,
    first_turns: Option<&FirstTurns>,
) -> Result<(Report, Verdict), Overload> {
    let (plugin, request) = (turn.plugin, &subject.request);
    let mut existing = None;
    let ended = match verdict(answer) {
        Ok(None) => Ok(Ended::Allowed),
        Ok(Some(denial)) => match Excusing::of(plugin, request) {
            None => Ok(Ended::Denied(denial)),
            Some(excusing) => {
                if let Some(first_turns) = first_turns {
                    first_turns.done().await;
                }
                let split = excusing.split_existing(&turn, engine, denial, deadline, &mut called);
                // Boxed, because this future is as large as the first call's. Without the box, every call would move
                // that much memory.
                let split = Box::pin(split).await?;
                existing = split.existing;
                Ok(split.new.map_or(Ended::Allowed, Ended::Denied))
            }
        },
        Err(fault) => Err(fault),
    };
    if existing.is_some() && matches!(ended, Ok(Ended::Allowed)) {
        plugin.metrics.existing_violation();
    }
    let verdict = Verdict::new(&ended, None, called.secrecy);
    let existing = match &request.template {
        Some(template) => existing.map(|denial| template.locate(denial)),
        None => existing,
    };
    let report = Report {
        existing,
        ..turn.report(request, called, ended)
    };
    Ok((report, verdict))
}
