//! Compares a plugin before and after rewriting: both must answer alike.
//!
//! The original plugin is configured in each call. The rewritten plugin is a snapshot, joined with its shim and
//! trimmed, that imports its memory. The baseline compiler must make the same snapshot.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::FutureExt as _;
use tollgate_admission::Phase;
use tollgate_admission::review::decode::decode;
use tollgate_component::{Lent, LentMemory, componentize, lent, trim, without_shim};
use tollgate_config::{Limits, PluginName};
pub use tollgate_engine::bindings::types::Configured;
use tollgate_engine::{
    Answer, CallReport, ConfiguredBy, Engine, EngineSettings, Guest, Mutation, Subject, Tier,
};
use tollgate_json::patch::write_all;
use wasmtime::UpdateDeadline;
use wasmtime_wizer::{ComponentContext, WasmtimeWizerComponent, Wizer};

/// Rewrites plugins and calls every form of them.
pub struct Rewriting {
    engine: Engine,
    /// The engine of the children that configure plugins.
    baseline: Engine,
    /// The engine that keeps instances for the next call.
    keeping: Engine,
    runtime: tokio::runtime::Runtime,
    limits: Arc<Limits>,
    subjects: Vec<Subject>,
}

/// The result of comparing the forms of a plugin.
#[derive(Debug)]
pub enum Compared {
    /// The original plugin cannot be loaded.
    Refused(String),
    /// The plugin has no snapshot, so the host serves the original.
    AsItCame(String),
    /// All forms answered alike.
    Alike(Alike),
}

/// Details of a comparison in which all forms answered alike.
#[derive(Clone, Debug, Default)]
pub struct Alike {
    /// Whether the component had a shim that was taken out.
    pub is_joined: bool,
    /// Whether the served component can import its memory.
    pub is_lent: bool,
    /// Number of calls in an instance that was reset after another call.
    pub calls_in_kept: u32,
    /// Whether the baseline compiler supports the plugin, and made the same snapshot.
    pub has_baseline: bool,
    /// Size of the snapshot in bytes.
    pub snapshot_bytes: usize,
    /// Size of the component that is served, in bytes.
    pub served_bytes: usize,
    /// Number of calls that were answered.
    pub answers: u32,
    /// Kinds of faults that calls ended with.
    pub faults: Vec<&'static str>,
}

/// The result of one call, for comparison with another call.
#[derive(Clone, Debug, PartialEq)]
struct Observed {
    answer: String,
    fault: Option<&'static str>,
    warnings: Vec<String>,
    annotations: Vec<(String, String)>,
    fuel: u64,
    memory_bytes: u64,
}

/// One form of the plugin: the original or a rewritten one.
struct Form {
    name: &'static str,
    guest: Guest,
}

/// Fuel for one call, for `describe` and for `configure`.
const FUEL: u64 = 1_000_000;
/// Extra fuel that instantiation may cost. Instantiation is part of every call, and of `configure` in the original
/// plugin.
const INSTANTIATION_FUEL: u64 = 64;
/// Number of calls of each kind in kept instances.
const CALLS_IN_KEPT: u32 = 5;
/// Memory difference that is tolerated, in bytes. Exceptions in `configure` leave objects on the plugin's heap, and a
/// snapshot does not contain that heap.
const HEAP_BYTES: u64 = 1 << 20;
/// Answer of a call that ended because its memory is limited.
const MEMORY: &str = "memory";
const SETTINGS: &str = r#"{"labels":["team"],"limit":7}"#;
/// Time limit for every call. Fuel ends a call within some milliseconds, so this limit never decides, even on a slow
/// machine.
const LONG: Duration = Duration::from_secs(30);
const REVIEWS: [&str; 2] = [
    r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u-1","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"name":"web","namespace":"shop","operation":"CREATE","userInfo":{"username":"jane","groups":["dev"]},"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","labels":{"app":"web"},"annotations":{"a/b":"1"}},"spec":{"containers":[{"name":"a","image":"registry.test/a:1"},{"name":"b","image":"b"}]}}}}"#,
    r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u-2","kind":{"group":"apps","version":"v1","kind":"Deployment"},"resource":{"group":"apps","version":"v1","resource":"deployments"},"name":"web","namespace":"shop","operation":"UPDATE","userInfo":{"username":"jane"},"object":{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":3}},"oldObject":{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":2}}}}"#,
];

// === impl Rewriting ===

impl Rewriting {
    /// Creates an engine that compiles without optimising.
    ///
    /// # Errors
    /// When the address space is too small for the engine.
    pub fn new() -> anyhow::Result<Self> {
        let limits = Limits {
            fuel: FUEL,
            cpu_time: LONG,
            timeout: LONG,
            ..Limits::default()
        };
        let engine = |tier, kept_instances| {
            Engine::new(&EngineSettings {
                max_concurrent_calls: 2,
                max_wasm_stack_bytes: 512 << 10,
                largest: limits.clone(),
                tier,
                kept_instances,
            })
        };
        let (keeping, baseline) = (engine(Tier::Once, 4)?, engine(Tier::Baseline, 0)?);
        let engine = engine(Tier::Once, 0)?;
        let subject = |text: &str| -> anyhow::Result<Subject> {
            let request = decode(text.as_bytes(), 32)?.request;
            let object = request.object.clone();
            Ok(Subject {
                request: Arc::new(request),
                object,
            })
        };
        Ok(Self {
            engine,
            baseline,
            keeping,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?,
            limits: Arc::new(limits),
            subjects: REVIEWS.into_iter().map(subject).collect::<Result<_, _>>()?,
        })
    }

    /// Rewrites a core module with its WIT world embedded, as the child process does, and calls the plugin in each
    /// form.
    ///
    /// # Errors
    /// The difference between the forms, or the rewriting step that failed.
    pub fn compare(&self, module: Vec<u8>) -> anyhow::Result<Compared> {
        let component = componentize(module).context("cannot make a component from the module")?;
        self.runtime.block_on(self.compare_component(&component))
    }

    async fn compare_component(&self, component: &[u8]) -> anyhow::Result<Compared> {
        let refused = |why: &dyn fmt::Display| Ok(Compared::Refused(why.to_string()));
        let settings = SETTINGS.to_owned();
        let configured = ConfiguredBy::EachCall {
            settings: settings.clone(),
            reason: String::new(),
        };
        // `configure` uses fuel of the call.
        let plain = match self.link(component, configured, 2 * FUEL) {
            Ok(plain) => plain,
            Err(error) => return refused(&tollgate_admission::chain(&error)),
        };
        let manifest = plain.describe(&self.engine, FUEL, LONG).await;
        let (configure_fuel, configured) = match plain
            .configure(&self.engine, &settings, FUEL, LONG)
            .await
        {
            Ok((store, _, configured)) => (FUEL - store.get_fuel().unwrap_or(0), Ok(configured)),
            Err(fault) => (0, Err(fault)),
        };

        let wizer = Wizer::new();
        let (context, with_exports) = match wizer.instrument_component(component) {
            Ok(instrumented) => instrumented,
            Err(error) => return Ok(Compared::AsItCame(format!("{error:#}"))),
        };
        let instrumented = self
            .link(&with_exports, ConfiguredBy::Snapshot, FUEL)
            .context("the instrumented component does not link")?;
        let description = instrumented.describe(&self.engine, FUEL, LONG).await;
        same(
            "the result of `describe`",
            &format!("{manifest:?}"),
            &format!("{description:?}"),
        )?;
        let outcome = instrumented
            .configure(&self.engine, &settings, FUEL, LONG)
            .await;
        let (mut store, instance) = match (configured, outcome) {
            (Ok(configured), Ok((store, instance, again))) => {
                same(
                    "`configure`",
                    &format!("{configured:?}"),
                    &format!("{again:?}"),
                )?;
                same(
                    "the fuel of `configure`",
                    &configure_fuel,
                    &(FUEL - store.get_fuel()?),
                )?;
                if let Configured::Rejected(_) = configured {
                    return refused(&"settings");
                }
                (store, instance)
            }
            (Err(fault), Err(again)) => {
                same(
                    "the fault of `configure`",
                    &format!("{fault:?}"),
                    &format!("{again:?}"),
                )?;
                return refused(&format!("configure: {}", fault.kind()));
            }
            (plain, again) => anyhow::bail!(
                "`configure` differs: original {plain:?}, instrumented {:?}",
                again.map(|(_, _, configured)| configured)
            ),
        };
        if let Err(fault) = manifest {
            return refused(&format!("describe: {}", fault.kind()));
        }

        store.set_hostcall_fuel(usize::MAX);
        store.epoch_deadline_callback(|_| Ok(UpdateDeadline::Continue(1)));
        store.set_fuel(u64::MAX)?;
        let mut source = WasmtimeWizerComponent {
            store: &mut store,
            instance,
        };
        // The snapshot panics if one of its own functions traps, for example when the plugin has filled the memory and
        // it cannot grow.
        let snapshot = AssertUnwindSafe(wizer.snapshot_component(&context, &mut source));
        let snapshot = match snapshot.catch_unwind().await {
            Ok(Ok(snapshot)) => snapshot,
            Ok(Err(error)) => return Ok(Compared::AsItCame(format!("{error:#}"))),
            Err(_) => return Ok(Compared::AsItCame("the snapshot panicked".to_owned())),
        };
        drop(store);
        let has_baseline = self
            .compare_baseline(&wizer, &context, &with_exports, configure_fuel, &snapshot)
            .await?;

        let joined = without_shim(&snapshot).context("cannot remove the shim")?;
        let served =
            trim(joined.as_deref().unwrap_or(&snapshot)).context("cannot trim the component")?;
        // In addition to the served form, check one intermediate step per plugin, chosen by the size of the snapshot.
        let step = match (snapshot.len() % 3, &joined) {
            (0, Some(joined)) => ("the joined snapshot", joined.clone()),
            (1, _) => {
                let trimmed = trim(&snapshot).context("cannot trim the snapshot")?;
                ("the trimmed snapshot", trimmed)
            }
            _ => ("the snapshot", snapshot.clone()),
        };
        let forms = [step, ("the served component", served.clone())];
        let lent = lent(&served).context("cannot lend the memories")?;
        let mut alike = Alike {
            is_joined: joined.is_some(),
            is_lent: lent.is_some(),
            has_baseline,
            snapshot_bytes: snapshot.len(),
            served_bytes: served.len(),
            ..Alike::default()
        };
        let mut forms = forms
            .into_iter()
            .map(|(name, bytes)| {
                let guest = self.link(&bytes, ConfiguredBy::Snapshot, FUEL);
                let guest = guest.with_context(|| format!("{name} does not link"))?;
                Ok(Form { name, guest })
            })
            .collect::<anyhow::Result<Vec<Form>>>()?;
        if let Some(lent) = &lent {
            let name = "the component that imports its memory";
            let guest = self.link_lent(&self.engine, lent);
            let guest = guest.with_context(|| format!("{name} does not link"))?;
            forms.push(Form { name, guest });
            let name = "the component whose instances are kept";
            let guest = self.link_lent(&self.keeping, lent);
            let guest = guest.with_context(|| format!("{name} does not link"))?;
            if guest.has_keeper() {
                forms.push(Form { name, guest });
            }
        }
        self.call(&plain, configure_fuel, &forms, &mut alike)
            .await?;
        Ok(Compared::Alike(alike))
    }

    /// Configures the plugin in code of the baseline compiler. The snapshot must be the same, and the fuel no higher.
    /// Returns false if the compiler does not support the plugin.
    async fn compare_baseline(
        &self,
        wizer: &Wizer,
        context: &ComponentContext<'_>,
        instrumented: &[u8],
        fuel: u64,
        snapshot: &[u8],
    ) -> anyhow::Result<bool> {
        let engine = &self.baseline;
        let Ok(guest) = self.link_in(engine, instrumented, ConfiguredBy::Snapshot, FUEL) else {
            return Ok(false);
        };
        let settings = SETTINGS.to_owned();
        let configured = guest.configure(engine, &settings, FUEL, LONG).await;
        let (mut store, instance, _) = configured.map_err(|fault| {
            anyhow::anyhow!("`configure` fails with the baseline compiler: {fault}")
        })?;
        // The baseline compiler charges an instruction on a range, such as `memory.fill`, as any other.
        let used = FUEL - store.get_fuel()?;
        anyhow::ensure!(
            used <= fuel,
            "`configure` uses {used} fuel with the baseline compiler, and {fuel} with the other"
        );
        store.set_hostcall_fuel(usize::MAX);
        store.epoch_deadline_callback(|_| Ok(UpdateDeadline::Continue(1)));
        store.set_fuel(u64::MAX)?;
        let mut source = WasmtimeWizerComponent {
            store: &mut store,
            instance,
        };
        let again = wizer.snapshot_component(context, &mut source).await;
        let again = again.map_err(|error| {
            anyhow::anyhow!("no snapshot with the baseline compiler: {error:#}")
        })?;
        anyhow::ensure!(
            again == snapshot,
            "the baseline compiler makes another snapshot"
        );
        Ok(true)
    }

    async fn call(
        &self,
        as_it_came: &Guest,
        configure_fuel: u64,
        forms: &[Form],
        alike: &mut Alike,
    ) -> anyhow::Result<()> {
        let exports = as_it_came.interfaces();
        let phases = [
            (Phase::Mutate, exports.mutating),
            (Phase::Validate, exports.validating),
        ];
        for (phase, _) in phases.into_iter().filter(|(_, is_there)| *is_there) {
            for (number, subject) in self.subjects.iter().enumerate() {
                let mut first = self.observe(as_it_came, phase, subject).await;
                first.fuel = first.fuel.saturating_sub(configure_fuel);
                match first.fault {
                    Some(kind) => alike.faults.push(kind),
                    None => alike.answers += 1,
                }
                let mut before = None;
                for form in forms {
                    // In kept instances, each call comes behind calls of all kinds.
                    let calls = match form.guest.has_keeper() {
                        true => CALLS_IN_KEPT,
                        false => 1,
                    };
                    let mut observed = self.observe(&form.guest, phase, subject).await;
                    // The same component in a new instance, whose fuel is exactly the same.
                    if let Some(new) = before.filter(|_| form.guest.has_keeper()) {
                        same("a call of a component with a keeper", &new, &observed)?;
                    }
                    for _ in 1..calls {
                        let is_kept = form.guest.idle_instances() > 0;
                        alike.calls_in_kept += u32::from(is_kept);
                        let again = self.observe(&form.guest, phase, subject).await;
                        anyhow::ensure!(
                            again == observed,
                            "{} on review {number} differs in a kept instance:\nfirst: {observed}\nagain: {again}",
                            phase.name()
                        );
                        observed = again;
                    }
                    anyhow::ensure!(
                        observed.agrees_with(&first),
                        "{} on review {number} differs:\nthe original: {first}\n{}: {observed}",
                        phase.name(),
                        form.name
                    );
                    before = Some(observed);
                }
            }
        }
        Ok(())
    }

    async fn observe(&self, guest: &Guest, phase: Phase, subject: &Subject) -> Observed {
        let deadline = Instant::now() + LONG;
        let report = guest.call(&self.engine, phase, subject, deadline);
        Observed::of(report.await)
    }

    fn link(
        &self,
        component: &[u8],
        configured: ConfiguredBy,
        fuel: u64,
    ) -> Result<Guest, tollgate_engine::GuestError> {
        self.link_in(&self.engine, component, configured, fuel)
    }

    fn link_in(
        &self,
        engine: &Engine,
        component: &[u8],
        configured: ConfiguredBy,
        fuel: u64,
    ) -> Result<Guest, tollgate_engine::GuestError> {
        Guest::link(
            engine,
            name(),
            component,
            configured,
            [],
            self.limits_with(fuel),
        )
    }

    fn link_lent(
        &self,
        engine: &Engine,
        lent: &Lent,
    ) -> Result<Guest, tollgate_engine::GuestError> {
        let memories: Vec<_> = lent.memories.iter().map(LentMemory::module).collect();
        Guest::link_lent(
            engine,
            name(),
            &lent.component,
            &memories,
            ConfiguredBy::Snapshot,
            [],
            self.limits_with(FUEL),
        )
    }

    fn limits_with(&self, fuel: u64) -> Arc<Limits> {
        Arc::new(Limits {
            fuel,
            ..Limits::clone(&self.limits)
        })
    }
}

// === impl Observed ===

impl Observed {
    fn of(report: CallReport) -> Self {
        let mut fault = None;
        let answer = match report.result {
            Ok(answer) => shown(&answer),
            Err(tollgate_engine::CallError::Fault(found)) => {
                fault = Some(found.kind());
                match found {
                    // The fuel limit is not the same for all forms.
                    tollgate_engine::Fault::OutOfFuel { .. } => "out of fuel".to_owned(),
                    // The heap that `configure` filled counts for the original, so that its memory ends earlier.
                    tollgate_engine::Fault::Memory(_) => MEMORY.to_owned(),
                    other => format!("{other:?}"),
                }
            }
            Err(other) => format!("{other:?}"),
        };
        Self {
            answer,
            fault,
            warnings: report.warnings,
            annotations: report.annotations,
            fuel: report.fuel,
            memory_bytes: report.memory_bytes,
        }
    }
}

impl Observed {
    /// Whether this result agrees with that of the original plugin.
    fn agrees_with(&self, as_it_came: &Self) -> bool {
        let (spent, first) = (self.fuel, as_it_came.fuel);
        if first + INSTANTIATION_FUEL >= FUEL {
            // The original plugin has twice the fuel, so it may reach the end of the call.
            let is_near = first <= FUEL + INSTANTIATION_FUEL;
            return self.fault == Some("out-of-fuel")
                || is_near && self.answer == as_it_came.answer;
        }
        let heap = as_it_came.memory_bytes.checked_sub(self.memory_bytes);
        // With more memory left, a plugin that fills its memory runs for longer.
        let most = match self.answer == MEMORY {
            true => FUEL,
            false => first + INSTANTIATION_FUEL,
        };
        (first..=most).contains(&spent)
            && heap.is_some_and(|bytes| bytes <= HEAP_BYTES)
            && self.answer == as_it_came.answer
            && self.fault == as_it_came.fault
            && self.warnings == as_it_came.warnings
            && self.annotations == as_it_came.annotations
    }
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; {:?}; {:?}; fuel {}; {} bytes",
            self.answer, self.warnings, self.annotations, self.fuel, self.memory_bytes
        )
    }
}

fn name() -> PluginName {
    PluginName::parse("generated").expect("the name is valid")
}

fn same<T: PartialEq + fmt::Debug>(what: &str, before: &T, after: &T) -> anyhow::Result<()> {
    anyhow::ensure!(
        before == after,
        "{what} differs: original {before:?}, instrumented {after:?}"
    );
    Ok(())
}

/// Formats an answer with the values in it.
fn shown(answer: &Answer) -> String {
    match answer {
        Answer::Mutation(Mutation::Operations(operations), _) => {
            let mut text = Vec::new();
            write_all(operations, &mut text);
            String::from_utf8_lossy(&text).into_owned()
        }
        Answer::Mutation(Mutation::MergePatch(json) | Mutation::Object(json), _) => json.to_text(),
        Answer::Unchanged | Answer::Allow | Answer::Deny(_) => format!("{answer:?}"),
    }
}
