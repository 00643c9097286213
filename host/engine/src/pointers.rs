//! Keeps the lists of pointers that a plugin asks for, so that each is checked and split once.
//!
//! A plugin asks for the same places in each call. An instance that is kept for the next call keeps the lists, too. Each call
//! still names its pointers, and gets a list only if all of its texts are the same. So no call learns of another.

use std::sync::Arc;

use tollgate_json::document::{Json, Pointer, PointerError};
use wasmtime::AsContext as _;
use wasmtime::component::WasmStr;

use super::host::Host;

/// Maximum number of lists of one instance.
const MOST_LISTS: usize = 4;
/// Maximum number of pointers in a kept list.
const MOST_POINTERS: usize = 32;
/// Maximum length of the texts of a kept list together.
const MOST_BYTES: usize = 2048;

/// The lists that an instance has asked for.
#[derive(Default)]
pub(super) struct PointerLists(Vec<Arc<PointerList>>);

/// A list of pointers that a plugin asks for together.
pub(super) struct PointerList {
    pub(super) pointers: Vec<ListedPointer>,
    /// Length of the texts together.
    pub(super) bytes: usize,
    /// Number of JSON values on the ways to all places.
    pub(super) nodes: usize,
}

/// One pointer of a list.
pub(super) struct ListedPointer {
    pub(super) text: String,
    /// None in a list that is not kept: its tokens would take more memory than its text.
    way: Option<Result<Way, PointerError>>,
}

/// The way to a place.
struct Way {
    /// The tokens, unescaped.
    tokens: Vec<Box<str>>,
    /// Whether the pointer before it in the list leads into the same object or array.
    is_sibling: bool,
}

/// Walks to the places of a list, in their order.
pub(super) struct Walk<'d> {
    document: &'d Json,
    /// The object or array that the last pointer led into.
    parent: Option<&'d Json>,
}

/// Finds the list of a call, or reads it.
///
/// # Errors
/// When a text is not valid UTF-8.
pub(super) fn list(host: &mut Host<'_>, texts: &[WasmStr]) -> wasmtime::Result<Arc<PointerList>> {
    for list in &host.data().pointers.0 {
        if list.is(host, texts)? {
            return Ok(list.clone());
        }
    }
    let read = texts
        .iter()
        .map(|text| Ok(text.to_str(host.as_context())?.into_owned()));
    let read = read.collect::<wasmtime::Result<Vec<_>>>()?;
    let state = host.data_mut();
    let lists = &mut state.pointers.0;
    let is_kept = state.keepable.is_some()
        && lists.len() < MOST_LISTS
        && read.len() <= MOST_POINTERS
        && read.iter().map(String::len).sum::<usize>() <= MOST_BYTES;
    let list = Arc::new(PointerList::new(read, is_kept));
    if is_kept {
        lists.push(list.clone());
    }
    Ok(list)
}

// === impl PointerList ===

impl PointerList {
    /// Splits the pointers only if the list is kept.
    fn new(texts: Vec<String>, is_kept: bool) -> Self {
        let bytes = texts.iter().map(String::len).sum();
        let nodes = texts.iter().map(|text| super::host::tokens(text) + 1).sum();
        let ways: Vec<_> = match is_kept {
            true => ways(&texts).into_iter().map(Some).collect(),
            false => texts.iter().map(|_| None).collect(),
        };
        let pointers = texts.into_iter().zip(ways);
        Self {
            pointers: pointers
                .map(|(text, way)| ListedPointer { text, way })
                .collect(),
            bytes,
            nodes,
        }
    }

    /// Whether these are the texts of the list.
    fn is(&self, host: &Host<'_>, texts: &[WasmStr]) -> wasmtime::Result<bool> {
        if self.pointers.len() != texts.len() {
            return Ok(false);
        }
        for (pointer, text) in self.pointers.iter().zip(texts) {
            if *text.to_str(host.as_context())? != *pointer.text.as_str() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Finds the ways to the places of a list.
fn ways(texts: &[String]) -> Vec<Result<Way, PointerError>> {
    let mut before: Option<&str> = None;
    let ways = texts.iter().map(|text| {
        let parent = text.rsplit_once('/').map(|(parent, _)| parent);
        let way = Pointer::parse(text).map(|pointer| Way {
            tokens: pointer.tokens().map(Box::from).collect(),
            is_sibling: parent.is_some() && parent == before,
        });
        before = parent.filter(|_| way.is_ok());
        way
    });
    ways.collect()
}

// === impl Walk ===

impl<'d> Walk<'d> {
    pub(super) fn new(document: &'d Json) -> Self {
        Self {
            document,
            parent: None,
        }
    }

    /// Returns the value at the next pointer of the list.
    ///
    /// # Errors
    /// When the text is not a JSON Pointer.
    pub(super) fn at(&mut self, pointer: &ListedPointer) -> Result<Option<&'d Json>, PointerError> {
        let Some(way) = &pointer.way else {
            return self.document.at(&pointer.text);
        };
        let Way { tokens, is_sibling } = way.as_ref().map_err(|error| *error)?;
        let Some((last, above)) = tokens.split_last() else {
            return Ok(Some(self.document));
        };
        if !is_sibling {
            let mut here = Some(self.document);
            for token in above {
                here = here.and_then(|here| here.child(token));
            }
            self.parent = here;
        }
        Ok(self.parent.and_then(|parent| parent.child(last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_single_pointers_find() {
        let document = Json::from(serde_json::json!({
            "a": {"b": 1, "c": {"b": 2}, "x/y": 3, "": 4}, "b": [5, {"b": 6}], "": {"": 7}, "~": 8
        }));
        let pointers = [
            "", "/", "//", "/a", "/b", "/a/b", "/a/c", "/a/c/b", "/a/x~1y", "/a/", "/b/0", "/b/1",
            "/b/1/b", "/b/01", "/b/-", "/~0", "/~01", "/none", "/none/b", "/none/c", "/a/b/c",
            "/a/b/d",
        ];
        let mut found = 0;
        for first in pointers {
            for second in pointers {
                for third in pointers {
                    let texts = [first, second, third].map(str::to_owned);
                    for is_kept in [true, false] {
                        let list = PointerList::new(texts.to_vec(), is_kept);
                        let mut walk = Walk::new(&document);
                        for (pointer, text) in list.pointers.iter().zip(&texts) {
                            let value = walk.at(pointer).unwrap();
                            assert_eq!(value, document.at(text).unwrap(), "{texts:?}");
                            found += usize::from(value.is_some());
                        }
                    }
                }
            }
        }
        assert!(found > 10_000, "{found}");
    }

    #[test]
    fn pointer_after_a_malformed_one_is_no_sibling() {
        let document = Json::from(serde_json::json!({"a": {"b": 1}}));
        let texts = ["/a/~", "/a/b", "a/b", "/a/b"].map(str::to_owned);
        let list = PointerList::new(texts.to_vec(), true);
        let mut walk = Walk::new(&document);
        let found: Vec<_> = list
            .pointers
            .iter()
            .map(|pointer| walk.at(pointer))
            .collect();
        let expected: Vec<_> = texts.iter().map(|text| document.at(text)).collect();
        assert_eq!(found, expected);
        assert!(matches!(
            found[..],
            [Err(_), Ok(Some(_)), Err(_), Ok(Some(_))]
        ));
    }

    #[test]
    fn counts_bytes_and_nodes() {
        let texts = ["", "/a", "/a/b~1c"].map(str::to_owned);
        let list = PointerList::new(texts.to_vec(), true);
        assert_eq!((list.bytes, list.nodes), (9, 1 + 2 + 3));
    }
}
