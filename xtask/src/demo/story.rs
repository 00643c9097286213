//! The reviews of the demo, their purpose, and the expected answers.

use std::fmt::Debug;

use serde_json::{Value, json};

use super::answer::Answer;
use super::client::Client;
use super::show;
use crate::terminal;

const CREATE_POD: &str = include_str!("../../demo/create-pod.json");
const CREATE_CARELESS_POD: &str = include_str!("../../demo/create-careless-pod.json");
const CREATE_CONFIG_MAP: &str = include_str!("../../demo/create-config-map.json");

/// Sends reviews and counts wrong properties of the answers.
pub(super) struct Stage {
    client: Client,
    problems: usize,
}

/// A review, and how the demo presents it.
struct Scene<'s> {
    /// The command that the user typed.
    command: &'s str,
    /// The file in the command, which kubectl names in an error.
    file: Option<&'s str>,
    /// kubectl's output on success.
    success: &'s str,
    path: &'s str,
    review: &'s Value,
}

/// Runs all parts of the story.
pub(super) fn play(stage: &mut Stage) -> anyhow::Result<()> {
    let pod = mutation(stage)?;
    admission(stage, &pod)?;
    denial(stage)?;
    failing_plugins(stage)
}

fn mutation(stage: &mut Stage) -> anyhow::Result<Value> {
    terminal::heading("A. two plugins change a Pod: one patch");
    terminal::paragraph(
        "  ",
        "Jane creates a Pod whose images come from a retired registry and from Docker Hub. kube-apiserver calls the \
         mutating webhook first.",
    );
    let review: Value = serde_json::from_str(CREATE_POD)?;
    let scene = Scene {
        command: "kubectl apply -f web.yaml",
        file: Some("web.yaml"),
        success: "(nothing yet: the validating webhook is called next)",
        path: "/mutate",
        review: &review,
    };
    let answer = stage.play(&scene)?;
    show::patch(&answer, &review["request"]["object"]);
    show::annotations(&answer);

    stage.is("the verdict", &answer.allowed, &true);
    stage.is("the operations", &answer.operations, &expected_operations());
    let pod = &answer.object;
    stage.is(
        "the image",
        &pod["spec"]["containers"][0]["image"],
        &json!("registry.k8s.io/echoserver:1.10"),
    );
    stage.has(
        "who changed what",
        answer.annotation("image-rewrite.patched"),
        "/spec/containers/0/image",
    );
    stage.has(
        "who changed what",
        answer.annotation("always-pull-images.patched"),
        "/spec/containers/0/imagePullPolicy",
    );
    Ok(answer.object)
}

/// Four changes to two containers, and two annotations. Nothing else changes, and nothing is written twice.
fn expected_operations() -> Vec<Value> {
    let original = |container: &str| {
        format!("/metadata/annotations/original.image-rewrite.tollgate.dev~1{container}")
    };
    vec![
        json!({"op": "add", "path": original("wait"), "value": "busybox:1.37"}),
        json!({"op": "add", "path": original("web"), "value": "k8s.gcr.io/echoserver:1.10"}),
        json!({"op": "replace", "path": "/spec/containers/0/image", "value": "registry.k8s.io/echoserver:1.10"}),
        json!({"op": "replace", "path": "/spec/containers/0/imagePullPolicy", "value": "Always"}),
        json!({"op": "replace", "path": "/spec/initContainers/0/image", "value": "mirror.example.com/hub/library/busybox:1.37"}),
        json!({"op": "replace", "path": "/spec/initContainers/0/imagePullPolicy", "value": "Always"}),
    ]
}

fn admission(stage: &mut Stage, pod: &Value) -> anyhow::Result<()> {
    terminal::heading("B. the same Pod, validated: allowed, with a warning");
    terminal::paragraph(
        "  ",
        "kube-apiserver applies the patch and calls the validating webhook with the result. ask-for-an-owner is in \
         mode `warn`: it only warns where it would deny.",
    );
    let mut review: Value = serde_json::from_str(CREATE_POD)?;
    review["request"]["uid"] = json!("5c6a1b1e-0d43-4b57-8a3e-6f2a0e7d9b02");
    review["request"]["object"] = pod.clone();
    let scene = Scene {
        command: "kubectl apply -f web.yaml    (continued)",
        file: Some("web.yaml"),
        success: "pod/web created",
        path: "/validate",
        review: &review,
    };
    let answer = stage.play(&scene)?;
    show::annotations(&answer);

    stage.is("the verdict", &answer.allowed, &true);
    stage.is("the number of warnings", &answer.warnings.len(), &1);
    let warning = answer.warnings.concat();
    stage.has("the warning", &warning, "ask-for-an-owner: ");
    stage.has(
        "the warning",
        &warning,
        "metadata.annotations[example.com/owner]",
    );
    stage.is("the patch of a validation", &answer.operations.len(), &0);
    Ok(())
}

fn denial(stage: &mut Stage) -> anyhow::Result<()> {
    terminal::heading("C. two plugins deny a Pod: every reason at once");
    terminal::paragraph(
        "  ",
        "Sam forgets a label and misspells another. After Tollgate's mutators, another webhook has added two \
         containers that may use any image on the node. Validators see the final object.",
    );
    let review: Value = serde_json::from_str(CREATE_CARELESS_POD)?;
    let scene = Scene {
        command: "kubectl run worker --image=registry.example.com/shop/worker:7 --labels=team=Storefront",
        file: None,
        success: "",
        path: "/validate",
        review: &review,
    };
    let answer = stage.play(&scene)?;
    show::annotations(&answer);

    stage.is("the verdict", &answer.allowed, &false);
    stage.is("the status code", &answer.code, &Some(403));
    let fields: Vec<&str> = answer
        .causes
        .iter()
        .map(|(field, _)| field.as_str())
        .collect();
    let expected = [
        "spec.initContainers[0].imagePullPolicy",
        "spec.containers[1].imagePullPolicy",
        "metadata.labels[app.kubernetes.io/name]",
        "metadata.labels[team]",
    ];
    let mut sorted = (fields.clone(), expected.to_vec());
    sorted.0.sort_unstable();
    sorted.1.sort_unstable();
    stage.is("the fields", &sorted.0, &sorted.1);
    for part in ["always-pull-images: ", "required-labels: "]
        .into_iter()
        .chain(expected)
    {
        stage.has("the message", &answer.message, part);
    }
    // The message does not repeat Sam's value, because it could be from a Secret.
    stage.is(
        "whether values are quoted",
        &answer.message.contains("Storefront"),
        &false,
    );
    Ok(())
}

fn failing_plugins(stage: &mut Stage) -> anyhow::Result<()> {
    terminal::heading("D. a plugin fails: its own failurePolicy decides");
    terminal::paragraph(
        "  ",
        "starved gets 1,000 fuel and needs more, so the host stops it. The plugin's own failurePolicy decides \
         whether the request passes without it. kube-apiserver could only decide for the whole webhook.",
    );
    let mut review: Value = serde_json::from_str(CREATE_CONFIG_MAP)?;
    let scene = Scene {
        command: "kubectl create -f prices.yaml",
        file: Some("prices.yaml"),
        success: "",
        path: "/validate",
        review: &review,
    };
    let answer = stage.play(&scene)?;
    stage.is("the verdict", &answer.allowed, &false);
    stage.is("the status code", &answer.code, &Some(500));
    stage.has(
        "the message",
        &answer.message,
        "starved failed (out-of-fuel, failurePolicy Fail)",
    );

    review["request"]["uid"] = json!("0f3e9a77-6c1b-4f52-b7c4-9d8e7f6a5b04");
    review["request"]["namespace"] = json!("sandbox");
    review["request"]["object"]["metadata"]["namespace"] = json!("sandbox");
    let scene = Scene {
        command: "kubectl create -f prices.yaml --namespace sandbox",
        file: Some("prices.yaml"),
        success: "configmap/prices created",
        path: "/validate",
        review: &review,
    };
    let answer = stage.play(&scene)?;
    show::annotations(&answer);
    stage.is("the verdict", &answer.allowed, &true);
    stage.is(
        "the note for the operator",
        &answer.annotation("starved-optional.failed-open"),
        &"out-of-fuel",
    );
    Ok(())
}

// === impl Stage ===

impl Stage {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            problems: 0,
        }
    }

    /// The number of wrong properties of answers.
    pub(super) fn problems(&self) -> usize {
        self.problems
    }

    fn play(&mut self, scene: &Scene<'_>) -> anyhow::Result<Answer> {
        let before = self.client.costs()?;
        let exchange = self.client.review(scene.path, scene.review)?;
        let costs = self.client.costs()?.since(&before);
        show::question(scene.command, scene.path, scene.review, &exchange);
        show::plugins(&exchange.answer, &costs);
        show::verdict(&exchange.answer, scene.success, scene.file);
        Ok(exchange.answer)
    }

    fn is<T: Debug + PartialEq>(&mut self, what: &str, got: &T, expected: &T) {
        if got != expected {
            self.problem(&format!("{what}: expected {expected:?}, got {got:?}"));
        }
    }

    fn has(&mut self, what: &str, text: &str, part: &str) {
        if !text.contains(part) {
            self.problem(&format!("{what}: expected `{part}` in `{text}`"));
        }
    }

    fn problem(&mut self, text: &str) {
        self.problems += 1;
        terminal::problem(text);
    }
}
