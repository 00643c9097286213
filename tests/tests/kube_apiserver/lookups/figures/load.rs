//! The cost of a call with lookups, and of one without.

use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use tollgate_tests::process::threads_time;
use tollgate_tests::reviews::Review;
use tollgate_tests::server::{Server, metric};

use super::{space, stored_ingress};

const CLIENTS: usize = 4;
/// Reviews that are sent to one side before it is the next one's turn.
const BATCH: usize = 500;
const ROUNDS: usize = 12;
const LABELS: [(&str, &str); 2] = [("plugin", "hosts"), ("phase", "validate")];

/// What is reviewed.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// An Ingress without hosts: the plugin looks nothing up.
    Nothing,
    /// An Ingress that exists, with so many rules for its own host. The plugin finds the Ingress itself each time.
    Own(usize),
    /// An Ingress with so many hosts that no Ingress has.
    Unknown(usize),
}

/// What a side has spent in a round.
#[derive(Clone, Copy)]
struct Spent {
    /// Processor time of the process.
    processor: Duration,
    /// Wall time of the plugin's calls, in seconds.
    calls: f64,
}

// === impl Kind ===

impl Kind {
    fn lookups(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Own(count) | Self::Unknown(count) => count,
        }
    }

    fn review(self, index: usize) -> Value {
        let mut object = stored_ingress(index);
        let rule = object["spec"]["rules"][0].clone();
        let rules = (0..self.lookups().max(1)).map(|number| {
            let mut rule = rule.clone();
            match self {
                Self::Nothing => rule["host"] = json!(""),
                Self::Own(_) => {}
                Self::Unknown(_) => rule["host"] = json!(format!("new-{index}-{number}.example")),
            }
            rule
        });
        object["spec"]["rules"] = rules.collect();
        let mut review = Review::create(object).build();
        review["request"]["namespace"] = json!(space(index));
        let resource =
            json!({"group": "networking.k8s.io", "version": "v1", "resource": "ingresses"});
        review["request"]["resource"] = resource.clone();
        review["request"]["requestResource"] = resource;
        review
    }
}

/// Sends reviews of different Ingresses, and returns what they cost.
async fn send(server: &Server, kind: Kind, round: usize, objects: usize) -> Spent {
    let calls = async || {
        let page = server.metrics().await;
        metric(&page, "tollgate_plugin_duration_seconds_sum", &LABELS)
    };
    let before = (threads_time(server.process()), calls().await);
    let answers = stream::iter(0..BATCH).map(|number| async move {
        // A prime step spreads the reviews over all objects.
        let index = (round * BATCH + number) * 7_919 % objects;
        let answer = server.validate(&kind.review(index)).await;
        let answer = answer.json();
        assert_eq!(answer["response"]["allowed"], true, "{answer}");
    });
    answers.buffer_unordered(CLIENTS).collect::<Vec<()>>().await;
    Spent {
        processor: threads_time(server.process()) - before.0,
        calls: calls().await - before.1,
    }
}

/// Returns the bound in seconds below which at least 99 of 100 calls of a server took.
fn p99(page: &str) -> Option<f64> {
    let all = metric(page, "tollgate_plugin_duration_seconds_count", &LABELS);
    let bounds = page.lines().filter_map(|line| {
        let is_own = LABELS
            .iter()
            .all(|(name, value)| line.contains(&format!("{name}=\"{value}\"")));
        let (series, count) = line.rsplit_once(' ')?;
        let rest = series.strip_prefix("tollgate_plugin_duration_seconds_bucket")?;
        let bound = rest.split("le=\"").nth(1)?.split('"').next()?;
        let count: f64 = count.parse().ok()?;
        (is_own && count >= 0.99 * all).then(|| bound.parse::<f64>().unwrap_or(f64::INFINITY))
    });
    bounds.reduce(f64::min)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Sends each kind of review in turns, and prints the time of a call and the processor time of a review. The sides are
/// in the order of the caller: two without a lookup, one with a lookup, and two with many.
pub(super) async fn print_costs(sides: &[(&str, &Server, Kind); 5], objects: usize) {
    let mut spent: Vec<Vec<Spent>> = sides.iter().map(|_| Vec::new()).collect();
    let (_, server, one) = sides[2];
    for round in 0..ROUNDS {
        send(server, one, round, objects).await;
    }
    if let Some(bound) = p99(&server.metrics().await) {
        println!(
            "  99 of 100 calls with one lookup: at most {} ms",
            bound * 1e3
        );
    }
    for round in 0..=ROUNDS {
        for ((_, server, kind), own) in sides.iter().zip(&mut spent) {
            let once = send(server, *kind, round, objects).await;
            // The first round warms up.
            if round > 0 {
                own.push(once);
            }
        }
    }
    let microseconds = |seconds: f64| seconds * 1e6 / BATCH as f64;
    let of = |own: &[Spent], value: &dyn Fn(&Spent) -> f64| {
        median(own.iter().map(value).map(microseconds).collect())
    };
    let call = |spent: &Spent| spent.calls;
    let processor = |spent: &Spent| spent.processor.as_secs_f64();
    for ((name, ..), own) in sides.iter().zip(&spent) {
        println!(
            "  {name}: {:.1} µs in a call of the plugin, {:.0} µs of processor time per review",
            of(own, &call),
            of(own, &processor)
        );
    }
    let ratio = |one: usize, other: usize, value: &dyn Fn(&Spent) -> f64| {
        let pairs = spent[one].iter().zip(&spent[other]);
        median(
            pairs
                .map(|(one, other)| value(one) / value(other))
                .collect(),
        )
    };
    println!(
        "  one lookup / the same plugin without: {:.2} of a call, {:.2} of the processor time of a review",
        ratio(2, 0, &call),
        ratio(2, 0, &processor)
    );
    for (name, many, few) in [("found", 3, 2), ("not found", 4, 1)] {
        let more = sides[many].2.lookups() - sides[few].2.lookups();
        let slope = (of(&spent[many], &call) - of(&spent[few], &call)) / more as f64;
        println!("  one more lookup by index, {name}: {slope:.2} µs inside the call");
    }
}
