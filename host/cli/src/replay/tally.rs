//! Counts the results of a replay.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tollgate_json::document::Json;
use tollgate_recording::{CallNote, Entry};

use super::side::{Category, Side};

/// The results of a replay.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) reviews: u64,
    pub(super) approximate: u64,
    /// The differences, in the order of the recording.
    pub(super) differences: Vec<Difference>,
    /// The reviews that could not be answered, with the reason.
    pub(super) errors: Vec<(About, String)>,
    /// The cost of each plugin.
    pub(super) costs: BTreeMap<String, Costs>,
}

/// The cost of a plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Costs {
    pub(super) old: Cost,
    pub(super) new: Cost,
}

/// The calls of a plugin, and their fuel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) calls: u64,
    pub(super) fuel: u64,
    /// The most fuel of one call.
    pub(super) most: u64,
}

/// The subject of a review.
#[derive(Clone, Debug)]
pub(super) struct About {
    /// The position in the recording.
    pub(super) number: u64,
    pub(super) uid: String,
    pub(super) endpoint: &'static str,
    pub(super) operation: String,
    pub(super) kind: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) user: String,
    pub(super) is_secret: bool,
}

/// A review with another answer.
#[derive(Clone, Debug)]
pub(super) struct Difference {
    pub(super) category: Category,
    pub(super) about: About,
    /// The plugins that make the difference, with the rule that matched.
    pub(super) plugins: BTreeMap<String, Option<usize>>,
    pub(super) old: Value,
    pub(super) new: Value,
}

/// A dimension by which differences are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dimension {
    Plugin,
    Rule,
    Namespace,
    Kind,
    User,
}

// === impl Tally ===

impl Tally {
    /// Adds the results of another worker.
    pub(super) fn add(&mut self, other: Self) {
        self.reviews += other.reviews;
        self.approximate += other.approximate;
        self.differences.extend(other.differences);
        self.errors.extend(other.errors);
        for (plugin, costs) in other.costs {
            let own = self.costs.entry(plugin).or_default();
            own.old.add(costs.old);
            own.new.add(costs.new);
        }
    }

    /// Puts everything into the order of the recording.
    pub(super) fn sort(&mut self) {
        self.differences
            .sort_by_key(|difference| difference.about.number);
        self.errors.sort_by_key(|(about, _)| about.number);
    }

    pub(super) fn cost(&mut self, calls: &[CallNote], is_old: bool) {
        for call in calls {
            let costs = match self.costs.get_mut(&call.plugin) {
                Some(costs) => costs,
                None => self.costs.entry(call.plugin.clone()).or_default(),
            };
            let cost = if is_old {
                &mut costs.old
            } else {
                &mut costs.new
            };
            cost.add(Cost {
                calls: 1,
                fuel: call.fuel,
                most: call.fuel,
            });
        }
    }

    pub(super) fn of(&self, category: Category) -> impl Iterator<Item = &Difference> {
        let all = self.differences.iter();
        all.filter(move |difference| difference.category == category)
    }

    pub(super) fn count(&self, category: Category) -> usize {
        self.of(category).count()
    }

    /// Counts the differences of a category by the values of a dimension, the most frequent first.
    pub(super) fn groups(&self, category: Category, by: Dimension) -> Vec<(String, usize)> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for difference in self.of(category) {
            for value in difference.values(by) {
                *counts.entry(value).or_default() += 1;
            }
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by(|(one, ones), (other, others)| others.cmp(ones).then(one.cmp(other)));
        counts
    }
}

// === impl Cost ===

impl Cost {
    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.fuel += other.fuel;
        self.most = self.most.max(other.most);
    }

    pub(super) fn to_json(self) -> Value {
        json!({ "calls": self.calls, "fuel": self.fuel, "mostFuelOfOneCall": self.most })
    }
}

// === impl About ===

impl About {
    pub(super) fn of(entry: &Entry) -> Self {
        let request = entry.record.review.member("request");
        let text = |pointer: &str| {
            let found = request.and_then(|request| request.at(pointer).ok().flatten()?.as_text());
            found.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let (group, kind) = (text("/kind/group"), text("/kind/kind").unwrap_or_default());
        let is_secret = group.is_none() && kind == "Secret"
            || text("/resource/group").is_none()
                && text("/resource/resource").as_deref() == Some("secrets");
        let name = text("/name")
            .or_else(|| text("/object/metadata/name"))
            .or_else(|| text("/oldObject/metadata/name"))
            .or_else(|| text("/object/metadata/generateName").map(|name| format!("{name}…")));
        Self {
            number: entry.number,
            uid: text("/uid").unwrap_or_default(),
            endpoint: entry.record.endpoint.as_str(),
            operation: text("/operation").unwrap_or_default(),
            kind: match group {
                Some(group) => format!("{kind}.{group}"),
                None => kind,
            },
            namespace: text("/namespace"),
            name: name.unwrap_or_default(),
            user: text("/userInfo/username").unwrap_or_default(),
            is_secret,
        }
    }

    /// Returns one line, such as `#12 CREATE Pod shop/web by jane (validate)`.
    pub(super) fn line(&self) -> String {
        let name = match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        };
        format!(
            "#{} {} {} {name} by {} ({})",
            self.number, self.operation, self.kind, self.user, self.endpoint
        )
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "number": self.number,
            "uid": self.uid,
            "endpoint": self.endpoint,
            "operation": self.operation,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "user": self.user,
        })
    }
}

// === impl Difference ===

impl Difference {
    pub(super) fn new(
        category: Category,
        about: About,
        plugins: BTreeMap<String, Option<usize>>,
        old: &Side,
        new: &Side,
    ) -> Self {
        let side = |side: &Side| {
            json!({
                "verdict": side.verdict(),
                "code": side.code,
                "message": side.message,
                "warnings": side.warnings,
                "faults": side.calls.iter().filter_map(|call| {
                    Some(json!({ "plugin": call.plugin, "fault": call.fault.as_deref()? }))
                }).collect::<Vec<_>>(),
            })
        };
        let (mut old_json, mut new_json) = (side(old), side(new));
        if category == Category::Patched
            && let (Some(old), Some(new)) = (&old.after, &new.after)
        {
            let mut places = BTreeMap::new();
            differing(Some(old), Some(new), String::new(), &mut places);
            let values = |of: fn(&Places) -> &Value| -> Value {
                let values = places.iter();
                values
                    .map(|(place, pair)| (place.clone(), of(pair).clone()))
                    .collect()
            };
            old_json["fields"] = values(|(old, _)| old);
            new_json["fields"] = values(|(_, new)| new);
        }
        Self {
            category,
            about,
            plugins,
            old: old_json,
            new: new_json,
        }
    }

    /// Returns the values of a dimension. A difference can have several plugins.
    fn values(&self, by: Dimension) -> Vec<String> {
        let plugins = || self.plugins.iter();
        match by {
            Dimension::Plugin if self.plugins.is_empty() => vec!["(not known)".to_owned()],
            Dimension::Plugin => plugins().map(|(name, _)| name.clone()).collect(),
            Dimension::Rule => plugins()
                .filter_map(|(name, rule)| Some(format!("{name} rules[{}]", (*rule)?)))
                .collect(),
            Dimension::Namespace => {
                let namespace = self.about.namespace.clone();
                vec![namespace.unwrap_or_else(|| "(cluster)".to_owned())]
            }
            Dimension::Kind => vec![self.about.kind.clone()],
            Dimension::User => vec![self.about.user.clone()],
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let mut value = self.about.to_json();
        value["category"] = self.category.key().into();
        let plugins = self.plugins.iter();
        let plugins = plugins.map(|(name, rule)| json!({ "name": name, "rule": rule }));
        value["plugins"] = plugins.collect();
        value["old"] = self.old.clone();
        value["new"] = self.new.clone();
        value
    }

    /// Returns what happened, in one line for people.
    pub(super) fn what(&self) -> String {
        let text = |side: &Value, key: &str| side[key].as_str().unwrap_or_default().to_owned();
        match self.category {
            Category::Denied => text(&self.new, "message"),
            Category::Allowed => format!("was: {}", text(&self.old, "message")),
            Category::Patched => {
                let fields = self.new["fields"].as_object();
                let places = fields.into_iter().flat_map(|fields| fields.keys());
                format!(
                    "other values at {}",
                    places.cloned().collect::<Vec<_>>().join(", ")
                )
            }
            Category::Faulted => {
                let faults = self.new["faults"].as_array();
                let faults = faults
                    .into_iter()
                    .flatten()
                    .map(|fault| format!("{}: {}", text(fault, "plugin"), text(fault, "fault")));
                faults.collect::<Vec<_>>().join(", ")
            }
            Category::Reworded => format!(
                "{} -> {}",
                text(&self.old, "message"),
                text(&self.new, "message")
            ),
        }
    }
}

// === impl Dimension ===

impl Dimension {
    pub(super) const ALL: [Self; 5] = [
        Self::Plugin,
        Self::Rule,
        Self::Namespace,
        Self::Kind,
        Self::User,
    ];

    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Plugin => "plugin",
            Self::Rule => "rule",
            Self::Namespace => "namespace",
            Self::Kind => "kind",
            Self::User => "user",
        }
    }
}

/// The old and the new value at a place. Null means that there is none.
pub(super) type Places = (Value, Value);

/// Collects the places at which two objects differ. An array that differs is one place.
pub(super) fn differing(
    old: Option<&Json>,
    new: Option<&Json>,
    pointer: String,
    into: &mut BTreeMap<String, Places>,
) {
    if old == new {
        return;
    }
    if let (Some(Json::Object(before)), Some(Json::Object(after))) = (old, new) {
        let names = before
            .keys()
            .chain(after.keys().filter(|name| !before.contains_key(*name)));
        for name in names {
            let token = name.replace('~', "~0").replace('/', "~1");
            let place = format!("{pointer}/{token}");
            differing(before.get(name), after.get(name), place, into);
        }
        return;
    }
    let value = |json: Option<&Json>| {
        json.and_then(|json| serde_json::from_str(&json.to_text()).ok())
            .unwrap_or_default()
    };
    into.insert(pointer, (value(old), value(new)));
}
