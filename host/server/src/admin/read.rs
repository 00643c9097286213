//! The answers to GET requests of the admin listener.

use http::{StatusCode, Uri};
use serde_json::{Value, json};
use tollgate_admission::Gate;

use super::query::Query;
use super::{listing, site};
use crate::page::Page;

/// The parameters of a search among decisions.
const SEARCH: &[&str] = &[
    "limit",
    "before",
    "uid",
    "user",
    "object",
    "namespace",
    "plugin",
    "verdict",
];

/// The parameters of a search among the results of the background scan.
const SCAN: &[&str] = &["limit", "after", "search", "result", "by"];

/// Answers a GET request. `replica` is the name of this one.
pub(super) fn read<G: Gate>(gate: &G, replica: &str, uri: &Uri) -> Page {
    let path = uri.path();
    if let Some(page) = site::answer(path) {
        return page;
    }
    let listed = match path {
        "/plugins" => list(uri, listing::plugins, || gate.plugins()),
        "/exceptions" => part(uri, listing::exceptions, || gate.plugins()),
        "/shadows" => list(uri, listing::shadows, || gate.shadows()),
        "/rollouts" => list(uri, listing::rollouts, || gate.rollouts()),
        "/costs" => part(uri, listing::costs, || gate.costs()),
        "/scan" => scan(gate, uri),
        "/decisions" => decisions(gate, uri),
        "/replica" => Ok(state(gate, replica)),
        site::REPLICAS => Ok(site::replicas([(replica, "../".to_owned())])),
        path => {
            return match path.strip_prefix("/decisions/") {
                Some(uid) => decisions_of(gate, uid),
                None => Page::text(
                    StatusCode::NOT_FOUND,
                    "no such path: expected /page/, /plugins, /exceptions, /shadows, /rollouts, /decisions, /costs, \
                     /scan, /replica or, with POST, /reload, /rollouts/PLUGIN/promote and /rollouts/PLUGIN/rollback; /livez, /readyz and /metrics are on the probes listener (probes.listen)\n",
                ),
            };
        }
    };
    match listed {
        Ok(content) => Page::json(StatusCode::OK, &content),
        Err(reason) => Page::text(StatusCode::BAD_REQUEST, format!("{reason}\n")),
    }
}

type Listing = fn(Value, &Query) -> Result<Value, String>;

/// A part of a list, or the whole answer if the request has no parameters.
fn list(uri: &Uri, listing: Listing, whole: impl FnOnce() -> Value) -> Result<Value, String> {
    let query = Query::parse(uri.query(), listing::PARAMETERS)?;
    if query.is_empty() {
        return Ok(whole());
    }
    listing(whole(), &query)
}

/// A part of a list.
fn part(uri: &Uri, listing: Listing, whole: impl FnOnce() -> Value) -> Result<Value, String> {
    let query = Query::parse(uri.query(), listing::PARAMETERS)?;
    listing(whole(), &query)
}

/// The selected decisions, or all of them if the request has no parameters.
fn decisions<G: Gate>(gate: &G, uri: &Uri) -> Result<Value, String> {
    let query = Query::parse(uri.query(), SEARCH)?;
    if query.is_empty() {
        return Ok(gate.decisions(None));
    }
    Ok(gate.search(&query.search()?))
}

/// The selected results of the background scan.
fn scan<G: Gate>(gate: &G, uri: &Uri) -> Result<Value, String> {
    let query = Query::parse(uri.query(), SCAN)?;
    Ok(gate.scan(&query.scan()?))
}

fn decisions_of<G: Gate>(gate: &G, uid: &str) -> Page {
    let decisions = gate.decisions(Some(uid));
    let none = decisions["decisions"].as_array().is_none_or(Vec::is_empty);
    if none {
        return Page::text(
            StatusCode::NOT_FOUND,
            "no decision is kept for this uid: Tollgate keeps the most recent ones (admin.decisions) until the \
             process ends; the beginning of a uid needs at least 4 characters\n",
        );
    }
    Page::json(StatusCode::OK, &decisions)
}

/// Returns this replica's description of itself.
fn state<G: Gate>(gate: &G, replica: &str) -> Value {
    let readiness = gate.readiness();
    json!({
        "name": replica,
        "version": env!("CARGO_PKG_VERSION"),
        "ready": readiness.ready,
        "complete": readiness.complete,
        "detail": readiness.detail,
    })
}
