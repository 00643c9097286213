//! Implements the capability `cluster`: reads of objects that the configuration lets the plugin see.
//!
//! A read is a look into an ordered map in this process, and never waits for the cluster. The plugin pays for a call as
//! for those of `review`, and [`FUEL_PER_MATCH`] and each byte for every object that it gets.
//!
//! Other objects belong to neither side of an UPDATE, and do not depend on the user or the time. So reads of them do
//! not count as [grounds](super::grounds). If the old object would cause the same denial beside the same other objects,
//! the violation is an existing one.

use std::sync::{Arc, LazyLock};

use tollgate_config::lookup::Lookups;
use tollgate_lookups::{Entry, Failure, Granted, NoTables, Page, Tables};
use wasmtime::component::Linker;

use super::FUEL_PER_MATCH;
use super::bindings::cluster;
use super::host::{Host, burn, charge, charge_bytes, subject};
use super::state::CallState;

/// Reason why lookups have no answer in a host without a source of objects.
const NOT_CONFIGURED: &str = "this host has no source of objects: connect it to the cluster (the section `cluster` of \
    the configuration), or give it objects (`--objects FILE`, or the key `cluster` of a suite)";

/// The interface of the contract.
pub(super) const CLUSTER: &str = "cluster";

static NO_TABLES: LazyLock<Arc<NoTables>> =
    LazyLock::new(|| Arc::new(NoTables::because(NOT_CONFIGURED)));

/// The lookups of a plugin, bound to the source that the plugin was loaded with.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    lookups: Lookups,
    source: Arc<dyn Tables>,
    granted: Granted,
}

/// The source of an engine that has none.
pub(super) fn no_tables() -> Arc<dyn Tables> {
    NO_TABLES.clone()
}

pub(super) fn add_to_linker(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    let mut cluster = linker.instance("tollgate:admission/cluster@0.1.0")?;
    cluster.func_wrap(
        "get",
        |host: Host<'_>, (lookup, namespace, name): (String, Option<String>, String)| {
            Ok((get(host, &lookup, namespace.as_deref(), &name)?,))
        },
    )?;
    cluster.func_wrap(
        "find",
        |host: Host<'_>, (lookup, index, key, after): (String, String, String, Option<String>)| {
            Ok((find(host, &lookup, &index, &key, after.as_deref())?,))
        },
    )?;
    cluster.func_wrap(
        "list",
        |host: Host<'_>, (lookup, namespace, after): (String, Option<String>, Option<String>)| {
            Ok((list(host, &lookup, namespace.as_deref(), after.as_deref())?,))
        },
    )
}

// === impl Bound ===

impl Bound {
    pub(super) fn new(lookups: Lookups, source: Arc<dyn Tables>) -> Self {
        let granted = Granted::bind(&lookups, source.as_ref());
        Self {
            lookups,
            source,
            granted,
        }
    }

    /// The tables that the plugin was loaded with.
    pub(super) fn granted(&self) -> &Granted {
        &self.granted
    }

    /// The tables of a source. A suite has other objects in each case, and the plugin is loaded once.
    pub(super) fn of(&self, source: &Arc<dyn Tables>) -> Granted {
        if self.lookups.is_empty() || Arc::ptr_eq(&self.source, source) {
            return self.granted.clone();
        }
        Granted::bind(&self.lookups, source.as_ref())
    }
}

// === cluster ===

fn get(
    mut host: Host<'_>,
    lookup: &str,
    namespace: Option<&str>,
    name: &str,
) -> wasmtime::Result<Result<Option<cluster::Object>, cluster::Failure>> {
    let asked = [Some(lookup), namespace, Some(name)];
    let granted = begin(&mut host, asked)?;
    let answer = granted.get(lookup, namespace, name);
    let objects = answer.as_ref().map(Option::as_slice);
    pay(&mut host, &granted, lookup, objects)?;
    Ok(answer.map(|found| found.map(object)).map_err(failure))
}

fn find(
    mut host: Host<'_>,
    lookup: &str,
    index: &str,
    key: &str,
    after: Option<&str>,
) -> wasmtime::Result<Result<cluster::Page, cluster::Failure>> {
    let asked = [Some(lookup), Some(index), Some(key), after];
    let granted = begin(&mut host, asked)?;
    let answer = granted.find(lookup, index, key, after);
    answer_page(host, &granted, lookup, answer)
}

fn list(
    mut host: Host<'_>,
    lookup: &str,
    namespace: Option<&str>,
    after: Option<&str>,
) -> wasmtime::Result<Result<cluster::Page, cluster::Failure>> {
    let granted = begin(&mut host, [Some(lookup), namespace, after])?;
    let answer = granted.list(lookup, namespace, after);
    answer_page(host, &granted, lookup, answer)
}

fn answer_page(
    mut host: Host<'_>,
    granted: &Granted,
    lookup: &str,
    answer: Result<Page, Failure>,
) -> wasmtime::Result<Result<cluster::Page, cluster::Failure>> {
    let objects = answer.as_ref().map(|page| page.objects.as_slice());
    pay(&mut host, granted, lookup, objects)?;
    let page = |page: Page| cluster::Page {
        objects: page.objects.into_iter().map(object).collect(),
        next: page.next,
    };
    Ok(answer.map(page).map_err(failure))
}

/// Charges the call, and refuses it where there is no review.
fn begin<const N: usize>(
    host: &mut Host<'_>,
    asked: [Option<&str>; N],
) -> wasmtime::Result<Granted> {
    let bytes = asked.iter().flatten().map(|text| text.len()).sum();
    charge(host, bytes, 1)?;
    subject(host)?;
    Ok(host.data().lookups.clone())
}

/// Charges the answer before the plugin gets it. From an answer about Secrets on, the call's texts are withheld.
fn pay(
    host: &mut Host<'_>,
    granted: &Granted,
    lookup: &str,
    objects: Result<&[Entry], &Failure>,
) -> wasmtime::Result<()> {
    let objects = match objects {
        Ok(objects) => objects,
        Err(Failure::NotGranted(text) | Failure::NotSynchronised(text)) => {
            return charge_bytes(host, text.len());
        }
    };
    // That there is no such Secret is known now, too.
    if granted.reads_secrets(lookup) {
        host.data_mut().secrecy.reads_elsewhere();
    }
    burn(host, FUEL_PER_MATCH.saturating_mul(objects.len() as u64))?;
    charge_bytes(host, objects.iter().map(Entry::text_bytes).sum())
}

fn object(entry: Entry) -> cluster::Object {
    cluster::Object {
        namespace: entry.namespace.map(|namespace| namespace.to_string()),
        name: entry.name.to_string(),
        fields: entry.fields.to_string(),
    }
}

fn failure(failure: Failure) -> cluster::Failure {
    match failure {
        Failure::NotGranted(text) => cluster::Failure::NotGranted(text),
        Failure::NotSynchronised(text) => cluster::Failure::NotSynchronised(text),
    }
}
