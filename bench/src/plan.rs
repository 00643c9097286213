//! Defines the measurements. The plan varies one axis at a time around one case, because the full product would take
//! days.

pub mod peers;

use std::time::Duration;

use crate::load::Pace;
use crate::measure::{Group, Subject};
use crate::plugins::{Language, RUST, Work};
use crate::servers::{Setup, Side};

/// The amount of measurements.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Extent {
    /// Only the figures that the targets need.
    Quick,
    /// All axes.
    Full,
}

/// The base case, which all axes cross.
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

/// Numbers of plugins.
pub const PLUGINS: [usize; 5] = [0, 1, 5, 20, 100];
/// Sizes of the object: the smallest useful one, a common Pod, a large one, and one near kube-apiserver's limit.
pub const OBJECTS: [usize; 4] = [SMALL, MEDIUM, LARGE, HUGE];
/// The smallest size.
pub const SMALL: usize = 250;
/// The size of the base case.
pub const MEDIUM: usize = 5_000;
/// The size of the mutators' case.
pub const LARGE: usize = 100_000;
/// The largest size.
pub const HUGE: usize = 1_000_000;
/// Numbers of connections.
pub const CONNECTIONS: [usize; 3] = [1, 8, 64];
/// Numbers of server threads.
pub const THREADS: [usize; 2] = [1, 2];

/// Group: the cost by number of plugins, and compared with empty webhooks.
pub const BY_PLUGINS: &str = "plugins";
/// Groups: the cost by size of the object and by the plugin's work.
pub const BY_OBJECT: [&str; 4] = ["250 B", "5 kB", "100 kB", "1 MB"];
/// Group: five mutators on a large object.
pub const MUTATORS: &str = "mutators";
/// Group: the number of connections.
pub const BY_CONNECTIONS: &str = "connections";
/// Group: the number of server threads.
pub const BY_THREADS: &str = "threads";
/// Group: the language of the plugins.
pub const BY_LANGUAGE: &str = "languages";
/// Group: latency at half of the saturating rate.
pub const LATENCY: &str = "latency";
/// Group: a good plugin beside two spinners.
pub const FAIRNESS: &str = "fairness";

const WINDOW: Duration = Duration::from_millis(800);
const ROUNDS: usize = 5;
/// Duration of a round with a large object. This is longer because a plugin costs little compared with reading the
/// object.
const HUGE_WINDOW: Duration = Duration::from_millis(1_500);
const HUGE_ROUNDS: usize = 9;

/// Duration of a round at a fixed rate, and number of rounds.
const LATENCY_WINDOW: Duration = Duration::from_secs(4);
const LATENCY_ROUNDS: usize = 3;

/// Duration of each part of the fairness measurement.
pub const FAIRNESS_WINDOW: Duration = Duration::from_secs(4);

/// Returns the groups that saturate the server, in the order in which they run.
#[must_use]
pub fn groups(extent: Extent) -> Vec<Group> {
    let mut groups = vec![by_plugins(extent)];
    groups.extend(OBJECTS.iter().zip(BY_OBJECT).filter_map(|(bytes, name)| {
        // The base case already covers its own object size.
        let wanted = extent == Extent::Full || matches!(*bytes, SMALL | HUGE);
        wanted.then(|| by_object(name, *bytes, extent))
    }));
    groups.push(mutators(extent));
    groups.extend(peers::groups());
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

/// Returns the empty webhook, for the object of the base case.
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

/// Returns a case with this size of the object, this work and this number of plugins.
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
    // The numbers of plugins are far apart, so that the cost of one shows beside the cost of reading the object.
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

/// Compares the plugin that exists in every language, for the languages that are built.
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
        own_paces: Vec::new(),
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
