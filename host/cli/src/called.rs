//! Prints a plugin's part in a decision for a person. `review` and `explain` share this module.

use tollgate_gate::decision::{Called, Decision, NotCalled, Places};

use super::terminal::{FAINT, NOTABLE, grouped, milliseconds, plain, style_of};

/// Returns the length of the longest plugin name, so that the text after the names lines up in a column.
pub(super) fn width(decisions: &[&Decision]) -> usize {
    let names = decisions.iter().flat_map(|decision| {
        let called = decision.plugins.iter().map(|called| called.name.len());
        called.chain(decision.not_called.iter().map(|other| other.name.len()))
    });
    names.max().unwrap_or_default()
}

/// Formats a called plugin as one line: its name, the end of the call, and its cost.
pub(super) fn line(called: &Called, width: usize) -> String {
    let style = style_of(&called.ended);
    let (name, ended) = (&called.name, &called.ended);
    let mode = match &*called.mode {
        "enforce" => String::new(),
        mode => format!(", mode {mode}"),
    };
    let cost = format!(
        "fuel {}, {} of CPU in {}{mode}",
        grouped(called.fuel),
        milliseconds(called.cpu_milliseconds),
        milliseconds(called.milliseconds)
    );
    format!("{name:width$}  {style}{ended:9}{style:#}  {FAINT}{cost}{FAINT:#}")
}

/// Lists further details of the call: the exception, the second call, the fault, and the places in the object.
pub(super) fn details(called: &Called) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(version) = &called.rollout {
        lines.push(plain(version));
    }
    if called.reused > 0 {
        lines.push(
            "known answer of an earlier call; the plugin did not run (engine.answerCache)"
                .to_owned(),
        );
    }
    if let Some(place) = &called.pod_template {
        lines.push(format!(
            "got the pod template at {} as a Pod (match.podTemplates)",
            plain(place)
        ));
    }
    if !called.members.is_empty() {
        let members = called.members.iter().map(|member| {
            let (name, ended) = (plain(&member.name), &member.ended);
            format!("{name} {ended} (fuel {})", grouped(member.fuel))
        });
        let members: Vec<String> = members.collect();
        lines.push(format!("members asked: {}", members.join(", ")));
    }
    if let Some(exception) = &called.excepted {
        lines.push(format!(
            "not called because of an exception: {}",
            plain(exception)
        ));
    }
    if let Some(ended) = &called.reinvoked {
        lines.push(format!(
            "called again because a later plugin changed the object: {ended}"
        ));
    }
    if let Some(fault) = &called.fault {
        let said = match (&fault.message, &fault.text) {
            (Some(message), _) => plain(message),
            (None, Some(text)) => format!(
                "the plugin's text is in the log ({} bytes, SHA-256 {}…)",
                text.bytes, text.sha256
            ),
            (None, None) => String::new(),
        };
        let policy = &called.failure_policy;
        lines.push(format!(
            "fault {}, failurePolicy {policy}: {said}",
            fault.kind
        ));
    }
    if let Some(denial) = &called.denial {
        lines.extend(places("denied because of", &denial.fields));
    }
    if let Some(existing) = &called.existing {
        let what = "allowed violations that the old object also has:";
        lines.extend(places(what, &existing.fields));
    }
    lines.extend(places("changed", &called.changed));
    for conflict in &called.conflicts {
        lines.push(format!(
            "{NOTABLE}overwrote changes of {}:{NOTABLE:#} {}",
            conflict.with,
            plain(&conflict.pointer)
        ));
    }
    lines
}

/// Formats a plugin that was not called as one line.
pub(super) fn not_called(other: &NotCalled, width: usize) -> String {
    let NotCalled { name, why } = other;
    format!("{FAINT}{name:width$}  not called: {why}{FAINT:#}")
}

fn places(what: &str, places: &Places) -> Option<String> {
    if places.is_empty() {
        return None;
    }
    let mut pointers: Vec<String> = places
        .pointers
        .iter()
        .map(|pointer| plain(pointer))
        .collect();
    if places.more > 0 {
        pointers.push(format!("and {} more", places.more));
    }
    Some(format!("{what} {}", pointers.join(", ")))
}
