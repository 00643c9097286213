//! The Rego of a template, parsed and prepared by regorus.

use std::cell::RefCell;

use regorus::{Engine, Value};
use serde_json::Value as Json;
use tollgate_gatekeeper::Violation;
use tollgate_sdk::{Pointer, SettingsErrors};
use tollgate_shape::Shape;

use crate::arithmetic;
use crate::bodies;
use crate::inventory::{self, Rewritten};
use crate::numbers::to_number;
use crate::plan::{Functions, Plan, Reason};
use crate::reading;
use crate::sprintf::sprintf;
use crate::syntax;
use crate::template::{Source, Template};

/// A prepared program. Evaluating changes caches of the engine, and nothing that a later evaluation sees.
pub(crate) struct Program {
    /// The compiled rules, or why the engine evaluates them all.
    pub(crate) plan: Result<Plan, Reason>,
    /// The document `data` for the plan.
    data: Value,
    /// The interpreter.
    engine: RefCell<Engine>,
    /// The path of the rule: `data.NAME.violation`.
    rule: String,
    /// What the modules read of `input.review`.
    pub(crate) shape: Shape,
    /// Whether the modules read the inventory that an evaluation brings.
    pub(crate) reads_inventory: bool,
}

/// The name of the template's own module in errors.
const MODULE: &str = "template";

/// A function of this plugin in place of a builtin of regorus.
pub(crate) type Extension = fn(Vec<Value>) -> Value;

/// The builtins that do not answer like OPA's, with the number of their arguments.
const EXTENSIONS: [(&str, u8, Extension); 2] =
    [("sprintf", 2, sprintf), ("to_number", 1, to_number)];

/// How many compiled patterns are kept. Those of a review are dropped with its instance.
const PATTERNS: regorus::cache::Config = regorus::cache::Config {
    regex: 32,
    glob: 32,
};

// === impl Program ===

impl Program {
    /// Compiles the template. `inventory` becomes `data.inventory`. None: each evaluation brings the inventory.
    pub(crate) fn compile(
        template: &Template,
        inventory: Option<Json>,
        errors: &mut SettingsErrors,
    ) -> Option<Self> {
        let before = errors.iter().count();
        regorus::cache::configure(PATTERNS);
        let mut engine = Engine::new();
        // A builtin that fails is undefined, as in OPA.
        engine.set_strict_builtin_errors(false);
        for (name, arguments, function) in EXTENSIONS {
            let function = Box::new(move |values| Ok(function(values)));
            if let Err(error) = engine.add_extension(name.to_owned(), arguments, function) {
                errors.at(template.module.place.clone(), error.to_string());
            }
        }
        for (name, function) in arithmetic::functions() {
            let function = Box::new(move |values| Ok(function(values)));
            if let Err(error) = engine.add_extension(name.to_owned(), 2, function) {
                errors.at(template.module.place.clone(), error.to_string());
            }
        }

        let is_live = inventory.is_none();
        let mut reads_inventory = false;
        let mut add = |source: &Source, name: &str| {
            let text = prepared(source, is_live, &mut reads_inventory, errors)?;
            engine.set_rego_v0(!source.is_v1);
            let added = engine.add_policy(name.to_owned(), text);
            added
                .map_err(|error| errors.at(source.place.clone(), summary(&error.to_string())))
                .ok()
        };
        for (index, source) in template.libs.iter().enumerate() {
            add(source, &format!("lib{index}"));
        }
        let package = add(&template.module, MODULE);
        let data = match inventory {
            Some(inventory) => Value::from(serde_json::json!({ "inventory": inventory })),
            None => Value::new_object(),
        };
        if let Err(error) = engine.add_data(data.clone()) {
            let message = format!("the inventory collides with the Rego: {error}");
            errors.at(template.module.place.clone(), message);
        }
        if errors.iter().count() > before {
            return None;
        }
        let rule = format!("{}.violation", package?);
        let modules = engine.get_modules();
        let shape = reading::review(modules);
        let plan = Plan::compile(modules, &functions());
        let program = Self {
            plan,
            data,
            engine: RefCell::new(engine),
            rule,
            shape,
            reads_inventory,
        };
        program.prepare(template, errors);
        (errors.iter().count() == before).then_some(program)
    }

    /// Evaluates once, so that everything that the first evaluation prepares is in the snapshot.
    fn prepare(&self, template: &Template, errors: &mut SettingsErrors) {
        let _ = arithmetic::place();
        let mut engine = self.engine.borrow_mut();
        engine.set_input(Value::from(serde_json::json!({
            "review": { "object": {} }, "parameters": {},
            inventory::MEMBER: { "cluster": {}, "namespace": {} },
        })));
        let Err(error) = engine.eval_rule(self.rule.clone()) else {
            return;
        };
        let error = error.to_string();
        if error.contains("not a valid rule path") {
            errors.at(
                template.module.place.clone(),
                "has no rule `violation`, which reports what is wrong with an object",
            );
        } else if !is_about_values(&error) {
            let (place, message) = located(template, &error);
            errors.at(place, message);
        }
    }

    /// Does once what a review with the parameters of a constraint would do.
    pub(crate) fn prepare_parameters(&self, parameters: &Value) {
        if let Ok(plan) = &self.plan {
            plan.prepare(parameters);
        }
    }

    /// Evaluates the rule for a review and the parameters of a constraint.
    ///
    /// # Errors
    /// When the evaluation fails, such as for two different results of one function. The text names the place in the
    /// Rego and no value of the object.
    pub(crate) fn violations(
        &self,
        review: &Value,
        parameters: &Value,
        inventory: Option<&Value>,
    ) -> Result<Vec<Violation>, String> {
        let input = input(review, parameters, inventory);
        match self.planned(&input) {
            Some(result) => violations(&result),
            None => violations(&self.interpreted(input)?),
        }
    }

    /// Evaluates the rule with the plan. None if there is none, or if only the interpreter can decide.
    pub(crate) fn planned(&self, input: &Value) -> Option<Value> {
        let plan = self.plan.as_ref().ok()?;
        plan.evaluate(input, &self.data).ok()
    }

    /// Evaluates the rule with the interpreter.
    pub(crate) fn interpreted(&self, input: Value) -> Result<Value, String> {
        let mut engine = self.engine.borrow_mut();
        engine.set_input(input);
        let result = engine.eval_rule(self.rule.clone());
        result.map_err(|error| summary(&error.to_string()))
    }
}

/// The document `input`.
pub(crate) fn input(review: &Value, parameters: &Value, inventory: Option<&Value>) -> Value {
    let mut input = Value::new_object();
    if let Ok(members) = input.as_object_mut() {
        members.insert(Value::from("review"), review.clone());
        members.insert(Value::from("parameters"), parameters.clone());
        if let Some(inventory) = inventory {
            members.insert(Value::from(inventory::MEMBER), inventory.clone());
        }
    }
    input
}

/// Reads the value of the rule.
pub(crate) fn violations(result: &Value) -> Result<Vec<Violation>, String> {
    let set = match result {
        Value::Undefined => return Ok(Vec::new()),
        result => result
            .as_set()
            .map_err(|_| "`violation` is no set of objects".to_owned())?,
    };
    set.iter()
        .map(violation)
        .filter_map(Result::transpose)
        .collect()
}

/// The functions of this plugin that a plan calls.
fn functions() -> Functions {
    let extensions =
        EXTENSIONS.map(|(name, arguments, function)| (name, (arguments.into(), function)));
    let operators = arithmetic::functions().map(|(name, function)| (name, (2, function)));
    extensions.into_iter().chain(operators).collect()
}

/// Rewrites a module for regorus. None if its text is refused.
fn prepared(
    source: &Source,
    is_live: bool,
    reads_inventory: &mut bool,
    errors: &mut SettingsErrors,
) -> Option<String> {
    if let Some(line) = syntax::too_deep(&source.text) {
        let most = syntax::MOST_OPEN_BRACKETS;
        let problem = format!("line {line}: more than {most} brackets are open: nest less");
        errors.at(source.place.clone(), problem);
        return None;
    }
    for (line, problem) in syntax::unsupported(&source.text) {
        errors.at(source.place.clone(), format!("line {line}: {problem}"));
    }
    let mut text = bodies::adapted(&syntax::adapted(&source.text), source.is_v1);
    if is_live {
        let rewritten = Rewritten::of(text, source.is_v1);
        text = rewritten.text;
        *reads_inventory |= rewritten.reads;
        for problem in rewritten.problems {
            errors.at(source.place.clone(), problem);
        }
    }
    Some(arithmetic::adapted(&text, source.is_v1))
}

/// Whether an evaluation without an object failed only for want of one.
fn is_about_values(error: &str) -> bool {
    !error.contains("could not find function")
}

/// Returns the module that an error is in, and the error's text.
fn located(template: &Template, error: &str) -> (Pointer, String) {
    let lib = template
        .libs
        .iter()
        .enumerate()
        .find(|(index, _)| error.contains(&format!("--> lib{index}:")));
    let source = lib.map_or(&template.module, |(_, source)| source);
    (source.place.clone(), summary(error))
}

/// Shortens an error of regorus, which draws the line of the source, to one line with the place.
fn summary(error: &str) -> String {
    let place = error
        .lines()
        .find_map(|line| line.trim().strip_prefix("--> "))
        .and_then(|place| {
            let mut parts = place.rsplitn(3, ':');
            let (column, line) = (parts.next()?, parts.next()?);
            Some(format!("line {line}, column {column}: "))
        });
    let reason = error
        .lines()
        .find_map(|line| line.trim().strip_prefix("error: "))
        .or_else(|| error.lines().find(|line| !line.trim().is_empty()))
        .unwrap_or("the evaluation failed");
    format!("{}{}", place.unwrap_or_default(), reason.trim())
}

/// Reads an element of the set `violation`. One without `msg` is none, as for Gatekeeper.
fn violation(value: &Value) -> Result<Option<Violation>, String> {
    let object = value
        .as_object()
        .map_err(|_| "`violation` has an element that is no object with `msg`".to_owned())?;
    let Some(message) = object.get(&Value::from("msg")) else {
        return Ok(None);
    };
    let message = message
        .as_string()
        .map_err(|_| "`violation` has an element whose `msg` is no string")?;
    let details = object
        .get(&Value::from("details"))
        .and_then(|details| serde_json::to_value(details).ok())
        .filter(|details| !matches!(details, Json::Object(members) if members.is_empty()));
    Ok(Some(Violation {
        message: message.to_string(),
        details,
    }))
}
