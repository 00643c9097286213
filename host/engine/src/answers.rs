//! Gives the answer of an earlier call to a call that would ask the same and be told the same.
//!
//! A call begins in a fresh instance, and everything that the plugin learns comes from host functions. So two calls of
//! one plugin are alike up to the first answer of a host function that differs. If none differs, the plugin gives the
//! same answer, with the same warnings and the same fuel. The host can therefore follow an earlier call. It
//! asks the review each question of that call, and compares the answers of then and now.
//!
//! ```text
//! get-many [/metadata/labels/team]  ─ "blue" → allow
//!                                   ─ absent → get /metadata/name ─ "a" → deny
//!                                                                 ─ "b" → deny
//! ```
//!
//! Only calls that ask nothing but the review are kept. The others are never kept: calls that write log lines, read the
//! clock, look objects up, ask about rights or images, or use WASI, and calls about Secrets. Each host function counts
//! itself ([`CallState::host_calls`]), so a function that this module does not know rules out its calls.
//!
//! The host does not rely on this reasoning alone. It makes one call in [`CHECKED`] although it knows the answer, and
//! compares. From the first difference on, it keeps no answer of this plugin.

mod transcript;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tollgate_admission::Phase;
use tollgate_admission::namespaces::Namespaces;
use tollgate_config::PluginName;

use super::answer::RawAnswer;
use super::grounds::Grounds;
use super::state::Subject;
pub(super) use transcript::{Document, Question, Scalar, Told, Transcript, document};

/// The memory for the kept answers of all plugins.
#[derive(Debug)]
pub(super) struct AnswerMemory {
    limit_bytes: u64,
    used_bytes: AtomicU64,
    /// Number of plugins that keep answers, or want to.
    sharers: AtomicU64,
}

/// The kept answers of one plugin.
pub(super) struct Answers {
    memory: Arc<AnswerMemory>,
    tree: RwLock<Tree>,
    /// Number of calls until answers are kept again.
    pause: AtomicU32,
    /// How often in a row a full tree was of no use.
    useless: AtomicU32,
    /// Number of calls that were answered by an earlier one.
    reused: AtomicU64,
    /// Whether a known answer was left out, so that the next call is compared.
    owes_comparison: AtomicBool,
    /// Whether the plugin answered two equal calls differently.
    is_off: AtomicBool,
}

/// What an earlier call answered.
#[derive(Debug, PartialEq)]
pub(super) struct Kept {
    pub(super) answer: RawAnswer,
    pub(super) warnings: Vec<String>,
    pub(super) annotations: Vec<(String, String)>,
    pub(super) grounds: Grounds,
    pub(super) fuel: u64,
    pub(super) memory_bytes: u64,
}

/// The earlier calls, as what they asked and were told.
#[derive(Default)]
struct Tree {
    /// The beginnings: one for each phase, without and with grounds.
    roots: [Option<Next>; 4],
    hasher: RandomState,
    bytes: u64,
    /// Whether the plugin counts as one that shares the memory.
    is_sharer: bool,
    /// Number of kept answers.
    kept: u32,
    /// Number of calls since the tree was empty.
    found: AtomicU32,
}

/// The next step of a plugin.
enum Next {
    /// It asks.
    Asks(Box<Node>),
    /// It answers.
    Answers(Arc<Kept>),
}

struct Node {
    question: Question,
    /// The most fuel that looking for the answer has used.
    most_fuel: u64,
    /// The answers that the plugin got, each with its next step.
    branches: HashMap<Told, Next>,
}

/// What became of a call that was to be kept.
enum Keeping {
    Kept,
    Known,
    Full,
    /// An equal call has another answer, or asked something else.
    Differs,
}

/// One of so many calls whose answer is known is made, and compared.
const CHECKED: u64 = 1024;
/// One plugin's answers may take this part of all memory. When more plugins than this share the memory, each has an equal
/// part.
const LARGEST_PART: u64 = 8;
/// Number of calls that are not kept after a call that cannot be kept.
const PAUSE: u32 = 1024;
/// After answers that helped too few calls, the pause is twice as long, and doubles so many times while that goes on.
const MOST_DOUBLINGS: u32 = 5;
/// Maximum length of the texts of an answer that is kept, in bytes. Reading an answer is the host's work in each call.
pub(super) const MOST_ANSWER_BYTES: usize = 16 << 10;
/// The memory of a kept call, besides its texts.
const BYTES_PER_CALL: u64 = 512;

// === impl AnswerMemory ===

impl AnswerMemory {
    pub(super) fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            limit_bytes,
            used_bytes: AtomicU64::new(0),
            sharers: AtomicU64::new(0),
        })
    }

    /// The memory that one plugin may take.
    fn part(&self) -> u64 {
        self.limit_bytes / self.sharers.load(Ordering::Relaxed).max(LARGEST_PART)
    }

    fn take(&self, bytes: u64) -> bool {
        let taken = self
            .used_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                Some(used + bytes).filter(|used| *used <= self.limit_bytes)
            });
        taken.is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Leaves the memory to the other plugins.
    fn leave(&self, tree: &mut Tree) {
        if std::mem::take(&mut tree.is_sharer) {
            self.sharers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

// === impl Answers ===

impl Answers {
    pub(super) fn new(memory: &Arc<AnswerMemory>) -> Self {
        Self {
            memory: memory.clone(),
            tree: RwLock::default(),
            pause: AtomicU32::new(0),
            useless: AtomicU32::new(0),
            reused: AtomicU64::new(0),
            owes_comparison: AtomicBool::new(false),
            is_off: AtomicBool::new(false),
        }
    }

    /// Creates an empty memory for the same code with other limits.
    pub(super) fn empty(&self) -> Self {
        Self::new(&self.memory)
    }

    /// The answer of an earlier call, if this call would ask the same and be told the same. None for one call in
    /// [`CHECKED`], which is then made and compared.
    pub(super) fn recall(
        &self,
        phase: Phase,
        subject: &Subject,
        namespaces: &dyn Namespaces,
        with_grounds: bool,
    ) -> Option<Arc<Kept>> {
        let tree = self.tree.read().unwrap_or_else(PoisonError::into_inner);
        let mut next = tree.roots[place(phase, with_grounds)].as_ref()?;
        let kept = loop {
            match next {
                Next::Answers(kept) => break kept.clone(),
                Next::Asks(node) => next = node.follow(subject, namespaces)?,
            }
        };
        tree.found.fetch_add(1, Ordering::Relaxed);
        drop(tree);
        let reused = self.reused.fetch_add(1, Ordering::Relaxed) + 1;
        if reused.is_multiple_of(CHECKED) {
            self.owes_comparison.store(true, Ordering::Relaxed);
            return None;
        }
        Some(kept)
    }

    /// Whether the next call is to be written down: to keep its answer, or to compare it with a known one.
    pub(super) fn wants_transcript(&self) -> bool {
        if self.is_off.load(Ordering::Relaxed) {
            return false;
        }
        // A pause is no reason to trust known answers without a comparison.
        if self.owes_comparison.load(Ordering::Relaxed)
            && self.owes_comparison.swap(false, Ordering::Relaxed)
        {
            return true;
        }
        let pause = self.pause.load(Ordering::Relaxed);
        if pause == 0 {
            return true;
        }
        self.pause.store(pause - 1, Ordering::Relaxed);
        false
    }

    /// Does without transcripts for a while, because the plugin's calls cannot be kept.
    pub(super) fn rest(&self) {
        self.pause.store(PAUSE, Ordering::Relaxed);
    }

    /// Does without transcripts for longer each time, because the plugin's calls hardly repeat each other.
    fn rest_longer(&self) {
        let before = self.useless.fetch_add(1, Ordering::Relaxed);
        self.pause
            .store(PAUSE << (before + 1).min(MOST_DOUBLINGS), Ordering::Relaxed);
    }

    /// Keeps the answer of a call.
    pub(super) fn keep(
        &self,
        plugin: &PluginName,
        phase: Phase,
        with_grounds: bool,
        transcript: Transcript,
        kept: Kept,
    ) {
        let bytes = BYTES_PER_CALL + transcript.bytes() + kept.bytes();
        let mut tree = self.tree.write().unwrap_or_else(PoisonError::into_inner);
        // Calls may have been under way when the plugin was found to answer differently.
        if self.is_off.load(Ordering::Relaxed) {
            return;
        }
        if !std::mem::replace(&mut tree.is_sharer, true) {
            self.memory.sharers.fetch_add(1, Ordering::Relaxed);
        }
        let has_room = tree.bytes + bytes <= self.memory.part();
        let has_room = has_room && self.memory.take(bytes);
        let keeping = tree.add(place(phase, with_grounds), transcript, kept, has_room);
        match keeping {
            Keeping::Kept => {
                tree.bytes += bytes;
                return;
            }
            _ if has_room => self.memory.give_back(bytes),
            _ => {}
        }
        match keeping {
            Keeping::Kept | Keeping::Known => {}
            Keeping::Full => {
                // A tree that answers fewer calls than it has cost is of no use for now.
                let is_useless = *tree.found.get_mut() < tree.kept;
                let is_empty = tree.kept == 0;
                self.clear(&mut tree);
                if is_useless {
                    self.memory.leave(&mut tree);
                    self.rest_longer();
                } else if is_empty {
                    // Others have the memory, or the call needs more than this plugin's part.
                    self.rest();
                } else {
                    self.useless.store(0, Ordering::Relaxed);
                }
            }
            Keeping::Differs => {
                self.is_off.store(true, Ordering::Relaxed);
                self.clear(&mut tree);
                self.memory.leave(&mut tree);
                tracing::error!(
                    %plugin, phase = phase.name(),
                    "the plugin answered two calls differently although it was told the same; its answers are not reused any \
                     more (engine.answerCache)"
                );
            }
        }
    }

    fn clear(&self, tree: &mut Tree) {
        self.memory.give_back(tree.bytes);
        *tree = Tree {
            is_sharer: tree.is_sharer,
            ..Tree::default()
        };
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        let tree = self.tree.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.memory.give_back(tree.bytes);
        self.memory.leave(tree);
    }
}

fn place(phase: Phase, with_grounds: bool) -> usize {
    let phase = match phase {
        Phase::Mutate => 0,
        Phase::Validate => 2,
    };
    phase + usize::from(with_grounds)
}

// === impl Kept ===

impl Kept {
    /// The length of its texts.
    pub(super) fn bytes(&self) -> u64 {
        let warnings = self.warnings.iter().map(String::len);
        let annotations = self.annotations.iter();
        let annotations = annotations.map(|(key, value)| key.len() + value.len());
        let texts: usize = warnings.chain(annotations).sum();
        (texts + self.answer.bytes()) as u64
    }
}

// === impl Tree ===

impl Tree {
    /// Adds a call. Without room, it only compares the call with those that are known.
    fn add(&mut self, place: usize, transcript: Transcript, kept: Kept, has_room: bool) -> Keeping {
        let mut asked = transcript.asked.into_iter();
        let mut next = match &mut self.roots[place] {
            Some(next) => next,
            None if !has_room => return Keeping::Full,
            none => {
                *none = Some(Next::of(asked, kept, &self.hasher));
                self.kept += 1;
                return Keeping::Kept;
            }
        };
        // Follow the calls that are known, as far as this one is like them.
        loop {
            match (next, asked.next()) {
                (Next::Answers(known), None) if **known == kept => return Keeping::Known,
                (Next::Asks(node), Some((question, told))) if node.question == question => {
                    let most_fuel = node.most_fuel.max(told.fuel());
                    match node.branches.entry(told) {
                        Entry::Occupied(known) => next = known.into_mut(),
                        Entry::Vacant(_) if !has_room => return Keeping::Full,
                        Entry::Vacant(unknown) => {
                            unknown.insert(Next::of(asked, kept, &self.hasher));
                            node.most_fuel = most_fuel;
                            self.kept += 1;
                            return Keeping::Kept;
                        }
                    }
                }
                _ => return Keeping::Differs,
            }
        }
    }
}

// === impl Next ===

impl Next {
    /// What a plugin does that asks these questions and then answers.
    fn of(
        asked: impl DoubleEndedIterator<Item = (Question, Told)>,
        kept: Kept,
        hasher: &RandomState,
    ) -> Self {
        let answers = Self::Answers(Arc::new(kept));
        asked.rev().fold(answers, |next, (question, told)| {
            let most_fuel = told.fuel();
            let mut branches = HashMap::with_capacity_and_hasher(1, hasher.clone());
            branches.insert(told, next);
            Self::Asks(Box::new(Node {
                question,
                most_fuel,
                branches,
            }))
        })
    }
}

// === impl Node ===

impl Node {
    /// What the plugin does after this review has answered the question.
    fn follow(&self, subject: &Subject, namespaces: &dyn Namespaces) -> Option<&Next> {
        let mut branches = self.branches.iter();
        if let (Some((told, next)), None) = (branches.next(), branches.next())
            && let Some(is_told) = self.question.is_told(told, subject, namespaces)
        {
            return is_told.then_some(next);
        }
        let told = self.question.ask(subject, namespaces, self.most_fuel)?;
        self.branches.get(&told)
    }
}

#[cfg(test)]
mod tests;
