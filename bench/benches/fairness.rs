//! Measures the effect of spinning plugins on other plugins; see `tollgate_bench::fairness`.
//!
//! `cargo build --release --workspace --bin tollgate && cargo bench -p tollgate-bench --bench fairness`

use std::time::Duration;

use tollgate_bench::fairness::{Fairness, GOOD_CONNECTIONS, LIMIT, Latencies, Spinner};

/// Duration of each of the two parts.
const DURATION: Duration = Duration::from_secs(10);

fn main() {
    let fairness = Fairness::measure(DURATION);
    println!("A good plugin, {GOOD_CONNECTIONS} connections, {DURATION:?}; milliseconds");
    println!("                        calls/s      p50      p90      p99      max");
    good_line("alone", &fairness.alone);
    good_line("beside two spinners", &fairness.beside_spinners);
    println!("target beside spinners:       p50 ≤ 2          p99 ≤ 20\n");
    println!("The spinners, one connection each; milliseconds");
    println!(
        "                          calls      min   median      max   wall*    CPU*  (* host's mean)"
    );
    fairness.spinners.iter().for_each(spinner_line);
    println!("target: stopped within 20% of {LIMIT}, by the clock or in CPU time");
}

fn good_line(what: &str, latencies: &Latencies) {
    let per_second = latencies.count() as f64 / DURATION.as_secs_f64();
    let [p50, p90, p99, max] = [0.5, 0.9, 0.99, 1.0].map(|share| latencies.at(share));
    println!("{what:<21} {per_second:>10.0} {p50:>8.2} {p90:>8.2} {p99:>8.2} {max:>8.2}");
}

fn spinner_line(spinner: &Spinner) {
    let latencies = &spinner.latencies;
    let [min, median, max] = [0.0, 0.5, 1.0].map(|share| latencies.at(share));
    println!(
        "{:<15} {LIMIT} {:>9} {min:>8.1} {median:>8.1} {max:>8.1} {:>7.1} {:>7.1}",
        spinner.limit,
        latencies.count(),
        spinner.wall_milliseconds,
        spinner.cpu_milliseconds,
    );
}
