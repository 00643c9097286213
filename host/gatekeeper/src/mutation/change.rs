//! Changes an object at a path.

use serde_json::{Map, Value as Json};

use super::image::Image;
use super::path::Step;

/// The value that a mutator writes at the end of its path.
#[derive(Clone, Debug)]
pub(super) enum Setter {
    /// A value.
    Value(Json),
    /// The object's name.
    Name,
    /// The object's namespace.
    Namespace,
    /// Adds values that a list does not have.
    Merge(Vec<Json>),
    /// Removes values from a list.
    Prune(Vec<Json>),
    /// Parts of the reference of an image.
    Image(Image),
}

/// A condition on a step of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// The step must exist.
    Exists,
    /// The step must not exist.
    Missing,
}

/// A change of an object.
pub(super) struct Change<'a> {
    pub(super) path: &'a [Step],
    /// The conditions, by the index of their step.
    pub(super) conditions: &'a [Option<Condition>],
    pub(super) setter: &'a Setter,
    /// The object's name and namespace.
    pub(super) metadata: [String; 2],
}

// === impl Change ===

impl Change<'_> {
    /// Changes a value from a step of the path on. Returns whether something was set. Parents are only created for
    /// something that is set.
    pub(super) fn apply(&self, value: &mut Json, depth: usize) -> Result<bool, String> {
        match &self.path[depth] {
            Step::Field(name) => {
                let Json::Object(members) = value else {
                    return Err(self.mismatch(depth, "an object"));
                };
                self.apply_to_field(members, name, depth)
            }
            Step::Item { key, value: wanted } => {
                let Json::Array(elements) = value else {
                    return Err(self.mismatch(depth, "a list"));
                };
                let wanted = wanted.as_ref().map(super::path::KeyValue::to_json);
                match (wanted, self.is_last(depth)) {
                    (None, _) => self.apply_to_all(elements, depth),
                    (Some(wanted), true) => self.set_item(elements, key, &wanted, depth),
                    (Some(wanted), false) => self.apply_to_item(elements, key, &wanted, depth),
                }
            }
        }
    }

    fn is_last(&self, depth: usize) -> bool {
        depth + 1 == self.path.len()
    }

    /// Whether the condition of a step allows a value that exists, or one that does not.
    fn allows(&self, depth: usize, exists: bool) -> bool {
        match self.conditions.get(depth).copied().flatten() {
            None => true,
            Some(Condition::Exists) => exists,
            Some(Condition::Missing) => !exists,
        }
    }

    fn mismatch(&self, depth: usize, expected: &str) -> String {
        let mut place = String::new();
        for step in &self.path[..depth] {
            if matches!(step, Step::Field(_)) && !place.is_empty() {
                place.push('.');
            }
            place.push_str(&step.to_string());
        }
        format!("{place} is not {expected}")
    }

    fn apply_to_field(
        &self,
        members: &mut Map<String, Json>,
        name: &str,
        depth: usize,
    ) -> Result<bool, String> {
        let found = members.get_mut(name);
        if !self.allows(depth, found.is_some()) {
            return Ok(false);
        }
        if self.is_last(depth) {
            self.set(members, name)?;
            return Ok(true);
        }
        if let Some(next) = found {
            return self.apply(next, depth + 1);
        }
        let mut next = self.parent_of(depth + 1);
        let is_set = self.apply(&mut next, depth + 1)?;
        if is_set {
            members.insert(name.to_owned(), next);
        }
        Ok(is_set)
    }

    /// Returns an empty value for the step at a depth.
    fn parent_of(&self, depth: usize) -> Json {
        match self.path[depth] {
            Step::Field(_) => Json::Object(Map::new()),
            Step::Item { .. } => Json::Array(Vec::new()),
        }
    }

    fn apply_to_all(&self, elements: &mut [Json], depth: usize) -> Result<bool, String> {
        // No element can be the one that must not exist.
        if !self.allows(depth, true) {
            return Ok(false);
        }
        let mut is_set = false;
        for element in elements {
            is_set |= self.apply(element, depth + 1)?;
        }
        Ok(is_set)
    }

    fn apply_to_item(
        &self,
        elements: &mut Vec<Json>,
        key: &str,
        wanted: &Json,
        depth: usize,
    ) -> Result<bool, String> {
        let (mut is_found, mut is_set) = (false, false);
        for element in elements.iter_mut() {
            if element.get(key) != Some(wanted) {
                continue;
            }
            if !self.allows(depth, true) {
                return Ok(false);
            }
            is_found = true;
            is_set |= self.apply(element, depth + 1)?;
        }
        if is_found || !self.allows(depth, false) {
            return Ok(is_set);
        }
        let mut next = serde_json::json!({ key: wanted });
        let is_set = self.apply(&mut next, depth + 1)?;
        if is_set {
            elements.push(next);
        }
        Ok(is_set)
    }

    /// Sets a whole element of a list.
    fn set_item(
        &self,
        elements: &mut Vec<Json>,
        key: &str,
        wanted: &Json,
        depth: usize,
    ) -> Result<bool, String> {
        let Setter::Value(value) = self.setter else {
            return Err("only a value can be set for an element of a list".to_owned());
        };
        let found = elements
            .iter_mut()
            .find(|element| element.get(key) == Some(wanted));
        if !self.allows(depth, found.is_some()) {
            return Ok(false);
        }
        match found {
            Some(element) => element.clone_from(value),
            None => elements.push(value.clone()),
        }
        Ok(true)
    }

    fn set(&self, members: &mut Map<String, Json>, name: &str) -> Result<(), String> {
        let [of_name, of_namespace] = &self.metadata;
        let no_list = || format!("{name} is not a list of values");
        let value = match self.setter {
            Setter::Value(value) => value.clone(),
            Setter::Name => of_name.as_str().into(),
            Setter::Namespace => of_namespace.as_str().into(),
            Setter::Merge(values) => {
                let list = members
                    .entry(name)
                    .or_insert_with(|| Json::Array(Vec::new()));
                let list = list.as_array_mut().ok_or_else(no_list)?;
                for value in values {
                    if !list.contains(value) {
                        list.push(value.clone());
                    }
                }
                return Ok(());
            }
            Setter::Prune(values) => {
                let Some(list) = members.get_mut(name) else {
                    return Ok(());
                };
                let list = list.as_array_mut().ok_or_else(no_list)?;
                list.retain(|element| !values.contains(element));
                return Ok(());
            }
            Setter::Image(image) => {
                let current = match members.get(name) {
                    None => "",
                    Some(Json::String(text)) => text,
                    Some(_) => return Err(format!("{name} is not the reference of an image")),
                };
                image.changed(current).into()
            }
        };
        members.insert(name.to_owned(), value);
        Ok(())
    }
}
