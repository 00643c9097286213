//! Runs one call of a plugin, from the permit to its answer or fault, and reports its cost.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, TryAcquireError};
use tollgate_json::document::{Account, NoRoom};
use wasmtime::component::Instance;
use wasmtime::{PoolConcurrencyLimitError, Store};

use super::access::Asking;
use super::answer::{Answer, RawAnswer};
use super::answers::{Kept, MOST_ANSWER_BYTES, Transcript};
use super::bindings::types::{Configured, Manifest};
use super::exhaustion::Exhaustion;
use super::fault::{Ended, Fault, Instantiating, Stop, is_for_want_of_memory};
use super::grounds::Grounds;
use super::guest::{ConfiguredBy, Guest, Linked};
use super::keeping::{Idle, KEEPER_FUEL, Shelf};
use super::meter::{Meter, Metered};
use super::secrecy::Secrecy;
use super::state::{CallState, Subject, Time};
use super::tenants::Admitted;
use tollgate_admission::Phase;
use tollgate_admission::access::Question;
use tollgate_admission::images::Question as ImageQuestion;

use super::{Engine, FUEL_BETWEEN_YIELDS, access, images};

/// The result and the cost of one call.
#[derive(Debug)]
pub struct CallReport {
    /// The plugin's answer, or the reason why there is none.
    pub result: Result<Answer, CallError>,
    /// Warnings that the plugin wants to show to the user.
    pub warnings: Vec<String>,
    /// Annotations that the plugin wants in the audit log.
    pub annotations: Vec<(String, String)>,
    /// Whether the plugin has read the content of a Secret.
    pub secrecy: Secrecy,
    /// The kinds of information that the answer may depend on.
    pub grounds: Grounds,
    /// Fuel used. If a clock ended the call, up to 1,000,000 fuel may be missing from this number.
    pub fuel: u64,
    /// CPU time used.
    pub cpu: Duration,
    /// Wall-clock time, including the wait for a permit.
    pub wall: Duration,
    /// Linear memory at the end of the call, in bytes. This is also the peak: WebAssembly never returns memory.
    pub memory_bytes: u64,
    /// What the host has to find out before the call can be made again. None if the call is over.
    awaits: Option<Awaits>,
    /// What the call and earlier attempts have been answered about rights. None without the capability `access`.
    answers: Option<Box<Asking>>,
    /// What the call and earlier attempts have been answered about images. None without the capability `images`.
    images: Option<Box<images::Asking>>,
    /// Number of log lines that the call has written.
    log_lines: u32,
    /// Whether this is what an earlier call has answered, and no code ran.
    pub is_reused: bool,
}

/// What the host has to find out before it makes a call again.
#[derive(Debug)]
enum Awaits {
    /// The Namespace of the request.
    Namespace,
    /// What a user may do.
    Access(Box<Question>),
    /// Whether images are signed.
    Images(Vec<ImageQuestion>),
}

/// Why a call has no answer.
#[derive(Debug)]
pub enum CallError {
    /// The plugin failed.
    Fault(Fault),
    /// The host has no room to run the plugin in time.
    Overload(Overload),
}

/// The host has more work than it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload;

impl From<Fault> for CallError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// The permits of a call. They are borrowed: an owned permit counts on its semaphore's `Arc`, which all threads share.
struct Permits<'s> {
    _plugin: SemaphorePermit<'s>,
    _engine: SemaphorePermit<'s>,
}

// === impl CallReport ===

impl CallReport {
    /// The report of a call that did not begin.
    fn nothing(error: CallError, secrecy: Secrecy, began: Instant, log_lines: u32) -> Self {
        Self {
            result: Err(error),
            warnings: Vec::new(),
            annotations: Vec::new(),
            secrecy,
            grounds: Grounds::default(),
            fuel: 0,
            cpu: Duration::ZERO,
            wall: began.elapsed(),
            memory_bytes: 0,
            awaits: None,
            answers: None,
            images: None,
            log_lines,
            is_reused: false,
        }
    }
}

/// What an attempt knows of the earlier attempts of its call.
#[derive(Default)]
struct Earlier {
    /// The number of log lines that they have written.
    log_lines: u32,
    /// The answers about rights that they have got.
    answers: Option<Box<Asking>>,
    /// The answers about images that they have got.
    images: Option<Box<images::Asking>>,
}

// === impl Earlier ===

impl Earlier {
    fn of(report: &mut CallReport) -> Self {
        Self {
            log_lines: report.log_lines,
            answers: report.answers.take(),
            images: report.images.take(),
        }
    }
}

// === impl Guest ===

impl Guest {
    /// Gives the answer of an earlier call that was told the same, or calls the plugin.
    ///
    /// See [`Guest::recall`] and [`Guest::call_anew`].
    // Without this, the caller copies the future, which takes kilobytes.
    #[inline]
    pub async fn call(
        &self,
        engine: &Engine,
        phase: Phase,
        subject: &Subject,
        deadline: Instant,
    ) -> CallReport {
        match self.recall(engine, phase, subject, deadline) {
            Some(report) => report,
            None => self.call_anew(engine, phase, subject, deadline).await,
        }
    }

    /// Calls the plugin, in a new instance or in a kept one.
    ///
    /// The call ends at `deadline`, or earlier when the plugin's `limits.timeout` is over.
    ///
    /// A plugin that asks for a namespace which the host has to look up is called twice. The first attempt ends at the
    /// question, because a host function cannot wait. The second one begins anew after the lookup, with all its limits
    /// and the same deadline. Nobody sees the first attempt: an instance shares nothing with the next. The same happens
    /// for each right that the host has to ask kube-apiserver about, and for images that it has to ask registries about.
    #[inline]
    pub async fn call_anew(
        &self,
        engine: &Engine,
        phase: Phase,
        subject: &Subject,
        deadline: Instant,
    ) -> CallReport {
        // The clock is read once for all that begins now. Reading it takes as long as a small host function.
        let mut began = Instant::now();
        let deadline = deadline.min(engine.longest_from(began, &self.limits));
        let mut tenant = None;
        if self.tenant.is_some() {
            // Boxed, because calls of the cluster's plugins shall not be larger for it.
            match Box::pin(self.admit(engine, subject, deadline)).await {
                Ok(admitted) => tenant = admitted,
                Err(report) => return *report,
            }
            began = Instant::now();
        }
        let earlier = Earlier::default();
        let report = self
            .attempt(engine, phase, subject.clone(), began, deadline, earlier)
            .await;
        if let Some(tenant) = &mut tenant {
            tenant.charge(report.fuel, report.cpu);
        }
        if report.awaits.is_none() {
            return report;
        }
        // Boxed, because nearly all calls end with the first attempt.
        Box::pin(self.call_again(engine, phase, subject, deadline, report, tenant)).await
    }

    /// Makes a call again and again, each time after the host has found out what the attempt before it had asked for.
    async fn call_again(
        &self,
        engine: &Engine,
        phase: Phase,
        subject: &Subject,
        deadline: Instant,
        mut report: CallReport,
        mut tenant: Option<Admitted>,
    ) -> CallReport {
        let mut knows_namespace = false;
        while let Some(awaits) = report.awaits.take() {
            let asked = Instant::now();
            let found = match awaits {
                Awaits::Namespace => {
                    let first_time = !std::mem::replace(&mut knows_namespace, true);
                    engine.await_namespace(subject, first_time, deadline).await
                }
                Awaits::Access(question) => {
                    let answers = report.answers.as_deref_mut();
                    access::await_answer(answers, question, deadline).await
                }
                Awaits::Images(questions) => {
                    let answers = report.images.as_deref_mut();
                    images::await_answers(answers, questions, deadline).await;
                    Ok(())
                }
            };
            let began = Instant::now();
            report.wall += began - asked;
            if let Err(fault) = found {
                report.result = Err(CallError::Fault(fault));
                break;
            }
            let earlier = Earlier::of(&mut report);
            let before = report;
            report = self
                .attempt(engine, phase, subject.clone(), began, deadline, earlier)
                .await;
            if let Some(tenant) = &mut tenant {
                tenant.charge(report.fuel, report.cpu);
            }
            report.cpu += before.cpu;
            report.wall += before.wall;
        }
        report
    }

    /// Makes the report of a call whose answer is known from an earlier one. Returns nothing if the plugin has to be called.
    #[must_use]
    pub fn recall(
        &self,
        engine: &Engine,
        phase: Phase,
        subject: &Subject,
        deadline: Instant,
    ) -> Option<CallReport> {
        let answers = engine.reuses_answers.then_some(self.answers.as_ref())??;
        if subject.request.is_secret() {
            return None;
        }
        let began = Instant::now();
        if began >= deadline {
            return None;
        }
        let namespaces = engine.namespaces.as_ref();
        let kept = answers.recall(phase, subject, namespaces, subject.is_update())?;
        let memory = || subject.request.memory.part();
        let answer = kept.answer.clone();
        let result = answer.read(Secrecy::Open, None, &self.limits, memory);
        let spent = began.elapsed();
        Some(CallReport {
            result,
            warnings: kept.warnings.clone(),
            annotations: kept.annotations.clone(),
            secrecy: Secrecy::Open,
            grounds: kept.grounds,
            fuel: kept.fuel,
            cpu: spent,
            wall: spent,
            memory_bytes: kept.memory_bytes,
            awaits: None,
            answers: None,
            images: None,
            log_lines: 0,
            is_reused: true,
        })
    }

    /// Waits until the namespace of the plugin has budget left. Returns nothing if nothing limits it.
    async fn admit(
        &self,
        engine: &Engine,
        subject: &Subject,
        deadline: Instant,
    ) -> Result<Option<Admitted>, Box<CallReport>> {
        let (Some(namespace), Some(tenants)) = (&self.tenant, &engine.tenants) else {
            return Ok(None);
        };
        let began = Instant::now();
        let longest = self.limits.cpu_time * self.linked.load().runtime.cpu_factor();
        let admitted = tenants.admit(namespace, longest, deadline).await;
        admitted.map(Some).map_err(|exhausted| {
            let fault = Fault::TenantBudget {
                what: exhausted.to_string(),
            };
            let secrecy = Secrecy::of(subject.request.is_secret());
            Box::new(CallReport::nothing(fault.into(), secrecy, began, 0))
        })
    }

    /// Calls the plugin once. `began` is the current time.
    #[inline]
    async fn attempt(
        &self,
        engine: &Engine,
        phase: Phase,
        subject: Subject,
        began: Instant,
        deadline: Instant,
        earlier: Earlier,
    ) -> CallReport {
        let lines_before = earlier.log_lines;
        let secrecy = Secrecy::of(subject.request.is_secret());
        let nothing = |error: CallError| CallReport::nothing(error, secrecy, began, lines_before);
        let allowed = deadline.saturating_duration_since(began);
        if allowed.is_zero() {
            return nothing(CallError::Fault(Fault::Deadline {
                allowed,
                spent: None,
            }));
        }
        let linked = self.linked.load();
        let slots = linked.runtime.slots.min(engine.calls);
        let (_permits, permitted) = match self.permits(engine, slots, began, deadline).await {
            Ok(permits) => permits,
            Err(Some(overload)) => return nothing(CallError::Overload(overload)),
            Err(None) => {
                return nothing(CallError::Fault(Fault::Deadline {
                    allowed,
                    spent: None,
                }));
            }
        };

        // No code runs in the store when this guard is dropped.
        let _running = linked.runtime.ticker.running_call();
        let meter = Arc::new(Meter::start_at(permitted));
        let (mut idle, begun) = linked.instance(self, engine, subject);
        // The state is written where it is. A move would copy all of it.
        let state = idle.store.data_mut();
        state.lines_before = lines_before;
        if earlier.answers.is_some() {
            state.access = earlier.answers;
        }
        if earlier.images.is_some() {
            state.images = earlier.images;
        }
        let answers = self.answers.as_ref().filter(|answers| {
            engine.reuses_answers && secrecy == Secrecy::Open && answers.wants_transcript()
        });
        state.transcript = answers.map(|_| Transcript::default());
        let with_grounds = state.is_update;
        let cpu_time = self.limits.cpu_time * linked.runtime.cpu_factor();
        state.time = Some(Time {
            meter: meter.clone(),
            cpu_time,
            deadline,
            rest: engine.rest,
            _running: None,
        });
        // The host sets the fuel of the call when it has reset the instance, and the plugin begins.
        let fuel_at_first = match linked.shelf {
            Some(_) => KEEPER_FUEL,
            None => self.limits.fuel,
        };
        arm(&mut idle.store, fuel_at_first);
        if linked.shelf.is_some() {
            // The keeper hands over the whole memory. Then the host sets the plugin's limit.
            idle.store.set_hostcall_fuel(usize::MAX);
        }
        // No page is written from here to `run`, and nothing waits.
        let shelf = linked.shelf.as_ref();
        let before = shelf.and_then(|shelf| shelf.faults_so_far());
        let outcome = {
            let run = Metered {
                meter: &meter,
                // Without WASI, a guest can wait for a processor only.
                woken: self.imports_wasi.then(|| meter.woken()),
                future: pin!(linked.run(&self.configured, begun, &mut idle, phase)),
            };
            if self.imports_wasi {
                // A guest can sleep in WASI, where no tick reaches it.
                match tokio::time::timeout_at(deadline.into(), run).await {
                    Ok(outcome) => outcome,
                    Err(_elapsed) => Err(Stop::Wall.into()),
                }
            } else {
                run.await
            }
        };

        let fuel = match &linked.shelf {
            // The store has the keeper's fuel, and the plugin has not begun.
            Some(_) if !Shelf::has_begun(&idle.store) => 0,
            _ => {
                let left = idle.store.get_fuel().unwrap_or(0);
                self.limits.fuel.saturating_sub(left)
            }
        };
        // The clock is read once: for the end of the last slice, and for the end of the call.
        let end = meter.finish();
        let cpu = meter.cpu();
        let outcome = match outcome {
            Ok(_) if linked.shelf.is_some() && !Shelf::has_begun(&idle.store) => {
                let what = "it ran without being reset".to_owned();
                Err(Stop::Contract(what).into())
            }
            outcome => outcome,
        };
        let shelf = shelf.filter(|_| outcome.is_ok());
        // A call that paused may have run on another thread.
        let before = before.filter(|_| meter.was_never_paused());
        let state = idle.store.data_mut();
        let transcript = state.complete_transcript();
        let stop = outcome.as_ref().err();
        let awaits = match stop.and_then(|error| error.downcast_ref::<Stop>()) {
            Some(Stop::AwaitsNamespace) => Some(Awaits::Namespace),
            Some(Stop::AwaitsAccess) => {
                let asking = state.access.as_mut();
                asking
                    .and_then(|asking| asking.awaited())
                    .map(Awaits::Access)
            }
            Some(Stop::AwaitsImages) => {
                let asking = state.images.as_mut();
                asking.map(|asking| Awaits::Images(asking.awaited()))
            }
            _ => None,
        };
        // Reads the clock, and only a fault needs it.
        let ended = || Ended {
            fuel: self.limits.fuel,
            cpu_time,
            spent: meter.spent(began, self.imports_wasi),
            allowed,
            output_bytes: self.limits.output_bytes,
            refused: state.refused.clone(),
        };
        let mut kept = None;
        let result = match outcome {
            Ok(answer) => {
                let is_short = answer.bytes() <= MOST_ANSWER_BYTES;
                let transcript = transcript.filter(|_| is_short);
                kept = transcript.map(|transcript| (transcript, answer.clone()));
                // Use the names that the user sent. An earlier plugin may have added other names.
                let known = state.subject.as_ref().and_then(|subject| {
                    let request = &subject.request;
                    request.object.as_ref().or(request.old_object.as_ref())
                });
                let memory = || match &state.subject {
                    Some(subject) => subject.request.memory.part(),
                    None => Account::unlimited().part(),
                };
                answer.read(state.secrecy, known, &self.limits, memory)
            }
            Err(error) if is_the_hosts(&error) => Err(CallError::Overload(Overload)),
            Err(error) => Err(CallError::Fault(Fault::read(
                &error,
                &ended(),
                &engine.exhaustion,
            ))),
        };
        match (answers, kept) {
            (Some(answers), Some((transcript, answer))) if result.is_ok() => {
                let kept = Kept {
                    answer,
                    warnings: state.warnings.clone(),
                    annotations: state.annotations.clone(),
                    grounds: state.grounds,
                    fuel,
                    memory_bytes: state.memory_bytes,
                };
                answers.keep(&self.name, phase, with_grounds, transcript, kept);
            }
            (Some(answers), _) => answers.rest(),
            (None, _) => {}
        }
        let result = match result {
            Err(CallError::Fault(fault)) if state.secrecy.withholds() => {
                Err(CallError::Fault(fault.without_plugins_words()))
            }
            other => other,
        };
        if state.dropped_log_lines > 0 && awaits.is_none() {
            tracing::warn!(
                plugin = %self.name, dropped = state.dropped_log_lines, limit = self.limits.log_lines,
                "dropped log lines of the plugin (limits.logLines)"
            );
        }
        let report = CallReport {
            result,
            warnings: std::mem::take(&mut state.warnings),
            annotations: std::mem::take(&mut state.annotations),
            secrecy: state.secrecy,
            grounds: state.grounds,
            fuel,
            cpu,
            wall: end.saturating_duration_since(began),
            memory_bytes: state.memory_bytes,
            awaits,
            answers: state.access.take(),
            images: state.images.take(),
            log_lines: state.log_lines.max(lines_before),
            is_reused: false,
        };
        if let Some(shelf) = shelf {
            shelf.keep(idle, before);
        }
        report
    }

    /// Asks the plugin to describe itself. Used only while a plugin is loaded.
    pub async fn describe(
        &self,
        engine: &Engine,
        fuel: u64,
        time: Duration,
    ) -> Result<Manifest, Fault> {
        let mut session = LoadSession::start(self, engine, fuel, time);
        let run = async {
            let linked = self.linked.load();
            let instance = linked.instance.instantiate_async(&mut session.store).await;
            let instance = instance.map_err(|error| error.context(Instantiating))?;
            let plugin = linked.lifecycle.load(&mut session.store, &instance)?;
            plugin
                .tollgate_admission_lifecycle()
                .call_describe(&mut session.store)
                .await
        };
        let outcome = run.await;
        session.read(outcome)
    }

    /// Passes the settings to the plugin and keeps the instance, so that a snapshot can be taken. Used only while a
    /// plugin is loaded.
    pub async fn configure(
        &self,
        engine: &Engine,
        settings: &String,
        fuel: u64,
        time: Duration,
    ) -> Result<(Store<CallState>, Instance, Configured), Fault> {
        let mut session = LoadSession::start(self, engine, fuel, time);
        let run = async {
            let linked = self.linked.load();
            let instance = linked.instance.instantiate_async(&mut session.store).await;
            let instance = instance.map_err(|error| error.context(Instantiating))?;
            let plugin = linked.lifecycle.load(&mut session.store, &instance)?;
            let configured = plugin
                .tollgate_admission_lifecycle()
                .call_configure(&mut session.store, settings)
                .await?;
            Ok((instance, configured))
        };
        let outcome = run.await;
        let (instance, configured) = session.read(outcome)?;
        Ok((session.store, instance, configured))
    }

    /// Acquires one of the plugin's permits, then some of the engine's. Returns them with the time at which the call has
    /// both: `began`, unless it had to wait.
    ///
    /// # Errors
    /// `None` when the deadline passes in the wait for the plugin's own permit: the plugin is at fault. `Overload` when
    /// the deadline passes in the wait for the engine's permit: the host is at fault.
    async fn permits<'s>(
        &'s self,
        engine: &'s Engine,
        slots: u32,
        began: Instant,
        deadline: Instant,
    ) -> Result<(Permits<'s>, Instant), Option<Overload>> {
        let mut permitted = began;
        let plugin = acquire(&self.slots, 1, deadline, &mut permitted)
            .await
            .ok_or(None)?;
        let engine = acquire(&engine.slots, slots, deadline, &mut permitted)
            .await
            .ok_or(Some(Overload))?;
        let permits = Permits {
            _plugin: plugin,
            _engine: engine,
        };
        Ok((permits, permitted))
    }
}

// === impl Linked ===

impl Linked {
    async fn run(
        &self,
        configured: &ConfiguredBy,
        begun: wasmtime::Result<()>,
        idle: &mut Idle,
        phase: Phase,
    ) -> wasmtime::Result<RawAnswer> {
        let Idle {
            store, functions, ..
        } = idle;
        begun.map_err(|error| error.context(Instantiating))?;
        let instance = match functions.instance {
            Some(instance) => instance,
            None => {
                let instance = self.instance.instantiate_async(&mut *store).await;
                let instance = instance.map_err(|error| error.context(Instantiating))?;
                let fuel_left = store.get_fuel()?;
                if let Some(keepable) = &mut store.data_mut().keepable {
                    keepable.is_made(fuel_left);
                }
                *functions.instance.insert(instance)
            }
        };
        if let ConfiguredBy::EachCall { settings, .. } = configured {
            let subject = store.data_mut().subject.take();
            let plugin = self.lifecycle.load(&mut *store, &instance)?;
            let configured = plugin
                .tollgate_admission_lifecycle()
                .call_configure(&mut *store, settings)
                .await?;
            store.data_mut().subject = subject;
            if matches!(configured, Configured::Rejected(_)) {
                let what =
                    "the plugin accepted its settings at load and rejects them now".to_owned();
                return Err(Stop::Contract(what).into());
            }
        }
        match (phase, &self.mutate, &self.validate) {
            (Phase::Mutate, Some(mutate), _) => {
                let mutate = match functions.mutate {
                    Some(mutate) => mutate,
                    None => *functions
                        .mutate
                        .insert(mutate.load(&mut *store, &instance)?),
                };
                let (mutation,) = mutate.call_async(store, ()).await?;
                Ok(RawAnswer::Mutation(mutation))
            }
            (Phase::Validate, _, Some(validate)) => {
                let validate = match functions.validate {
                    Some(validate) => validate,
                    None => *functions
                        .validate
                        .insert(validate.load(&mut *store, &instance)?),
                };
                let (verdict,) = validate.call_async(store, ()).await?;
                Ok(RawAnswer::Verdict(verdict))
            }
            _ => {
                Err(Stop::Contract(format!("the plugin does not export `{}`", phase.name())).into())
            }
        }
    }

    /// Takes a kept instance for a call, or creates a store for a new one. Also returns whether there is room for the memory
    /// of the kept instance.
    fn instance(
        &self,
        guest: &Guest,
        engine: &Engine,
        subject: Subject,
    ) -> (Idle, wasmtime::Result<()>) {
        let memory = engine.call_memory();
        match self.shelf.as_ref().and_then(|shelf| shelf.take()) {
            Some(mut idle) => {
                let begun = idle.begin(guest, engine, subject, memory);
                (idle, begun)
            }
            None => {
                let shelf = self.shelf.as_ref();
                let state = CallState::new(guest, shelf.is_some(), engine, Some(subject), memory);
                let mut idle = Idle::new(self.store(state));
                let state = idle.store.data_mut();
                state.keepable = shelf.map(|shelf| shelf.keepable(state.limits.fuel));
                (idle, Ok(()))
            }
        }
    }

    fn store(&self, state: CallState) -> Store<CallState> {
        let mut store = Store::new(&self.runtime.wasmtime, state);
        store.limiter(|state| state);
        // Compiled code keeps its fuel count in a local variable until it calls, returns or runs out of fuel. The
        // interval makes it run out now and then, so a call that a clock ends has reported some of its fuel.
        store
            .fuel_async_yield_interval(Some(FUEL_BETWEEN_YIELDS))
            .expect("the engine meters fuel");
        store.epoch_deadline_callback(|store| match &store.data().time {
            Some(time) => time.tick(),
            // Code runs in calls and sessions only, and they have a limit.
            None => Err(Stop::Cpu.into()),
        });
        store
    }
}

/// Sets the limits of a store that are not in its state, before the instructions of a call.
fn arm(store: &mut Store<CallState>, fuel: u64) {
    let output_bytes = usize::try_from(store.data().limits.output_bytes).unwrap_or(usize::MAX);
    store.set_fuel(fuel).expect("the engine meters fuel");
    store.set_hostcall_fuel(output_bytes);
    store.set_epoch_deadline(1);
}

/// A store for `describe` or `configure`, metered like the store of a call.
struct LoadSession {
    store: Store<CallState>,
    meter: Arc<Meter>,
    began: Instant,
    fuel: u64,
    time: Duration,
    can_sleep: bool,
    exhaustion: Exhaustion,
}

// === impl LoadSession ===

impl LoadSession {
    fn start(guest: &Guest, engine: &Engine, fuel: u64, time: Duration) -> Self {
        let began = Instant::now();
        let meter = Arc::new(Meter::start());
        // The loader keeps the store to take a snapshot of it.
        let linked = guest.linked.load();
        let has_keeper = linked.shelf.is_some();
        let mut state = CallState::new(guest, has_keeper, engine, None, Account::unlimited());
        // No `Metered` is polled here, so a tick charges wall-clock time. That is the same as CPU time in a process
        // that does nothing else.
        state.time = Some(Time {
            meter: meter.clone(),
            cpu_time: time,
            deadline: began + time,
            rest: engine.rest,
            _running: Some(linked.runtime.ticker.running()),
        });
        let mut store = linked.store(state);
        arm(&mut store, fuel);
        Self {
            store,
            meter,
            began,
            fuel,
            time,
            can_sleep: guest.imports_wasi,
            exhaustion: engine.exhaustion.clone(),
        }
    }

    fn read<T>(&self, outcome: wasmtime::Result<T>) -> Result<T, Fault> {
        outcome.map_err(|error| {
            let state = self.store.data();
            let ended = Ended {
                fuel: self.fuel,
                cpu_time: self.time,
                spent: self.meter.spent(self.began, self.can_sleep),
                allowed: self.time,
                output_bytes: state.limits.output_bytes,
                refused: state.refused.clone(),
            };
            Fault::read(&error, &ended, &self.exhaustion)
        })
    }
}

/// Whether a call ended because the host lacked something.
///
/// The host can lack a free slot in the pool, memory that other calls hold, or memory that the system refused.
fn is_the_hosts(error: &wasmtime::Error) -> bool {
    error.downcast_ref::<NoRoom>().is_some()
        || error.downcast_ref::<PoolConcurrencyLimitError>().is_some()
        || is_for_want_of_memory(error)
}

/// Acquires permits. If they are not free, waits for them until the deadline, and sets the time at which they were acquired.
async fn acquire<'s>(
    semaphore: &'s Semaphore,
    number: u32,
    deadline: Instant,
    permitted: &mut Instant,
) -> Option<SemaphorePermit<'s>> {
    match semaphore.try_acquire_many(number) {
        Ok(permit) => Some(permit),
        Err(TryAcquireError::Closed) => None,
        Err(TryAcquireError::NoPermits) => {
            let permit = tokio::time::timeout_at(deadline.into(), semaphore.acquire_many(number))
                .await
                .ok()?
                .ok()?;
            *permitted = Instant::now();
            Some(permit)
        }
    }
}

/// Like [`acquire`], for a permit that outlives the reference to its semaphore.
pub(super) async fn acquire_owned(
    semaphore: &Arc<Semaphore>,
    deadline: Instant,
) -> Option<OwnedSemaphorePermit> {
    match semaphore.clone().try_acquire_owned() {
        Ok(permit) => Some(permit),
        Err(TryAcquireError::Closed) => None,
        Err(TryAcquireError::NoPermits) => {
            tokio::time::timeout_at(deadline.into(), semaphore.clone().acquire_owned())
                .await
                .ok()?
                .ok()
        }
    }
}
