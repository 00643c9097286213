//! The child's side of preparing a plugin: all work on a plugin's bytes before they are trusted with a request.
//!
//! A child does one of two tasks:
//!
//! - Run guest code and hand back a component (`prepare/configure`).
//! - Compile a component and hand back machine code (`prepare/compile`).
//!
//! A process never does both. The code that the host executes is therefore made where no guest has ever run. The first
//! child may compile the plugin for its own run. It hands that code over before the guest runs, for other children.
//! A child can open neither files nor sockets (`prepare/confine`).

mod compile;
mod configure;
mod confine;
mod patience;

use std::io::{BufRead, BufReader, Read, Write};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use tollgate_admission::chain;
use tollgate_config::PluginName;
use tollgate_engine::{ConfiguredBy, Engine, EngineSettings, Guest, GuestError, Tier};

use super::protocol::{Line, Order, Stage, Task};
use tollgate_component::{componentize, flattened, ordered};

/// The argument that a host starts a child with.
pub const SUBCOMMAND: &str = "prepare";
/// The environment variable that a host sets for a child. It tells a child from a program whose user typed the same
/// argument.
pub const CHILD_VARIABLE: &str = "TOLLGATE_PREPARE";

/// The result of a child: a line, and the bytes that follow it.
struct Outcome {
    line: Line,
    bytes: Vec<u8>,
    /// The contents of memories that were separated from the bytes. They follow the bytes.
    contents: Vec<Vec<u8>>,
}

struct Refusal {
    stage: Stage,
    reason: String,
    /// Whether the plugin's own code failed in a way that could be a mistake of the compiler.
    is_fault: bool,
}

/// The engine of a child, with the order that its guests are linked for.
struct Workshop<'o> {
    engine: Engine,
    name: PluginName,
    order: &'o Order,
}

/// Writes lines to the host.
struct Reporter<W>(W);

/// Runs the child: reads an order and the bytes from `input`, writes lines and the result to `output`.
///
/// # Errors
/// When `input` or `output` breaks, the order cannot be read, or a limit cannot be set. The child then ends without a
/// result.
pub fn run(input: impl Read, output: impl Write) -> anyhow::Result<()> {
    let mut input = BufReader::new(input);
    let mut line = String::new();
    input.read_line(&mut line)?;
    let order: Order = serde_json::from_str(&line)?;
    let missing = confine::confine(order.cpu_seconds, order.memory_bytes)?;
    let mut reporter = Reporter(output);
    reporter.line(&Line::Confined { missing })?;
    reporter.stage(Stage::Read)?;
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes)?;
    let code_bytes = usize::try_from(order.code_bytes)?.min(bytes.len());
    let plugin = bytes.split_off(code_bytes);
    let (code, bytes) = (bytes, plugin);
    let outcome = match &order.task {
        Task::Separate { instrument } => compile::separated(*instrument, bytes, &mut reporter),
        Task::Compile {
            stage,
            images,
            memories,
        } => compile::compile(&order, *stage, images, memories, &bytes, &mut reporter),
        Task::LayOut { memory } => compile::laid_out(&order, *memory, &mut reporter),
        Task::Describe | Task::Configure { .. } => {
            // Enable timers only: for input and output, tokio would open files.
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()?;
            runtime.block_on(configure::configure(&order, &code, bytes, &mut reporter))
        }
    };
    reporter.end(outcome)
}

// === impl Workshop ===

impl<'o> Workshop<'o> {
    fn open(order: &'o Order, tier: Tier) -> Result<Self, Refusal> {
        let name =
            PluginName::parse_any(&order.plugin).map_err(|error| Stage::Read.refuses(error))?;
        let engine = Engine::new(&EngineSettings {
            max_concurrent_calls: 1,
            max_wasm_stack_bytes: order.max_wasm_stack_bytes,
            largest: order.limits.clone(),
            tier,
            kept_instances: u32::from(order.keeps_instances),
        });
        let engine = engine.map_err(|error| {
            Stage::Compile.refuses(format!("failed to set up the engine: {error:#}"))
        })?;
        Ok(Self {
            engine,
            name,
            order,
        })
    }

    /// Links a component that another child compiled.
    fn link_code(&self, code: &[u8]) -> Result<Guest, GuestError> {
        Guest::link_bytes(
            &self.engine,
            self.name.clone(),
            code,
            self.order.capabilities.iter().copied(),
            Arc::new(self.order.limits.clone()),
        )
    }

    /// Compiles and links a component, as the host would with these limits and capabilities.
    fn link(&self, component: &[u8]) -> Result<Guest, GuestError> {
        self.link_lent(component, &[])
    }

    /// Compiles and links a component that imports its memories, with modules of these.
    fn link_lent(&self, component: &[u8], memories: &[Vec<u8>]) -> Result<Guest, GuestError> {
        Guest::link_lent(
            &self.engine,
            self.name.clone(),
            component,
            memories,
            ConfiguredBy::Snapshot,
            self.order.capabilities.iter().copied(),
            Arc::new(self.order.limits.clone()),
        )
    }
}

// === impl Stage ===

impl Stage {
    fn refuses(self, reason: impl ToString) -> Refusal {
        Refusal {
            stage: self,
            reason: reason.to_string(),
            is_fault: false,
        }
    }
}

/// Makes a component of a plugin's file.
fn component_of(bytes: Vec<u8>, reporter: &mut Reporter<impl Write>) -> Result<Vec<u8>, Refusal> {
    let _ = reporter.stage(Stage::Componentize);
    let component = caught(|| componentize(bytes).map_err(|error| chain(&error)))
        .map_err(|reason| Stage::Componentize.refuses(reason))?;
    // A component that cannot be read is refused when it is compiled, with a better reason.
    let component = attempted(|| flattened(&component))
        .flatten()
        .unwrap_or(component);
    let in_order = attempted(|| ordered(&component)).flatten();
    Ok(in_order.unwrap_or(component))
}

/// The sizes of images, in bytes.
fn sizes(images: &[Vec<u8>]) -> Vec<u64> {
    images.iter().map(|image| image.len() as u64).collect()
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
    format!("panicked: {}", text.unwrap_or("without a message"))
}

// === impl Reporter ===

impl<W: Write> Reporter<W> {
    fn line(&mut self, line: &Line) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.0, line)?;
        self.0.write_all(b"\n")?;
        Ok(self.0.flush()?)
    }

    /// Hands over the code that this child will run. Call this before any guest code runs: the host reuses the code.
    fn code(&mut self, code: &[u8], fallback: Option<String>) -> anyhow::Result<()> {
        self.with_bytes(
            &Line::Compiled {
                code_bytes: code.len() as u64,
                fallback,
                places: Vec::new(),
            },
            code,
        )
    }

    fn with_bytes(&mut self, line: &Line, bytes: &[u8]) -> anyhow::Result<()> {
        self.line(line)?;
        self.0.write_all(bytes)?;
        Ok(self.0.flush()?)
    }

    /// Hands over the code of a memory's module.
    fn laid_out(&mut self, code: &[u8], place: u64) -> anyhow::Result<()> {
        self.with_bytes(
            &Line::LaidOut {
                code_bytes: code.len() as u64,
                place,
            },
            code,
        )
    }

    /// Reports a stage. Callers may ignore an error: if the host is gone, the next read or write ends this process.
    fn stage(&mut self, stage: Stage) -> anyhow::Result<()> {
        self.line(&Line::Stage(stage))
    }

    fn end(mut self, outcome: Result<Outcome, Refusal>) -> anyhow::Result<()> {
        match outcome {
            Ok(Outcome {
                line,
                bytes,
                contents,
            }) => {
                self.line(&line)?;
                self.0.write_all(&bytes)?;
                for content in contents {
                    self.0.write_all(&content)?;
                }
                Ok(self.0.flush()?)
            }
            Err(Refusal {
                stage,
                reason,
                is_fault,
            }) => self.line(&Line::Refused {
                stage,
                reason,
                is_fault,
            }),
        }
    }
}
