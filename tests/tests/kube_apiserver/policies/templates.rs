//! The templates of Gatekeeper's library that have both Rego and CEL give the same answers: the CEL as a
//! ValidatingAdmissionPolicy in kube-apiserver, the CEL in the plugin `cel-policy`, and the Rego in the plugin `rego`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tollgate_tests::kubernetes::Start;
use tollgate_tests::{binary, cli, guests};

use super::both::{answers, plural, text};
use super::case::{Case, create, namespace_of};
use crate::custom_resources;
use crate::fixtures::configuration;

const GROUP: &str = "constraints.gatekeeper.sh";

/// Reads the objects of a YAML file.
fn read(file: &Path) -> Vec<Value> {
    let mut command = cli::command(&["review", "-o", "request", "--config"]);
    // A configuration has a plugin, which nothing is asked here.
    let mut configuration = configuration();
    configuration.plugin("none", Path::new("none.wasm"), json!({}));
    command.arg(configuration.write()).arg(file);
    let printed = cli::run(&mut command);
    let reviews = printed.stdout.lines();
    let reviews = reviews.map(|line| serde_json::from_str::<Value>(line).expect("a review"));
    reviews
        .map(|mut review| review["request"]["object"].take())
        .collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// The code of a template for an engine.
fn code<'a>(template: &'a Value, engine: &str) -> Option<&'a Value> {
    let codes = template["spec"]["targets"][0]["code"].as_array()?;
    let code = codes.iter().find(|code| code["engine"] == engine)?;
    Some(&code["source"])
}

/// A constraint with its template, and the objects of its samples.
struct Sample {
    template: Value,
    constraint: Value,
    case: Case,
}

/// Returns the policy that Gatekeeper writes for a template and a constraint.
fn sample(template: &Value, folder: &Path) -> Sample {
    let mut constraint = read(&folder.join("constraint.yaml")).remove(0);
    if let Some(metadata) = constraint["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
    let name: &'static str = text(&constraint["metadata"]["name"]).leak();
    let mut spec = code(template, "K8sNativeValidation").expect("CEL").clone();
    let own = json!([
        {"name": "anyObject", "expression": "request.operation == 'DELETE' && object == null ? oldObject : object"},
        {"name": "params", "expression": "!has(params.spec) ? null : !has(params.spec.parameters) ? null : params.spec.parameters"},
    ]);
    let variables = [&own, &spec["variables"]]
        .into_iter()
        .filter_map(Value::as_array);
    spec["variables"] = variables.flatten().cloned().collect();
    spec["paramKind"] =
        json!({"apiVersion": format!("{GROUP}/v1beta1"), "kind": constraint["kind"]});
    spec["matchConstraints"] = json!({"resourceRules": [{
        "operations": ["CREATE", "UPDATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"],
    }]});
    let kinds = constraint["spec"]["match"]["kinds"]
        .as_array()
        .into_iter()
        .flatten();
    let rules = kinds.map(|one| {
        let resources = one["kinds"].as_array().into_iter().flatten();
        let resources: Vec<String> = resources.map(|kind| plural(&text(kind))).collect();
        json!({"operations": ["*"], "apiGroups": one["apiGroups"], "apiVersions": ["*"], "resources": resources})
    });
    let objects = files(folder).into_iter().filter(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("example")
    });
    let objects = objects.flat_map(|file| read(&file)).map(|mut object| {
        if object["kind"] != "Namespace" {
            object["metadata"]["namespace"] = json!(namespace_of(name));
        }
        create(object)
    });
    let case = Case::new(name)
        .policy(name, spec)
        .existing([constraint.clone()])
        .binding(json!({
            "paramRef": {"name": name, "parameterNotFoundAction": "Deny"},
            "matchResources": {"resourceRules": rules.collect::<Vec<_>>(), "namespaceSelector": {}},
        }))
        .requests(objects);
    Sample {
        template: template.clone(),
        constraint,
        case,
    }
}

/// Returns the response of a plugin to each review.
fn responses(plugin: &str, samples: &[Sample], reviews: &[Value]) -> Vec<Value> {
    let mut configuration = configuration();
    let everything =
        json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]});
    for Sample {
        template,
        constraint,
        case,
    } in samples
    {
        configuration.plugin(
            case.name,
            &guests::build(plugin),
            json!({
                "settings": {"template": template, "constraints": [constraint]},
                "match": {"rules": [everything]},
            }),
        );
    }
    let mut command = cli::command(&["review", "-", "-o", "json", "--config"]);
    command.arg(configuration.write());
    let reviews: Vec<String> = reviews.iter().map(Value::to_string).collect();
    let reviewed = cli::run_with(&mut command, &reviews.join("\n")).json();
    let documents = reviewed["documents"].as_array().expect("a list");
    let response = |document: &Value| document["validate"]["response"]["response"].clone();
    documents.iter().map(response).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn templates_have_the_same_results_in_every_engine() {
    let Some(library) = binary::gatekeeper_library() else {
        println!("SKIPPED: the templates of gatekeeper-library are not here");
        return;
    };
    let Some(cluster) = Start::default().start() else {
        return;
    };
    let mut samples = Vec::new();
    for folder in files(&library.join("general")) {
        let file = folder.join("template.yaml");
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        if !written.contains("K8sNativeValidation") || !written.contains("Rego") {
            continue;
        }
        let template = read(&file).remove(0);
        let kind = text(&template["spec"]["crd"]["spec"]["names"]["kind"]);
        let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let mut definition =
            custom_resources::definition(GROUP, "constraint", &["v1beta1"], &anything);
        let (plural, singular) = (plural(&kind), kind.to_lowercase());
        definition["metadata"]["name"] = json!(format!("{plural}.{GROUP}"));
        definition["spec"]["scope"] = json!("Cluster");
        definition["spec"]["names"] = json!({"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")});
        custom_resources::apply(&cluster, &definition);
        for folder in files(&folder.join("samples")) {
            samples.push(sample(&template, &folder));
        }
    }
    let mut cases: Vec<Case> = Vec::new();
    for sample in &mut samples {
        let name = sample.case.name;
        cases.push(std::mem::replace(&mut sample.case, Case::new(name)));
    }
    let (counts, answers) = Box::pin(answers(&cluster, &cases)).await;
    let reviews: Vec<Value> = answers.iter().map(|(review, _)| review.clone()).collect();
    let cel = responses("cel-policy", &samples, &reviews);
    let rego = responses("rego", &samples, &reviews);
    for (((review, there), cel), rego) in answers.iter().zip(&cel).zip(&rego) {
        let is_allowed = json!(there.denial.is_none());
        assert_eq!(
            cel["allowed"], is_allowed,
            "{review:#}\n{there:#?}\n{cel:#}"
        );
        assert_eq!(
            rego["allowed"], is_allowed,
            "{review:#}\n{there:#?}\n{rego:#}"
        );
        let Some((message, _, _)) = &there.denial else {
            continue;
        };
        let (_, message) = message.split_once("denied request: ").unwrap_or_default();
        let said = text(&cel["status"]["message"]);
        assert!(said.contains(message), "{said}: {message}");
    }
    println!(
        "{} constraints of templates with both engines: {counts:?}",
        samples.len()
    );
    assert!(counts.denied > 1, "{counts:?}");
}
