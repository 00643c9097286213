//! Reads a suite: YAML beside the policy, read as strictly as a configuration.
//!
//! A row overrides its case, and a case overrides the suite's defaults. Missing values come from the next level.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, anyhow};
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tollgate_admission::access::Rule;
use tollgate_admission::images::FixedImage;
use tollgate_config::problem::{Collector, Problems};
use tollgate_config::read::{Fields, Node, child, join};
use tollgate_config::schema::{Shape, Values};
use tollgate_config::{Config, Defaults, PluginConfig, Source, yaml};

use super::expect::Expectation;
use super::overrides::Resource;
use crate::review::RequestedOperation;
use crate::{access, images};

/// A suite, with everything that is needed to run it.
#[derive(Debug)]
pub(super) struct Suite {
    pub(super) path: PathBuf,
    /// The host's configuration, with the tested plugins.
    pub(super) config: Config,
    /// The file of the configuration. None if the configuration is part of the suite.
    config_file: Option<PathBuf>,
    pub(super) cases: Vec<Case>,
    /// Allowed growth of the fuel over the snapshot, in percent.
    pub(super) fuel_growth: u64,
}

/// A row of a case, or a case without rows.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    /// The case's key path in the suite.
    pub(super) place: String,
    pub(super) review: Parts,
    /// The inputs of the case and its row alone. They override an AdmissionReview, which the defaults do not.
    pub(super) own: Parts,
    pub(super) expect: Expectation,
}

/// The inputs of a review. A value that is None comes from the level below, and finally from a default.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    pub(super) object: Option<Input>,
    pub(super) old_object: Option<Input>,
    pub(super) set: Vec<(String, Value)>,
    pub(super) unset: Vec<String>,
    pub(super) operation: Option<RequestedOperation>,
    pub(super) user: Option<String>,
    pub(super) groups: Option<Vec<String>>,
    pub(super) namespace: Option<String>,
    pub(super) dry_run: Option<bool>,
    /// The Namespaces of the cluster: a list, or a file.
    pub(super) namespaces: Option<Input>,
    /// Objects of the cluster, for lookups: a list, or a file or folder.
    pub(super) cluster: Option<Input>,
    /// What users may do in the cluster. None if the case has no authorizer.
    pub(super) access: Option<Vec<Rule>>,
    /// The images that registries have. None if the case has no registries.
    pub(super) images: Option<Vec<FixedImage>>,
    pub(super) now: Option<SystemTime>,
    pub(super) settings: Option<Value>,
    /// Maximum fuel of one call.
    pub(super) fuel: Option<u64>,
    /// The resource, where the kind does not lead to it.
    pub(super) resource: Option<Resource>,
    pub(super) sub_resource: Option<String>,
}

/// An object, or the file that contains it.
#[derive(Clone, Debug)]
pub(super) enum Input {
    Inline(Value),
    File(PathBuf),
}

/// A case, a row or the defaults, as they are written.
#[derive(Default)]
struct Written {
    name: Option<String>,
    parts: Parts,
    expect: Given,
}

/// The expected result, as far as it is written.
#[derive(Clone, Default)]
enum Given {
    #[default]
    Not,
    /// The expectation is written and wrong. The problem is already recorded.
    Wrong,
    As(Box<Expectation>),
}

const OPERATIONS: &[(&str, RequestedOperation)] = &[
    ("CREATE", RequestedOperation::Create),
    ("UPDATE", RequestedOperation::Update),
    ("DELETE", RequestedOperation::Delete),
    ("CONNECT", RequestedOperation::Connect),
];
const PLUGINS_EXPECTED: &str =
    "the plugins to test, as in a configuration; or `config`, the name of a configuration file";
const CASES_EXPECTED: &str = "a list of cases";
const OBJECT_EXPECTED: &str = "a manifest or an AdmissionReview, or the name of a file with them";
const CLUSTER_EXPECTED: &str = "a list of whole objects, or the name of a file or folder with them";
const NAMESPACES_EXPECTED: &str = "a list of Namespaces such as {metadata: {name: shop, labels: {team: a}}}, or the name of a file with them";
const EXPECT_EXPECTED: &str = "a result such as allow or deny";
const NOW_EXPECTED: &str = "a time such as 2026-07-01T12:00:00Z";
/// Default for the allowed growth of the fuel, in percent.
const FUEL_GROWTH_PERCENT: u64 = 10;

// === impl Suite ===

impl Suite {
    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let suite = Self::parse(&text, path);
        suite.map_err(|problems| anyhow!("{}: {problems}", path.display()))
    }

    fn parse(text: &str, path: &Path) -> Result<Self, Problems> {
        let problems = Collector::default();
        let suite =
            yaml::read(text, &problems).and_then(|document| Self::read(&document, path, &problems));
        problems.finish(suite)
    }

    pub(super) fn read(document: &Value, path: &Path, problems: &Collector) -> Option<Self> {
        let folder = yaml::folder_of(path);
        let mut fields = Node::root(document, problems).object()?;
        let config_file = fields
            .optional("config")
            .and_then(|node| node.path_in(folder));
        let config = read_config(&mut fields, config_file.as_deref(), folder, problems);
        let defaults = fields.optional("defaults").and_then(|node| {
            let mut fields = node.object()?;
            let parts = Parts::read(&mut fields, folder);
            fields.finish();
            Some(parts)
        });
        let defaults = defaults.unwrap_or_default();
        let fuel_growth = fields
            .optional("fuelGrowth")
            .and_then(|node| node.integer("a whole number of percent, such as 10"));
        let nodes = fields.required("cases", CASES_EXPECTED).and_then(|node| {
            let nodes = node.elements("cases")?;
            if nodes.is_empty() {
                node.reject(CASES_EXPECTED);
            }
            Some(nodes)
        });
        fields.finish();
        let mut cases: Vec<Case> = Vec::new();
        for node in nodes.unwrap_or_default() {
            read_case(&node, folder, &defaults, &mut cases, problems);
        }
        let mut first: BTreeMap<&str, &str> = BTreeMap::new();
        for case in &cases {
            if let Some(earlier) = first.insert(&case.name, &case.place) {
                let message = format!(
                    "the name {:?} is already used by {earlier}; choose another, because reports and snapshots need \
                     unique names",
                    case.name
                );
                problems.add(case.place.clone(), message);
            }
        }
        Some(Self {
            path: path.to_owned(),
            config: config?,
            config_file,
            cases,
            fuel_growth: fuel_growth.unwrap_or(FUEL_GROWTH_PERCENT),
        })
    }

    /// Lists the components of the tested plugins, as far as they are files.
    pub(super) fn components(&self) -> impl Iterator<Item = &Path> {
        let plugins = self.config.plugins.iter();
        plugins.filter_map(|plugin| match &plugin.source {
            Source::File(path) => Some(path.as_path()),
            Source::Oci(_) => None,
        })
    }

    /// Lists the files that the suite depends on, except the suite's own file.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let plugins = self.components().map(Path::to_owned);
        let inputs = self.cases.iter().flat_map(|case| {
            let review = &case.review;
            [
                &review.object,
                &review.old_object,
                &review.namespaces,
                &review.cluster,
                &case.expect.object,
            ]
        });
        let inputs = inputs.filter_map(|input| match input {
            Some(Input::File(path)) => Some(path.clone()),
            _ => None,
        });
        let config = self.config_file.clone();
        config.into_iter().chain(plugins).chain(inputs).collect()
    }
}

fn read_config(
    fields: &mut Fields<'_>,
    file: Option<&Path>,
    folder: &Path,
    problems: &Collector,
) -> Option<Config> {
    let has_both = file.is_some() && fields.has("plugins");
    if has_both {
        fields.problem(
            "plugins",
            "`config` has its own plugins; keep one of `config` and `plugins`",
        );
    }
    if let Some(file) = file {
        fields.optional("plugins");
        return match Config::load(file) {
            Ok(config) => Some(config),
            Err(error) => {
                fields.problem("config", tollgate_admission::chain(&error));
                None
            }
        };
    }
    // The configuration starts with all defaults.
    let mut config = Config::parse("allowEmpty: true", folder).ok()?;
    let nodes = fields
        .required("plugins", PLUGINS_EXPECTED)?
        .elements("plugins")?;
    let max_calls = config.engine.max_concurrent_calls;
    let defaults = Defaults::default();
    for node in &nodes {
        // The `shadow` of an entry is ignored: it decides nothing, so there is nothing to test.
        let (plugins, _) = PluginConfig::read(node, folder, &defaults, max_calls, problems)?;
        config.plugins.extend(plugins);
    }
    if config.plugins.is_empty() {
        fields.problem(
            "plugins",
            format!("got an empty list, expected {PLUGINS_EXPECTED}"),
        );
    }
    Some(config)
}

fn read_case(
    node: &Node<'_>,
    folder: &Path,
    defaults: &Parts,
    into: &mut Vec<Case>,
    problems: &Collector,
) {
    let Some(mut fields) = node.object() else {
        return;
    };
    let case = Written::read(&mut fields, folder);
    let rows = fields.optional("rows").and_then(|node| {
        let rows = node.elements("rows")?;
        if rows.is_empty() {
            node.reject("rows, each with the keys that differ from the case");
        }
        Some(rows)
    });
    fields.finish();
    let Some(name) = &case.name else {
        let message = "missing, expected a description of the case, such as denies 11 replicas";
        problems.add(child(node.path(), "name"), message);
        return;
    };
    let mut add = |name: String, place: &str, parts: &Parts, expect: Given| {
        let review = parts.over(defaults);
        if review.object.is_none() {
            problems.add(
                child(place, "object"),
                format!("missing, expected {OBJECT_EXPECTED}"),
            );
        }
        let expect = match expect {
            Given::As(expect) => *expect,
            Given::Wrong => return,
            Given::Not => {
                problems.add(
                    child(place, "expect"),
                    format!("missing, expected {EXPECT_EXPECTED}"),
                );
                return;
            }
        };
        let place = place.to_owned();
        into.push(Case {
            name,
            place,
            review,
            own: parts.clone(),
            expect,
        });
    };
    let Some(rows) = rows else {
        add(name.clone(), node.path(), &case.parts, case.expect.clone());
        return;
    };
    for (index, row_node) in rows.iter().enumerate() {
        let Some(mut fields) = row_node.object() else {
            continue;
        };
        let row = Written::read(&mut fields, folder);
        fields.finish();
        let row_name = row.name.unwrap_or_else(|| format!("row {}", index + 1));
        let parts = row.parts.over(&case.parts);
        let expect = match row.expect {
            Given::Not => case.expect.clone(),
            given => given,
        };
        add(
            format!("{name}: {row_name}"),
            row_node.path(),
            &parts,
            expect,
        );
    }
}

// === impl Written ===

impl Written {
    fn read(fields: &mut Fields<'_>, folder: &Path) -> Self {
        let name = fields
            .optional("name")
            .and_then(|node| node.quotable_text("a text"))
            .map(ToOwned::to_owned);
        let parts = Parts::read(fields, folder);
        let expect = match (fields.has("expect"), fields.optional("expect")) {
            (false, _) => Given::Not,
            (true, node) => node
                .and_then(|node| Expectation::read(&node, folder))
                .map_or(Given::Wrong, |expect| Given::As(Box::new(expect))),
        };
        Self {
            name,
            parts,
            expect,
        }
    }
}

// === impl Parts ===

impl Parts {
    fn read(fields: &mut Fields<'_>, folder: &Path) -> Self {
        let mut input = |key: &'static str| {
            fields
                .optional(key)
                .and_then(|node| Input::read(&node, folder))
        };
        let (object, old_object) = (input("object"), input("oldObject"));
        let namespaces = fields
            .optional("namespaces")
            .and_then(|node| Input::read_list(&node, folder, NAMESPACES_EXPECTED));
        let cluster = fields
            .optional("cluster")
            .and_then(|node| Input::read_list(&node, folder, CLUSTER_EXPECTED));
        let access = fields
            .optional(access::KEY)
            .and_then(|node| access::read_rules(&node));
        let images = fields
            .optional(images::KEY)
            .and_then(|node| images::read_images(&node));
        let set = fields.optional("set").and_then(|node| {
            let members = node.members(Values::Any);
            if members.is_none() {
                node.reject(
                    "an object with a JSON Pointer for each key, such as /spec/replicas: 3",
                );
            }
            Some(members?.clone().into_iter().collect())
        });
        let unset = texts(fields, "unset", "JSON Pointers");
        let operation = fields
            .optional("operation")
            .and_then(|node| node.word(OPERATIONS));
        let mut text = |key: &'static str| {
            let node = fields.optional(key)?;
            node.quotable_text("a name").map(ToOwned::to_owned)
        };
        let (user, namespace) = (text("user"), text("namespace"));
        let sub_resource = text("subResource");
        let resource = fields
            .optional("resource")
            .and_then(|node| Resource::read(&node));
        let groups = texts(fields, "groups", "names");
        let dry_run = fields.optional("dryRun").and_then(|node| node.boolean());
        let now = fields.optional("now").and_then(|node| {
            node.accepts(Shape::Text);
            let time = node
                .value()
                .as_str()
                .and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok());
            if time.is_none() {
                node.reject(NOW_EXPECTED);
            }
            time.map(SystemTime::from)
        });
        let settings = fields.optional("settings").and_then(|node| {
            if node.members(Values::Any).is_none() {
                node.reject("an object");
            }
            Some(node.value().clone()).filter(Value::is_object)
        });
        let fuel = fields.optional("fuel").and_then(|node| node.count());
        Self {
            object,
            old_object,
            set: set.unwrap_or_default(),
            unset: unset.unwrap_or_default(),
            operation,
            user,
            groups,
            namespace,
            dry_run,
            namespaces,
            cluster,
            access,
            images,
            now,
            settings,
            fuel,
            resource,
            sub_resource,
        }
    }

    /// Returns these parts, completed from the level below. Changes of both levels apply, those of the lower level
    /// first.
    fn over(&self, below: &Self) -> Self {
        let both = |ours: &[_], theirs: &[_]| theirs.iter().chain(ours).cloned().collect();
        Self {
            object: self.object.clone().or_else(|| below.object.clone()),
            old_object: self.old_object.clone().or_else(|| below.old_object.clone()),
            set: both(&self.set, &below.set),
            unset: below.unset.iter().chain(&self.unset).cloned().collect(),
            operation: self.operation.or(below.operation),
            user: self.user.clone().or_else(|| below.user.clone()),
            groups: self.groups.clone().or_else(|| below.groups.clone()),
            namespace: self.namespace.clone().or_else(|| below.namespace.clone()),
            dry_run: self.dry_run.or(below.dry_run),
            namespaces: self.namespaces.clone().or_else(|| below.namespaces.clone()),
            cluster: self.cluster.clone().or_else(|| below.cluster.clone()),
            access: self.access.clone().or_else(|| below.access.clone()),
            images: self.images.clone().or_else(|| below.images.clone()),
            now: self.now.or(below.now),
            settings: self.settings.clone().or_else(|| below.settings.clone()),
            fuel: self.fuel.or(below.fuel),
            resource: self.resource.clone().or_else(|| below.resource.clone()),
            sub_resource: self
                .sub_resource
                .clone()
                .or_else(|| below.sub_resource.clone()),
        }
    }
}

fn texts(fields: &mut Fields<'_>, key: &'static str, of: &str) -> Option<Vec<String>> {
    let nodes = fields.optional(key)?.elements(of)?;
    let texts = nodes.iter().filter_map(|node| node.quotable_text("a text"));
    Some(texts.map(ToOwned::to_owned).collect())
}

// === impl Input ===

impl Input {
    pub(super) fn read(node: &Node<'_>, folder: &Path) -> Option<Self> {
        node.accepts(Shape::Members(Values::Any));
        node.accepts(Shape::Text);
        match node.value() {
            Value::Object(_) => Some(Self::Inline(node.value().clone())),
            Value::String(file) if !file.is_empty() => Some(Self::File(join(folder, file))),
            _ => {
                node.reject(OBJECT_EXPECTED);
                None
            }
        }
    }

    /// Reads a list of objects, or the name of a file with them.
    fn read_list(node: &Node<'_>, folder: &Path, expected: &str) -> Option<Self> {
        node.accepts(Shape::Objects);
        node.accepts(Shape::Text);
        match node.value() {
            Value::Array(objects) if objects.iter().all(Value::is_object) => {
                Some(Self::Inline(node.value().clone()))
            }
            Value::String(file) if !file.is_empty() => Some(Self::File(join(folder, file))),
            _ => {
                node.reject(expected);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Suite, Problems> {
        Suite::parse(text, Path::new("policies/x.test.yaml"))
    }

    #[test]
    fn reports_wrong_expectation_only_once() {
        let problems = parse(
            "plugins: [{ name: x, source: file:x.wasm }]
cases:
  - { name: typo, object: web.yaml, expect: alow }
  - { name: none, object: web.yaml }
  - { name: rows, object: web.yaml, expect: allow, rows: [{ expect: denny }] }
",
        )
        .unwrap_err()
        .to_string();
        assert_eq!(problems.matches("cases[0]").count(), 1, "{problems}");
        assert!(problems.contains("cases[1].expect: missing"), "{problems}");
        assert_eq!(problems.matches("rows[0]").count(), 1, "{problems}");
    }

    #[test]
    fn rows_override_cases_and_cases_override_defaults() {
        let suite = parse(
            "plugins: [{ name: x, source: file:x.wasm }]
defaults: { user: jane, namespace: shop }
cases:
  - name: replicas
    object: web.yaml
    set: { /spec/replicas: 3 }
    rows:
      - { expect: allow }
      - { name: many, user: root, set: { /spec/replicas: 12 }, expect: deny }
",
        )
        .unwrap();
        let names: Vec<&str> = suite.cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["replicas: row 1", "replicas: many"]);
        let [first, second] = &suite.cases[..] else {
            panic!("two rows make two cases")
        };
        assert_eq!(first.review.user.as_deref(), Some("jane"));
        assert_eq!(second.review.user.as_deref(), Some("root"));
        assert_eq!(second.review.namespace.as_deref(), Some("shop"));
        assert_eq!(
            second.review.set.len(),
            2,
            "the row's comes after the case's"
        );
        assert_eq!(
            suite.files(),
            ["policies/x.wasm", "policies/web.yaml", "policies/web.yaml"].map(PathBuf::from)
        );
    }

    #[test]
    fn fuel_has_the_suffixes_of_a_configuration() {
        let suite = parse(
            "plugins: [{ name: x, source: file:x.wasm }]
defaults: { object: web.yaml, fuel: 30k }
cases:
  - { name: default, expect: allow }
  - { name: own, fuel: 1.5M, resource: mice, subResource: scale, expect: allow }
",
        )
        .unwrap();
        let fuel: Vec<Option<u64>> = suite.cases.iter().map(|case| case.review.fuel).collect();
        assert_eq!(fuel, [Some(30_000), Some(1_500_000)]);
        assert_eq!(
            suite.cases[0].own.fuel, None,
            "the defaults override nothing"
        );
        let problems = parse(
            "plugins: [{ name: x, source: file:x.wasm }]
cases:
  - { name: a, object: web.yaml, fuel: lots, resource: pods/exec, expect: allow }
",
        )
        .unwrap_err()
        .to_string();
        assert!(
            problems.contains(
                "cases[0].fuel: got \"lots\", expected a whole number, such as 250, 5k, 100M or 1G"
            ),
            "{problems}"
        );
        assert!(
            problems
                .contains("cases[0].resource: got \"pods/exec\", expected a resource such as pods"),
            "{problems}"
        );
    }

    #[test]
    fn reports_all_problems_with_their_place() {
        let problems = parse(
            "plugins: [{ name: x, source: file:x.wasm }]
cases:
  - { name: a, object: { kind: Pod }, operaton: CREATE, expect: alow }
  - { name: b, expect: { verdict: deny, causes: [{ feild: spec }] }, now: noon }
  - { object: { kind: Pod }, expect: allow }
  - { name: c, object: { kind: Pod } }
  - { name: c, object: { kind: Pod }, expect: {} }
  - { name: d, object: { kind: Pod }, expect: { fault: out-of-feul } }
",
        )
        .unwrap_err();
        insta::assert_snapshot!(problems.to_string(), @r#"
        9 problems
          cases[0].expect: got "alow", expected allow, deny, fault or not-called; did you mean allow?
          cases[0].operaton: unknown key, did you mean operation?
          cases[1].now: got "noon", expected a time such as 2026-07-01T12:00:00Z
          cases[1].expect.causes[0].feild: unknown key, did you mean field?
          cases[1].object: missing, expected a manifest or an AdmissionReview, or the name of a file with them
          cases[2].name: missing, expected a description of the case, such as denies 11 replicas
          cases[3].expect: missing, expected a result such as allow or deny
          cases[4].expect: got an object, expected a verdict (allow, deny, fault or not-called), or another expectation
          cases[5].expect.fault: got "out-of-feul", expected out-of-fuel, cpu-deadline, deadline, memory, trap, output-too-large, contract-violation, bad-patch, lossy-object, not-loaded, unreadable, match-condition, namespace-unavailable, access-unavailable, tenant-budget, conflict, not-converging or engine-error; did you mean out-of-fuel?
        "#);
    }

    #[test]
    fn watches_every_file_of_a_suite() {
        let folder = tempfile::tempdir().unwrap();
        let config = "plugins: [{ name: x, source: file:x.wasm }]";
        std::fs::write(folder.path().join("tollgate.yaml"), config).unwrap();
        let suite = "config: tollgate.yaml
cases:
  - { name: a, object: in.yaml, oldObject: old.yaml, expect: { object: out.yaml } }
";
        let suite = Suite::parse(suite, &folder.path().join("x.test.yaml")).unwrap();
        let expected = ["tollgate.yaml", "x.wasm", "in.yaml", "old.yaml", "out.yaml"];
        assert_eq!(suite.files(), expected.map(|file| folder.path().join(file)));
    }

    #[test]
    fn rejects_suite_without_plugins_or_cases() {
        let problems = parse("cases: []").unwrap_err().to_string();
        assert!(
            problems.contains("plugins: missing, expected the plugins to test"),
            "{problems}"
        );
        assert!(problems.contains("cases: got an empty list"), "{problems}");
    }
}
