//! Compiles expressions: parses, checks names and types, and builds the form that is evaluated.

mod calls;
mod literals;
mod locate;
mod macros;
mod paths;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use cel::common::ast::{Expr, LiteralValue, SelectExpr};
use cel::parser::{Expression, PrattParser};

use crate::error::CompileError;
use crate::functions::authz::{self, Authz};
use crate::node::{Document, Node, Path};
use crate::signatures::{self, Overload};
use crate::types::{REQUEST, Type};
use crate::value::Value;

/// Maximum nesting depth. Parsing and evaluation are recursive.
const DEEPEST: u16 = 40;
/// The variable of templates with the object, or on DELETE the old object.
pub(crate) const ANY_OBJECT: &str = "anyObject";
/// The variable of templates with the parameters of the constraint.
pub(crate) const PARAMS: &str = "params";
/// The variable that asks about rights.
const AUTHORIZER_VARIABLE: &str = "authorizer";
/// The longest expression, in bytes.
const LONGEST: usize = 64 * 1024;

/// The names that expressions can use.
pub struct Environment {
    functions: BTreeMap<(String, bool), Vec<Overload>>,
    /// The variables of the policy so far, with their types.
    variables: Vec<(String, Type)>,
    has_params: bool,
    has_namespace: bool,
    has_access: bool,
    /// Whether an expression has used `authorizer`.
    asks_about_rights: Cell<bool>,
    constructs: bool,
    is_template: bool,
}

/// A compiled expression.
#[derive(Debug)]
pub struct Program {
    pub(crate) root: Node,
    /// The number of slots for variables of loops.
    pub(crate) slots: usize,
    result: Type,
    source: Arc<str>,
}

/// A problem, with the word of the expression that it is about.
pub(crate) struct Problem {
    pub(crate) word: String,
    pub(crate) message: String,
}

pub(crate) type Checked<T> = Result<T, Problem>;

/// Compiles one expression.
pub(crate) struct Compiler<'e> {
    environment: &'e Environment,
    /// The variables of the loops around the current place, innermost last.
    scope: Vec<(String, usize, Type)>,
    slots: usize,
    depth: u16,
}

/// A compiled part of an expression.
pub(crate) struct Typed {
    pub(crate) node: Node,
    pub(crate) kind: Type,
}

// === impl Environment ===

impl Default for Environment {
    fn default() -> Self {
        Self::new()
    }
}

impl Environment {
    /// Creates the environment of a policy without parameters.
    #[must_use]
    pub fn new() -> Self {
        Self {
            functions: signatures::table(),
            variables: Vec::new(),
            has_params: false,
            has_namespace: false,
            has_access: false,
            asks_about_rights: Cell::new(false),
            constructs: false,
            is_template: false,
        }
    }

    /// Lets expressions use `params`.
    #[must_use]
    pub fn with_params(mut self, has_params: bool) -> Self {
        self.has_params = has_params;
        self
    }

    /// Lets expressions use `namespaceObject`.
    #[must_use]
    pub fn with_namespace(mut self, has_namespace: bool) -> Self {
        self.has_namespace = has_namespace;
        self
    }

    /// Lets expressions use `authorizer`.
    #[must_use]
    pub fn with_access(mut self, has_access: bool) -> Self {
        self.has_access = has_access;
        self
    }

    pub(crate) fn has_access(&self) -> bool {
        self.has_access
    }

    pub(crate) fn set_access(&mut self, has_access: bool) {
        self.has_access = has_access;
    }

    /// Whether an expression that was compiled here uses `authorizer`.
    #[must_use]
    pub fn asks_about_rights(&self) -> bool {
        self.asks_about_rights.get()
    }

    /// Lets expressions construct `Object{…}` and `JSONPatch{…}`, and use `jsonpatch.escapeKey`.
    #[must_use]
    pub fn with_patches(mut self, constructs: bool) -> Self {
        self.constructs = constructs;
        self
    }

    /// Lets expressions use `variables.anyObject` and `variables.params`, as Gatekeeper does, instead of `params`.
    #[must_use]
    pub fn with_template(mut self, is_template: bool) -> Self {
        self.is_template = is_template;
        self
    }

    /// Adds the next variable of the policy.
    pub fn add_variable(&mut self, name: impl Into<String>, kind: Type) {
        self.variables.push((name.into(), kind));
    }

    /// Compiles an expression.
    ///
    /// # Errors
    /// The first problem, with its place.
    pub fn compile(&self, source: &str) -> Result<Program, CompileError> {
        let whole = |message: &str| CompileError {
            line: 1,
            column: 1,
            message: message.to_owned(),
        };
        if source.len() > LONGEST {
            return Err(whole("the expression has more than 64 KiB"));
        }
        if nesting(source) > usize::from(DEEPEST) {
            return Err(whole("the expression is nested too deeply"));
        }
        let parser = PrattParser::new()
            .enable_optional_syntax(true)
            .enable_ident_escape_syntax(true)
            .max_recursion_depth(DEEPEST);
        let expression = parser.parse(source).map_err(|errors| {
            let first = errors.errors.into_iter().next();
            first.map_or_else(
                || whole("syntax error"),
                |error| CompileError {
                    line: usize::try_from(error.pos.0).unwrap_or(1).max(1),
                    column: usize::try_from(error.pos.1).unwrap_or(1).max(1),
                    message: error.msg,
                },
            )
        })?;
        let mut compiler = Compiler {
            environment: self,
            scope: Vec::new(),
            slots: 0,
            depth: 0,
        };
        let compiled = compiler.node(&expression);
        let typed = compiled.map_err(|problem| locate::error(source, problem))?;
        Ok(Program {
            root: typed.node,
            slots: compiler.slots,
            result: typed.kind,
            source: Arc::from(source),
        })
    }
}

// === impl Program ===

impl Program {
    /// The static type of the result.
    #[must_use]
    pub fn result(&self) -> &Type {
        &self.result
    }

    /// The expression.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }
}

// === impl Problem ===

impl Problem {
    pub(crate) fn new(word: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            word: word.into(),
            message: message.into(),
        }
    }

    pub(crate) fn undeclared(name: &str) -> Self {
        Self::new(
            name,
            format!("undeclared reference to '{name}' (in container '')"),
        )
    }
}

// === impl Typed ===

impl Typed {
    pub(crate) fn new(node: Node, kind: Type) -> Self {
        Self { node, kind }
    }
}

// === impl Compiler ===

impl Compiler<'_> {
    pub(crate) fn node(&mut self, expression: &Expression) -> Checked<Typed> {
        self.depth += 1;
        if self.depth > DEEPEST * 2 {
            return Err(Problem::new("", "the expression is nested too deeply"));
        }
        let compiled = self.kind(&expression.expr);
        self.depth -= 1;
        compiled
    }

    fn kind(&mut self, expression: &Expr) -> Checked<Typed> {
        match expression {
            Expr::Literal(literal) => Ok(constant(literal)),
            Expr::Ident(name) => self.name(name.trim_start_matches('.')),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Struct(object) => self.object(object),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Unspecified => Err(Problem::new("", "the expression is incomplete")),
        }
    }

    fn local(&self, name: &str) -> Option<&(String, usize, Type)> {
        self.scope.iter().rev().find(|(known, ..)| known == name)
    }

    fn name(&self, name: &str) -> Checked<Typed> {
        if let Some((_, slot, kind)) = self.local(name) {
            return Ok(Typed::new(Node::Local(*slot), kind.clone()));
        }
        let simple = |name: &'static str| {
            let value = Value::Type(Arc::from(name));
            Ok(Typed::new(Node::Constant(value), Type::Named("type")))
        };
        match name {
            "object" => Ok(Typed::new(document(Document::Object), Type::Dyn)),
            "oldObject" => Ok(Typed::new(document(Document::OldObject), Type::Dyn)),
            "request" => Ok(Typed::new(
                document(Document::Request),
                Type::Record(&REQUEST),
            )),
            "params" if self.environment.has_params => Ok(Typed::new(Node::Params, Type::Dyn)),
            "params" => Err(Problem::new(
                name,
                "undeclared reference to 'params' (in container ''): the policy has no paramKind",
            )),
            "namespaceObject" if self.environment.has_namespace => {
                Ok(Typed::new(document(Document::Namespace), Type::Dyn))
            }
            "namespaceObject" => Err(Problem::new(
                name,
                "namespaceObject is not available: the host does not pass the Namespace to plugins",
            )),
            AUTHORIZER_VARIABLE => {
                self.asks_about_rights()?;
                let value = authz::value(Authz::Authorizer(None));
                Ok(Typed::new(Node::Constant(value), authz::AUTHORIZER))
            }
            "variables" => Err(Problem::new(
                name,
                "variables can only be used with a field, such as variables.name",
            )),
            "bool" => simple("bool"),
            "bytes" => simple("bytes"),
            "double" => simple("double"),
            "int" => simple("int"),
            "list" => simple("list"),
            "map" => simple("map"),
            "null_type" => simple("null_type"),
            "optional_type" => simple("optional_type"),
            "string" => simple("string"),
            "type" => simple("type"),
            "uint" => simple("uint"),
            _ => Err(Problem::undeclared(name)),
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Checked<Typed> {
        let field = select.field.as_str();
        if let Expr::Ident(name) = &select.operand.expr {
            let name = name.trim_start_matches('.');
            if name == "variables" && self.local(name).is_none() {
                return self.variable(field, select.test);
            }
            let is_authorizer = name == AUTHORIZER_VARIABLE && self.local(name).is_none();
            if is_authorizer && field == "requestResource" && !select.test {
                self.asks_about_rights()?;
                return Ok(Typed::new(Node::RequestResource, authz::RESOURCE_CHECK));
            }
        }
        if let Some(name) = type_name(&select.operand.expr, field)
            && !select.test
        {
            let value = Value::Type(Arc::from(name));
            return Ok(Typed::new(Node::Constant(value), Type::Named("type")));
        }
        let operand = self.node(&select.operand)?;
        paths::select(operand, field, select.test)
    }

    fn asks_about_rights(&self) -> Checked<()> {
        if !self.environment.has_access {
            return Err(Problem::new(
                AUTHORIZER_VARIABLE,
                "authorizer is not available here: the plugin needs the capability access (`capabilities: [access]`), and \
                 a messageExpression never has it",
            ));
        }
        self.environment.asks_about_rights.set(true);
        Ok(())
    }

    fn variable(&self, field: &str, is_test: bool) -> Checked<Typed> {
        let of_template = match field {
            ANY_OBJECT => Some(document(Document::AnyObject)),
            PARAMS => Some(Node::Params),
            _ => None,
        };
        if let (Some(node), true, false) = (of_template, self.environment.is_template, is_test) {
            return Ok(Typed::new(node, Type::Dyn));
        }
        let variables = &self.environment.variables;
        let Some(index) = variables.iter().rposition(|(name, _)| name == field) else {
            return Err(Problem::new(field, format!("undefined field '{field}'")));
        };
        if is_test {
            let always = Node::Constant(Value::Bool(true));
            return Ok(Typed::new(always, crate::types::BOOL));
        }
        Ok(Typed::new(
            Node::Variable(index),
            variables[index].1.clone(),
        ))
    }
}

/// Returns the node of a whole document.
fn document(document: Document) -> Node {
    Node::Path(Path {
        document,
        names: Vec::new(),
        pointer: String::new(),
        required: None,
    })
}

/// Returns an upper bound of the depth of brackets, because the parser is recursive.
fn nesting(source: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in source.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Returns the name of a type that is written with dots.
fn type_name(operand: &Expr, field: &str) -> Option<&'static str> {
    let Expr::Select(outer) = operand else {
        return match (operand, field) {
            (Expr::Ident(name), "IP") if name == "net" => Some("net.IP"),
            (Expr::Ident(name), "CIDR") if name == "net" => Some("net.CIDR"),
            (Expr::Ident(name), "URL") if name == "kubernetes" => Some("kubernetes.URL"),
            (Expr::Ident(name), "Quantity") if name == "kubernetes" => Some("kubernetes.Quantity"),
            (Expr::Ident(name), "Semver") if name == "kubernetes" => Some("kubernetes.Semver"),
            _ => None,
        };
    };
    let is_google = matches!(&outer.operand.expr, Expr::Ident(name) if name == "google");
    match (is_google && outer.field == "protobuf", field) {
        (true, "Timestamp") => Some("google.protobuf.Timestamp"),
        (true, "Duration") => Some("google.protobuf.Duration"),
        _ => None,
    }
}

fn constant(literal: &LiteralValue) -> Typed {
    let (value, name) = match literal {
        LiteralValue::Boolean(value) => (Value::Bool(*value.inner()), "bool"),
        LiteralValue::Int(value) => (Value::Int(*value.inner()), "int"),
        LiteralValue::UInt(value) => (Value::Uint(*value.inner()), "uint"),
        LiteralValue::Double(value) => (Value::Double(*value.inner()), "double"),
        LiteralValue::String(value) => (Value::text(value.inner()), "string"),
        LiteralValue::Bytes(value) => (Value::Bytes(Arc::from(value.inner())), "bytes"),
        LiteralValue::Null => (Value::Null, "null_type"),
    };
    Typed::new(Node::Constant(value), Type::Named(name))
}
