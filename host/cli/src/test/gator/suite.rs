//! Reads a suite of `gator verify`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail, ensure};
use serde_json::{Value, json};

use super::case::Assertion;
use crate::review::input;

/// A suite.
pub(in crate::test) struct Suite {
    pub(in crate::test) tests: Vec<Test>,
}

/// A template and a constraint, with cases.
pub(in crate::test) struct Test {
    template: anyhow::Result<Value>,
    constraint: anyhow::Result<Value>,
    /// Whether the template or the constraint is expected to be invalid.
    pub(in crate::test) is_invalid: bool,
    pub(in crate::test) cases: Vec<Case>,
}

/// The languages of a template's code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Languages {
    pub(super) rego: bool,
    pub(super) cel: bool,
}

/// An object with its expectations.
pub(in crate::test) struct Case {
    /// The name of the test and of the case.
    pub(in crate::test) name: String,
    /// The key path in the suite.
    pub(in crate::test) place: String,
    pub(in crate::test) object: PathBuf,
    inventory: Vec<PathBuf>,
    pub(in crate::test) assertions: Vec<Assertion>,
}

const GROUP: &str = "test.gatekeeper.sh/";
/// The enforcement point whose scoped actions a suite tests.
const POINT: &str = "gator.gatekeeper.sh";
/// A longer file is no suite that somebody wrote.
const LONGEST_SUITE_BYTES: u64 = 1 << 20;

/// Whether a YAML file is a suite of gator.
pub(in crate::test) fn is_suite(path: &Path) -> bool {
    let is_short = path
        .metadata()
        .is_ok_and(|metadata| metadata.len() <= LONGEST_SUITE_BYTES);
    let Some(text) = is_short
        .then(|| std::fs::read_to_string(path).ok())
        .flatten()
    else {
        return false;
    };
    text.lines().any(|line| {
        let version = line.trim_start().strip_prefix("apiVersion:");
        version.is_some_and(|version| version.trim_matches([' ', '"', '\'']).starts_with(GROUP))
    })
}

/// Reads the only document of a file.
fn one(path: &Path) -> anyhow::Result<Value> {
    let mut documents = all(path)?;
    ensure!(
        documents.len() == 1,
        "{}: expected one document, found {}",
        path.display(),
        documents.len()
    );
    Ok(documents.remove(0))
}

fn all(path: &Path) -> anyhow::Result<Vec<Value>> {
    let documents = input::read(path)?;
    documents
        .iter()
        .map(|document| Ok(serde_json::from_str(&document.content.to_text())?))
        .collect()
}

// === impl Suite ===

impl Suite {
    /// Reads a suite.
    pub(in crate::test) fn load(path: &Path) -> anyhow::Result<Self> {
        let documents = all(path)?;
        let suite = documents
            .iter()
            .find(|document| document["kind"] == "Suite")
            .ok_or_else(|| anyhow!("{}: contains no Suite", path.display()))?;
        let folder = tollgate_config::folder_of(path);
        let tests = suite["tests"].as_array().map_or(&[][..], Vec::as_slice);
        let tests = tests.iter().enumerate();
        let tests = tests.filter(|(_, test)| test["skip"] != true);
        let tests = tests
            .map(|(index, test)| Test::read(test, &format!("tests[{index}]"), folder))
            .collect::<anyhow::Result<Vec<Test>>>();
        let tests = tests.with_context(|| path.display().to_string())?;
        Ok(Self { tests })
    }
}

// === impl Test ===

impl Test {
    fn read(test: &Value, place: &str, folder: &Path) -> anyhow::Result<Self> {
        let file = |key: &str| match test[key].as_str() {
            Some(file) => one(&folder.join(file)),
            None => Err(anyhow!(
                "{place}.{key}: missing, expected the name of a file"
            )),
        };
        if !test["expansion"].is_null() {
            bail!("{place}.expansion: ExpansionTemplates are not supported");
        }
        let name = test["name"].as_str().unwrap_or(place);
        let cases = test["cases"].as_array().map_or(&[][..], Vec::as_slice);
        let cases = cases.iter().enumerate();
        let cases = cases.filter(|(_, case)| case["skip"] != true);
        let cases = cases.map(|(index, case)| {
            Case::read(case, name, &format!("{place}.cases[{index}]"), folder)
        });
        Ok(Self {
            template: file("template"),
            constraint: file("constraint"),
            is_invalid: test["invalid"] == true,
            cases: cases.collect::<anyhow::Result<_>>()?,
        })
    }

    /// Returns the languages of the template. If the template cannot be read, its languages are not
    /// known.
    pub(super) fn languages(&self) -> Languages {
        let template = self.template.as_ref();
        template.map(Languages::of).unwrap_or_default()
    }

    /// Returns the settings of the plugin for a case. `engine` is its name.
    pub(super) fn settings(&self, case: &Case, engine: &str) -> anyhow::Result<Value> {
        let given = |document: &anyhow::Result<Value>| match document {
            Ok(document) => Ok(document.clone()),
            Err(error) => Err(anyhow!("{error:#}")),
        };
        let mut inventory = Vec::new();
        for file in &case.inventory {
            inventory.extend(all(file)?);
        }
        let is_namespace =
            |object: &&Value| object["apiVersion"] == "v1" && object["kind"] == "Namespace";
        let namespaces: Vec<Value> = inventory.iter().filter(is_namespace).cloned().collect();
        let mut settings = json!({
            "template": given(&self.template)?,
            "constraints": [denying(given(&self.constraint)?)],
            "namespaces": namespaces,
            "enforcementPoint": POINT,
        });
        // CEL has no inventory.
        if engine == super::REGO {
            settings["inventory"] = inventory.into();
        }
        Ok(settings)
    }
}

// === impl Languages ===

impl Languages {
    pub(super) fn of(template: &Value) -> Self {
        let targets = template.pointer("/spec/targets").and_then(Value::as_array);
        let targets = targets.into_iter().flatten();
        let codes = targets
            .clone()
            .filter_map(|target| target["code"].as_array());
        let has = |engine: &str| codes.clone().flatten().any(|code| code["engine"] == engine);
        Self {
            rego: has("Rego") || targets.clone().any(|target| target["rego"].is_string()),
            cel: has("K8sNativeValidation"),
        }
    }
}

/// Makes a constraint deny. A suite counts violations, whatever their enforcement action is.
fn denying(mut constraint: Value) -> Value {
    let Some(spec) = constraint.get_mut("spec").and_then(Value::as_object_mut) else {
        return constraint;
    };
    if spec.get("enforcementAction").and_then(Value::as_str) != Some("scoped") {
        spec.insert("enforcementAction".to_owned(), "deny".into());
        return constraint;
    }
    let scoped = spec.get_mut("scopedEnforcementActions");
    let scoped = scoped.and_then(Value::as_array_mut);
    for action in scoped.into_iter().flatten() {
        if let Some(action) = action.as_object_mut() {
            action.insert("action".to_owned(), "deny".into());
        }
    }
    constraint
}

// === impl Case ===

impl Case {
    fn read(case: &Value, test: &str, place: &str, folder: &Path) -> anyhow::Result<Self> {
        let object = case["object"]
            .as_str()
            .ok_or_else(|| anyhow!("{place}.object: missing, expected the name of a file"))?;
        let inventory = case["inventory"].as_array().into_iter().flatten();
        let inventory = inventory
            .filter_map(Value::as_str)
            .map(|file| folder.join(file));
        let assertions = case["assertions"].as_array().into_iter().flatten();
        let assertions = assertions.map(|assertion| {
            Assertion::read(assertion).map_err(|error| anyhow!("{place}.assertions: {error}"))
        });
        let name = case["name"].as_str().unwrap_or(place);
        Ok(Self {
            name: format!("{test}: {name}"),
            place: place.to_owned(),
            object: folder.join(object),
            inventory: inventory.collect(),
            assertions: assertions.collect::<anyhow::Result<_>>()?,
        })
    }

    /// Reads the object.
    pub(super) fn object(&self) -> anyhow::Result<Value> {
        one(&self.object)
    }
}
