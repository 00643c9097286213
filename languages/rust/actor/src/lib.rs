//! Follows instructions in the object under review, for the conformance suite.

use serde_json::json;
use tollgate_sdk::access::{self, Action};
use tollgate_sdk::cluster::{self, Failure, OrFault as _};
use tollgate_sdk::images::{self, Request};
use tollgate_sdk::prelude::*;

/// The policy, which has no state.
pub struct Actor;

/// The action for `configure`.
#[derive(serde::Deserialize)]
pub struct Settings {
    #[serde(rename = "do", default)]
    what: String,
}

impl Policy for Actor {
    type Settings = Settings;

    fn configure(settings: Settings) -> Result<Self, SettingsErrors> {
        act(&settings.what, 0);
        Ok(Self)
    }
}

impl Validate for Actor {
    fn validate(&self, review: &Review) -> Result<(), Denial> {
        let object = review.object();
        let what = object.text("/data/do").unwrap_or_default();
        match what.as_str() {
            "deny" => {
                let cause =
                    Cause::at(pointer!["data", "a/b"], "wrong").reason(Cause::VALUE_INVALID);
                return Err(Denial::new("no").code(422).reason("Invalid").cause(cause));
            }
            "read" => {
                review.warn(format!(
                    "{} {} {} {} [{}] {}",
                    object.integer("/data/big").unwrap_or_default(),
                    object.text("/data/text").unwrap_or_default(),
                    object.get("/data/null") == Some(Value::Null),
                    object.get("/data/absent").is_some(),
                    object.keys("/data/members").unwrap_or_default().join(" "),
                    object.json("/data/exact").unwrap_or_default(),
                ));
                review.annotate("operation", review.operation().as_str());
            }
            "read many" => {
                let found = object.get_many(["/data/big", "/data/absent", "/data/text"]);
                if let [Some(Value::Integer(big)), absent, Some(Value::Text(text))] =
                    found.as_slice()
                {
                    review.warn(format!("{big} {} {text}", absent.is_some()));
                }
            }
            "namespace" => drop(review.namespace().text("/metadata/labels/team")),
            "whole" => {
                review.warn((object.json("").unwrap_or_default().len() > 1 << 20).to_string())
            }
            "pointer" => drop(object.get("data")),
            "escape" => drop(object.get("/data/a~b")),
            "log" => tollgate_sdk::info!("hello"),
            "get" | "find" | "list" | "lookup" => look_up(&what, review),
            "may" | "rights" => ask(&what, review),
            "verify" => verify(review),
            what => drop(act(what, 0)),
        }
        Ok(())
    }
}

impl Mutate for Actor {
    fn mutate(&self, review: &Review) -> Result<Mutation, Denial> {
        let what = review.object().text("/data/do").unwrap_or_default();
        Ok(match what.as_str() {
            "patch" => Patch::new()
                .set(review.object(), "/metadata/annotations/a~1b", "ü\"\n")
                .set(review.object(), "/data/done", true)
                .remove("/data/text")
                .into(),
            "pointer" => Patch::new().remove("data/text").into(),
            "merge" => Mutation::merge(&json!({"data": {"text": null, "done": true}})),
            what @ ("throw" | "loop") => {
                act(what, 0);
                Mutation::Unchanged
            }
            _ => Mutation::Unchanged,
        })
    }
}

/// Reads the lookup that the object names, and warns with what it finds.
fn look_up(what: &str, review: &Review) {
    let text = |member: &str| review.object().text(pointer!["data", member]);
    let lookup = text("lookup").unwrap_or_default();
    let namespace = text("namespace");
    let name = text("name").unwrap_or_default();
    if what == "get" {
        let found = cluster::get(&lookup, namespace.as_deref(), &name).or_fault();
        review.warn(found.map_or_else(|| "none".to_owned(), |object| shown(&object)));
        return;
    }
    let objects = match what {
        "find" => cluster::find(
            &lookup,
            text("index").unwrap_or_default(),
            text("key").unwrap_or_default(),
        ),
        _ => cluster::list(&lookup, namespace.as_deref()),
    };
    for object in objects {
        match object {
            Ok(object) => review.warn(shown(&object)),
            Err(failure) if what != "lookup" => Err(failure).or_fault(),
            Err(Failure::NotGranted(_)) => review.warn("not granted"),
            Err(Failure::NotSynchronised(_)) => review.warn("not synchronised"),
        }
    }
}

/// Asks about the right that the object names, and warns with the answer. `rights` warns with the kind of a failure.
fn ask(what: &str, review: &Review) {
    let text = |member: &str| review.object().text(pointer!["data", member]);
    let part = |member: &str| text(member).unwrap_or_default();
    let action = match text("path") {
        Some(path) => Action::path(part("verb"), path),
        None => Action::resource(part("verb"), part("group"), part("resource"))
            .subresource(part("subresource"))
            .namespace(part("namespace"))
            .name(part("name")),
    };
    let answer = match text("account") {
        Some(account) => action.check_service_account(&part("accountNamespace"), &account),
        None => action.check(),
    };
    let decision = match answer {
        Err(access::Failure::NotGranted(_)) if what == "rights" => {
            return review.warn("not granted");
        }
        Err(access::Failure::Unavailable(_)) if what == "rights" => {
            return review.warn("unavailable");
        }
        answer => access::OrFault::or_fault(answer),
    };
    review.warn(format!("{} {}", decision.allowed, decision.reason));
}

/// Asks about the images that the object names, and warns with each answer.
fn verify(review: &Review) {
    let policy = review.object().text("/data/policy").unwrap_or_default();
    let images = review.object().select("/data/images/*").into_iter();
    let images = images.filter_map(|node| node.value.into_text());
    for answer in images::verify(images.map(|image| Request::new(image, &policy))) {
        let verified = match answer {
            Ok(verified) => verified,
            Err(failure) => {
                review.warn(told(failure));
                continue;
            }
        };
        let mut words = vec!["verified".to_owned(), verified.pinned.to_string()];
        words.push(verified.last_known_good.to_string());
        words.extend(verified.signers);
        words.push(verified.digest);
        review.warn(words.join(" "));
    }
}

fn told(failure: images::Failure) -> String {
    use images::Failure;
    match failure {
        Failure::Malformed(reason) => format!("malformed - {reason}"),
        Failure::NotGranted(reason) => format!("not granted - {reason}"),
        Failure::NotFound(reason) => format!("not found - {reason}"),
        Failure::Unsigned(refusal) => format!("unsigned {} {}", refusal.digest, refusal.reason),
        Failure::Untrusted(refusal) => format!("untrusted {} {}", refusal.digest, refusal.reason),
        Failure::Unavailable(reason) => format!("unavailable - {reason}"),
    }
}

fn shown(object: &cluster::Object) -> String {
    let hosts: Vec<String> = object
        .select("/spec/rules/*/host")
        .into_iter()
        .filter_map(|node| node.value.into_text())
        .collect();
    format!(
        "{}/{} [{}] {} {}",
        object.namespace().unwrap_or("-"),
        object.name(),
        hosts.join(" "),
        object.text("/metadata/labels/a~1b").unwrap_or("-"),
        object.get("/metadata/uid").is_some(),
    )
}

#[expect(
    clippy::infinite_loop,
    clippy::panic,
    reason = "that is what it is for"
)]
fn act(what: &str, depth: usize) -> usize {
    match what {
        "throw" => panic!("boom"),
        "crash" => what.as_bytes()[what.len() + depth].into(),
        "loop" => loop {
            std::hint::black_box(depth);
        },
        "memory" => loop {
            std::mem::forget(vec![1_u8; 1 << 20]);
        },
        "recurse" => std::hint::black_box(act(std::hint::black_box(what), depth + 1)) + 1,
        _ => depth,
    }
}

tollgate_sdk::plugin! {
    Actor,
    name: "actor",
    rules: [Rule::on(
        [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect],
        "*",
        "*",
        ["*/*"],
    )],
}
