//! Prints a review and its answer for a first-time reader.

use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use super::answer::Answer;
use super::client::Exchange;
use super::costs::Cost;
use crate::terminal::{self, BAD, FAINT, GOOD, NOTABLE, STRONG};

/// The name that the webhook would have in a cluster.
const WEBHOOK: &str = "tollgate.example.com";
/// Length to which values in the list of operations are cut.
const LONGEST_VALUE: usize = 70;
/// Length to which audit annotations are cut.
const LONGEST_ANNOTATION: usize = 140;
/// Lines to print around a change.
const CONTEXT_LINES: usize = 2;

/// Prints the user's action and the review that it causes.
pub(super) fn question(command: &str, path: &str, review: &Value, exchange: &Exchange) {
    let request = &review["request"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    anstream::println!("\n  {STRONG}$ {command}{STRONG:#}");
    println!(
        "  kube-apiserver → POST {path}: AdmissionReview {}, {} {} {}/{}, {:.1} kB",
        text(&review["apiVersion"]).trim_start_matches("admission.k8s.io/"),
        text(&request["operation"]),
        text(&request["resource"]["resource"]),
        text(&request["namespace"]),
        text(&request["name"]),
        exchange.request_bytes as f64 / 1000.0,
    );
    println!(
        "  ← HTTP 200, {:.1} kB, after {:.1} ms",
        exchange.response_bytes as f64 / 1000.0,
        exchange.took.as_secs_f64() * 1000.0
    );
}

/// Prints the answer of each plugin, in the order of the audit annotation `plugins`.
pub(super) fn plugins(answer: &Answer, costs: &[(String, String, Cost)]) {
    title("plugins");
    let order = answer.annotation("plugins");
    let place = |name: &str| order.find(&format!("{name}@")).unwrap_or(usize::MAX);
    let mut costs: Vec<_> = costs.iter().collect();
    costs.sort_by_key(|(name, ..)| place(name));
    for (name, outcome, cost) in costs {
        let only_warns = !answer.annotation(&format!("{name}.would-deny")).is_empty();
        let (said, style) = match outcome.as_str() {
            "denied" if only_warns => ("would deny", NOTABLE),
            "denied" | "fault" => (outcome.as_str(), BAD),
            "patched" => (outcome.as_str(), NOTABLE),
            _ => (outcome.as_str(), GOOD),
        };
        let fuel = terminal::grouped(cost.fuel as u64);
        let milliseconds = cost.seconds * 1000.0;
        anstream::println!(
            "    {name:20} {style}{said:10}{style:#} {fuel:>9} fuel {milliseconds:>6.2} ms"
        );
    }
}

/// Prints the verdict and the text that the user reads.
pub(super) fn verdict(answer: &Answer, success: &str, created_from: Option<&str>) {
    title("verdict");
    if answer.allowed {
        anstream::println!("    {GOOD}allowed{GOOD:#}");
    } else {
        let (code, reason) = (answer.code.unwrap_or_default(), &answer.reason);
        anstream::println!("    {BAD}denied{BAD:#}, HTTP status {code} {reason} for the user");
        for (field, message) in &answer.causes {
            println!(
                "    {:45} {message}",
                if field.is_empty() {
                    "(no single field)"
                } else {
                    field
                }
            );
        }
    }
    title("kubectl prints");
    for warning in &answer.warnings {
        anstream::print!("{NOTABLE}");
        terminal::paragraph("    ", &format!("Warning: {warning}"));
        anstream::print!("{NOTABLE:#}");
    }
    if answer.allowed {
        println!("    {success}");
    } else {
        let when = created_from.map_or_else(String::new, |file| {
            format!("error when creating \"{file}\": ")
        });
        let (reason, message) = (&answer.reason, &answer.message);
        terminal::paragraph(
            "    ",
            &format!(
                "Error from server ({reason}): {when}admission webhook \"{WEBHOOK}\" denied the request: {message}"
            ),
        );
    }
}

/// Prints the merged patch and its effect on the object.
pub(super) fn patch(answer: &Answer, before: &Value) {
    title("patch, merged and decoded");
    for operation in &answer.operations {
        let text = |key: &str| operation[key].as_str().unwrap_or_default();
        let value = operation
            .get("value")
            .map_or_else(String::new, |value| cut(&value.to_string(), LONGEST_VALUE));
        println!("    {:8} {}", text("op"), text("path"));
        if !value.is_empty() {
            anstream::println!("             {FAINT}{value}{FAINT:#}");
        }
    }
    title("the object, before → after");
    let (before, after) = (lines(before), lines(&answer.object));
    let diff = TextDiff::from_lines(&before, &after);
    for (index, group) in diff.grouped_ops(CONTEXT_LINES).iter().enumerate() {
        if index > 0 {
            anstream::println!("    {FAINT}  …{FAINT:#}");
        }
        for change in group
            .iter()
            .flat_map(|operation| diff.iter_changes(operation))
        {
            let line = cut(change.value().trim_end(), 110);
            match change.tag() {
                ChangeTag::Delete => anstream::println!("    {BAD}- {line}{BAD:#}"),
                ChangeTag::Insert => anstream::println!("    {GOOD}+ {line}{GOOD:#}"),
                ChangeTag::Equal => anstream::println!("    {FAINT}  {line}{FAINT:#}"),
            }
        }
    }
}

/// Prints the annotations for the cluster's audit log.
pub(super) fn annotations(answer: &Answer) {
    title("audit annotations");
    for (key, value) in &answer.annotations {
        let value = cut(value, LONGEST_ANNOTATION);
        anstream::println!("    {key}: {FAINT}{value}{FAINT:#}");
    }
}

/// Formats an object without commas at line ends, because a new last member would otherwise change the line before it.
fn lines(object: &Value) -> String {
    let text = format!("{object:#}");
    let lines = text
        .lines()
        .map(|line| line.strip_suffix(',').unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

fn title(text: &str) {
    anstream::println!("  {STRONG}{text}{STRONG:#}");
}

fn cut(text: &str, longest: usize) -> String {
    if text.chars().count() <= longest {
        return text.to_owned();
    }
    text.chars().take(longest - 1).chain(['…']).collect()
}
