//! The values of the relation `walk`.

use regorus::Value;

/// Returns the list of all values in a value, each with its path: `[path, value]`.
pub(super) fn pairs(mut arguments: Vec<Value>) -> Value {
    let Some(root) = arguments.pop() else {
        return Value::Undefined;
    };
    let mut pairs = Vec::new();
    add(&mut Vec::new(), &root, &mut pairs);
    Value::from(pairs)
}

fn add(path: &mut Vec<Value>, value: &Value, pairs: &mut Vec<Value>) {
    let pair = vec![Value::from(path.clone()), value.clone()];
    pairs.push(Value::from(pair));
    let mut below = |key: Value, value: &Value| {
        path.push(key);
        add(path, value, pairs);
        path.pop();
    };
    match value {
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                below(Value::from(index), element);
            }
        }
        Value::Set(elements) => {
            for element in elements.iter() {
                below(element.clone(), element);
            }
        }
        Value::Object(members) => {
            for (key, member) in members.iter() {
                below(key.clone(), member);
            }
        }
        _ => {}
    }
}
