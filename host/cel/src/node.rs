//! The compiled form of an expression.

use std::cmp::Ordering;
use std::sync::Arc;

use regex_lite::Regex;

use crate::functions::Native;
use crate::value::Value;

/// A document of the review that an expression reads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Document {
    /// The object. Null on DELETE.
    Object,
    /// The object before the request. Null on CREATE and CONNECT.
    OldObject,
    /// The AdmissionRequest without its objects.
    Request,
    /// The Namespace of the object.
    Namespace,
    /// The object, and on DELETE the old object. A source is never asked for it.
    AnyObject,
}

/// A chain of fields below a document. Only the value at its end is read.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) document: Document,
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) pointer: String,
    /// The number of leading names that must exist. The names after them are optional.
    pub(crate) required: Option<usize>,
}

// === impl Path ===

impl Path {
    /// Returns the pointer of the first names.
    pub(crate) fn prefix(&self, names: usize) -> &str {
        let mut slashes = self.pointer.match_indices('/').map(|(at, _)| at);
        let end = slashes.nth(names).unwrap_or(self.pointer.len());
        &self.pointer[..end]
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fold {
    All,
    Exists,
    ExistsOne,
    /// Collects `step` for the elements for which `filter` is true.
    List,
    /// Collects a map from the keys of the range to `step`.
    Map,
    /// Merges the maps that `step` returns.
    Entries,
    /// Sorts the range by `step`.
    SortBy,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Search {
    Matches,
    Find,
    FindAll,
}

/// What a function does with its arguments, for the analysis of what is read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Passes {
    /// It reads all of them.
    Nothing,
    /// It returns one of them.
    Arguments,
    /// It reads whether there is one.
    Existence,
    /// It reads their sizes.
    Size,
}

/// A loop over a list or a map.
#[derive(Debug)]
pub(crate) struct Loop {
    pub(crate) fold: Fold,
    pub(crate) range: Node,
    /// The slot of the first variable. The second one has the next slot.
    pub(crate) slot: usize,
    pub(crate) has_two: bool,
    pub(crate) filter: Option<Node>,
    pub(crate) step: Node,
}

#[derive(Debug)]
pub(crate) enum Node {
    Constant(Value),
    Path(Path),
    HasPath(Path),
    /// The parameters of the policy.
    Params,
    /// The resource of the request, as the beginning of a question about a right.
    RequestResource,
    /// A question about a right: what it is about, and the verb.
    Check(Box<(Node, Node)>),
    /// A variable of the policy, by its index.
    Variable(usize),
    /// A variable of a loop, by its slot.
    Local(usize),
    Select(Box<Node>, Arc<str>),
    Has(Box<Node>, Arc<str>),
    SelectOptional(Box<Node>, Arc<str>),
    Index(Box<(Node, Node)>),
    IndexOptional(Box<(Node, Node)>),
    And(Box<(Node, Node)>),
    Or(Box<(Node, Node)>),
    Not(Box<Node>),
    Negate(Box<Node>),
    Conditional(Box<(Node, Node, Node)>),
    Equal(Box<(Node, Node)>, bool),
    Order(Box<(Node, Node)>, fn(Ordering) -> bool, &'static str),
    Arithmetic(Box<(Node, Node)>, Arithmetic),
    In(Box<(Node, Node)>),
    Call(Native, Passes, Vec<Node>),
    Search(Search, Regex, Vec<Node>),
    /// A list. A true flag marks an optional element.
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    Struct(Arc<str>, Vec<(Arc<str>, Node, bool)>),
    Loop(Box<Loop>),
    /// `optional.optMap(x, step)`, and with true `optFlatMap`.
    MapOptional(Box<(Node, Node)>, usize, bool),
}
