//! One call of a plugin: from a permit to run to what it answered, what it cost or how it failed.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use wasmtime::component::Instance;
use wasmtime::{PoolConcurrencyLimitError, Store, UpdateDeadline};

use super::answer::{Answer, RawAnswer};
use super::bindings::types::{Configured, Manifest};
use super::fault::{Ended, Fault, Stop, is_for_want_of_memory};
use super::guest::{ConfiguredBy, Guest};
use super::meter::{Meter, Metered};
use super::secrecy::Secrecy;
use super::state::{CallState, Subject};
use super::{Engine, Phase};
use crate::document::{Account, NoRoom};

/// What a call came to.
#[derive(Debug)]
pub struct CallReport {
    /// What the plugin answered, or why it did not.
    pub result: Result<Answer, CallError>,
    /// What it wants shown to the user.
    pub warnings: Vec<String>,
    /// What it wants in the audit log.
    pub annotations: Vec<(String, String)>,
    /// Whether the content of a Secret is known to it.
    pub secrecy: Secrecy,
    /// Fuel used.
    pub fuel: u64,
    /// CPU time used.
    pub cpu: Duration,
    /// Time by the clock, waiting for its turn included.
    pub wall: Duration,
    /// The memory that it ended with, which is the most that it had: WebAssembly gives none back.
    pub memory_bytes: u64,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum CallError {
    /// The plugin's doing.
    Fault(Fault),
    /// The host's: it has no room to run the plugin in time.
    Overload(Overload),
}

/// The host has more to do than it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload;

impl From<Fault> for CallError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

struct Permits {
    _plugin: OwnedSemaphorePermit,
    _engine: OwnedSemaphorePermit,
}

// === impl Guest ===

impl Guest {
    /// Calls the plugin in a fresh instance, before `deadline` or not at all.
    pub async fn call(
        &self,
        engine: &Engine,
        phase: Phase,
        subject: Subject,
        deadline: Instant,
    ) -> CallReport {
        let began = Instant::now();
        let secrecy = Secrecy::of(subject.request.is_secret());
        let nothing = |error: CallError| CallReport {
            result: Err(error),
            warnings: Vec::new(),
            annotations: Vec::new(),
            secrecy,
            fuel: 0,
            cpu: Duration::ZERO,
            wall: began.elapsed(),
            memory_bytes: 0,
        };
        let deadline = deadline.min(engine.longest(&self.limits));
        let allowed = deadline.saturating_duration_since(began);
        if allowed.is_zero() {
            return nothing(CallError::Fault(Fault::Deadline { allowed, cpu: None }));
        }
        let _permits = match self.permits(engine, deadline).await {
            Ok(permits) => permits,
            Err(Some(overload)) => return nothing(CallError::Overload(overload)),
            Err(None) => return nothing(CallError::Fault(Fault::Deadline { allowed, cpu: None })),
        };

        let meter = Arc::new(Meter::start());
        let state = CallState {
            memory: engine.call_memory(),
            ..CallState::new(self.name.clone(), Some(subject), self.limits.clone())
        };
        let mut store = self.store(
            engine,
            state,
            self.limits.fuel,
            self.limits.cpu_time,
            deadline,
            &meter,
        );
        let outcome = {
            let run = Metered {
                meter: &meter,
                future: pin!(self.run(&mut store, phase)),
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

        let fuel = self
            .limits
            .fuel
            .saturating_sub(store.get_fuel().unwrap_or(0));
        let cpu = meter.cpu();
        let state = store.into_data();
        let ended = Ended {
            fuel: self.limits.fuel,
            cpu_time: self.limits.cpu_time,
            cpu_spent: cpu,
            allowed,
            output_bytes: self.limits.output_bytes,
        };
        let result = match outcome {
            Ok(answer) => {
                // The names that the user gave, not those that an earlier plugin may have made.
                let known = state.subject.as_ref().and_then(|subject| {
                    let request = &subject.request;
                    request.object.as_ref().or(request.old_object.as_ref())
                });
                let memory = state
                    .subject
                    .as_ref()
                    .map_or_else(Account::unlimited, |subject| subject.request.memory.clone());
                answer.read(state.secrecy, known, &self.limits, &memory)
            }
            Err(error) if is_the_hosts(&error) => Err(CallError::Overload(Overload)),
            Err(error) => Err(CallError::Fault(Fault::read(&error, &ended))),
        };
        let result = match result {
            Err(CallError::Fault(fault)) if state.secrecy.withholds() => {
                Err(CallError::Fault(fault.without_plugins_words()))
            }
            other => other,
        };
        if state.dropped_log_lines > 0 {
            tracing::warn!(
                plugin = %self.name, dropped = state.dropped_log_lines, limit = self.limits.log_lines,
                "log lines of the plugin were dropped (limits.logLines)"
            );
        }
        CallReport {
            result,
            warnings: state.warnings,
            annotations: state.annotations,
            secrecy: state.secrecy,
            fuel,
            cpu,
            wall: began.elapsed(),
            memory_bytes: state.memory_bytes,
        }
    }

    /// Asks the plugin what it is. For loading only.
    pub(crate) async fn describe(
        &self,
        engine: &Engine,
        fuel: u64,
        time: Duration,
    ) -> Result<Manifest, Fault> {
        let mut session = LoadSession::start(self, engine, fuel, time);
        let run = async {
            let instance = self.instance.instantiate_async(&mut session.store).await?;
            let plugin = self.lifecycle.load(&mut session.store, &instance)?;
            plugin
                .tollgate_admission_lifecycle()
                .call_describe(&mut session.store)
                .await
        };
        let outcome = run.await;
        session.read(outcome)
    }

    /// Hands the plugin its settings and keeps the instance, for a snapshot of it. For loading only.
    pub(crate) async fn configure(
        &self,
        engine: &Engine,
        settings: &String,
        fuel: u64,
        time: Duration,
    ) -> Result<(Store<CallState>, Instance, Configured), Fault> {
        let mut session = LoadSession::start(self, engine, fuel, time);
        let run = async {
            let instance = self.instance.instantiate_async(&mut session.store).await?;
            let plugin = self.lifecycle.load(&mut session.store, &instance)?;
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

    async fn run(&self, store: &mut Store<CallState>, phase: Phase) -> wasmtime::Result<RawAnswer> {
        let instance = self.instance.instantiate_async(&mut *store).await?;
        if let ConfiguredBy::EachCall { settings, .. } = &self.configured {
            let subject = store.data_mut().subject.take();
            let plugin = self.lifecycle.load(&mut *store, &instance)?;
            let configured = plugin
                .tollgate_admission_lifecycle()
                .call_configure(&mut *store, settings)
                .await?;
            store.data_mut().subject = subject;
            if matches!(configured, Configured::Rejected(_)) {
                let what =
                    "it accepted its settings when it was loaded and rejects them now".to_owned();
                return Err(Stop::Contract(what).into());
            }
        }
        match (phase, &self.mutating, &self.validating) {
            (Phase::Mutate, Some(mutating), _) => {
                let mutator = mutating.load(&mut *store, &instance)?;
                Ok(RawAnswer::Mutation(
                    mutator
                        .tollgate_admission_mutating()
                        .call_mutate(store)
                        .await?,
                ))
            }
            (Phase::Validate, _, Some(validating)) => {
                let validator = validating.load(&mut *store, &instance)?;
                Ok(RawAnswer::Verdict(
                    validator
                        .tollgate_admission_validating()
                        .call_validate(store)
                        .await?,
                ))
            }
            _ => Err(Stop::Contract(format!("it does not export `{}`", phase.name())).into()),
        }
    }

    /// A permit of the plugin's, then one of the engine's. Waiting for the plugin's own is the plugin's fault
    /// (none), waiting for the engine's is the host's.
    async fn permits(
        &self,
        engine: &Engine,
        deadline: Instant,
    ) -> Result<Permits, Option<Overload>> {
        let plugin = acquire(&self.slots, deadline).await.ok_or(None)?;
        let engine = acquire(&engine.slots, deadline)
            .await
            .ok_or(Some(Overload))?;
        Ok(Permits {
            _plugin: plugin,
            _engine: engine,
        })
    }

    /// A store with every limit armed.
    fn store(
        &self,
        engine: &Engine,
        mut state: CallState,
        fuel: u64,
        cpu_time: Duration,
        deadline: Instant,
        meter: &Arc<Meter>,
    ) -> Store<CallState> {
        let output_bytes = usize::try_from(state.limits.output_bytes).unwrap_or(usize::MAX);
        state.clock = engine.clock;
        let mut store = Store::new(engine.wasmtime(), state);
        store.limiter(|state| state);
        store.set_fuel(fuel).expect("the engine meters fuel");
        store.set_hostcall_fuel(output_bytes);
        store.set_epoch_deadline(1);
        let (meter, running, rest) = (meter.clone(), engine.ticker.running(), engine.rest);
        store.epoch_deadline_callback(move |_| {
            let _for_as_long_as_the_store = &running;
            if meter.tick() >= cpu_time {
                return Err(Stop::Cpu.into());
            }
            if Instant::now() >= deadline {
                return Err(Stop::Wall.into());
            }
            Ok(UpdateDeadline::YieldCustom(
                1,
                if rest.is_zero() {
                    Box::pin(tokio::task::yield_now())
                } else {
                    Box::pin(tokio::time::sleep(rest))
                },
            ))
        });
        store
    }
}

/// A store for `describe` or `configure`, metered like a call's.
struct LoadSession {
    store: Store<CallState>,
    ended: Ended,
}

// === impl LoadSession ===

impl LoadSession {
    fn start(guest: &Guest, engine: &Engine, fuel: u64, time: Duration) -> Self {
        let meter = Arc::new(Meter::start());
        let state = CallState::new(guest.name.clone(), None, guest.limits.clone());
        // Nothing polls a `Metered` here: a tick charges what has passed by the clock, which in a process that
        // does nothing else is the same.
        let store = guest.store(engine, state, fuel, time, Instant::now() + time, &meter);
        let output_bytes = guest.limits.output_bytes;
        Self {
            store,
            ended: Ended {
                fuel,
                cpu_time: time,
                cpu_spent: time,
                allowed: time,
                output_bytes,
            },
        }
    }

    fn read<T>(&self, outcome: wasmtime::Result<T>) -> Result<T, Fault> {
        outcome.map_err(|error| Fault::read(&error, &self.ended))
    }
}

/// Whether a call ended for want of something of the host's: a free slot of the pool, memory that other calls
/// have, or memory that the system would not give.
fn is_the_hosts(error: &wasmtime::Error) -> bool {
    error.downcast_ref::<NoRoom>().is_some()
        || error.downcast_ref::<PoolConcurrencyLimitError>().is_some()
        || is_for_want_of_memory(error)
}

async fn acquire(semaphore: &Arc<Semaphore>, deadline: Instant) -> Option<OwnedSemaphorePermit> {
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
