//! Waits for the objects of lookups while a plugin is loaded, and shows lookups on `/plugins` and in the metrics.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tollgate_engine::Guest;
use tollgate_lookups::{State, Synchronisation, Table};
use tollgate_telemetry::metrics::{LookupProbe, LookupReading};

use super::set::{Plugin, PluginState};

/// The time that a load waits for the objects. After that the plugin serves, and its lookups answer `not-synchronised`.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until the objects of all lookups have been read. The previous version of the plugin serves meanwhile.
///
/// `waits_for` says which objects are missing. Returns the last answer.
pub(super) async fn wait(waits_for: impl Fn() -> Option<String>) -> Option<String> {
    let deadline = Instant::now() + LONGEST_WAIT;
    loop {
        let missing = waits_for()?;
        if Instant::now() >= deadline {
            return Some(missing);
        }
        sleep(PAUSE).await;
    }
}

/// The lookups of a plugin on `/plugins`.
pub(super) fn status(guest: &Guest) -> Value {
    let lookups = guest.lookups().tables();
    lookups.map(|(name, table)| lookup(name, table)).collect()
}

fn lookup(name: &str, table: &Table) -> Value {
    let (state, size) = (table.state(), table.size());
    let (word, reason) = match &state.synchronisation {
        Synchronisation::Pending { reason } => ("pending", reason.as_deref()),
        Synchronisation::Following => ("following", None),
        Synchronisation::Cut { reason, .. } => ("cut", Some(&**reason)),
    };
    json!({
        "name": name,
        "state": word,
        "reason": reason,
        "answers": state.is_synchronised(),
        "objects": size.objects,
        "bytes": size.bytes,
        "resourceVersion": state.resource_version.as_deref(),
        "lastEventSecondsAgo": state.last_event.map(|last| last.elapsed().as_secs()),
    })
}

/// Returns the sources of the metrics about a plugin's lookups.
pub(super) fn probes(plugin: &Plugin) -> Vec<LookupProbe> {
    let PluginState::Loaded(loaded) = &plugin.state else {
        return Vec::new();
    };
    let probe = |(name, table): (&str, &std::sync::Arc<Table>)| {
        let table = table.clone();
        LookupProbe {
            plugin: plugin.config.name.to_string(),
            lookup: name.to_owned(),
            read: Box::new(move || reading(&table)),
        }
    };
    let guest = loaded.guest.iter();
    guest
        .flat_map(|guest| guest.lookups().tables().map(probe))
        .collect()
}

fn reading(table: &Table) -> LookupReading {
    let size = table.size();
    let state: State = table.state();
    LookupReading {
        objects: size.objects,
        bytes: size.bytes,
        is_synchronised: state.is_synchronised(),
        age: state.last_event.map(|last| last.elapsed()),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn waits_until_objects_are_read() {
        let left = Cell::new(3);
        let waits_for = || {
            left.set(left.get() - 1);
            (left.get() > 0).then(|| "not read yet".to_owned())
        };
        assert_eq!(wait(waits_for).await, None);
        assert_eq!(left.get(), 0);
    }
}
