//! A text that was checked once, and of which only the containers are known: where each begins and ends, and how many
//! values it has. Everything else is read from the text when it is wanted.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::build::repeats_name;
use super::room;

/// A checked JSON text and its containers.
pub(super) struct Index {
    /// UTF-8.
    text: Bytes,
    /// In the order in which they begin.
    containers: Vec<Container>,
    /// For each container, whether it repeats a name. [`UNKNOWN`] until somebody wants to know.
    repeating: OnceLock<Box<[AtomicU8]>>,
}

/// Where a container is in the text.
#[derive(Clone, Copy)]
pub(super) struct Container {
    /// Place of the opening bracket.
    pub(super) start: u32,
    /// Place behind the closing bracket.
    pub(super) end: u32,
    /// The container after everything inside of this one.
    pub(super) next: u32,
    /// The number of values. The highest bit is set if the container is loose.
    content: u32,
}

/// A container that has not ended.
#[derive(Clone, Copy, Default)]
pub(super) struct Open {
    pub(super) container: u32,
    pub(super) values: u32,
    /// The closing bracket.
    pub(super) close: u8,
}

const LOOSE: u32 = 1 << 31;

/// One container of an index. It keeps the whole text in memory.
pub struct Span {
    index: Arc<Index>,
    container: u32,
}

const UNKNOWN: u8 = 0;
const UNIQUE: u8 = 1;
const REPEATED: u8 = 2;

// === impl Index ===

impl Index {
    /// `text` is JSON, and its first container is the document.
    pub(super) fn new(text: Bytes, containers: Vec<Container>) -> Arc<Self> {
        Arc::new(Self {
            text,
            containers,
            repeating: OnceLock::new(),
        })
    }

    /// Memory that is allocated when somebody first asks for repeated names.
    pub(super) fn repeating_bytes(containers: usize) -> u64 {
        room::block(containers * size_of::<AtomicU8>())
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    pub(super) fn container(&self, container: u32) -> Container {
        self.containers[container as usize]
    }

    /// Whether this container or one inside of it repeats a name. The names of each container are compared once,
    /// however often somebody asks about the containers around it.
    fn repeats_name(self: &Arc<Self>, container: u32) -> bool {
        let repeating = self.repeating.get_or_init(|| {
            let unknown = || AtomicU8::new(UNKNOWN);
            std::iter::repeat_with(unknown)
                .take(self.containers.len())
                .collect()
        });
        (container..self.container(container).next).any(|inside| {
            let known = &repeating[inside as usize];
            if known.load(Relaxed) == UNKNOWN {
                let repeats = repeats_name(self, inside);
                known.store(if repeats { REPEATED } else { UNIQUE }, Relaxed);
            }
            known.load(Relaxed) == REPEATED
        })
    }

    /// The containers with more than `values` values directly inside.
    pub(super) fn wider_than(&self, values: usize) -> impl Iterator<Item = u32> {
        (0..)
            .zip(&self.containers)
            .filter_map(move |(position, container)| {
                (container.values() > values).then_some(position)
            })
    }
}

// === impl Container ===

impl Container {
    /// Creates a container that has not ended. Until it ends, it keeps what is known of the one around it.
    #[inline(always)]
    pub(super) fn begin(start: u32, outer: Open) -> Self {
        Self {
            start,
            end: outer.container,
            next: outer.values,
            content: u32::from(outer.close),
        }
    }

    /// Creates a container that has ended. `last_loose` is the last place before the end at which something is written as
    /// the host would not write it.
    #[inline(always)]
    pub(super) fn ended(start: u32, end: u32, next: u32, values: u32, last_loose: u32) -> Self {
        // The highest bit of the difference is set if the place is inside.
        let loose = start.wrapping_sub(last_loose) & LOOSE;
        Self {
            start,
            end,
            next,
            content: values | loose,
        }
    }

    /// Ends the container, as [`Self::ended`] does. Returns the one around it.
    #[inline(always)]
    pub(super) fn end(&mut self, end: u32, next: u32, values: u32, last_loose: u32) -> Open {
        let outer = Open {
            container: self.end,
            values: self.next,
            close: self.content as u8,
        };
        *self = Self::ended(self.start, end, next, values, last_loose);
        outer
    }

    /// The number of values directly inside, with those of repeated names.
    pub(super) fn values(self) -> usize {
        (self.content & !LOOSE) as usize
    }

    /// Whether something is written as the host would not write it, here or inside.
    pub(super) fn is_loose(self) -> bool {
        self.content & LOOSE != 0
    }
}

// === impl Span ===

impl Span {
    pub(super) fn new(index: &Arc<Index>, container: u32) -> Self {
        Self {
            index: Arc::clone(index),
            container,
        }
    }

    pub(super) fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// The position among the containers of the text.
    pub(super) fn position(&self) -> u32 {
        self.container
    }

    pub(super) fn container(&self) -> Container {
        self.index.container(self.container)
    }

    /// The text, with the brackets.
    pub(super) fn text(&self) -> &[u8] {
        let Container { start, end, .. } = self.container();
        &self.index.text[start as usize..end as usize]
    }

    /// The text, if it is what [`super::Json::write`] would write.
    pub(super) fn compact(&self) -> Option<&[u8]> {
        self.is_compact().then(|| self.text())
    }

    /// Counts the values inside, at every depth, with those of repeated names. Stops counting beyond `limit`.
    pub(super) fn count(&self, limit: usize) -> usize {
        let mut count: usize = 0;
        let Range { start, end } = self.inside();
        for inside in &self.index.containers[start as usize..end as usize] {
            count += inside.values();
            if count > limit {
                break;
            }
        }
        count
    }

    /// Whether the host would write the text so. Then no object in it repeats a name either.
    fn is_compact(&self) -> bool {
        !self.container().is_loose() && !self.index.repeats_name(self.container)
    }

    /// The positions of the container and of all containers inside of it.
    pub(super) fn inside(&self) -> Range<u32> {
        self.container..self.container().next
    }
}
