//! The child that runs guest code: it describes and configures a plugin, and makes the component to compile.

use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tollgate_admission::chain;
use tollgate_component::trim::trim;
pub(super) use tollgate_engine::bindings::types;
use tollgate_engine::{Fault, Guest};
use wasmparser::Validator;
use wasmtime::UpdateDeadline;
use wasmtime_wizer::{WasmtimeWizerComponent, Wizer};

use super::patience::{MAX_SLEEP, Slept, patiently};
use super::{
    Outcome, Refusal, Reporter, Workshop, attempted, caught, component_of, panic_text, sizes,
};
use crate::plugin::protocol::{
    Line, Manifest, ManifestRule, MemoryLine, Order, Rewriting, Stage, Task,
};
use tollgate_component::{Separated, parted, without_shim};

/// Factor by which the fuel of `describe` and `configure` exceeds that of a call. The two run only once.
const LOAD_FUEL_FACTOR: u64 = 20;
/// Least fuel of `describe` and `configure`. A plugin in Python compiles the policy's own modules in them, which takes some
/// 50 million units for 150 lines, while its calls may take less than one million.
const MIN_LOAD_FUEL: u64 = 500_000_000;

/// Describes a plugin, and configures it if ordered to. `code` is the code that another child made of the plugin. If it
/// is empty, this child compiles the plugin, and hands the code over if ordered to.
pub(super) async fn configure(
    order: &Order,
    code: &[u8],
    plugin: Vec<u8>,
    reporter: &mut Reporter<impl Write>,
) -> Result<Outcome, Refusal> {
    let component = component_of(plugin, reporter)?;
    let _ = reporter.stage(Stage::Compile);
    let workshop = Workshop::open(order, order.once)?;
    match &order.task {
        Task::Configure {
            settings,
            rewriting,
        } => {
            Configuring::new(order, &workshop, settings, rewriting)
                .run(&component, code, reporter)
                .await
        }
        Task::Describe | Task::Compile { .. } | Task::LayOut { .. } | Task::Separate { .. } => {
            let guest = linked(&workshop, &component, code)
                .map_err(|reason| Stage::Compile.refuses(reason))?;
            hand_over(order, code, &guest, None, reporter)?;
            let manifest = Loading::of(order)
                .describe(&workshop, &guest, reporter)
                .await?;
            Ok(configured(manifest, whole(Vec::new()), None))
        }
    }
}

/// Links the code of another child, or compiles the component.
fn linked(workshop: &Workshop<'_>, component: &[u8], code: &[u8]) -> Result<Guest, String> {
    caught(|| {
        let guest = match code {
            [] => workshop.link(component),
            // The compiling child made the component as this one does: same program, same bytes.
            code => workshop.link_code(code),
        };
        guest.map_err(|error| chain(&error))
    })
}

/// Hands over the code of a guest that this child has compiled, if ordered to. No guest code has run yet, so the code is
/// what the compiler made. `uninstrumented` is the reason why the code cannot take a snapshot although it should.
fn hand_over(
    order: &Order,
    given: &[u8],
    guest: &Guest,
    uninstrumented: Option<String>,
    reporter: &mut Reporter<impl Write>,
) -> Result<(), Refusal> {
    if !given.is_empty() || order.max_code_bytes == 0 {
        return Ok(());
    }
    let code = guest
        .code()
        .map_err(|error| Stage::Compile.refuses(format!("{error:#}")))?;
    let fits = code.len() as u64 <= order.max_code_bytes;
    // If the host is gone, the next read or write ends this process.
    let _ = reporter.code(if fits { &code } else { &[] }, uninstrumented);
    Ok(())
}

fn configured(manifest: Manifest, separated: Separated, fallback: Option<String>) -> Outcome {
    let Separated {
        component,
        images,
        memories,
    } = separated;
    Outcome {
        line: Line::Configured {
            manifest,
            fallback,
            component_bytes: component.len() as u64,
            images: sizes(&images),
            memories: memories
                .iter()
                .map(|memory| MemoryLine::of(memory))
                .collect(),
        },
        bytes: component,
        contents: images
            .into_iter()
            .chain(
                memories
                    .into_iter()
                    .map(|memory| Arc::unwrap_or_clone(memory).content),
            )
            .collect(),
    }
}

/// A component from which nothing is separated.
fn whole(component: Vec<u8>) -> Separated {
    Separated {
        component,
        images: Vec::new(),
        memories: Vec::new(),
    }
}

/// Limits of a guest while it is loaded.
struct Loading {
    fuel: u64,
    time: Duration,
}

/// The work of configuring a plugin and making its component.
struct Configuring<'a> {
    order: &'a Order,
    workshop: &'a Workshop<'a>,
    settings: &'a String,
    rewriting: &'a Rewriting,
    wizer: Wizer,
}

/// Returns the fuel of `describe` and `configure` for that of a call.
fn load_fuel(call: u64) -> u64 {
    call.saturating_mul(LOAD_FUEL_FACTOR).max(MIN_LOAD_FUEL)
}

// === impl Loading ===

impl Loading {
    fn of(order: &Order) -> Self {
        Self {
            fuel: load_fuel(order.limits.fuel),
            time: Duration::from_secs(order.cpu_seconds),
        }
    }

    async fn describe(
        &self,
        workshop: &Workshop<'_>,
        guest: &Guest,
        reporter: &mut Reporter<impl Write>,
    ) -> Result<Manifest, Refusal> {
        let _ = reporter.stage(Stage::Describe);
        let described = guest.describe(&workshop.engine, self.fuel, self.time);
        awake(Stage::Describe, described).await.map(Manifest::from)
    }
}

/// Waits for a guest's answer in a stage. Refuses the plugin if it fails or sleeps too long.
async fn awake<T>(stage: Stage, run: impl Future<Output = Result<T, Fault>>) -> Result<T, Refusal> {
    match patiently(run, MAX_SLEEP).await {
        Ok(said) => said.map_err(|fault| Refusal {
            is_fault: !is_about_limits(&fault),
            ..stage.refuses(format!("{}: {fault}", fault.kind()))
        }),
        Err(Slept) => Err(stage.refuses(format!(
            "deadline: the plugin slept for more than {} s at load, where it has nothing to wait for: remove the \
             sleep",
            MAX_SLEEP.as_secs()
        ))),
    }
}

/// Whether a guest needed more fuel or time than it has. Code of another compiler would need as much.
fn is_about_limits(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::OutOfFuel { .. } | Fault::CpuDeadline { .. } | Fault::Deadline { .. }
    )
}

// === impl Configuring ===

impl<'a> Configuring<'a> {
    fn new(
        order: &'a Order,
        workshop: &'a Workshop<'a>,
        settings: &'a String,
        rewriting: &'a Rewriting,
    ) -> Self {
        Self {
            order,
            workshop,
            settings,
            rewriting,
            wizer: Wizer::new(),
        }
    }

    async fn run(
        &self,
        component: &[u8],
        code: &[u8],
        reporter: &mut Reporter<impl Write>,
    ) -> Result<Outcome, Refusal> {
        let instrumented = match self.rewriting {
            Rewriting::Without { reason } => Err(reason.clone()),
            Rewriting::Trimmed | Rewriting::Snapshot => caught(|| {
                self.wizer
                    .instrument_component(component)
                    .map_err(|error| format!("{error:#}"))
            })
            .map_err(|reason| format!("the component cannot be instrumented: {reason}")),
        };
        let link = |component: &[u8]| linked(self.workshop, component, code);
        let linked = instrumented.and_then(|(context, instrumented)| match link(&instrumented) {
            Ok(guest) => Ok((context, guest)),
            Err(reason) => Err(format!("the component cannot be instrumented: {reason}")),
        });
        let (guest, context, mut fallback) = match linked {
            Ok((context, guest)) => (guest, Some(context), None),
            // If the plain component lacks something, the instrumented one lacks it too. The error of the plain one is
            // clearer.
            Err(reason) => match link(component) {
                Ok(guest) => (guest, None, Some(reason)),
                Err(reason) => return Err(Stage::Compile.refuses(reason)),
            },
        };
        let uninstrumented = match self.rewriting {
            Rewriting::Without { .. } => None,
            Rewriting::Trimmed | Rewriting::Snapshot => fallback.clone(),
        };
        hand_over(self.order, code, &guest, uninstrumented, reporter)?;

        let loading = Loading::of(self.order);
        let manifest = loading.describe(self.workshop, &guest, reporter).await?;

        let _ = reporter.stage(Stage::Configure);
        let engine = &self.workshop.engine;
        let configuring = guest.configure(engine, self.settings, loading.fuel, loading.time);
        let (mut store, instance, answer) = awake(Stage::Configure, configuring).await?;
        if let types::Configured::Rejected(errors) = answer {
            return Err(Stage::Configure.refuses(rejected(&errors)));
        }
        let fuel = loading.fuel.saturating_sub(store.get_fuel().unwrap_or(0));

        let mut snapshot = None;
        if let Some(context) = context {
            let _ = reporter.stage(Stage::Snapshot);
            if store.data().holds_resources() {
                fallback = Some(
                    "the plugin holds a WASI resource after `configure`, which no snapshot can hold"
                        .to_owned(),
                );
            } else {
                // The plugin's own code is finished. From here on, only the instrumentation runs, which hands out all
                // memory.
                store.set_hostcall_fuel(usize::MAX);
                store.epoch_deadline_callback(|_| Ok(UpdateDeadline::Continue(1)));
                let refuelled = store.set_fuel(u64::MAX);
                let mut source = WasmtimeWizerComponent {
                    store: &mut store,
                    instance,
                };
                let taken = AssertUnwindSafe(self.wizer.snapshot_component(&context, &mut source))
                    .catch_unwind()
                    .await;
                match (refuelled, taken) {
                    (Ok(()), Ok(Ok(component))) => snapshot = Some(component),
                    (Err(error), _) | (_, Ok(Err(error))) => {
                        fallback = Some(format!("the snapshot failed: {error:#}"));
                    }
                    (_, Err(panic)) => {
                        fallback = Some(format!("the snapshot failed: {}", panic_text(&*panic)));
                    }
                }
            }
        }
        drop(store);

        if let Some(reason) = &fallback {
            // Without a snapshot, `configure` runs in every call and uses the call's own fuel.
            let limit = self.order.limits.fuel;
            if fuel >= limit {
                return Err(Stage::Configure.refuses(format!(
                    "`configure` uses {fuel} fuel and must run in every call, but a call has {limit} (limits.fuel); \
                     there is no snapshot: {reason}"
                )));
            }
        }
        let component = match (snapshot, self.rewriting) {
            (Some(snapshot), Rewriting::Trimmed) => {
                let trimmed = trimmed(&snapshot).unwrap_or(snapshot);
                attempted(|| parted(&trimmed)).unwrap_or_else(|| whole(trimmed))
            }
            (Some(snapshot), _) => whole(snapshot),
            (None, _) => whole(component.to_vec()),
        };
        Ok(configured(manifest, component, fallback))
    }
}

/// Removes the code that a snapshot no longer needs. Returns `None` unless the result is valid.
fn trimmed(snapshot: &[u8]) -> Option<Vec<u8>> {
    let joined = attempted(|| without_shim(snapshot)).flatten();
    let components = joined.as_deref().into_iter().chain([snapshot]);
    components
        .filter_map(|component| attempted(|| trim(component)))
        .find(|smaller| Validator::new().validate_all(smaller).is_ok())
}

fn rejected(errors: &[types::SettingsError]) -> String {
    if errors.is_empty() {
        return "it rejects its settings without a reason".to_owned();
    }
    let lines: Vec<String> = errors
        .iter()
        .map(|error| match error.field.as_deref() {
            Some(field) if !field.is_empty() => {
                format!("settings{}: {}", field.replace('/', "."), error.message)
            }
            _ => format!("settings: {}", error.message),
        })
        .collect();
    format!("it rejects its settings: {}", lines.join("; "))
}

// === impl Manifest ===

impl From<types::Manifest> for Manifest {
    fn from(manifest: types::Manifest) -> Self {
        Self {
            name: manifest.name,
            version: manifest.version,
            description: manifest.description,
            settings_schema: manifest.settings_schema,
            rules: manifest
                .rules
                .into_iter()
                .map(|rule| ManifestRule {
                    operations: rule.operations,
                    api_groups: rule.api_groups,
                    api_versions: rule.api_versions,
                    resources: rule.resources,
                    scope: rule.scope,
                })
                .collect(),
            labels: manifest.labels,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loading_has_enough_fuel_for_cheap_calls() {
        assert_eq!(load_fuel(1), MIN_LOAD_FUEL);
        assert_eq!(load_fuel(100_000_000), 2_000_000_000);
        assert_eq!(load_fuel(u64::MAX), u64::MAX);
    }
}
