//! The plan of measurements: one axis at a time around one case, because the full product would take days.

use std::time::Duration;

use crate::load::Pace;
use crate::measure::{Group, Subject};
use crate::plugins::{Language, RUST, Work};
use crate::servers::{Setup, Side};

/// The extent of the measurements.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Extent {
    /// Only the groups that the targets need.
    Quick,
    /// All axes.
    Full,
}

/// The base case, in which the axes cross.
pub const BASE: Subject = Subject {
    setup: Setup {
        side: Side::Host,
        work: Work::ReadsFields,
        language: RUST,
        plugins: 5,
        threads: 2,
    },
    object_bytes: MEDIUM,
    connections: 8,
};

/// The numbers of plugins.
pub const PLUGINS: [usize; 5] = [0, 1, 5, 20, 100];
/// The sizes of the object: the smallest useful one, a common Pod, a large one, and close to kube-apiserver's limit.
pub const OBJECTS: [usize; 4] = [SMALL, MEDIUM, LARGE, HUGE];
/// The smallest size.
pub const SMALL: usize = 250;
/// The size in the base case.
pub const MEDIUM: usize = 5_000;
/// The size in the mutators' case.
pub const LARGE: usize = 100_000;
/// The largest size.
pub const HUGE: usize = 1_000_000;
/// The numbers of connections.
pub const CONNECTIONS: [usize; 3] = [1, 8, 64];
/// The numbers of the server's threads.
pub const THREADS: [usize; 2] = [1, 2];

/// The cost by number of plugins, and against empty webhooks.
pub const BY_PLUGINS: &str = "plugins";
/// The cost by size of the object and by kind of work.
pub const BY_OBJECT: [&str; 4] = ["250 B", "5 kB", "100 kB", "1 MB"];
/// Five mutators on a large object.
pub const MUTATORS: &str = "mutators";
/// The cost by number of connections.
pub const BY_CONNECTIONS: &str = "connections";
/// The cost by number of the server's threads.
pub const BY_THREADS: &str = "threads";
/// The cost by language of the plugins.
pub const BY_LANGUAGE: &str = "languages";
/// The latency at half of the saturating rate.
pub const LATENCY: &str = "latency";
/// A good plugin beside two spinning ones.
pub const FAIRNESS: &str = "fairness";

const WINDOW: Duration = Duration::from_millis(800);
const ROUNDS: usize = 5;
/// The window for huge objects. The cost of one plugin is small beside the reading of a huge object, so it needs a
/// longer window.
const HUGE_WINDOW: Duration = Duration::from_millis(1_500);
const HUGE_ROUNDS: usize = 9;

/// The duration of each measurement at a fixed rate, and the number of rounds.
const LATENCY_WINDOW: Duration = Duration::from_secs(4);
const LATENCY_ROUNDS: usize = 3;

/// The duration of each part of the fairness measurement.
pub const FAIRNESS_WINDOW: Duration = Duration::from_secs(4);

/// Returns the groups that saturate the server, in the order of measurement.
#[must_use]
pub fn groups(extent: Extent) -> Vec<Group> {
    let mut groups = vec![by_plugins(extent)];
    groups.extend(OBJECTS.iter().zip(BY_OBJECT).filter_map(|(bytes, name)| {
        // The group by number of plugins already has the base case's size.
        let wanted = extent == Extent::Full || matches!(*bytes, SMALL | HUGE);
        wanted.then(|| by_object(name, *bytes, extent))
    }));
    groups.push(mutators(extent));
    if extent == Extent::Full {
        let connections = CONNECTIONS.map(|connections| Subject {
            connections,
            ..BASE
        });
        groups.push(group(BY_CONNECTIONS, both(connections)));
        let threads = THREADS.into_iter().flat_map(|threads| {
            [1, 20].map(|plugins| with(|setup| (setup.threads, setup.plugins) = (threads, plugins)))
        });
        groups.push(group(BY_THREADS, both(threads)));
        groups.push(by_language());
    }
    groups
}

/// Returns the group at a fixed rate.
#[must_use]
pub fn latency(per_second: f64) -> Group {
    Group {
        rounds: LATENCY_ROUNDS,
        window: LATENCY_WINDOW,
        pace: Pace::PerSecond(per_second),
        ..group(LATENCY, both([BASE]))
    }
}

/// Returns the base case with another number of plugins.
#[must_use]
pub fn plugins(plugins: usize) -> Subject {
    with(|setup| setup.plugins = plugins)
}

/// Returns the webhook without any check, for the base case's object.
#[must_use]
pub fn empty() -> Subject {
    with(|setup| (setup.side, setup.plugins) = (Side::Empty, 0))
}

/// Returns the case of five mutators on a large object.
#[must_use]
pub fn five_mutators() -> Subject {
    Subject {
        object_bytes: LARGE,
        ..with(|setup| setup.work = Work::Mutates)
    }
}

/// Returns a case with a number of plugins, their work, and the size of the object.
#[must_use]
pub fn at(object_bytes: usize, work: Work, plugins: usize) -> Subject {
    Subject {
        object_bytes,
        ..with(|setup| (setup.work, setup.plugins) = (work, plugins))
    }
}

fn by_plugins(extent: Extent) -> Group {
    let mut subjects: Vec<Subject> = PLUGINS.into_iter().map(plugins).collect();
    let natives = PLUGINS
        .into_iter()
        .filter(|count| *count == 1 || *count > 0 && extent == Extent::Full);
    subjects.extend(natives.map(|count| plugins(count).on(Side::Native)));
    subjects.push(empty());
    group(BY_PLUGINS, subjects)
}

fn by_object(name: &'static str, bytes: usize, extent: Extent) -> Group {
    // The numbers are far apart, so that the cost of one plugin is visible beside the reading of the object.
    let mut subjects = vec![
        at(bytes, Work::ReadsFields, 1),
        at(bytes, Work::ReadsFields, 100),
    ];
    if extent == Extent::Full {
        subjects.push(subjects[0].on(Side::Native));
        subjects.extend(both([at(bytes, Work::ParsesEverything, 1)]));
        subjects.extend(both([at(bytes, Work::Mutates, 1)]));
    }
    let group = group(name, subjects);
    if bytes < HUGE {
        return group;
    }
    Group {
        rounds: HUGE_ROUNDS,
        window: HUGE_WINDOW,
        ..group
    }
}

/// Returns the cases for one plugin that exists in every language, for the languages that are built.
fn by_language() -> Group {
    let built = Language::all().into_iter().filter(Language::is_built);
    let images = built.map(|language| {
        let mut subject = at(MEDIUM, Work::Images, 1);
        subject.setup.language = language;
        subject
    });
    let native = at(MEDIUM, Work::Images, 1).on(Side::Native);
    let subjects = std::iter::once(native).chain(images);
    group(BY_LANGUAGE, subjects.collect())
}

fn mutators(extent: Extent) -> Group {
    let more = [1, 20].map(|count| at(LARGE, Work::Mutates, count));
    let more = more.into_iter().filter(|_| extent == Extent::Full);
    group(MUTATORS, both(more.chain([five_mutators()])))
}

fn group(name: &'static str, subjects: Vec<Subject>) -> Group {
    Group {
        name,
        subjects,
        rounds: ROUNDS,
        window: WINDOW,
        pace: Pace::Saturating,
    }
}

fn with(change: impl FnOnce(&mut Setup)) -> Subject {
    let mut subject = BASE;
    change(&mut subject.setup);
    subject
}

fn both(subjects: impl IntoIterator<Item = Subject>) -> Vec<Subject> {
    let sides = |subject: Subject| [subject.on(Side::Native), subject];
    subjects.into_iter().flat_map(sides).collect()
}
