//! The groups that compare Tollgate with its peers.

use std::time::Duration;

use super::{BASE, MEDIUM, at, five_mutators, group, plugins};
use crate::load::Pace;
use crate::measure::{Group, Subject};
use crate::plugins::Work;
use crate::servers::Side;

/// Groups: the peers by size of the object.
pub const GROUPS: [&str; 3] = ["peers", "peers 93 kB", "peers 0.9 MB"];
/// Group: the peers' latency at half of the saturating rate.
pub const LATENCY: &str = "peers p99";
/// Group: five mutators on a large object, beside the native control.
pub const MUTATORS: &str = "peers mutators";
/// Sizes of the object, one for each of [`GROUPS`].
pub const OBJECTS: [usize; 3] = [MEDIUM, 93_000, 900_000];
/// Numbers of validators for each size.
pub const VALIDATORS: [usize; 3] = [1, 5, 20];
/// The largest number of validators, for the smallest object only.
pub const MANY_VALIDATORS: usize = 100;

/// Number of rounds: enough for an upper quartile.
const ROUNDS: usize = 7;
const WINDOWS: [Duration; 3] = [
    Duration::from_millis(800),
    Duration::from_millis(800),
    // A webhook in Go answers some seventy requests per second.
    Duration::from_millis(1_500),
];
const LATENCY_WINDOW: Duration = Duration::from_secs(4);

/// Returns the webhook in Go, for the object of the base case.
#[must_use]
pub fn go() -> Subject {
    plugins(1).on(Side::ControllerRuntime)
}

/// Returns the groups that saturate the servers. Peers that have not been built are left out.
#[must_use]
pub fn groups() -> Vec<Group> {
    let sizes = GROUPS.into_iter().zip(OBJECTS).zip(WINDOWS);
    let groups = sizes.map(|((name, bytes), window)| Group {
        rounds: ROUNDS,
        window,
        ..group(name, subjects(bytes))
    });
    groups.chain([mutators()]).collect()
}

/// Returns the group at a fixed rate, from the saturating rates of the host with five plugins and of the webhook in Go.
///
/// All sides have half of the host's rate. The webhook in Go never has more than half of its own: a server that cannot
/// keep up would have any latency.
#[must_use]
pub fn latency(host_per_second: f64, go_per_second: Option<f64>) -> Group {
    let half = host_per_second / 2.0;
    let own = go_per_second.map(|rate| {
        (
            Side::ControllerRuntime,
            Pace::PerSecond(half.min(rate / 2.0)),
        )
    });
    let peers = [Side::ControllerRuntime, Side::KubeRs].into_iter();
    let peers = peers
        .filter(|side| side.is_built())
        .map(|side| plugins(1).on(side));
    let subjects = [BASE.on(Side::Native), BASE, BASE.on(Side::Known)].into_iter();
    let subjects = subjects.chain(peers);
    Group {
        rounds: ROUNDS,
        window: LATENCY_WINDOW,
        pace: Pace::PerSecond(half),
        own_paces: own.into_iter().collect(),
        ..group(LATENCY, subjects.collect())
    }
}

fn mutators() -> Group {
    let sides = [Side::Native, Side::Host, Side::Known];
    let subjects = sides.map(|side| five_mutators().on(side));
    Group {
        rounds: ROUNDS,
        ..group(MUTATORS, subjects.into())
    }
}

fn subjects(bytes: usize) -> Vec<Subject> {
    let one = at(bytes, Work::ReadsFields, 1);
    let peers = Side::PEERS.into_iter().filter(|side| side.is_built());
    let others = peers.chain([Side::Native]).map(|side| one.on(side));
    let many = (bytes == MEDIUM).then_some(MANY_VALIDATORS);
    let counts = VALIDATORS.into_iter().chain(many);
    let hosts = counts.flat_map(|count| {
        let running = at(bytes, Work::ReadsFields, count);
        [Side::Host, Side::Known, Side::New].map(|side| running.on(side))
    });
    others.chain(hosts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_webhook_never_gets_more_than_half_of_its_rate() {
        let rate = |host, go| latency(host, go).pace_of(Side::ControllerRuntime);
        assert_eq!(rate(20_000.0, Some(9_000.0)), Pace::PerSecond(4_500.0));
        assert_eq!(rate(10_000.0, Some(30_000.0)), Pace::PerSecond(5_000.0));
        let group = latency(20_000.0, Some(9_000.0));
        assert_eq!(group.pace_of(Side::Host), Pace::PerSecond(10_000.0));
        assert_eq!(group.pace_of(Side::Native), Pace::PerSecond(10_000.0));
    }

    #[test]
    fn every_size_has_each_number_of_validators() {
        for (group, bytes) in groups().iter().zip(OBJECTS) {
            for count in VALIDATORS {
                let host = at(bytes, Work::ReadsFields, count);
                assert!(group.subjects.contains(&host), "{}: {count}", group.name);
            }
            let native = at(bytes, Work::ReadsFields, 1).on(Side::Native);
            assert!(group.subjects.contains(&native), "{}", group.name);
        }
    }
}
