//! The places that were written, as a tree in the shape of the object.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::changes::{Change, Changes, Kind, Recognition, Token};
use crate::document::{Json, Pointer};

/// A place of the object, with the places below it that need to be remembered.
#[derive(Clone, Debug)]
pub(super) struct Place<W> {
    /// The writers of the value at this place: several if one mutator wrote it and others moved it.
    writers: Vec<W>,
    /// The writer that removed the value at this place.
    remover: Option<W>,
    below: Below<W>,
}

/// The record of writes inside a container.
#[derive(Clone, Debug)]
enum Below<W> {
    Nothing,
    Members(BTreeMap<Arc<str>, Place<W>>),
    Elements(Elements<W>),
}

/// The record of writes inside an array.
#[derive(Clone, Debug)]
struct Elements<W> {
    /// Written elements, by ascending index.
    written: Vec<(usize, Place<W>)>,
    removed: Vec<Removed<W>>,
}

/// An element that was removed or replaced.
#[derive(Clone, Debug)]
struct Removed<W> {
    /// The index of the element that now stands in its place, or the array's length. None if the element was
    /// replaced.
    index: Option<usize>,
    recognition: Recognition,
    remover: W,
}

/// Limit on the remembered elements of one array. A replaced element is remembered only below this limit. Scalars can
/// be replaced one by one in any number, and each added element is compared with all remembered ones. Removed
/// elements are always remembered: there are at most some thousand, because the diff replaces the array otherwise.
const MAX_RECOGNISED: usize = 2000;

/// The mutation being recorded, at one of its operations.
pub(super) struct Recording<'r, W> {
    pub(super) writer: W,
    pub(super) changes: &'r Changes<'r>,
    pub(super) index: usize,
    /// The writers whose work the operation undoes.
    pub(super) earlier: Vec<W>,
    /// Elements being moved, by the index of the operation that adds them.
    pub(super) carried: BTreeMap<usize, Place<W>>,
}

// === impl Recording ===

impl<W: Copy + Eq> Recording<'_, W> {
    fn change(&self) -> &Change {
        self.changes.get(self.index)
    }
}

// === impl Place ===

impl<W: Copy + Eq> Place<W> {
    /// Records the current operation of `recording`. `self` is the root.
    pub(super) fn record(&mut self, recording: &mut Recording<'_, W>) {
        let changes = recording.changes;
        self.descend(&changes.get(recording.index).tokens, &[], recording);
    }

    /// `inherited` are the writers of the nearest place above that was added as a whole.
    fn descend(&mut self, tokens: &[Token], inherited: &[W], recording: &mut Recording<'_, W>) {
        let Some((token, rest)) = tokens.split_first() else {
            return self.overwrite(inherited, recording);
        };
        let inherited = if self.writers.is_empty() {
            inherited
        } else {
            &self.writers
        };
        match token {
            Token::Member(name) => {
                let place = self.below.members().entry(Arc::clone(name)).or_default();
                place.descend(rest, inherited, recording);
            }
            Token::Element(index) => {
                let elements = self.below.elements();
                match recording.change().kind {
                    Kind::Add if rest.is_empty() => elements.add(*index, recording),
                    Kind::Remove if rest.is_empty() => {
                        elements.remove(*index, inherited, recording)
                    }
                    _ => {
                        if rest.is_empty() {
                            elements.replace(recording);
                        }
                        elements.at(*index).descend(rest, inherited, recording);
                    }
                }
            }
        }
    }

    /// Sets this place to the operation's value, or to none.
    fn overwrite(&mut self, inherited: &[W], recording: &mut Recording<'_, W>) {
        let value = recording.changes.value(recording.index);
        recording.earlier.extend(self.remover.take());
        if recording.change().kind != Kind::Add {
            recording.earlier.extend(if self.writers.is_empty() {
                inherited
            } else {
                &self.writers
            });
        }
        self.bury(value, recording);
        match value {
            Some(_) => self.writers.push(recording.writer),
            None => self.remover = Some(recording.writer),
        }
    }

    /// Forgets the writes here and below, because the values are gone. Keeps the record of removed values, unless
    /// `value` adds them again.
    fn bury(&mut self, value: Option<&Json>, recording: &mut Recording<'_, W>) {
        recording.earlier.append(&mut self.writers);
        match &mut self.below {
            Below::Nothing => {}
            Below::Members(members) => members.retain(|name, place| {
                let value = value.and_then(|value| value.member(name));
                if value.is_some() {
                    recording.earlier.extend(place.remover.take());
                }
                place.bury(value, recording);
                place.remover.is_some() || !matches!(place.below, Below::Nothing)
            }),
            Below::Elements(elements) => {
                for (_, mut place) in elements.written.drain(..) {
                    place.bury(None, recording);
                }
                if !elements.removed.is_empty() {
                    for element in value.and_then(Json::as_array).unwrap_or_default() {
                        elements.bring_back(
                            Recognition::of(element, recording.changes.state()),
                            recording,
                        );
                    }
                }
            }
        }
        if self.below.is_empty() {
            self.below = Below::Nothing;
        }
    }

    /// Collects the places of `writer`'s writes. Writes inside something that it added as a whole are not listed.
    pub(super) fn paths_of(
        &self,
        writer: W,
        covered: bool,
        tokens: &mut Vec<String>,
        paths: &mut Vec<Pointer>,
    ) {
        let written = self.writers.contains(&writer);
        if (written || self.remover == Some(writer)) && !covered {
            paths.push(Pointer::from_tokens(&*tokens));
        }
        let covered = written || (covered && self.writers.is_empty());
        let mut inside = |token: String, place: &Self| {
            tokens.push(token);
            place.paths_of(writer, covered, tokens, paths);
            tokens.pop();
        };
        match &self.below {
            Below::Nothing => {}
            Below::Members(members) => members
                .iter()
                .for_each(|(name, place)| inside(name.to_string(), place)),
            Below::Elements(elements) => {
                elements
                    .written
                    .iter()
                    .for_each(|(index, place)| inside(index.to_string(), place));
                let removed = elements
                    .removed
                    .iter()
                    .filter(|removed| removed.remover == writer && !covered);
                for index in removed.filter_map(|removed| removed.index) {
                    tokens.push(index.to_string());
                    paths.push(Pointer::from_tokens(&*tokens));
                    tokens.pop();
                }
            }
        }
    }
}

impl<W> Default for Place<W> {
    fn default() -> Self {
        Self {
            writers: Vec::new(),
            remover: None,
            below: Below::Nothing,
        }
    }
}

// === impl Below ===

impl<W> Below<W> {
    /// Returns the members. A container that became an object starts anew.
    fn members(&mut self) -> &mut BTreeMap<Arc<str>, Place<W>> {
        if !matches!(self, Self::Members(_)) {
            *self = Self::Members(BTreeMap::new());
        }
        match self {
            Self::Members(members) => members,
            Self::Nothing | Self::Elements(_) => unreachable!("made members just now"),
        }
    }

    /// Returns the elements. A container that became an array starts anew.
    fn elements(&mut self) -> &mut Elements<W> {
        if !matches!(self, Self::Elements(_)) {
            *self = Self::Elements(Elements {
                written: Vec::new(),
                removed: Vec::new(),
            });
        }
        match self {
            Self::Elements(elements) => elements,
            Self::Nothing | Self::Members(_) => unreachable!("made elements just now"),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Members(members) => members.is_empty(),
            Self::Elements(elements) => elements.written.is_empty() && elements.removed.is_empty(),
        }
    }
}

// === impl Elements ===

impl<W: Copy + Eq> Elements<W> {
    fn add(&mut self, index: usize, recording: &mut Recording<'_, W>) {
        for (position, _) in self
            .written
            .iter_mut()
            .filter(|(position, _)| *position >= index)
        {
            *position += 1;
        }
        for gap in self.gaps().filter(|gap| **gap > index) {
            *gap += 1;
        }
        let change = recording.change();
        let place = match (change.moved, change.comes) {
            (Some(_), _) => recording.carried.remove(&recording.index),
            (None, Some(element)) => {
                self.bring_back(element, recording);
                None
            }
            (None, None) => None,
        };
        let mut place = place.unwrap_or_default();
        if !place.writers.contains(&recording.writer) {
            place.writers.push(recording.writer);
        }
        *self.at(index) = place;
    }

    fn remove(&mut self, index: usize, inherited: &[W], recording: &mut Recording<'_, W>) {
        let mut place = match self.position(index) {
            Ok(position) => self.written.remove(position).1,
            Err(_) => Place::default(),
        };
        for (position, _) in self
            .written
            .iter_mut()
            .filter(|(position, _)| *position > index)
        {
            *position -= 1;
        }
        for gap in self.gaps().filter(|gap| **gap > index) {
            *gap -= 1;
        }
        if place.writers.is_empty() {
            place.writers.extend_from_slice(inherited);
        }
        let change = recording.change();
        match (change.moved, change.goes) {
            (Some(to), _) if to > recording.index => {
                recording.carried.insert(to, place);
            }
            (Some(to), _) => {
                if !place.writers.contains(&recording.writer) {
                    place.writers.push(recording.writer);
                }
                // The element was added before it was removed, further left, so it still stands where it was added.
                if let Some(Token::Element(to)) = recording.changes.get(to).tokens.last() {
                    *self.at(*to) = place;
                }
            }
            (None, recognition) => {
                let remover = recording.writer;
                place.bury(None, recording);
                self.forget(Some(index), recognition, remover);
            }
        }
    }

    /// Records an element that is replaced by something else.
    fn replace(&mut self, recording: &mut Recording<'_, W>) {
        let (comes, goes) = (recording.change().comes, recording.change().goes);
        if let Some(element) = comes {
            self.bring_back(element, recording);
        }
        let remover = recording.writer;
        self.forget(None, goes, remover);
    }

    /// Records an element that is gone.
    fn forget(&mut self, index: Option<usize>, element: Option<Recognition>, remover: W) {
        if let Some(recognition) = element
            && (index.is_some() || self.removed.len() < MAX_RECOGNISED)
        {
            self.removed.push(Removed {
                index,
                recognition,
                remover,
            });
        }
    }

    fn gaps(&mut self) -> impl Iterator<Item = &mut usize> {
        self.removed
            .iter_mut()
            .filter_map(|removed| removed.index.as_mut())
    }

    fn bring_back(&mut self, element: Recognition, recording: &mut Recording<'_, W>) {
        if let Some(position) = self
            .removed
            .iter()
            .position(|removed| removed.recognition.matches(element))
        {
            recording
                .earlier
                .push(self.removed.remove(position).remover);
        }
    }

    /// Returns the place at an index, which is remembered from now on.
    fn at(&mut self, index: usize) -> &mut Place<W> {
        let position = self.position(index).unwrap_or_else(|position| {
            self.written.insert(position, (index, Place::default()));
            position
        });
        &mut self.written[position].1
    }

    fn position(&self, index: usize) -> Result<usize, usize> {
        self.written
            .binary_search_by_key(&index, |(position, _)| *position)
    }
}
