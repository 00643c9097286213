//! Implements the host functions of the contract: everything that a plugin may ask.
//!
//! A host function cannot be interrupted, so the plugin pays fuel for its result before it gets the result:
//!
//! - [`FUEL_PER_CALL`] for each call.
//! - [`FUEL_PER_BYTE`] for each byte that crosses in either direction.
//! - [`FUEL_PER_NODE`] for each JSON value that the host looks at.
//! - [`FUEL_PER_MATCH`] for each JSON value that `select` hands out.
//!
//! A flood of host calls therefore ends like an endless loop, and the cost of a call does not depend on the machine.

use std::ops::ControlFlow;
use std::time::UNIX_EPOCH;

use tollgate_admission::review::request;
use tollgate_json::document::{Json, Node as Match, Pattern, PointerError, sensible_capacity};
use wasmtime::component::{Linker, WasmStr};
use wasmtime::{StoreContextMut, Trap};

use super::answers::{self, Document, Question, Scalar, Told};
use super::bindings::review::Part;
use super::bindings::types::{AdmissionRequest, GroupVersionKind, GroupVersionResource, Operation};
use super::bindings::{clock, logging};
use super::fault::{Abort, Stop};
use super::grounds::Depth;
use super::pointers::{self, Walk};
use super::state::{CallState, Subject};
use super::values::{Node, Value};
use super::{FUEL_PER_BYTE, FUEL_PER_CALL, FUEL_PER_MATCH, FUEL_PER_NODE};

pub(super) type Host<'a> = StoreContextMut<'a, CallState>;

/// Maximum length of a text in bytes; the rest is cut off. Long enough for any message.
const MAX_TEXT_BYTES: usize = 4096;

/// Size of a `select` record in the plugin's memory, without its texts.
const NODE_BYTES: u64 = 32;
/// Size of an optional value in the plugin's memory, without its text.
const OPTION_BYTES: u64 = 24;

/// Links the contract's own interfaces.
///
/// The host links them by hand: the generated traits get only the state, but a function's fuel is paid from the store.
pub(super) fn add_contract(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    let mut review = linker.instance("tollgate:admission/review@0.1.0")?;
    review.func_wrap("request", |host: Host<'_>, (): ()| Ok((request(host)?,)))?;
    review.func_wrap("get", |host: Host<'_>, (part, at): (Part, String)| {
        Ok((get(host, part, &at)?,))
    })?;
    review.func_wrap("get-json", |host: Host<'_>, (part, at): (Part, String)| {
        Ok((get_json(host, part, &at)?,))
    })?;
    review.func_wrap(
        "get-many",
        |host: Host<'_>, (part, at): (Part, Vec<WasmStr>)| Ok((get_many(host, part, &at)?,)),
    )?;
    review.func_wrap("keys", |host: Host<'_>, (part, at): (Part, String)| {
        Ok((keys(host, part, &at)?,))
    })?;
    review.func_wrap("select", |host: Host<'_>, (part, at): (Part, String)| {
        Ok((select(host, part, &at)?,))
    })?;
    review.func_wrap("warn", |host: Host<'_>, (message,): (String,)| {
        warn(host, message)
    })?;
    review.func_wrap(
        "annotate",
        |host: Host<'_>, (key, value): (String, String)| annotate(host, key, value),
    )?;
    let mut logging = linker.instance("tollgate:admission/logging@0.1.0")?;
    logging.func_wrap(
        "log",
        |host: Host<'_>, (level, message): (logging::Level, String)| log(host, level, message),
    )?;
    logging.func_wrap(
        "abort",
        |host: Host<'_>, (message, at): (String, Option<logging::Location>)| {
            abort(host, message, at)
        },
    )
}

pub(super) fn add_clock(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    linker
        .instance("tollgate:admission/clock@0.1.0")?
        .func_wrap("now", |host: Host<'_>, (): ()| Ok((now(host)?,)))
}

// === review ===

fn request(mut host: Host<'_>) -> wasmtime::Result<AdmissionRequest> {
    let request = contract_request(subject(&mut host)?);
    let bytes = request.uid.len()
        + request.name.len()
        + request.namespace.as_ref().map_or(0, String::len)
        + request.sub_resource.as_ref().map_or(0, String::len);
    charge(&mut host, bytes, 1)?;
    Ok(request)
}

fn get(mut host: Host<'_>, part: Part, at: &str) -> wasmtime::Result<Option<Value>> {
    let found = find(&mut host, part, at, Depth::Value)?;
    tells(&mut host, found.as_ref().map_or(0, text_bytes), || {
        (Question::Get(part, at.into()), Told::value(found.as_ref()))
    });
    let Some(value) = found else { return Ok(None) };
    charge_bytes(&mut host, text_bytes(&value))?;
    if is_scalar(&value) {
        reads(&mut host, part, at, &value);
    }
    Ok(Some(Value::of(&value)))
}

fn get_json(mut host: Host<'_>, part: Part, at: &str) -> wasmtime::Result<Option<String>> {
    let found = find(&mut host, part, at, Depth::All)?;
    let question = || Question::GetJson(part, at.into());
    let Some(value) = found else {
        tells(&mut host, 0, || (question(), Told::Json(None)));
        return Ok(None);
    };
    // The size of the review, which the host accepted, bounds this write. The plugin pays for the text before it gets
    // it.
    let text = value.to_text();
    charge_bytes(&mut host, text.len())?;
    reads(&mut host, part, at, &value);
    tells(&mut host, text.len(), || (question(), Told::json(&text)));
    Ok(Some(text))
}

fn get_many(
    mut host: Host<'_>,
    part: Part,
    texts: &[WasmStr],
) -> wasmtime::Result<Vec<Option<Value>>> {
    let list = pointers::list(&mut host, texts)?;
    charge(&mut host, list.bytes, list.nodes)?;
    let document = document(&mut host, part)?;
    let mut walk = match &document {
        Some(Document::Json(json)) => Some(Walk::new(json)),
        Some(Document::Request(_)) | None => None,
    };
    let limit_bytes = host.data().limits.memory_bytes;
    let mut wanted_bytes: u64 = 0;
    let mut values = Vec::with_capacity(sensible_capacity(texts.len()));
    for pointer in &list.pointers {
        let at = pointer.text.as_str();
        let found = match &mut walk {
            Some(walk) => {
                let found = walk.at(pointer).map_err(|error| malformed(&error))?;
                notes(&mut host, part, at, Depth::Value, found.is_some());
                found
            }
            None => find_in(&mut host, document.as_ref(), part, at, Depth::Value)?,
        };
        let bytes = found.map_or(0, text_bytes);
        charge_bytes(&mut host, bytes)?;
        // A plugin can name one place many times. Do not collect more in the host's memory than fits into the plugin's
        // memory.
        wanted_bytes = wanted_bytes.saturating_add(bytes as u64 + OPTION_BYTES);
        if wanted_bytes > limit_bytes {
            return Err(Stop::Memory {
                wanted_bytes,
                limit_bytes,
            }
            .into());
        }
        if let Some(value) = found.filter(|value| is_scalar(value)) {
            reads(&mut host, part, at, value);
        }
        values.push(found.map(Value::of));
    }
    let bytes = usize::try_from(wanted_bytes).unwrap_or(usize::MAX);
    tells(&mut host, bytes, || {
        let pointers = list
            .pointers
            .iter()
            .map(|pointer| pointer.text.as_str().into());
        let told = values.iter().map(|value| value.clone().map(Scalar::from));
        let question = Question::GetMany(part, pointers.collect());
        (question, Told::Values(told.collect()))
    });
    Ok(values)
}

fn keys(mut host: Host<'_>, part: Part, at: &str) -> wasmtime::Result<Option<Vec<String>>> {
    let found = find(&mut host, part, at, Depth::Names)?;
    let members = found.as_ref().and_then(Json::as_object);
    let bytes = members.map_or(0, |members| members.keys().map(|name| name.len()).sum());
    tells(&mut host, bytes, || {
        let names = members.map(|members| members.keys().map(|name| &**name));
        (Question::Keys(part, at.into()), Told::names(names))
    });
    let Some(members) = members else {
        return Ok(None);
    };
    if matches!(part, Part::Object | Part::OldObject) {
        host.data_mut().secrecy.reads_names(at);
    }
    charge_nodes(&mut host, members.len())?;
    charge_bytes(&mut host, bytes)?;
    Ok(Some(members.keys().map(|name| name.to_string()).collect()))
}

fn select(mut host: Host<'_>, part: Part, pattern: &str) -> wasmtime::Result<Vec<Node>> {
    charge(&mut host, pattern.len(), 1)?;
    let tokens = Pattern::parse(pattern).map_err(|error| malformed(&error))?;
    host.data_mut().records(part, pattern, true);
    let Some(document) = document(&mut host, part)? else {
        tells(&mut host, 0, || {
            (Question::Select(part, pattern.into()), Told::nodes(&[], 0))
        });
        return Ok(Vec::new());
    };
    let has_star = pattern.split('/').any(|token| token == "*");
    let is_object = matches!(part, Part::Object | Part::OldObject);
    host.data_mut().takes_note(part, pattern, Depth::Value);
    let limit_bytes = host.data().limits.memory_bytes;
    let mut secrecy = host.data().secrecy;
    let mut nodes = Vec::new();
    let mut wanted_bytes: u64 = 0;
    // Both closures pay from the same fuel.
    let purse_before = host.get_fuel()?;
    let purse = std::cell::Cell::new(purse_before);
    let pay = |amount: u64| match purse.get().checked_sub(amount) {
        Some(rest) => {
            purse.set(rest);
            ControlFlow::Continue(())
        }
        None => ControlFlow::Break(None),
    };
    let end = tokens.select(
        document.whole(),
        || pay(FUEL_PER_NODE),
        |node| {
            let bytes = (node.pointer.len() + text_bytes(node.value)) as u64;
            pay(fuel_of_match(&node))?;
            // Do not collect more in the host's memory than fits into the plugin's memory.
            wanted_bytes = wanted_bytes.saturating_add(bytes + NODE_BYTES);
            if wanted_bytes > limit_bytes {
                return ControlFlow::Break(Some(Stop::Memory {
                    wanted_bytes,
                    limit_bytes,
                }));
            }
            if is_object {
                secrecy.finds(&node.pointer);
            }
            if is_object && has_star {
                secrecy.reads_names(&node.pointer);
            }
            if is_object && is_scalar(node.value) {
                secrecy.reads(&node.pointer, node.value);
            }
            nodes.push(Node {
                value: Value::of(node.value),
                pointer: node.pointer,
            });
            ControlFlow::Continue(())
        },
    );
    // Store the secrecy before an error returns: the text of a fault can contain a length that was read here.
    host.data_mut().secrecy = secrecy;
    match end {
        ControlFlow::Continue(()) => {}
        ControlFlow::Break(None) => return Err(out_of_fuel(&mut host)),
        ControlFlow::Break(Some(stop)) => return Err(stop.into()),
    }
    host.set_fuel(purse.get())?;
    let bytes = usize::try_from(wanted_bytes).unwrap_or(usize::MAX);
    tells(&mut host, bytes, || {
        let spent = purse_before - purse.get();
        (
            Question::Select(part, pattern.into()),
            Told::nodes(&nodes, spent),
        )
    });
    Ok(nodes)
}

fn warn(mut host: Host<'_>, message: String) -> wasmtime::Result<()> {
    charge(&mut host, message.len(), 0)?;
    let state = host.data_mut();
    subject_of(state)?;
    state.take(message.len())?;
    state.says();
    if state.warnings.len() < state.limits.warnings as usize {
        let message = state.secrecy.text(cut(message));
        state.warnings.push(message);
    }
    Ok(())
}

fn annotate(mut host: Host<'_>, key: String, value: String) -> wasmtime::Result<()> {
    charge(&mut host, key.len() + value.len(), 0)?;
    let state = host.data_mut();
    subject_of(state)?;
    state.take(key.len() + value.len())?;
    state.says();
    if state.annotations.len() < state.limits.annotations as usize {
        // The plugin chooses the key, so the key can carry content too.
        let key = if state.secrecy.withholds() {
            "withheld".to_owned()
        } else {
            cut(key)
        };
        let value = state.secrecy.text(cut(value));
        state.annotations.push((key, value));
    }
    Ok(())
}

// === logging ===

fn log(mut host: Host<'_>, level: logging::Level, message: String) -> wasmtime::Result<()> {
    charge(&mut host, message.len(), 0)?;
    let state = host.data_mut();
    state.take(message.len())?;
    if state.log_lines >= state.limits.log_lines {
        state.dropped_log_lines += 1;
        return Ok(());
    }
    state.log_lines += 1;
    if state.log_lines <= state.lines_before {
        return Ok(());
    }
    let message = state.secrecy.text(one_line(message));
    let uid = state
        .subject
        .as_ref()
        .map_or("", |subject| subject.request.uid.as_str());
    let plugin = state.plugin.as_str();
    match level {
        logging::Level::Error => tracing::error!(target: "plugin", plugin, uid, "{message}"),
        logging::Level::Warn => tracing::warn!(target: "plugin", plugin, uid, "{message}"),
        logging::Level::Info => tracing::info!(target: "plugin", plugin, uid, "{message}"),
        logging::Level::Debug => tracing::debug!(target: "plugin", plugin, uid, "{message}"),
        logging::Level::Trace => tracing::trace!(target: "plugin", plugin, uid, "{message}"),
    }
    Ok(())
}

fn abort(
    mut host: Host<'_>,
    message: String,
    at: Option<logging::Location>,
) -> wasmtime::Result<()> {
    charge(&mut host, message.len(), 0)?;
    let state = host.data_mut();
    state.take(message.len())?;
    let location = at
        .filter(|_| !state.secrecy.withholds())
        .map(|location| (one_line(location.file), location.line, location.column));
    Err(Stop::Abort(Abort {
        message: state.secrecy.text(one_line(message)),
        location,
    })
    .into())
}

// === clock ===

fn now(mut host: Host<'_>) -> wasmtime::Result<clock::Datetime> {
    charge(&mut host, 0, 0)?;
    host.data_mut().grounds.when = true;
    let now = host.data().clock.now();
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(clock::Datetime {
        seconds: now.as_secs(),
        nanoseconds: now.subsec_nanos(),
    })
}

// === what the above share ===

pub(super) fn subject<'a>(host: &'a mut Host<'_>) -> wasmtime::Result<&'a Subject> {
    subject_of(host.data_mut())
}

fn subject_of(state: &CallState) -> wasmtime::Result<&Subject> {
    state.subject.as_ref().ok_or_else(|| {
        Stop::Contract(
            "the plugin asked for the review in `describe` or `configure`, where no review exists"
                .to_owned(),
        )
        .into()
    })
}

fn document(host: &mut Host<'_>, part: Part) -> wasmtime::Result<Option<Document>> {
    let state = host.data();
    let subject = subject_of(state)?;
    Ok(answers::document(subject, state.namespaces.as_ref(), part)?)
}

/// Writes down what the plugin asked and was told, if the call is written down.
fn tells(host: &mut Host<'_>, bytes: usize, entry: impl FnOnce() -> (Question, Told)) {
    if let Some(transcript) = &mut host.data_mut().transcript {
        transcript.adds(bytes, entry);
    }
}

fn find(host: &mut Host<'_>, part: Part, at: &str, depth: Depth) -> wasmtime::Result<Option<Json>> {
    charge(host, at.len(), tokens(at) + 1)?;
    let document = document(host, part)?;
    Ok(find_in(host, document.as_ref(), part, at, depth)?.cloned())
}

fn find_in<'d>(
    host: &mut Host<'_>,
    document: Option<&'d Document>,
    part: Part,
    at: &str,
    depth: Depth,
) -> wasmtime::Result<Option<&'d Json>> {
    match document {
        Some(document) => {
            let found = document.at(at).map_err(|error| malformed(&error))?;
            notes(host, part, at, depth, found.is_some());
            Ok(found)
        }
        None => {
            let check = tollgate_json::document::Pointer::check(at);
            check.map_err(|error| malformed(&error))?;
            host.data_mut().records(part, at, false);
            Ok(None)
        }
    }
}

/// Notes that the plugin has looked at a place of a document.
fn notes(host: &mut Host<'_>, part: Part, at: &str, depth: Depth, is_found: bool) {
    let state = host.data_mut();
    state.records(part, at, false);
    state.takes_note(part, at, depth);
    if is_found && matches!(part, Part::Object | Part::OldObject) {
        state.secrecy.finds(at);
    }
}

/// The number of tokens of a pointer.
pub(super) fn tokens(at: &str) -> usize {
    at.bytes().filter(|byte| *byte == b'/').count()
}

fn malformed(error: &PointerError) -> wasmtime::Error {
    Stop::Contract(format!("the plugin used a malformed pointer: {error}")).into()
}

fn reads(host: &mut Host<'_>, part: Part, at: &str, value: &Json) {
    if matches!(part, Part::Object | Part::OldObject) {
        host.data_mut().secrecy.reads(at, value);
    }
}

/// Charges a call of a host function. Each host function begins with it.
pub(super) fn charge(host: &mut Host<'_>, bytes: usize, nodes: usize) -> wasmtime::Result<()> {
    host.data_mut().host_calls += 1;
    let amount = FUEL_PER_CALL
        .saturating_add((bytes as u64).saturating_mul(FUEL_PER_BYTE))
        .saturating_add((nodes as u64).saturating_mul(FUEL_PER_NODE));
    burn(host, amount)
}

pub(super) fn charge_bytes(host: &mut Host<'_>, bytes: usize) -> wasmtime::Result<()> {
    burn(host, (bytes as u64).saturating_mul(FUEL_PER_BYTE))
}

fn charge_nodes(host: &mut Host<'_>, nodes: usize) -> wasmtime::Result<()> {
    burn(host, (nodes as u64).saturating_mul(FUEL_PER_NODE))
}

pub(super) fn burn(host: &mut Host<'_>, amount: u64) -> wasmtime::Result<()> {
    if amount == 0 {
        return Ok(());
    }
    match host.get_fuel()?.checked_sub(amount) {
        Some(rest) => host.set_fuel(rest),
        None => Err(out_of_fuel(host)),
    }
}

fn out_of_fuel(host: &mut Host<'_>) -> wasmtime::Error {
    match host.set_fuel(0) {
        Ok(()) => Trap::OutOfFuel.into(),
        Err(error) => error,
    }
}

fn is_scalar(value: &Json) -> bool {
    !matches!(value, Json::Array(_) | Json::Object(_))
}

/// The fuel for one value that `select` hands out.
pub(super) fn fuel_of_match(node: &Match<'_>) -> u64 {
    let bytes = (node.pointer.len() + text_bytes(node.value)) as u64;
    FUEL_PER_MATCH.saturating_add(bytes.saturating_mul(FUEL_PER_BYTE))
}

pub(super) fn text_bytes(value: &Json) -> usize {
    value.as_text().map_or(0, str::len)
}

fn contract_request(subject: &Subject) -> AdmissionRequest {
    let request = &subject.request;
    AdmissionRequest {
        uid: request.uid.clone(),
        operation: match request.operation {
            request::Operation::Create => Operation::Create,
            request::Operation::Update => Operation::Update,
            request::Operation::Delete => Operation::Delete,
            request::Operation::Connect => Operation::Connect,
        },
        kind: GroupVersionKind {
            group: request.kind.group.clone(),
            version: request.kind.version.clone(),
            kind: request.kind.kind.clone(),
        },
        resource: GroupVersionResource {
            group: request.resource.group.clone(),
            version: request.resource.version.clone(),
            resource: request.resource.resource.clone(),
        },
        sub_resource: request.sub_resource.clone(),
        name: request.name.clone(),
        namespace: request.namespace.clone(),
        dry_run: request.dry_run,
    }
}

/// Prepares a text for a log line or a fault: cuts it and replaces control characters.
///
/// Control characters could make the text look like several lines, or like somebody else's line.
fn one_line(text: String) -> String {
    let text = cut(text);
    if text.contains(char::is_control) {
        text.replace(char::is_control, " ")
    } else {
        text
    }
}

/// Cuts a text at a character boundary, to at most `MAX_TEXT_BYTES` and an ellipsis.
pub(super) fn cut(mut text: String) -> String {
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        text.push('…');
    }
    text
}
