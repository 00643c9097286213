//! The child's side: everything that is done with a plugin's bytes before they are trusted with a request.

use std::io::{BufRead, BufReader, Read, Write};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use rustix::process::{Resource, Rlimit, setrlimit};
use wasmtime::UpdateDeadline;
use wasmtime_wizer::{WasmtimeWizerComponent, Wizer};

use super::componentize::componentize;
use super::protocol::{Line, Manifest, ManifestRule, Order, Stage};
use super::shim::without_shim;
use super::trim::trim;
use crate::config::PluginName;
use crate::engine::bindings::types;
use crate::engine::{ConfiguredBy, Engine, EngineSettings, Guest, GuestError};

/// `describe` and `configure` may use this many times the fuel of a call: they run once.
const LOAD_FUEL_FACTOR: u64 = 20;
/// Between the CPU limit's warning and its kill.
const CPU_GRACE_SECONDS: u64 = 2;

struct Refusal {
    stage: Stage,
    reason: String,
}

struct Prepared {
    manifest: Manifest,
    component: Vec<u8>,
    fallback: Option<String>,
}

/// Runs the child: reads an order and the bytes from `input`, writes lines and the result to `output`.
///
/// # Errors
/// When `input` or `output` break, or the order cannot be read: then there is nobody to tell.
pub fn run(input: impl Read, output: impl Write) -> anyhow::Result<()> {
    let mut input = BufReader::new(input);
    let mut line = String::new();
    input.read_line(&mut line)?;
    let order: Order = serde_json::from_str(&line)?;
    limit_this_process(&order)?;
    let mut teller = Teller(output);
    teller.stage(Stage::Read)?;
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let prepared = runtime.block_on(prepare(&order, bytes, &mut teller));
    teller.end(prepared)
}

/// A module that takes minutes or gigabytes to compile takes down this process and no other.
fn limit_this_process(order: &Order) -> anyhow::Result<()> {
    let limit = |soft: u64, hard: u64| Rlimit {
        current: Some(soft),
        maximum: Some(hard),
    };
    setrlimit(Resource::Core, limit(0, 0))?;
    setrlimit(
        Resource::Cpu,
        limit(order.cpu_seconds, order.cpu_seconds + CPU_GRACE_SECONDS),
    )?;
    // Data, not address space: what a memory reserves and never touches costs nothing.
    setrlimit(
        Resource::Data,
        limit(order.memory_bytes, order.memory_bytes),
    )?;
    // Requests come first.
    let _: Result<i32, _> = rustix::process::nice(10);
    Ok(())
}

async fn prepare(
    order: &Order,
    bytes: Vec<u8>,
    teller: &mut Teller<impl Write>,
) -> Result<Prepared, Refusal> {
    let at = |stage: Stage| move |reason: String| Refusal { stage, reason };

    teller
        .stage(Stage::Componentize)
        .map_err(|error| at(Stage::Componentize)(error.to_string()))?;
    let component = caught(|| componentize(bytes).map_err(|error| error.to_string()))
        .map_err(at(Stage::Componentize))?;

    let _ = teller.stage(Stage::Compile);
    let name =
        PluginName::parse(&order.plugin).map_err(|error| at(Stage::Read)(error.to_string()))?;
    let limits = Arc::new(order.limits.clone());
    let engine = Engine::new(&EngineSettings {
        max_concurrent_calls: 4,
        max_wasm_stack_bytes: order.max_wasm_stack_bytes,
        largest: order.limits.clone(),
        cache_directory: &order.cache_directory,
        map_code: false,
    })
    .map_err(|error| at(Stage::Compile)(format!("the engine cannot be set up: {error:#}")))?;
    let link = |component: &[u8]| {
        let unsettled = ConfiguredBy::Snapshot;
        Guest::link(
            &engine,
            name.clone(),
            component,
            unsettled,
            order.capabilities.iter().copied(),
            limits.clone(),
        )
    };

    let fuel = order.limits.fuel.saturating_mul(LOAD_FUEL_FACTOR);
    let time = Duration::from_secs(order.cpu_seconds);
    if order.describe_only {
        let guest = link(&component).map_err(|error| at(Stage::Compile)(error.to_string()))?;
        let _ = teller.stage(Stage::Describe);
        let manifest = guest.describe(&engine, fuel, time).await;
        let manifest =
            manifest.map_err(|fault| at(Stage::Describe)(format!("{}: {fault}", fault.kind())))?;
        return Ok(Prepared {
            manifest: Manifest::from(manifest),
            component: Vec::new(),
            fallback: None,
        });
    }

    let wizer = Wizer::new();
    let instrumented = if order.snapshot {
        caught(|| {
            wizer
                .instrument_component(&component)
                .map_err(|error| format!("{error:#}"))
        })
    } else {
        Err("a snapshot was tried before and ended the process that took it".to_owned())
    };
    let (guest, context, mut fallback) = match instrumented {
        Ok((context, instrumented)) => match link(&instrumented) {
            Ok(guest) => (guest, Some(context), None),
            // What the plain component lacks, it lacks too, and says so more plainly.
            Err(error) => match link(&component) {
                Ok(guest) => (
                    guest,
                    None,
                    Some(format!("the component cannot be instrumented: {error}")),
                ),
                Err(error) => return Err(at(Stage::Compile)(error.to_string())),
            },
        },
        Err(reason) => {
            let guest = link(&component).map_err(|error| at(Stage::Compile)(error.to_string()))?;
            (
                guest,
                None,
                Some(format!("the component cannot be instrumented: {reason}")),
            )
        }
    };

    let _ = teller.stage(Stage::Describe);
    let manifest = guest
        .describe(&engine, fuel, time)
        .await
        .map_err(|fault| at(Stage::Describe)(format!("{}: {fault}", fault.kind())))?;

    let _ = teller.stage(Stage::Configure);
    let (mut store, instance, configured) = guest
        .configure(&engine, &order.settings, fuel, time)
        .await
        .map_err(|fault| at(Stage::Configure)(format!("{}: {fault}", fault.kind())))?;
    if let types::Configured::Rejected(errors) = configured {
        return Err(at(Stage::Configure)(rejected(&errors)));
    }

    let configure_fuel = fuel.saturating_sub(store.get_fuel().unwrap_or(0));

    let mut snapshot = None;
    if let Some(context) = context {
        let _ = teller.stage(Stage::Snapshot);
        if store.data().holds_resources() {
            fallback = Some(
                "it holds a WASI resource after `configure`, which no snapshot can hold".to_owned(),
            );
        } else {
            // The plugin's own code is done; what runs now is the instrumentation, which hands out all memory.
            store.set_hostcall_fuel(usize::MAX);
            store.epoch_deadline_callback(|_| Ok(UpdateDeadline::Continue(1)));
            let refuelled = store.set_fuel(u64::MAX);
            let mut source = WasmtimeWizerComponent {
                store: &mut store,
                instance,
            };
            let taken = AssertUnwindSafe(wizer.snapshot_component(&context, &mut source))
                .catch_unwind()
                .await;
            match (refuelled, taken) {
                (Ok(()), Ok(Ok(component))) => snapshot = Some(component),
                (Err(error), _) | (_, Ok(Err(error))) => {
                    fallback = Some(format!("the snapshot failed: {error:#}"))
                }
                (_, Err(panic)) => {
                    fallback = Some(format!("the snapshot failed: {}", panic_text(&*panic)))
                }
            }
        }
    }
    drop(store);

    let _ = teller.stage(Stage::CompileSnapshot);
    let component = match snapshot {
        Some(snapshot) => match compiled(snapshot, link) {
            Ok(compiled) => compiled,
            Err(error) => {
                fallback = Some(format!("the snapshot cannot be compiled: {error}"));
                component
            }
        },
        None => component,
    };
    if let Some(reason) = &fallback {
        // It runs in every call then, out of the call's own fuel.
        if configure_fuel >= order.limits.fuel {
            return Err(at(Stage::Configure)(format!(
                "`configure` uses {configure_fuel} fuel and has to run in every call, which has {} \
                 (limits.fuel), because there is no snapshot: {reason}",
                order.limits.fuel
            )));
        }
        link(&component).map_err(|error| at(Stage::Compile)(error.to_string()))?;
    }
    Ok(Prepared {
        manifest: Manifest::from(manifest),
        component,
        fallback,
    })
}

/// A snapshot without what it needs no more, or with what does not come to a component that links when it is taken out.
fn compiled(
    snapshot: Vec<u8>,
    link: impl Fn(&[u8]) -> Result<Guest, GuestError>,
) -> Result<Vec<u8>, GuestError> {
    let joined = attempted(|| without_shim(&snapshot)).flatten();
    let components = joined.as_deref().into_iter().chain([&*snapshot]);
    let smaller = components
        .filter_map(|component| attempted(|| trim(component)))
        .find(|smaller| link(smaller).is_ok());
    match smaller {
        Some(smaller) => Ok(smaller),
        None => link(&snapshot).map(|_| snapshot),
    }
}

fn rejected(errors: &[types::SettingsError]) -> String {
    if errors.is_empty() {
        return "it rejects its settings and does not say why".to_owned();
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

fn attempted<T, E: std::fmt::Display>(work: impl FnOnce() -> Result<T, E>) -> Option<T> {
    caught(|| work().map_err(|error| error.to_string())).ok()
}

fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    std::panic::catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(panic_text(&*panic)))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("no text"))
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

/// Writes lines to the host.
struct Teller<W>(W);

// === impl Teller ===

impl<W: Write> Teller<W> {
    fn line(&mut self, line: &Line) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.0, line)?;
        self.0.write_all(b"\n")?;
        Ok(self.0.flush()?)
    }

    fn stage(&mut self, stage: Stage) -> anyhow::Result<()> {
        self.line(&Line::Stage(stage))
    }

    fn end(mut self, prepared: Result<Prepared, Refusal>) -> anyhow::Result<()> {
        match prepared {
            Ok(Prepared {
                manifest,
                component,
                fallback,
            }) => {
                self.line(&Line::Prepared {
                    manifest,
                    fallback,
                    component_bytes: component.len() as u64,
                })?;
                self.0.write_all(&component)?;
                Ok(self.0.flush()?)
            }
            Err(Refusal { stage, reason }) => self.line(&Line::Refused { stage, reason }),
        }
    }
}
