//! One plugin's turn: calls the plugin, counts and logs the result, and makes the report for the merge.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tollgate_admission::Cost;
use tollgate_admission::Phase;
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_admission::trace::{ObservedCall, Watch};
use tollgate_config::condition::{Condition, ConditionError, decide};
use tollgate_config::{Exception, FailurePolicy, MemberVerdict, Mode};
use tollgate_engine::{
    Answer, CallError, CallReport, Engine, Fault, Grounds, Overload, Secrecy, Subject,
};
use tollgate_json::document::Json;
use tollgate_telemetry::metrics::Outcome;

use super::identity::{Identity, log_request, logged};
use tollgate_config::matching::Mismatch;

use super::matching::Standing;
use tollgate_admission::Denial;

use super::outcome::{Ended, FaultReport, MemberReport, Report};
use super::validate::group;
use crate::plugin::{Plugin, PluginState};

/// One plugin's turn in one phase.
pub(super) struct Turn<'p> {
    pub(super) plugin: &'p Arc<Plugin>,
    pub(super) phase: Phase,
}

/// How a turn begins.
pub(super) enum Beginning {
    /// The plugin does not match this request.
    NotCalled(Mismatch),
    /// The plugin is not called, and the turn already has its report.
    Report(Box<Report>),
    /// The plugin is called.
    Call,
}

/// The work that the host does elsewhere before it can tell whether it calls a plugin.
pub(super) enum Later {
    /// Evaluate conditions that cost too much for a serving thread.
    Costly {
        /// The conditions.
        conditions: Vec<Condition>,
        /// The name of one condition that is not decided yet.
        name: Arc<str>,
    },
    /// Look up the Namespace of the request.
    Namespace,
}

/// Everything about a call except its answer.
pub(super) struct Called {
    pub(super) warnings: Vec<String>,
    pub(super) annotations: Vec<(String, String)>,
    pub(super) secrecy: Secrecy,
    pub(super) grounds: Grounds,
    pub(super) fuel: u64,
    pub(super) fuel_of_one_call: u64,
    /// Number of calls that were given the answer of an earlier call.
    pub(super) reused: u32,
    pub(super) cpu: Duration,
    pub(super) wall: Duration,
    /// The members that were asked, if the plugin is a group.
    pub(super) members: Vec<MemberReport>,
    /// What these members have said, with their indexes.
    pub(super) statements: Vec<(usize, Statement)>,
}

/// What a validator says about one object, and what that can be based on.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) verdict: MemberVerdict,
    /// The reasons, if it denies.
    pub(super) denial: Option<Denial>,
    pub(super) grounds: Grounds,
    pub(super) secrecy: Secrecy,
}

/// A plugin's answer or fault, with everything else about the call.
pub(super) type Answered = (Result<Answer, Fault>, Called);

// === impl Turn ===

impl<'p> Turn<'p> {
    /// The turn of a validator.
    pub(super) fn validating(plugin: &'p Arc<Plugin>) -> Self {
        Self {
            plugin,
            phase: Phase::Validate,
        }
    }
}

impl Turn<'_> {
    /// Finds out whether the plugin is to be called, with the object as it is now.
    pub(super) async fn begin(
        &self,
        engine: &Engine,
        request: &Arc<AdmissionRequest>,
        object: Option<&Json>,
        deadline: Instant,
    ) -> Beginning {
        match self.begin_inline(engine, request, object) {
            Ok(beginning) => beginning,
            Err(later) => {
                // Boxed, because nearly no turn needs it.
                Box::pin(self.begin_elsewhere(later, engine, request, object, deadline)).await
            }
        }
    }

    /// Does the same as `begin`, but returns work that must be done elsewhere first.
    pub(super) fn begin_inline(
        &self,
        engine: &Engine,
        request: &AdmissionRequest,
        object: Option<&Json>,
    ) -> Result<Beginning, Later> {
        let mut standing = self.plugin.standing(self.phase, request, object);
        if matches!(standing, Standing::AwaitsNamespace) && engine.has_namespace(request, object) {
            standing = self.plugin.standing(self.phase, request, object);
        }
        self.beginning(standing, request)
    }

    /// Looks up the namespace or evaluates conditions on another thread. If that takes until the deadline, the plugin
    /// has a fault.
    pub(super) async fn begin_elsewhere(
        &self,
        later: Later,
        engine: &Engine,
        request: &Arc<AdmissionRequest>,
        object: Option<&Json>,
        deadline: Instant,
    ) -> Beginning {
        let mut later = later;
        if matches!(later, Later::Namespace) {
            let lookup = engine.look_up_namespace(request, object, deadline).await;
            let standing = match lookup {
                Ok(()) => self.plugin.standing(self.phase, request, object),
                Err(what) => Standing::NoNamespace(what),
            };
            later = match self.beginning(standing, request) {
                Ok(beginning) => return beginning,
                Err(later) => later,
            };
        }
        let Later::Costly { conditions, name } = later else {
            // The namespace is looked up, so the standing never awaits it again.
            let what = "the host lost the result of its lookup".to_owned();
            return Beginning::Report(Box::new(self.without_namespace(request, what)));
        };
        let (shared, object) = (request.clone(), object.cloned());
        let work = move || decide(&conditions, &shared, object.as_ref());
        let standing = match engine.offload().run(deadline, work).await {
            Some(decision) => self.plugin.standing_by(decision, request),
            None => Standing::Unclear(ConditionError {
                name,
                what: "could not be evaluated before the deadline: the host is busy with other costly conditions"
                    .to_owned(),
            }),
        };
        // The conditions are decided, so nothing has to be done elsewhere.
        self.beginning(standing, request).unwrap_or(Beginning::Call)
    }

    fn beginning(
        &self,
        standing: Standing<'_>,
        request: &AdmissionRequest,
    ) -> Result<Beginning, Later> {
        Ok(match standing {
            Standing::NotCalled(mismatch) => Beginning::NotCalled(mismatch),
            Standing::Called => Beginning::Call,
            Standing::Excepted(exception) => {
                Beginning::Report(Box::new(self.excepted(request, exception)))
            }
            Standing::Unclear(error) => {
                let what = error.to_string();
                let fault = Fault::MatchCondition { what };
                let report = self.report(request, Called::nothing(request), Err(fault));
                Beginning::Report(Box::new(report))
            }
            Standing::NoNamespace(what) => {
                Beginning::Report(Box::new(self.without_namespace(request, what)))
            }
            Standing::AwaitsNamespace => return Err(Later::Namespace),
            Standing::Costly(conditions, condition) => {
                return Err(Later::Costly {
                    conditions: conditions.to_vec(),
                    name: Arc::from(condition.name()),
                });
            }
        })
    }

    /// Makes the report of a plugin that may or may not match, because the namespace is not known.
    fn without_namespace(&self, request: &AdmissionRequest, what: String) -> Report {
        let fault = Fault::NamespaceUnavailable { what };
        self.report(request, Called::nothing(request), Err(fault))
    }

    /// Calls the plugin, and returns its answer with everything else about the call.
    pub(super) async fn call(
        &self,
        engine: &Engine,
        subject: &Subject,
        deadline: Instant,
    ) -> Result<Answered, Overload> {
        match &self.plugin.group {
            None => self.call_alone(engine, subject, deadline).await,
            // Boxed, because few plugins are groups.
            Some(group) => Box::pin(group::call(group, engine, subject, deadline)).await,
        }
    }

    /// Returns the answer of an earlier call, if it is known to be the answer of this one. Groups have none of their own.
    pub(super) fn recall(
        &self,
        engine: &Engine,
        subject: &Subject,
        deadline: Instant,
    ) -> Option<Answered> {
        let PluginState::Loaded(loaded) = &self.plugin.state else {
            return None;
        };
        let guest = loaded.guest.as_ref()?;
        let report = guest.recall(engine, self.phase, subject, deadline)?;
        // Reading a known answer finds no room only for a mutation. A call then finds out the same.
        read(report).ok()
    }

    /// Like [`Turn::call`], for a plugin that is no group, that nobody observes, and whose answer [`Turn::recall`] does not
    /// know.
    pub(super) async fn call_anew(
        &self,
        engine: &Engine,
        subject: &Subject,
        deadline: Instant,
    ) -> Result<Answered, Overload> {
        if let PluginState::Loaded(loaded) = &self.plugin.state
            && let Some(guest) = &loaded.guest
        {
            return read(guest.call_anew(engine, self.phase, subject, deadline).await);
        }
        // Boxed, because such a plugin has a fault without a call.
        Box::pin(self.call_alone(engine, subject, deadline)).await
    }

    /// Calls a plugin that is no group.
    pub(super) async fn call_alone(
        &self,
        engine: &Engine,
        subject: &Subject,
        deadline: Instant,
    ) -> Result<Answered, Overload> {
        let watch = subject.request.observed.begin();
        let answered = match &self.plugin.state {
            PluginState::Loaded(loaded) => match &loaded.guest {
                Some(guest) => read(guest.call(engine, self.phase, subject, deadline).await),
                None => {
                    let reason = "it has no code".to_owned();
                    let fault = Fault::NotLoaded { reason };
                    Ok((Err(fault), Called::nothing(&subject.request)))
                }
            },
            PluginState::Failed { reason } => {
                let fault = Fault::NotLoaded {
                    reason: reason.clone(),
                };
                Ok((Err(fault), Called::nothing(&subject.request)))
            }
            PluginState::Disabled => {
                let reason = "it is disabled".to_owned();
                let fault = Fault::NotLoaded { reason };
                Ok((Err(fault), Called::nothing(&subject.request)))
            }
        };
        if let Some(watch) = watch {
            self.tell(watch, &answered);
        }
        answered
    }

    /// Tells the observer of the review about a call.
    #[cold]
    fn tell(&self, watch: Watch, answered: &Result<Answered, Overload>) {
        let config = &self.plugin.config;
        let (fault, called) = match answered {
            Ok((answer, called)) => (answer.as_ref().err().map(Fault::kind), Some(called)),
            Err(_) => (Some("overload"), None),
        };
        watch.end(|began, duration| ObservedCall {
            plugin: config.name.shared(),
            digest: self.plugin.digest.clone(),
            mode: config.mode.as_str(),
            failure_policy: config.failure_policy.as_str(),
            phase: self.phase,
            began,
            duration,
            cpu_time: called.map_or(Duration::ZERO, |called| called.cpu),
            fuel: called.map_or(0, |called| called.fuel),
            fault,
        });
    }

    /// Counts and logs the end of the turn, and makes its report.
    pub(super) fn report(
        &self,
        request: &AdmissionRequest,
        called: Called,
        ended: Result<Ended, Fault>,
    ) -> Report {
        let config = &self.plugin.config;
        let template = request.template.as_deref();
        let ended = match (ended, template) {
            (Ok(Ended::Denied(denial)), Some(template)) => {
                Ok(Ended::Denied(template.locate(denial)))
            }
            (ended, _) => ended,
        };
        let outcome = match &ended {
            Ok(Ended::Allowed) => Outcome::Allowed,
            Ok(Ended::Unchanged) => Outcome::Unchanged,
            Ok(Ended::Patched) => Outcome::Patched,
            Ok(Ended::Denied(_)) => Outcome::Denied,
            Ok(Ended::Faulted(_) | Ended::Excepted(_)) | Err(_) => Outcome::Fault,
        };
        let cost = called.cost();
        self.plugin.metrics.call(self.phase, outcome, cost);
        if let Ok(Ended::Denied(denial)) = &ended {
            self.log_denial(request, denial, &called);
        }
        let ended = ended.unwrap_or_else(|fault| {
            self.plugin
                .metrics
                .fault(self.phase, fault.kind(), config.failure_policy.as_str());
            self.log_fault(request, &fault, &called);
            Ended::Faulted(FaultReport {
                kind: fault.kind(),
                message: fault.to_string(),
            })
        });
        Report {
            warnings: called.warnings,
            annotations: called.annotations,
            members: called.members,
            cost,
            template: template.map(|template| template.workload),
            ..Report::new(config, self.plugin.digest.clone(), ended)
        }
    }

    /// Counts and logs an exception, and makes its report.
    fn excepted(&self, request: &AdmissionRequest, exception: &Exception) -> Report {
        let config = &self.plugin.config;
        let mut all = config.exceptions.iter();
        let index = all.position(|one| std::ptr::eq(one, exception));
        let label = exception.label(index.unwrap_or_default());
        self.plugin
            .metrics
            .excepted(self.phase, &label, SystemTime::now());
        log_request!(
            info,
            self.identity(request),
            plugin = logged(config),
            phase = self.phase.name(),
            mode = config.mode.as_str(),
            reason = exception.reason(),
            until = exception.until(),
            "excepted"
        );
        let ended = Ended::Excepted(exception.to_string());
        Report::new(config, self.plugin.digest.clone(), ended)
    }

    /// Returns the log fields that identify the request.
    pub(super) fn identity<'r>(&self, request: &'r AdmissionRequest) -> Identity<'r> {
        Identity::of(request, self.plugin.config.log_identities)
    }

    /// Logs the places of a denial, never its message. The message is for the user and may quote the object.
    fn log_denial(&self, request: &AdmissionRequest, denial: &Denial, called: &Called) {
        let fields: Vec<&str> = denial
            .causes
            .iter()
            .filter_map(|cause| cause.field.as_deref())
            .take(20)
            .collect();
        log_request!(
            info,
            self.identity(request),
            plugin = logged(&self.plugin.config),
            phase = self.phase.name(),
            mode = self.plugin.config.mode.as_str(),
            code = denial.code.filter(|code| (400..500).contains(code)),
            causes = denial.causes.len(),
            fields = fields.join(" "),
            fuel = called.fuel,
            "denied"
        );
    }

    pub(super) fn log_fault(&self, request: &AdmissionRequest, fault: &Fault, called: &Called) {
        let config = &self.plugin.config;
        log_request!(
            warn,
            self.identity(request),
            plugin = logged(config),
            phase = self.phase.name(),
            mode = config.mode.as_str(),
            failure_policy = config.failure_policy.as_str(),
            fault = fault.kind(),
            fuel = called.fuel,
            cpu_milliseconds = called.cpu.as_secs_f64() * 1000.0,
            milliseconds = called.wall.as_secs_f64() * 1000.0,
            "{fault}"
        );
    }
}

// === impl Statement ===

impl Statement {
    pub(super) fn of(ended: &Result<Option<Denial>, Fault>, called: &Called) -> Self {
        Self {
            verdict: match ended {
                Ok(None) => MemberVerdict::Allowed,
                Ok(Some(_)) => MemberVerdict::Denied,
                Err(_) => MemberVerdict::Faulted,
            },
            denial: ended.as_ref().ok().cloned().flatten(),
            grounds: called.grounds,
            secrecy: called.secrecy,
        }
    }
}

// === impl Called ===

impl Called {
    /// For a plugin that did not run.
    pub(super) fn nothing(request: &AdmissionRequest) -> Self {
        Self {
            warnings: Vec::new(),
            annotations: Vec::new(),
            secrecy: Secrecy::of(request.is_secret()),
            grounds: Grounds::default(),
            fuel: 0,
            fuel_of_one_call: 0,
            reused: 0,
            cpu: Duration::ZERO,
            wall: Duration::ZERO,
            members: Vec::new(),
            statements: Vec::new(),
        }
    }

    /// Adds the cost of a further call in the same turn.
    pub(super) fn add_cost(&mut self, further: &Self) {
        self.fuel += further.fuel;
        self.fuel_of_one_call = self.fuel_of_one_call.max(further.fuel_of_one_call);
        self.reused += further.reused;
        self.cpu += further.cpu;
        self.wall += further.wall;
    }

    pub(super) fn cost(&self) -> Cost {
        Cost {
            duration: self.wall,
            cpu_time: self.cpu,
            fuel: self.fuel,
            fuel_of_one_call: self.fuel_of_one_call,
            reused: self.reused,
        }
    }
}

fn read(report: CallReport) -> Result<Answered, Overload> {
    let answer = match report.result {
        Ok(answer) => Ok(answer),
        Err(CallError::Fault(fault)) => Err(fault),
        Err(CallError::Overload(overload)) => return Err(overload),
    };
    let called = Called {
        warnings: report.warnings,
        annotations: report.annotations,
        secrecy: report.secrecy,
        grounds: report.grounds,
        fuel: report.fuel,
        fuel_of_one_call: report.fuel,
        reused: report.is_reused.into(),
        cpu: report.cpu,
        wall: report.wall,
        members: Vec::new(),
        statements: Vec::new(),
    };
    Ok((answer, called))
}

/// The denial of a validator; `None` if it allows. A mutation is a fault.
pub(super) fn verdict(answer: Result<Answer, Fault>) -> Result<Option<Denial>, Fault> {
    match answer? {
        Answer::Allow => Ok(None),
        Answer::Deny(denial) => Ok(Some(denial)),
        Answer::Unchanged | Answer::Mutation(..) => Err(Fault::ContractViolation {
            what: "a validator answered with a mutation".to_owned(),
        }),
    }
}

/// Whether this end settles the review. Later mutators would only see an object that is never stored.
pub(super) fn is_final(report: &Report) -> bool {
    report.mode == Mode::Enforce
        && report.failure_policy == FailurePolicy::Fail
        && matches!(report.ended, Ended::Faulted(_))
}

#[cfg(test)]
mod tests;
