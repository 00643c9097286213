//! The templates of suites, and random reviews that begin as the objects of their cases.

use std::path::Path;

use serde_json::{Value as Json, json};
use tollgate_gatekeeper::{Constraint, Kind, Pointer, Problems, schema};
use tollgate_sdk::SettingsErrors;

use super::mutation::{Pool, mutate};
use super::random::Random;
use crate::inventory;
use crate::program::Program;
use crate::template::{self, Template};
use crate::tests::library::{one, suites, yaml};
use crate::tests::parts;

/// A template with the cases of its suite.
pub(in crate::tests) struct Subject {
    /// The folder of the suite, below the folder of all suites.
    pub(in crate::tests) name: String,
    template: Template,
    cases: Vec<Case>,
    pool: Pool,
}

struct Case {
    parameters: Json,
    review: Json,
    inventory: Vec<Json>,
}

/// A loaded template with reviews for it.
pub(in crate::tests) struct Batch {
    pub(in crate::tests) program: Program,
    /// The line that loads the template into OPA.
    pub(in crate::tests) load: String,
    pub(in crate::tests) inputs: Vec<Input>,
}

/// A review with the parameters of a constraint.
pub(in crate::tests) struct Input {
    pub(in crate::tests) review: Json,
    pub(in crate::tests) parameters: Json,
}

/// Reads the templates with Rego of all suites below a folder.
pub(in crate::tests) fn subjects(folder: &Path) -> Vec<Subject> {
    let files = suites(folder);
    files
        .iter()
        .filter_map(|file| Subject::read(folder, file))
        .collect()
}

// === impl Subject ===

impl Subject {
    /// Reads a suite. None if its template has no Rego.
    fn read(root: &Path, file: &Path) -> Option<Self> {
        let folder = file.parent().unwrap();
        let suite = one(file);
        let tests = suite["tests"].as_array().unwrap();
        let path = |value: &Json| folder.join(value.as_str().unwrap());
        let template = one(&path(&tests[0]["template"]));
        let mut errors = SettingsErrors::new();
        let template = Template::read(&template, &template::place(), &mut errors)?;
        let (mut cases, mut pool) = (Vec::new(), Pool::default());
        for test in tests.iter().filter(|test| test["invalid"] != json!(true)) {
            let parameters = parameters(&one(&path(&test["constraint"])), &template);
            pool.add(&parameters);
            for case in test["cases"].as_array().unwrap() {
                let inventory = case["inventory"].as_array().into_iter().flatten();
                let case = Case {
                    parameters: parameters.clone(),
                    review: review(one(&path(&case["object"]))),
                    inventory: inventory.flat_map(|file| yaml(&path(file))).collect(),
                };
                pool.add(&case.review);
                case.inventory.iter().for_each(|object| pool.add(object));
                cases.push(case);
            }
        }
        let name = folder.strip_prefix(root).unwrap_or(folder);
        Some(Self {
            name: name.display().to_string(),
            template,
            cases,
            pool,
        })
    }

    /// Returns the number of cases.
    pub(in crate::tests) const fn cases(&self) -> usize {
        self.cases.len()
    }

    /// Makes reviews from a case. The first one of each case is the case itself.
    pub(in crate::tests) fn batch(&self, number: usize, size: usize, random: &mut Random) -> Batch {
        let case = &self.cases[number % self.cases.len()];
        let is_first = number < self.cases.len();
        let mut objects = case.inventory.clone();
        if !is_first && random.percent(50) {
            for object in &mut objects {
                self.mutate_listed(object, random);
            }
        }
        let mut errors = SettingsErrors::new();
        let inventory = inventory::build(&objects, &template::place(), &mut errors);
        let load = json!({
            "rego": self.template.module.text, "v1": self.template.module.is_v1,
            "libs": self.template.libs.iter().map(|lib| &lib.text).collect::<Vec<_>>(),
            "inventory": inventory,
        });
        let program = Program::compile(&self.template, Some(inventory), &mut errors);
        let program = program.unwrap_or_else(|| panic!("{}: {}", self.name, errors_of(errors)));
        let input = |index: usize| match is_first && index == 0 {
            true => Input {
                review: case.review.clone(),
                parameters: case.parameters.clone(),
            },
            false => self.random(case, random),
        };
        Batch {
            program,
            load: load.to_string(),
            inputs: (0..size).map(input).collect(),
        }
    }

    /// Changes an object of the inventory, which keeps the members that its place depends on.
    fn mutate_listed(&self, object: &mut Json, random: &mut Random) {
        let before = object.clone();
        mutate(object, &self.pool, random);
        let places = [
            "/apiVersion",
            "/kind",
            "/metadata/name",
            "/metadata/namespace",
        ];
        let has_moved = |place: &&str| object.pointer(place) != before.pointer(place);
        if places.iter().any(has_moved) {
            *object = before;
        }
    }

    fn random(&self, case: &Case, random: &mut Random) -> Input {
        let mut review = case.review.clone();
        match random.below(10) {
            0 => mutate(&mut review, &self.pool, random),
            1 if !review["oldObject"].is_null() => {
                mutate(&mut review["oldObject"], &self.pool, random);
            }
            _ => mutate(&mut review["object"], &self.pool, random),
        }
        let mut parameters = case.parameters.clone();
        if random.percent(15) {
            mutate(&mut parameters, &self.pool, random);
            // No constraint with parameters that do not fit the schema can exist.
            if !self.fits(&parameters) {
                parameters.clone_from(&case.parameters);
            }
        }
        Input { review, parameters }
    }

    fn fits(&self, parameters: &Json) -> bool {
        let mut problems = Problems::new();
        if let Some(schema) = &self.template.schema {
            schema::validate(schema, parameters, &Pointer::root(), &mut problems);
        }
        problems.is_empty() && parameters.is_object()
    }
}

fn errors_of(errors: SettingsErrors) -> String {
    errors
        .or(())
        .err()
        .map_or_else(String::new, |errors| errors.to_string())
}

fn parameters(constraint: &Json, template: &Template) -> Json {
    let mut constraint = constraint.clone();
    constraint["spec"]["enforcementAction"] = json!("deny");
    let kind = Kind {
        name: &template.kind,
        schema: template.schema.as_ref(),
    };
    let mut problems = Problems::new();
    let read = Constraint::read(&constraint, &Pointer::root(), kind, "", &mut problems);
    read.unwrap_or_else(|| panic!("{}: {problems:?}", template.kind))
        .parameters
}

/// Returns `input.review` for an object, or for the request of an `AdmissionReview`.
fn review(document: Json) -> Json {
    let mut review = json!({
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE", "dryRun": false,
        "userInfo": { "username": "jane", "groups": ["system:authenticated"] },
        "oldObject": null, "options": null, "namespaceObject": null,
    });
    if document["kind"] == "AdmissionReview" {
        for (key, value) in document["request"].as_object().unwrap() {
            review[key] = value.clone();
        }
        // Gatekeeper shows the object that is deleted as `object`, too.
        if review["object"].is_null() {
            review["object"] = review["oldObject"].clone();
        }
        return review;
    }
    let text = |pointer: &str| document.pointer(pointer).cloned().unwrap_or(json!(""));
    let version = text("/apiVersion");
    let version = version.as_str().unwrap_or_default();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    review["kind"] = json!({ "group": group, "version": version, "kind": text("/kind") });
    review["name"] = text("/metadata/name");
    review["namespace"] = text("/metadata/namespace");
    review["object"] = document;
    review
}

// === impl Batch ===

impl Batch {
    /// Evaluates a review with regorus, as the plugin does: with the parts that the Rego reads.
    pub(in crate::tests) fn evaluate(&self, input: &Input) -> super::Answer {
        let review = parts::read(&input.review, &self.program.shape);
        let parameters = regorus::Value::from(input.parameters.clone());
        let violations = self.program.violations(&review, &parameters, None)?;
        let violations = violations
            .into_iter()
            .map(|violation| (violation.message, violation.details.unwrap_or_default()));
        Ok(super::sorted(violations.collect()))
    }
}

// === impl Input ===

impl Input {
    /// Returns the line that asks OPA.
    pub(in crate::tests) fn line(&self) -> String {
        json!({ "review": self.review, "parameters": self.parameters }).to_string()
    }
}
