//! The content of one container, which may still be text.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, OnceLock};

use super::build::look_over;
use super::index::{Index, Span};
use super::{Json, Object};

/// The elements of an array or the members of an object. A container of an indexed text is built when it is read for
/// the first time: one level of it, whatever its depth. Until it is changed, it keeps its text.
pub struct Level<T> {
    built: OnceLock<T>,
    span: Option<Span>,
}

/// A value of [`Level::look_over`].
pub enum Shown<'l> {
    /// A string. It is not copied if it has no escapes.
    Text(Cow<'l, str>),
    /// Any other value. A container may still be text.
    Other(Json),
}

/// What containers hold. Only this crate implements it.
pub trait Content: Sized {
    /// Builds the content of the container with this span.
    #[doc(hidden)]
    fn build(span: &Span) -> Self;
}

// === impl Shown ===

impl<'l> Shown<'l> {
    /// Shows a value that was built.
    #[must_use]
    pub fn of(value: &'l Json) -> Self {
        match value {
            Json::Text(text) => Self::Text(Cow::Borrowed(text)),
            other => Self::Other(other.clone()),
        }
    }

    /// Returns the value.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match self {
            Self::Text(text) => Json::text(text),
            Self::Other(value) => value.clone(),
        }
    }

    /// Returns the name of the value's type in JSON.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Other(value) => value.type_name(),
        }
    }
}

// === impl Level ===

impl<T> Level<T> {
    /// Creates the content of a container that is still text.
    pub(super) fn unbuilt(index: &Arc<Index>, container: u32) -> Self {
        Self {
            built: OnceLock::new(),
            span: Some(Span::new(index, container)),
        }
    }

    /// Returns the container's text if it is what [`Json::write`] would write.
    pub(super) fn compact(&self) -> Option<&[u8]> {
        self.span.as_ref()?.compact()
    }

    /// Whether both have the same text. True means that they are equal. False means that the caller has to compare
    /// them.
    pub(super) fn has_same_text(&self, other: &Self) -> bool {
        match (&self.span, &other.span) {
            (Some(left), Some(right)) => left.text() == right.text(),
            _ => false,
        }
    }

    /// Counts the values in the text of a container. None if it has none.
    pub(super) fn count_in_text(&self, limit: usize) -> Option<usize> {
        Some(self.span.as_ref()?.count(limit))
    }

    /// The positions of this container and of those inside among the containers of its text. None if it was built.
    pub(super) fn unbuilt_range(&self) -> Option<Range<u32>> {
        Some(self.text_only()?.inside())
    }

    fn text_only(&self) -> Option<&Span> {
        match self.built.get() {
            None => self.span.as_ref(),
            Some(_) => None,
        }
    }

    /// Whether the content was read already.
    #[cfg(test)]
    pub(super) fn is_built(&self) -> bool {
        self.built.get().is_some()
    }
}

impl Level<Object> {
    /// Returns the number of members, without building them. All members of the same name count while the object has its
    /// text.
    pub(crate) fn width(&self) -> usize {
        match &self.span {
            Some(span) => span.container().values(),
            None => self.deref().len(),
        }
    }

    /// Passes each member to `take`, in order. A container that is still text stays text. If a name is repeated, its last
    /// value counts.
    pub fn look_over<'l>(&'l self, mut take: impl FnMut(&str, Shown<'l>)) {
        if let Some(span) = self.text_only() {
            return look_over(span, take);
        }
        for (name, value) in self.iter() {
            take(name, Shown::of(value));
        }
    }
}

impl Level<Vec<Json>> {
    /// Returns the number of elements, without building them.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.span {
            Some(span) => span.container().values(),
            None => self.deref().len(),
        }
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Content> Deref for Level<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.built.get_or_init(|| {
            let span = self.span.as_ref();
            T::build(span.expect("a container without text is built"))
        })
    }
}

/// A changed container has no text any more.
impl<T: Content> DerefMut for Level<T> {
    fn deref_mut(&mut self) -> &mut T {
        let _: &T = Deref::deref(self);
        self.span = None;
        self.built.get_mut().expect("it was built just now")
    }
}

impl<T> From<T> for Level<T> {
    fn from(content: T) -> Self {
        Self {
            built: OnceLock::from(content),
            span: None,
        }
    }
}

impl<T: Default> Default for Level<T> {
    fn default() -> Self {
        Self::from(T::default())
    }
}

impl<T: Content + Clone> Clone for Level<T> {
    fn clone(&self) -> Self {
        Self::from(T::clone(self))
    }
}

impl<T: Content + PartialEq> PartialEq for Level<T> {
    fn eq(&self, other: &Self) -> bool {
        self.has_same_text(other) || T::eq(self, other)
    }
}

impl<T: Content + Eq> Eq for Level<T> {}

impl FromIterator<Json> for Level<Vec<Json>> {
    fn from_iter<I: IntoIterator<Item = Json>>(elements: I) -> Self {
        Self::from(elements.into_iter().collect::<Vec<Json>>())
    }
}

impl FromIterator<(Arc<str>, Json)> for Level<Object> {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Json)>>(members: I) -> Self {
        Self::from(members.into_iter().collect::<Object>())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::document::{Account, index_within};

    const POD: &str =
        r#"{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c"},{"name":"d"}]}}"#;

    fn pod() -> Json {
        index_within(&Bytes::from(POD), 20, &Account::unlimited()).unwrap()
    }

    fn is_built(json: &Json) -> bool {
        match json {
            Json::Array(elements) => elements.is_built(),
            Json::Object(members) => members.is_built(),
            _ => true,
        }
    }

    #[test]
    fn reading_builds_only_what_is_above() {
        let pod = pod();
        assert!(!is_built(&pod));
        pod.at("/metadata/labels/app").unwrap();
        let spec = pod.at("/spec").unwrap().unwrap();
        assert!(is_built(&pod) && !is_built(spec));
        let first = pod.at("/spec/containers/0").unwrap().unwrap();
        assert!(is_built(spec) && !is_built(first));
    }

    #[test]
    fn wide_container_and_those_around_it_are_built_at_once() {
        let wide = |values: usize| {
            let values = vec!["{}"; values].join(",");
            let text = format!(r#"{{"a":{{"b":[[{values}]],"b":[[{values}]]}},"c":[]}}"#);
            index_within(&Bytes::from(text), 20, &Account::unlimited()).unwrap()
        };
        let document = wide(4_097);
        for (place, expected) in [
            ("", true),
            ("/a", true),
            ("/a/b", true),
            ("/a/b/0", true),
            ("/a/b/0/7", false),
            ("/c", false),
        ] {
            let found = document.at(place).unwrap().unwrap();
            assert_eq!(is_built(found), expected, "{place}");
        }
        assert!(!is_built(&wide(4_096)));
    }

    #[test]
    fn writing_counting_and_comparing_the_same_text_build_nothing() {
        let pods = [pod(), pod()];
        assert_eq!(pods[0].to_text(), POD);
        assert_eq!(pods[0].count_nodes(100), 10);
        assert!(pods[0] == pods[1] && pods[0].equivalent(&pods[1]));
        assert!(!pods.iter().any(is_built));
    }
}
