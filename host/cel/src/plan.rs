//! What the expressions of a policy read of the review, found when the policy is compiled.
//!
//! Each chain of fields below a document is a place. A variable holds the places of its expression, and a variable of a loop
//! the elements of the range. A value that goes elsewhere, such as into a comparison or a function, is read as a whole.

use std::collections::BTreeSet;

use tollgate_shape::{Place, Places, Shape};

use crate::compile::Program;
use crate::eval::Variable;
use crate::node::{Arithmetic, Document, Fold, Loop, Node, Passes, Path};
use crate::value::Value;

/// The chains of fields that expressions name, with what they read at the ends.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) entries: Vec<Entry>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) document: Document,
    pub(crate) pointer: String,
    pub(crate) shape: Shape,
}

/// The places that a value comes from. A list or a map that an expression makes has elements with places.
#[derive(Clone, Debug, Default)]
struct Flow {
    places: BTreeSet<Place>,
    elements: Option<Box<Flow>>,
}

#[derive(Default)]
struct Analysis {
    places: Places,
    roots: Vec<(Document, String, Place)>,
    variables: Vec<Flow>,
    locals: Vec<Flow>,
}

// === impl Plan ===

impl Plan {
    /// Plans the reads of programs that are evaluated together.
    pub(crate) fn new<'p>(
        variables: &[Variable],
        programs: impl IntoIterator<Item = &'p Program>,
    ) -> Self {
        let mut analysis = Analysis::default();
        for variable in variables {
            let flow = analysis.program(&variable.program);
            analysis.variables.push(flow);
        }
        for program in programs {
            let result = analysis.program(program);
            analysis.take(&result);
        }
        let Analysis { places, roots, .. } = analysis;
        let entry = |(document, pointer, place)| Entry {
            document,
            pointer,
            shape: places.shape(place),
        };
        Self {
            entries: roots.into_iter().map(entry).collect(),
        }
    }
}

// === impl Flow ===

impl Flow {
    fn join(mut self, other: Self) -> Self {
        self.places.extend(other.places);
        self.elements = match (self.elements, other.elements) {
            (Some(left), Some(right)) => Some(Box::new(left.join(*right))),
            (left, right) => left.or(right),
        };
        self
    }

    fn of_elements(elements: Self) -> Self {
        Self {
            places: BTreeSet::new(),
            elements: Some(Box::new(elements)),
        }
    }
}

// === impl Analysis ===

impl Analysis {
    fn program(&mut self, program: &Program) -> Flow {
        self.locals = vec![Flow::default(); program.slots];
        self.flow(&program.root)
    }

    fn root(&mut self, document: Document, pointer: &str) -> Place {
        let known = self
            .roots
            .iter()
            .find(|(known, place, _)| *known == document && place == pointer);
        if let Some((_, _, place)) = known {
            return *place;
        }
        let place = self.places.root();
        self.places.look(place);
        self.roots.push((document, pointer.to_owned(), place));
        place
    }

    fn path(&mut self, path: &Path) -> Place {
        let required = path.required.filter(|names| *names > 0);
        if let Some(required) = required {
            self.exists(path, required);
        }
        self.root(path.document, &path.pointer)
    }

    /// Whether a place exists is read with the places themselves.
    fn exists(&mut self, path: &Path, names: usize) {
        if names > 0 {
            self.root(path.document, path.prefix(names));
        }
    }

    fn take(&mut self, flow: &Flow) {
        for place in &flow.places {
            self.places.take(*place);
        }
        if let Some(elements) = &flow.elements {
            self.take(elements);
        }
    }

    fn look(&mut self, flow: &Flow) {
        for place in &flow.places {
            self.places.look(*place);
        }
    }

    fn whole(&mut self, node: &Node) {
        let flow = self.flow(node);
        self.take(&flow);
    }

    fn each(&mut self, flow: &Flow) -> Flow {
        self.look(flow);
        let places = flow.places.iter().map(|place| self.places.each(*place));
        let own = Flow {
            places: places.collect(),
            elements: None,
        };
        match &flow.elements {
            Some(elements) => own.join((**elements).clone()),
            None => own,
        }
    }

    fn member(&mut self, flow: &Flow, name: &str) -> Flow {
        self.look(flow);
        let places = flow.places.iter();
        let places = places.map(|place| self.places.member(*place, name));
        let own = Flow {
            places: places.collect(),
            elements: None,
        };
        match &flow.elements {
            Some(elements) => own.join((**elements).clone()),
            None => own,
        }
    }

    /// Visits a node, and returns the places that its value comes from.
    fn flow(&mut self, node: &Node) -> Flow {
        match node {
            Node::Constant(_) | Node::Params | Node::RequestResource => {}
            Node::Path(path) => {
                return Flow {
                    places: BTreeSet::from([self.path(path)]),
                    elements: None,
                };
            }
            Node::HasPath(path) => {
                self.exists(path, path.names.len());
                self.exists(path, path.names.len().saturating_sub(1));
            }
            Node::Variable(index) => return self.variables[*index].clone(),
            Node::Local(slot) => return self.locals[*slot].clone(),
            Node::Select(operand, name) | Node::SelectOptional(operand, name) => {
                let flow = self.flow(operand);
                return self.member(&flow, name);
            }
            Node::Has(operand, name) => {
                let flow = self.flow(operand);
                let member = self.member(&flow, name);
                self.look(&member);
            }
            Node::Index(nodes) | Node::IndexOptional(nodes) => {
                let flow = self.flow(&nodes.0);
                if let Node::Constant(Value::String(name)) = &nodes.1 {
                    return self.member(&flow, name);
                }
                self.whole(&nodes.1);
                return self.each(&flow);
            }
            Node::Conditional(nodes) => {
                self.whole(&nodes.0);
                let (yes, no) = (self.flow(&nodes.1), self.flow(&nodes.2));
                return yes.join(no);
            }
            // Lists are joined, and nothing looks at their elements.
            Node::Arithmetic(nodes, Arithmetic::Add) => {
                let joined = self.flow(&nodes.0).join(self.flow(&nodes.1));
                self.look(&joined);
                return joined;
            }
            Node::And(nodes)
            | Node::Or(nodes)
            | Node::Equal(nodes, _)
            | Node::Order(nodes, ..)
            | Node::Arithmetic(nodes, _)
            | Node::In(nodes)
            | Node::Check(nodes) => {
                self.whole(&nodes.0);
                self.whole(&nodes.1);
            }
            Node::Not(operand) | Node::Negate(operand) => self.whole(operand),
            Node::Call(_, passes, arguments) => return self.call(*passes, arguments),
            Node::Search(_, _, arguments) => arguments.iter().for_each(|node| self.whole(node)),
            Node::List(elements) => {
                let mut all = Flow::default();
                for (element, _) in elements {
                    all = all.join(self.flow(element));
                }
                self.look(&all);
                return Flow::of_elements(all);
            }
            Node::Map(entries) => {
                let mut all = Flow::default();
                for (key, value, _) in entries {
                    self.whole(key);
                    all = all.join(self.flow(value));
                }
                self.look(&all);
                return Flow::of_elements(all);
            }
            Node::Struct(_, fields) => {
                fields.iter().for_each(|(_, value, _)| self.whole(value));
            }
            Node::Loop(looped) => return self.looped(looped),
            Node::MapOptional(nodes, slot, _) => {
                let content = self.flow(&nodes.0);
                self.look(&content);
                self.locals[*slot] = content;
                return self.flow(&nodes.1);
            }
        }
        Flow::default()
    }

    fn call(&mut self, passes: Passes, arguments: &[Node]) -> Flow {
        let flows: Vec<Flow> = arguments.iter().map(|node| self.flow(node)).collect();
        match passes {
            Passes::Nothing => flows.iter().for_each(|flow| self.take(flow)),
            Passes::Existence => flows.iter().for_each(|flow| self.look(flow)),
            Passes::Arguments => {
                flows.iter().for_each(|flow| self.look(flow));
                return flows.into_iter().fold(Flow::default(), Flow::join);
            }
            Passes::Size => {
                for flow in &flows {
                    let each = self.each(flow);
                    self.look(&each);
                }
            }
        }
        Flow::default()
    }

    fn looped(&mut self, looped: &Loop) -> Flow {
        let range = self.flow(&looped.range);
        let element = self.each(&range);
        // In a map, a single variable holds the key, which is no place.
        let (first, second) = match looped.has_two {
            true => (Flow::default(), element),
            false => (element, Flow::default()),
        };
        self.locals[looped.slot] = first;
        if looped.has_two {
            self.locals[looped.slot + 1] = second;
        }
        if let Some(filter) = &looped.filter {
            self.whole(filter);
        }
        let step = self.flow(&looped.step);
        match looped.fold {
            Fold::All | Fold::Exists | Fold::ExistsOne | Fold::Entries => {
                self.take(&step);
                Flow::default()
            }
            Fold::List | Fold::Map => {
                self.look(&step);
                Flow::of_elements(step)
            }
            Fold::SortBy => {
                self.take(&step);
                range
            }
        }
    }
}
