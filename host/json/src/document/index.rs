//! A text that was checked once, and of which only the containers are known: where each begins and ends, and how many
//! values it has. Everything else is read from the text when it is wanted.

use std::sync::Arc;

use bytes::Bytes;

/// A checked JSON text and its containers.
pub(super) struct Index {
    /// UTF-8.
    text: Bytes,
    /// In the order in which they begin.
    containers: Vec<Container>,
}

/// Where a container is in the text.
#[derive(Clone, Copy, Default)]
pub(super) struct Container {
    /// Place of the opening bracket.
    pub(super) start: u32,
    /// Place behind the closing bracket.
    pub(super) end: u32,
    /// The container after everything inside of this one.
    pub(super) next: u32,
    /// Number of values directly inside, with those of repeated names.
    pub(super) values: u32,
    /// Whether the text is what [`super::Json::write`] would write, here and inside.
    pub(super) is_compact: bool,
    /// Whether an object may repeat a name, here or inside.
    pub(super) may_repeat: bool,
}

/// One container of an index. It keeps the whole text in memory.
#[derive(Clone)]
pub struct Span {
    index: Arc<Index>,
    container: u32,
}

// === impl Index ===

impl Index {
    /// `text` is JSON, and its first container is the document.
    pub(super) fn new(text: Bytes, containers: Vec<Container>) -> Arc<Self> {
        Arc::new(Self { text, containers })
    }

    pub(super) fn container(&self, container: u32) -> Container {
        self.containers[container as usize]
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

    /// The whole text that the container is in.
    pub(super) fn whole(&self) -> &[u8] {
        &self.index.text
    }

    /// The text, if it is what [`super::Json::write`] would write.
    pub(super) fn compact(&self) -> Option<&[u8]> {
        self.container().is_compact.then(|| self.text())
    }

    /// The number of elements or members. None if the text may repeat a name.
    pub(super) fn length(&self) -> Option<usize> {
        let container = self.container();
        (!container.may_repeat).then_some(container.values as usize)
    }

    /// Counts the values inside, at every depth. None if the text may repeat a name. Stops counting beyond `limit`.
    pub(super) fn count(&self, limit: usize) -> Option<usize> {
        let container = self.container();
        if container.may_repeat {
            return None;
        }
        let mut count: usize = 0;
        for inside in &self.index.containers[self.container as usize..container.next as usize] {
            count += inside.values as usize;
            if count > limit {
                break;
            }
        }
        Some(count)
    }
}
