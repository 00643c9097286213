//! Evaluates compiled expressions.

mod loops;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use tollgate_shape::Look;

use crate::compile::Program;
use crate::documents::Documents;
use crate::error::{EvalError, Result};
use crate::functions::authz::{self, Authz, Decision, Question, Resource};
use crate::functions::regex;
use crate::json;
use crate::meter::{EXPRESSION_LIMIT, Meter};
use crate::node::{Arithmetic, Document, Node, Path, Search};
use crate::ops;
use crate::value::{Key, Struct, Value};

/// A value that a source has.
#[derive(Clone, Debug)]
pub enum Found {
    /// The value itself.
    Value(Value),
    /// The JSON text of an object or a list.
    Json(String),
}

/// The documents of a review. Only the places that expressions name are read.
pub trait Source {
    /// Returns the value at a JSON pointer. None if there is nothing.
    fn value(&self, document: Document, pointer: &str) -> Option<Found>;

    /// Answers a question about a right.
    ///
    /// # Errors
    /// When nobody can tell. That is an error of the expression, and never "allowed".
    fn authorize(&self, question: &Question) -> std::result::Result<Decision, String> {
        let _ = question;
        Err("there is no authorizer".to_owned())
    }

    /// Looks at several JSON pointers.
    fn look(&self, document: Document, pointers: &[String]) -> Vec<Option<Look<Value>>> {
        let look = |pointer: &String| {
            let value = match self.value(document, pointer)? {
                Found::Value(value) => value,
                Found::Json(text) => json::parse(&text)?,
            };
            Some(seen(&value))
        };
        pointers.iter().map(look).collect()
    }

    /// Returns the member names of the object at a JSON pointer.
    fn keys(&self, document: Document, pointer: &str) -> Vec<String> {
        let value = match self.value(document, pointer) {
            Some(Found::Value(value)) => Some(value),
            Some(Found::Json(text)) => json::parse(&text),
            None => None,
        };
        value.as_ref().map_or_else(Vec::new, Value::names)
    }

    /// Whether there is a value at a JSON pointer.
    fn exists(&self, document: Document, pointer: &str) -> bool {
        self.value(document, pointer).is_some()
    }
}

/// Returns what a look at a value shows.
pub(crate) fn seen(value: &Value) -> Look<Value> {
    match value {
        Value::List(list) => Look::Array(list.len()),
        Value::Map(_) => Look::Object,
        scalar => Look::Scalar(scalar.clone()),
    }
}

/// A variable of a policy is evaluated when an expression first uses it.
#[derive(Clone, Debug)]
enum Lazy {
    Unused,
    /// The evaluation has begun. A variable cannot use itself, so this is not seen twice.
    Ready(Result<Value>),
}

/// A variable of a policy.
#[derive(Debug)]
pub struct Variable {
    /// The name.
    pub name: String,
    /// The expression.
    pub program: Program,
}

/// The inputs of evaluations, and what earlier ones have read.
pub struct Scope<'a> {
    documents: Rc<Documents<'a>>,
    params: Value,
    programs: &'a [Variable],
    lazy: RefCell<Vec<Lazy>>,
    /// The cost of the variables that the current evaluation has needed first.
    variables_cost: Cell<u64>,
}

/// One evaluation.
pub(crate) struct Evaluation<'s, 'a> {
    scope: &'s Scope<'a>,
    meter: Meter,
    locals: Vec<Value>,
}

// === impl Scope ===

impl<'a> Scope<'a> {
    /// Creates a scope. `programs` are the variables of the policy.
    #[must_use]
    pub fn new(source: &'a dyn Source, params: Value, programs: &'a [Variable]) -> Self {
        Self::over(Rc::new(Documents::new(source)), params, programs)
    }

    /// Creates a scope over documents that other scopes may have read.
    pub(crate) fn over(
        documents: Rc<Documents<'a>>,
        params: Value,
        programs: &'a [Variable],
    ) -> Self {
        Self {
            documents,
            params,
            programs,
            lazy: RefCell::new(vec![Lazy::Unused; programs.len()]),
            variables_cost: Cell::new(0),
        }
    }

    /// Evaluates an expression. Returns the result and the cost, which includes that of the variables that no earlier
    /// evaluation has needed.
    pub fn evaluate(&self, program: &Program) -> (Result<Value>, u64) {
        self.variables_cost.set(0);
        let (result, cost) = self.run(program);
        (result, cost.saturating_add(self.variables_cost.get()))
    }

    fn run(&self, program: &Program) -> (Result<Value>, u64) {
        let mut evaluation = Evaluation {
            scope: self,
            meter: Meter::new(EXPRESSION_LIMIT),
            locals: vec![Value::Null; program.slots],
        };
        let result = evaluation.eval(&program.root);
        (result, evaluation.meter.spent())
    }

    fn variable(&self, index: usize) -> Result<Value> {
        if let Some(Lazy::Ready(value)) = self.lazy.borrow().get(index) {
            return value.clone();
        }
        let Some(Variable { name, program }) = self.programs.get(index) else {
            return Err(EvalError::new("the variable does not exist"));
        };
        let (value, cost) = self.run(program);
        let value = value.map_err(|error| {
            EvalError::new(format!(
                "composited variable {name:?} fails to evaluate: {error}"
            ))
        });
        self.variables_cost
            .set(self.variables_cost.get().saturating_add(cost));
        self.lazy.borrow_mut()[index] = Lazy::Ready(value.clone());
        value
    }

    /// Returns the resource of the request as the user has written it, before a conversion.
    fn request_resource(&self) -> Value {
        let source = self.documents.source();
        let text = |pointer: &str| match source.value(Document::Request, pointer) {
            Some(Found::Value(Value::String(text))) => Some(text),
            _ => None,
        };
        let either = |one: &str, other: &str| text(one).or_else(|| text(other));
        let has_original = source.exists(Document::Request, "/requestResource");
        let subresource = match has_original {
            true => text("/requestSubResource"),
            false => text("/subResource"),
        };
        let resource = Resource {
            group: either("/requestResource/group", "/resource/group").unwrap_or_default(),
            resource: either("/requestResource/resource", "/resource/resource").unwrap_or_default(),
            subresource: subresource.unwrap_or_default(),
            namespace: text("/namespace").unwrap_or_default(),
            name: text("/name").unwrap_or_default(),
        };
        authz::value(Authz::Resource(None, resource))
    }

    fn path(&self, path: &Path) -> Result<Value> {
        let found = self.documents.at(path.document, &path.pointer);
        let Some(required) = path.required else {
            return match found {
                Some(value) => Ok(value),
                None if path.names.is_empty() => Ok(Value::Null),
                None => Err(self.missing(path, path.names.len())),
            };
        };
        match found {
            Some(value) => Ok(Value::some(value)),
            None => {
                if required > 0 && !self.has_prefix(path, required) {
                    return Err(self.missing(path, required));
                }
                Ok(Value::Optional(None))
            }
        }
    }

    fn has_path(&self, path: &Path) -> Result<bool> {
        if self.documents.exists(path.document, &path.pointer) {
            return Ok(true);
        }
        let parents = path.names.len().saturating_sub(1);
        if parents > 0 && !self.has_prefix(path, parents) {
            return Err(self.missing(path, parents));
        }
        Ok(false)
    }

    fn has_prefix(&self, path: &Path, names: usize) -> bool {
        self.documents.exists(path.document, path.prefix(names))
    }

    /// Returns the error for the first name that does not exist.
    fn missing(&self, path: &Path, most: usize) -> EvalError {
        let first = (1..=most).find(|names| !self.has_prefix(path, *names));
        let index = first.unwrap_or(most).saturating_sub(1);
        EvalError::no_such_key(path.names.get(index).map_or("", |name| name))
    }
}

// === impl Evaluation ===

impl Evaluation<'_, '_> {
    pub(crate) fn eval(&mut self, node: &Node) -> Result<Value> {
        match node {
            Node::Constant(value) => Ok(value.clone()),
            Node::Path(path) => {
                self.meter.charge(1)?;
                self.scope.path(path)
            }
            Node::HasPath(path) => {
                self.meter.charge(1)?;
                self.scope.has_path(path).map(Value::Bool)
            }
            Node::Params => {
                self.meter.charge(1)?;
                Ok(self.scope.params.clone())
            }
            Node::RequestResource => {
                self.meter.charge(1)?;
                Ok(self.scope.request_resource())
            }
            Node::Check(nodes) => {
                let (on, verb) = self.both(nodes)?;
                let question = authz::question(&on, &verb, &mut self.meter)?;
                let answer = self.scope.documents.source().authorize(&question);
                let decision = answer.map_err(EvalError::new)?;
                Ok(authz::value(Authz::Decision(decision)))
            }
            Node::Variable(index) => {
                self.meter.charge(1)?;
                self.scope.variable(*index)
            }
            Node::Local(slot) => {
                self.meter.charge(1)?;
                Ok(self.locals[*slot].clone())
            }
            Node::Select(operand, field) => {
                if let Node::Local(slot) = &**operand {
                    self.meter.charge(1)?;
                    return select(&self.locals[*slot], field);
                }
                let operand = self.eval(operand)?;
                select(&operand, field)
            }
            Node::Has(operand, field) => {
                let operand = self.eval(operand)?;
                Ok(Value::Bool(has(&operand, field)?))
            }
            Node::SelectOptional(operand, field) => {
                let operand = self.eval(operand)?;
                Ok(select_optional(&operand, field))
            }
            Node::Index(nodes) => {
                let (container, index) = self.both(nodes)?;
                if let Value::Optional(_) = container {
                    let found = ops::find(&container, &index)?;
                    return Ok(found.map_or(Value::Optional(None), Value::some));
                }
                ops::index(&container, &index)
            }
            Node::IndexOptional(nodes) => {
                let (container, index) = self.both(nodes)?;
                let found = ops::find(&container, &index)?;
                Ok(found.map_or(Value::Optional(None), Value::some))
            }
            Node::And(nodes) => self.logic(nodes, false),
            Node::Or(nodes) => self.logic(nodes, true),
            Node::Not(operand) => match self.eval(operand)? {
                Value::Bool(value) => {
                    self.meter.charge(1)?;
                    Ok(Value::Bool(!value))
                }
                _ => Err(EvalError::no_such_overload()),
            },
            Node::Negate(operand) => {
                let operand = self.eval(operand)?;
                self.meter.charge(1)?;
                ops::negate(&operand)
            }
            Node::Conditional(nodes) => match self.eval(&nodes.0)? {
                Value::Bool(true) => self.eval(&nodes.1),
                Value::Bool(false) => self.eval(&nodes.2),
                _ => Err(EvalError::no_such_overload()),
            },
            Node::Equal(nodes, wanted) => {
                let (left, right) = self.both(nodes)?;
                ops::charge_equality(&left, &right, &mut self.meter)?;
                Ok(Value::Bool((left == right) == *wanted))
            }
            Node::Order(nodes, test, name) => {
                let (left, right) = self.both(nodes)?;
                ops::charge_equality(&left, &right, &mut self.meter)?;
                if matches!(
                    left,
                    Value::Null | Value::List(_) | Value::Map(_) | Value::Optional(_)
                ) {
                    return Err(EvalError::new(format!("no such overload: {name}")));
                }
                Ok(Value::Bool(test(ops::compare(&left, &right)?)))
            }
            Node::Arithmetic(nodes, operation) => {
                let (left, right) = self.both(nodes)?;
                self.meter.charge(1)?;
                arithmetic(*operation, &left, &right, &mut self.meter)
            }
            Node::In(nodes) => {
                let (value, container) = self.both(nodes)?;
                self.meter.charge(1)?;
                ops::contains(&value, &container, &mut self.meter).map(Value::Bool)
            }
            Node::Call(native, _, arguments) => match &**arguments {
                [one] => {
                    let one = [self.eval(one)?];
                    self.meter.charge(1)?;
                    native(&one, &mut self.meter)
                }
                [one, two] => {
                    let two = [self.eval(one)?, self.eval(two)?];
                    self.meter.charge(1)?;
                    native(&two, &mut self.meter)
                }
                arguments => {
                    let arguments = self.all(arguments)?;
                    self.meter.charge(1)?;
                    native(&arguments, &mut self.meter)
                }
            },
            Node::Search(search, pattern, arguments) => {
                let arguments = self.all(arguments)?;
                let (subject, meter) = (&arguments[0], &mut self.meter);
                match search {
                    Search::Matches => regex::matches(pattern, subject, meter),
                    Search::Find => regex::find(pattern, subject, meter),
                    Search::FindAll => regex::find_all(pattern, subject, arguments.get(1), meter),
                }
            }
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::Struct(name, fields) => self.object(name, fields),
            Node::Loop(looped) => self.looped(looped),
            Node::MapOptional(nodes, slot, is_flat) => self.map_optional(nodes, *slot, *is_flat),
        }
    }

    fn both(&mut self, nodes: &(Node, Node)) -> Result<(Value, Value)> {
        Ok((self.eval(&nodes.0)?, self.eval(&nodes.1)?))
    }

    fn all(&mut self, nodes: &[Node]) -> Result<Vec<Value>> {
        let mut values = Vec::with_capacity(nodes.len());
        for node in nodes {
            values.push(self.eval(node)?);
        }
        Ok(values)
    }

    /// Implements `&&` and `||`. A side that decides the result makes an error of the other side irrelevant.
    fn logic(&mut self, nodes: &(Node, Node), decides: bool) -> Result<Value> {
        let left = self.eval(&nodes.0);
        match &left {
            Ok(Value::Bool(value)) if *value == decides => return left,
            Err(EvalError::CostLimit) => return left,
            _ => {}
        }
        let right = self.eval(&nodes.1);
        match (left, right) {
            (_, Ok(Value::Bool(value))) if value == decides => Ok(Value::Bool(value)),
            (_, Err(EvalError::CostLimit)) => Err(EvalError::CostLimit),
            (Err(error), _) | (Ok(Value::Bool(_)), Err(error)) => Err(error),
            (Ok(Value::Bool(_)), Ok(Value::Bool(value))) => Ok(Value::Bool(value)),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    fn list(&mut self, elements: &[(Node, bool)]) -> Result<Value> {
        self.meter.charge(10)?;
        let mut list = Vec::with_capacity(elements.len());
        for (element, is_optional) in elements {
            let value = self.eval(element)?;
            if *is_optional {
                list.extend(present(value)?);
            } else {
                list.push(value);
            }
        }
        Ok(Value::list(list))
    }

    fn map(&mut self, entries: &[(Node, Node, bool)]) -> Result<Value> {
        self.meter.charge(30)?;
        let mut map = Vec::with_capacity(entries.len());
        for (key, value, is_optional) in entries {
            let (key, value) = (self.eval(key)?, self.eval(value)?);
            let key = Key::of(&key).ok_or_else(|| {
                EvalError::new(format!("unsupported key type: {}", key.type_name()))
            })?;
            let value = if *is_optional {
                match present(value)? {
                    Some(value) => value,
                    None => continue,
                }
            } else {
                value
            };
            map.push((key, value));
        }
        let given = map.len();
        let map = Value::map(map);
        if map.size() < given {
            return Err(EvalError::new("Failed with repeated key"));
        }
        Ok(map)
    }

    fn object(&mut self, name: &Arc<str>, nodes: &[(Arc<str>, Node, bool)]) -> Result<Value> {
        self.meter.charge(40)?;
        let mut fields = Vec::with_capacity(nodes.len());
        for (field, value, is_optional) in nodes {
            let value = self.eval(value)?;
            let value = if *is_optional {
                match present(value)? {
                    Some(value) => value,
                    None => continue,
                }
            } else {
                value
            };
            fields.push((Arc::clone(field), value));
        }
        let name = Arc::clone(name);
        Ok(Value::Struct(Arc::new(Struct { name, fields })))
    }

    fn map_optional(&mut self, nodes: &(Node, Node), slot: usize, is_flat: bool) -> Result<Value> {
        match self.eval(&nodes.0)? {
            Value::Optional(None) => Ok(Value::Optional(None)),
            Value::Optional(Some(content)) => {
                self.locals[slot] = (*content).clone();
                let value = self.eval(&nodes.1)?;
                Ok(if is_flat { value } else { Value::some(value) })
            }
            _ => Err(EvalError::no_such_overload()),
        }
    }
}

/// Returns the content of an optional value.
fn present(value: Value) -> Result<Option<Value>> {
    match value {
        Value::Optional(content) => Ok(content.map(|content| (*content).clone())),
        other => Err(EvalError::new(format!(
            "cannot initialize optional entry from non-optional value {}",
            other.type_name()
        ))),
    }
}

fn arithmetic(
    operation: Arithmetic,
    left: &Value,
    right: &Value,
    meter: &mut Meter,
) -> Result<Value> {
    match operation {
        Arithmetic::Add => ops::add(left, right, meter),
        Arithmetic::Subtract => ops::subtract(left, right),
        Arithmetic::Multiply => ops::multiply(left, right),
        Arithmetic::Divide => ops::divide(left, right),
        Arithmetic::Modulo => ops::modulo(left, right),
    }
}

fn select(operand: &Value, field: &str) -> Result<Value> {
    match operand {
        Value::Optional(_) => Ok(select_optional(operand, field)),
        Value::List(_) => Err(EvalError::new("unsupported index type 'string' in list")),
        other => other
            .field(field)
            .cloned()
            .ok_or_else(|| EvalError::no_such_key(field)),
    }
}

fn has(operand: &Value, field: &str) -> Result<bool> {
    match operand {
        Value::Optional(None) => Ok(false),
        Value::Optional(Some(content)) => has(content, field),
        Value::List(_) => Err(EvalError::new("unsupported index type 'string' in list")),
        other => Ok(other.field(field).is_some()),
    }
}

fn select_optional(operand: &Value, field: &str) -> Value {
    match operand {
        Value::Optional(None) => Value::Optional(None),
        Value::Optional(Some(content)) => select_optional(content, field),
        other => other
            .field(field)
            .map_or(Value::Optional(None), |value| Value::some(value.clone())),
    }
}
