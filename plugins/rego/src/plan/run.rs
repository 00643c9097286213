//! Evaluates a plan.

use regorus::Value;
use regorus::unstable::{BoolOp, comparison};

use super::{
    Body, Builtin, Collection, Comprehension, Definition, Each, Kind, Plan, Rule, Step, Term,
    Unsure,
};

/// Whether a query goes on with further values of its variables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Stop,
}

/// One evaluation.
struct Run<'p> {
    plan: &'p Plan,
    input: &'p Value,
    data: &'p Value,
    /// The values of rules without parameters, once they are known.
    values: Vec<Option<Value>>,
    /// The variables of all bodies that are being evaluated.
    stack: Vec<Value>,
    /// The first variable of the innermost body.
    base: usize,
}

/// The stack is first as large as most templates need it.
const STACK: usize = 64;

// === impl Plan ===

impl Plan {
    /// Evaluates `violation`.
    pub(crate) fn evaluate(&self, input: &Value, data: &Value) -> Result<Value, Unsure> {
        let mut run = Run {
            plan: self,
            input,
            data,
            values: vec![None; self.rules.len()],
            stack: Vec::with_capacity(STACK),
            base: 0,
        };
        run.rule(self.main)
    }
}

// === impl Run ===

impl<'p> Run<'p> {
    /// Returns the value of a rule without parameters.
    fn rule(&mut self, index: usize) -> Result<Value, Unsure> {
        if let Some(value) = &self.values[index] {
            return Ok(value.clone());
        }
        let rule = &self.plan.rules[index];
        let start = self.stack.len();
        let caller = std::mem::replace(&mut self.base, start);
        let value = match &rule.kind {
            Kind::Function(_) => return Err(Unsure),
            Kind::Set => self.set(rule)?,
            Kind::Object => self.object(rule)?,
            Kind::Complete(default) => match (self.complete(rule, start)?, default) {
                (Value::Undefined, Some(default)) => self.value(default)?,
                (value, _) => value,
            },
        };
        self.stack.truncate(start);
        self.base = caller;
        self.values[index] = Some(value.clone());
        Ok(value)
    }

    fn set(&mut self, rule: &'p Rule) -> Result<Value, Unsure> {
        let mut set = Value::new_set();
        for body in rule.definitions.iter().flat_map(|one| &one.bodies) {
            self.enter(body);
            self.steps(&body.steps, &mut |run| {
                let element = run.value(&body.value)?;
                if element != Value::Undefined {
                    set.as_set_mut().map_err(|_| Unsure)?.insert(element);
                }
                Ok(Flow::Next)
            })?;
        }
        Ok(set)
    }

    fn object(&mut self, rule: &'p Rule) -> Result<Value, Unsure> {
        let mut object = Value::new_object();
        for body in rule.definitions.iter().flat_map(|one| &one.bodies) {
            self.enter(body);
            self.steps(&body.steps, &mut |run| {
                let key = body.key.as_ref().ok_or(Unsure)?;
                run.member(key, &body.value, &mut object)?;
                Ok(Flow::Next)
            })?;
        }
        Ok(object)
    }

    /// Returns the value that all definitions agree on.
    fn complete(&mut self, rule: &'p Rule, start: usize) -> Result<Value, Unsure> {
        let mut result = Value::Undefined;
        for definition in &rule.definitions {
            let is_other = |(slot, value): &(usize, Value)| self.stack[start + slot] != *value;
            if definition.constants.iter().any(is_other) {
                continue;
            }
            let value = self.definition(definition, rule.is_constant)?;
            if value == Value::Undefined {
                continue;
            }
            if result != Value::Undefined && result != value {
                return Err(Unsure);
            }
            result = value;
            if rule.is_constant {
                break;
            }
        }
        Ok(result)
    }

    /// Returns the value of the first body that holds.
    fn definition(
        &mut self,
        definition: &'p Definition,
        is_constant: bool,
    ) -> Result<Value, Unsure> {
        for body in &definition.bodies {
            self.enter(body);
            let mut result = Value::Undefined;
            self.steps(&body.steps, &mut |run| {
                let value = run.value(&body.value)?;
                if value == Value::Undefined {
                    return Ok(Flow::Next);
                }
                if result != Value::Undefined && result != value {
                    return Err(Unsure);
                }
                result = value;
                Ok(match is_constant {
                    true => Flow::Stop,
                    false => Flow::Next,
                })
            })?;
            if result != Value::Undefined {
                return Ok(result);
            }
        }
        Ok(Value::Undefined)
    }

    /// Makes room for the variables of a body.
    fn enter(&mut self, body: &Body) {
        self.stack.resize(self.base + body.slots, Value::Undefined);
    }

    fn call(&mut self, index: usize, arguments: &'p [Term]) -> Result<Value, Unsure> {
        let rule = &self.plan.rules[index];
        let start = self.stack.len();
        for argument in arguments {
            let value = self.value(argument)?;
            if value == Value::Undefined {
                self.stack.truncate(start);
                return Ok(Value::Undefined);
            }
            self.stack.push(value);
        }
        let caller = std::mem::replace(&mut self.base, start);
        let value = match (self.complete(rule, start)?, &rule.kind) {
            (Value::Undefined, Kind::Function(Some(default))) => self.value(default)?,
            (value, _) => value,
        };
        self.stack.truncate(start);
        self.base = caller;
        Ok(value)
    }

    /// Takes the steps, and does the rest for each way in which they hold.
    fn steps(
        &mut self,
        steps: &'p [Step],
        rest: &mut dyn FnMut(&mut Self) -> Result<Flow, Unsure>,
    ) -> Result<Flow, Unsure> {
        for (index, step) in steps.iter().enumerate() {
            let holds = match step {
                Step::Holds(term) => self.holds(term)?,
                Step::Fails(term) => !self.holds(term)?,
                Step::Set(slot, term) => {
                    let value = self.value(term)?;
                    let is_defined = value != Value::Undefined;
                    self.bind(*slot, value);
                    is_defined
                }
                Step::IsArray(slot, length) => match &self.stack[self.base + slot] {
                    Value::Array(elements) => elements.len() == *length,
                    _ => false,
                },
                Step::IsObject(slot, length) => match &self.stack[self.base + slot] {
                    Value::Object(members) => members.len() == *length,
                    _ => false,
                },
                Step::Every(each, steps) => self.every(each, steps)?,
                Step::Each(each) => {
                    let after = &steps[index + 1..];
                    return self.each(each, &mut |run| run.steps(after, rest));
                }
            };
            if !holds {
                return Ok(Flow::Next);
            }
        }
        rest(self)
    }

    fn bind(&mut self, slot: usize, value: Value) {
        self.stack[self.base + slot] = value;
    }

    fn each(
        &mut self,
        each: &'p Each,
        body: &mut dyn FnMut(&mut Self) -> Result<Flow, Unsure>,
    ) -> Result<Flow, Unsure> {
        let collection = self.value(&each.collection)?;
        match &collection {
            Value::Array(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    if let Some(key) = each.key {
                        self.bind(key, Value::from(index));
                    }
                    self.bind(each.value, element.clone());
                    if body(self)? == Flow::Stop {
                        return Ok(Flow::Stop);
                    }
                }
            }
            Value::Set(elements) => {
                for element in elements.iter() {
                    if let Some(key) = each.key {
                        self.bind(key, element.clone());
                    }
                    self.bind(each.value, element.clone());
                    if body(self)? == Flow::Stop {
                        return Ok(Flow::Stop);
                    }
                }
            }
            Value::Object(members) => {
                for (name, member) in members.iter() {
                    if let Some(key) = each.key {
                        self.bind(key, name.clone());
                    }
                    self.bind(each.value, member.clone());
                    if body(self)? == Flow::Stop {
                        return Ok(Flow::Stop);
                    }
                }
            }
            _ => {}
        }
        Ok(Flow::Next)
    }

    fn every(&mut self, each: &'p Each, steps: &'p [Step]) -> Result<bool, Unsure> {
        let has_elements =
            |value: &Value| matches!(value, Value::Array(_) | Value::Set(_) | Value::Object(_));
        let is_collection = match self.place(&each.collection) {
            Some(value) => has_elements(value),
            None => has_elements(&self.value(&each.collection)?),
        };
        if !is_collection {
            return Ok(false);
        }
        let flow = self.each(each, &mut |run| {
            Ok(match run.any(steps)? {
                true => Flow::Next,
                false => Flow::Stop,
            })
        })?;
        Ok(flow == Flow::Next)
    }

    /// Whether the steps hold for any values.
    fn any(&mut self, steps: &'p [Step]) -> Result<bool, Unsure> {
        if let [Step::Holds(term)] = steps {
            return self.holds(term);
        }
        let flow = self.steps(steps, &mut |_| Ok(Flow::Stop))?;
        Ok(flow == Flow::Stop)
    }

    fn holds(&mut self, term: &'p Term) -> Result<bool, Unsure> {
        let holds = |value: &Value| !matches!(value, Value::Undefined | Value::Bool(false));
        match self.place(term) {
            Some(value) => Ok(holds(value)),
            None => Ok(holds(&self.value(term)?)),
        }
    }

    /// Returns the value of a term that needs no evaluation.
    fn place(&self, term: &'p Term) -> Option<&Value> {
        match term {
            Term::Literal(value) => Some(value),
            Term::Local(slot) => Some(&self.stack[self.base + slot]),
            Term::Input => Some(self.input),
            Term::Data => Some(self.data),
            Term::Rule(index) => self.values[*index].as_ref(),
            Term::Path(base, keys) => {
                let mut place = self.place(base)?;
                for key in keys {
                    place = &place[self.place(key)?];
                }
                Some(place)
            }
            _ => None,
        }
    }

    fn value(&mut self, term: &'p Term) -> Result<Value, Unsure> {
        if let Some(value) = self.place(term) {
            return Ok(value.clone());
        }
        match term {
            Term::Rule(index) => self.rule(*index),
            Term::Path(base, keys) => {
                let mut value = self.value(base)?;
                for key in keys {
                    if value == Value::Undefined {
                        break;
                    }
                    let key = self.value(key)?;
                    value = value[&key].clone();
                }
                Ok(value)
            }
            Term::Call(index, arguments) => self.call(*index, arguments),
            Term::Builtin(builtin) => self.builtin(builtin),
            Term::Own(function, arguments) => {
                Ok(self.all(arguments)?.map_or(Value::Undefined, function))
            }
            Term::Compare(operator, sides) => self.compare(operator, sides),
            Term::Contains(key, parts) => self.contains(key.as_deref(), parts),
            Term::Array(elements) => Ok(self.all(elements)?.map_or(Value::Undefined, Value::from)),
            Term::Set(elements) => {
                let Some(elements) = self.all(elements)? else {
                    return Ok(Value::Undefined);
                };
                let mut set = Value::new_set();
                let inner = set.as_set_mut().map_err(|_| Unsure)?;
                for element in elements {
                    inner.insert(element);
                }
                Ok(set)
            }
            Term::Object(members) => {
                let mut object = Value::new_object();
                for (key, value) in members {
                    if !self.member(key, value, &mut object)? {
                        return Ok(Value::Undefined);
                    }
                }
                Ok(object)
            }
            Term::Comprehension(comprehension) => self.comprehension(comprehension),
            Term::Literal(_) | Term::Local(_) | Term::Input | Term::Data => Err(Unsure),
        }
    }

    /// Returns the values of terms. None if one of them is undefined.
    fn all(&mut self, terms: &'p [Term]) -> Result<Option<Vec<Value>>, Unsure> {
        let mut values = Vec::with_capacity(terms.len());
        for term in terms {
            let value = self.value(term)?;
            if value == Value::Undefined {
                return Ok(None);
            }
            values.push(value);
        }
        Ok(Some(values))
    }

    /// Adds a member to an object. Returns whether key and value are defined.
    fn member(
        &mut self,
        key: &'p Term,
        value: &'p Term,
        object: &mut Value,
    ) -> Result<bool, Unsure> {
        let (key, value) = (self.value(key)?, self.value(value)?);
        if key == Value::Undefined || value == Value::Undefined {
            return Ok(false);
        }
        let members = object.as_object_mut().map_err(|_| Unsure)?;
        match members.get(&key) {
            Some(before) if *before != value => Err(Unsure),
            Some(_) => Ok(true),
            None => {
                members.insert(key, value);
                Ok(true)
            }
        }
    }

    fn builtin(&mut self, builtin: &'p Builtin) -> Result<Value, Unsure> {
        let Some(arguments) = self.all(&builtin.arguments)? else {
            return Ok(Value::Undefined);
        };
        let (function, _) = builtin.function;
        function(&builtin.span, &builtin.expressions, &arguments, false).or_else(|error| {
            // Limits end the evaluation. Other errors are undefined.
            match error.downcast_ref::<regorus::LimitError>() {
                Some(_) => Err(Unsure),
                None => Ok(Value::Undefined),
            }
        })
    }

    fn compare(
        &mut self,
        operator: &BoolOp,
        [left, right]: &'p [Term; 2],
    ) -> Result<Value, Unsure> {
        if let (Some(left), Some(right)) = (self.place(left), self.place(right)) {
            return compared(operator, left, right);
        }
        let (left, right) = (self.value(left)?, self.value(right)?);
        compared(operator, &left, &right)
    }

    fn contains(
        &mut self,
        key: Option<&'p Term>,
        [value, collection]: &'p [Term; 2],
    ) -> Result<Value, Unsure> {
        let key = match key {
            Some(key) => Some(self.value(key)?),
            None => None,
        };
        let (value, collection) = (self.value(value)?, self.value(collection)?);
        let parts = key.iter().chain([&value, &collection]);
        if parts.into_iter().any(|part| *part == Value::Undefined) {
            return Ok(Value::Undefined);
        }
        let has_it = match (&collection, key) {
            (Value::Array(_) | Value::Object(_), Some(key)) => collection[&key] == value,
            (Value::Set(elements), Some(key)) => key == value && elements.contains(&value),
            (Value::Array(elements), None) => elements.contains(&value),
            (Value::Object(members), None) => members.values().any(|member| *member == value),
            (Value::Set(elements), None) => elements.contains(&value),
            _ => false,
        };
        Ok(Value::Bool(has_it))
    }

    fn comprehension(&mut self, comprehension: &'p Comprehension) -> Result<Value, Unsure> {
        let Comprehension {
            kind,
            steps,
            key,
            value,
        } = comprehension;
        let mut elements = Vec::new();
        let mut collection = match kind {
            Collection::Array => Value::Null,
            Collection::Set => Value::new_set(),
            Collection::Object => Value::new_object(),
        };
        self.steps(steps, &mut |run| {
            if let Some(key) = key {
                run.member(key, value, &mut collection)?;
                return Ok(Flow::Next);
            }
            let value = run.value(value)?;
            match kind {
                _ if value == Value::Undefined => {}
                Collection::Array => elements.push(value),
                Collection::Set | Collection::Object => {
                    collection.as_set_mut().map_err(|_| Unsure)?.insert(value);
                }
            }
            Ok(Flow::Next)
        })?;
        Ok(match kind {
            Collection::Array => Value::from(elements),
            Collection::Set | Collection::Object => collection,
        })
    }
}

fn compared(operator: &BoolOp, left: &Value, right: &Value) -> Result<Value, Unsure> {
    if *left == Value::Undefined || *right == Value::Undefined {
        return Ok(Value::Undefined);
    }
    comparison::compare(operator, left, right).map_err(|_| Unsure)
}
