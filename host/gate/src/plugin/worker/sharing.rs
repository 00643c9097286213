//! Code that plugins share because they differ only in their memories.
//!
//! Settings and interpreted policies are contents of memory. A child lets the component import its memories
//! (`tollgate_component::parted`), and hands them over beside it. The host finds or orders code for the component. For each
//! memory, it finds or orders code of a module that has this memory and a placeholder, and fills the contents in.
//!
//! Where a component cannot import a memory, and in code that runs once, the component itself has a placeholder. The host
//! copies bytes to places that the compiling child named, and reads neither components nor code.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;
use tollgate_component::{LentMemory, Separated};
use tollgate_engine::{Code, Compiled};

use super::child::ChildResult;
use super::{
    Keeping, Order, Pace, Plugin, PrepareError, ProtocolError, Stage, Task, Worker, blocking,
};
use crate::plugin::protocol::MemoryLine;

/// Size of a plugin from which its unoptimised code is shared, too, in bytes. Below, one more child costs more than the
/// compiler.
const SHARED_ONCE_BYTES: usize = 1 << 20;

/// Code that was found or compiled.
struct Found {
    code: Arc<Code>,
    /// Place of each image in the code.
    places: Vec<u64>,
    /// The modules of memories that the same child compiled.
    laid_out: Vec<LaidOut>,
    storing: Storing,
}

/// Code of the module of a memory, with a placeholder for its content.
struct LaidOut {
    memory: MemoryLine,
    code: Arc<Code>,
    /// Place of the content in the code.
    place: u64,
}

/// Code that is being stored, while others with the same order wait.
#[derive(Default)]
struct Storing {
    keeping: Vec<Keeping>,
    _turn: Option<OwnedMutexGuard<()>>,
}

// === impl Worker ===

impl Worker {
    /// Finds the code of a component, or runs a child that compiles it, and fills the component's images in.
    pub(super) async fn shared(
        &self,
        order: &Order,
        stage: Stage,
        separated: &Separated,
        pace: &mut Pace<'_>,
    ) -> Result<Compiled, PrepareError> {
        let Separated {
            component,
            images,
            memories,
        } = separated;
        let order = to_compile(order, stage, separated);
        let new = self.new_memories(&order, memories);
        let Found {
            code,
            places,
            laid_out,
            storing,
        } = self.compiled(&order, new, component, pace).await?;
        let filled = async {
            Ok(Compiled {
                component: self.filled(code, places, images).await?,
                memories: self.memories(&order, memories, laid_out, pace).await?,
            })
        };
        let (filled, ()) = tokio::join!(filled, storing.end());
        filled
    }

    /// The memories whose modules are not stored, each once.
    fn new_memories(&self, order: &Order, memories: &[Arc<LentMemory>]) -> Vec<MemoryLine> {
        let mut new = Vec::new();
        for memory in memories.iter().map(|memory| MemoryLine::of(memory)) {
            let key = self.key(&order.to_lay_out(memory), &[]);
            let is_stored = key.is_some_and(|key| self.store.has(&key));
            if !is_stored && !new.contains(&memory) {
                new.push(memory);
            }
        }
        new
    }

    /// Finds code that was compiled by an order, or runs a child that compiles it, and before it the modules of `new`
    /// memories. Others with the same order wait for the first of them until its code is stored.
    async fn compiled(
        &self,
        order: &Order,
        new: Vec<MemoryLine>,
        bytes: &[u8],
        pace: &mut Pace<'_>,
    ) -> Result<Found, PrepareError> {
        let key = self.key(order, bytes);
        // The first of them has its place already, so it goes on meanwhile.
        let turn = match &key {
            Some(key) => Some(self.compiling.enter(key.clone()).await),
            None => None,
        };
        let mut storing = Storing {
            keeping: Vec::new(),
            _turn: turn,
        };
        if let Some((places, code)) = self.recall(key.as_ref()).await? {
            return Ok(Found {
                code: code.component,
                places,
                laid_out: Vec::new(),
                storing,
            });
        }
        let mut order = order.clone();
        if let Task::Compile { memories, .. } = &mut order.task {
            memories.clone_from(&new);
        }
        match self.child(&order).run(&order, None, bytes, pace).await? {
            ChildResult::Compiled {
                code,
                places,
                laid_out,
            } => {
                let mut keep = |key, places: &Vec<u64>, code| {
                    let code = Arc::new(code);
                    let compiled = Compiled::from(Arc::clone(&code));
                    storing.keeping.push(self.keep(key, places, &compiled));
                    code
                };
                let code = keep(key, &places, code);
                // Whoever waits for the component finds the memories, too.
                let laid_out = new.into_iter().zip(laid_out);
                let laid_out = laid_out.map(|(memory, (code, place))| LaidOut {
                    memory,
                    code: keep(self.key(&order.to_lay_out(memory), &[]), &vec![place], code),
                    place,
                });
                Ok(Found {
                    code,
                    places,
                    laid_out: laid_out.collect(),
                    storing,
                })
            }
            ChildResult::Configured { .. } | ChildResult::Separated(_) => {
                Err(PrepareError::Protocol(ProtocolError::Component))
            }
        }
    }

    /// Whether the code of a component is stored, so that no compiler has to run.
    pub(super) fn has_code(&self, order: &Order, stage: Stage, separated: &Separated) -> bool {
        let order = to_compile(order, stage, separated);
        let key = self.key(&order, &separated.component);
        key.is_some_and(|key| self.store.has(&key))
    }

    /// Like [`Self::shared`], for the code of a whole plugin that runs once. Returns `None` if the plugin is small, or
    /// if it has to be compiled as a whole. The child that runs the code then compiles it.
    pub(super) async fn shared_once(
        &self,
        order: &Order,
        plugin: &Plugin<'_>,
        pace: &mut Pace<'_>,
    ) -> Result<Option<Arc<Code>>, PrepareError> {
        if plugin.bytes.len() < SHARED_ONCE_BYTES {
            return Ok(None);
        }
        let order = Order {
            task: Task::Separate {
                instrument: order.task.instruments(),
            },
            tier: order.once,
            ..order.clone()
        };
        let child = self.child(&order);
        let separated = match child.run(&order, None, plugin.bytes, pace).await? {
            ChildResult::Separated(separated) if separated.images.is_empty() => return Ok(None),
            ChildResult::Separated(separated) => separated,
            ChildResult::Configured { .. } | ChildResult::Compiled { .. } => {
                return Err(PrepareError::Protocol(ProtocolError::Component));
            }
        };
        match self.shared(&order, Stage::Compile, &separated, pace).await {
            // The code would take longer to carry than to make again. Without bytes, it is not handed over.
            Ok(code) if code.component.bytes()? > plugin.max_once_bytes() => {
                let store = self.store.clone();
                let none = blocking(move || store.write().and_then(tollgate_engine::Writing::end));
                Ok(Some(Arc::new(none.await??)))
            }
            Ok(code) => Ok(Some(code.component)),
            // Compiling the whole plugin says what is wrong with it.
            Err(PrepareError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn filled(
        &self,
        code: Arc<Code>,
        places: Vec<u64>,
        images: &[Vec<u8>],
    ) -> Result<Arc<Code>, PrepareError> {
        if places.len() != images.len() {
            return Err(PrepareError::Protocol(ProtocolError::Places {
                places: places.len(),
                images: images.len(),
            }));
        }
        if images.is_empty() {
            return Ok(code);
        }
        let (store, images) = (self.store.clone(), images.to_vec());
        let mut contents: Vec<_> = places.into_iter().zip(images).collect();
        contents.sort_unstable_by_key(|(place, _)| *place);
        let fill = move || {
            let contents = contents.iter();
            store.fill(&code, contents.map(|(place, image)| (*place, &image[..])))
        };
        Ok(Arc::new(blocking(fill).await??))
    }

    /// Finds the code of the modules of memories, or runs children that compile it, and fills the contents in. The child
    /// that compiled the component has `laid_out` some of them.
    async fn memories(
        &self,
        order: &Order,
        memories: &[Arc<LentMemory>],
        laid_out: Vec<LaidOut>,
        pace: &mut Pace<'_>,
    ) -> Result<Vec<Arc<Code>>, PrepareError> {
        let mut filled = Vec::new();
        for memory in memories {
            let line = MemoryLine::of(memory);
            let order = order.to_lay_out(line);
            let (place, code, storing) =
                if let Some(found) = laid_out.iter().find(|found| found.memory == line) {
                    (found.place, found.code.clone(), Storing::default())
                } else {
                    let found = self.compiled(&order, Vec::new(), &[], pace).await?;
                    let [place] = found.places[..] else {
                        return Err(PrepareError::Protocol(ProtocolError::Places {
                            places: found.places.len(),
                            images: 1,
                        }));
                    };
                    (place, found.code, found.storing)
                };
            let (store, memory) = (self.store.clone(), memory.clone());
            let fill = move || store.fill(&code, [(place, &memory.content[..])]);
            let (code, ()) = tokio::join!(blocking(fill), storing.end());
            filled.push(Arc::new(code??));
        }
        Ok(filled)
    }
}

// === impl Storing ===

impl Storing {
    /// Waits until the code is stored, and lets the next one look for it.
    async fn end(self) {
        for keeping in self.keeping {
            keeping.end().await;
        }
    }
}

/// The order to compile a component without the contents of its memories.
fn to_compile(order: &Order, stage: Stage, separated: &Separated) -> Order {
    let images = separated.images.iter();
    Order {
        task: Task::Compile {
            stage,
            images: images.map(|image| image.len() as u64).collect(),
            memories: Vec::new(),
        },
        ..order.clone()
    }
}
