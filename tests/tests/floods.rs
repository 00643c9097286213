//! During any flood, the server answers a well-behaved client, and its memory stays within its limits.
//!
//! `cargo xtask floods --baseline PATH` prints the whole table, beside that of another binary.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use tollgate_tests::binary;
use tollgate_tests::floods::{ATTACKER, CLIENT, Flood, Row, Setting, markdown, run};

/// Variable for another binary, whose table is printed beside this one's.
const BASELINE: &str = "TOLLGATE_BASELINE";
/// Variable for the seconds that each flood lasts in the whole table.
const SECONDS: &str = "TOLLGATE_FLOOD_SECONDS";

async fn short(flood: Flood, source: Ipv4Addr) -> Row {
    let row = run(
        flood,
        &Setting {
            program: binary::tollgate(),
            source,
            lasts: Duration::from_secs(3),
            rate: 10,
        },
    )
    .await;
    println!("{}\n{}", markdown(), row.line("this"));
    assert_eq!(row.fared.failed, 0, "{:?}", row.fared.errors);
    assert_eq!(row.fared.answered(), 30);
    assert_eq!(row.fared.retried, 0, "no client has to retry");
    // On an idle machine this takes some tens of milliseconds.
    let longest = row.fared.percentile(100).expect("there were answers");
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    row
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn announced_lengths_do_not_starve_other_clients() {
    short(Flood::AnnouncedLengths, CLIENT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn header_only_streams_do_not_starve_other_clients() {
    short(Flood::HeaderOnlyStreams, CLIENT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_bodies_do_not_starve_other_clients() {
    short(Flood::SlowBodies, CLIENT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_do_not_starve_other_clients() {
    for source in [CLIENT, ATTACKER] {
        short(Flood::IdleConnections, source).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decoded_bombs_stay_within_cap_and_starve_no_client() {
    const MIB: u64 = 1024;
    let row = short(Flood::DecodedBombs, ATTACKER).await;
    // 256 MiB of decoded documents, 128 MiB of bodies, and the rest.
    assert!(row.peak_kib < 640 * MIB, "{} KiB", row.peak_kib);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: `cargo xtask floods`"]
async fn prints_table_of_all_floods() {
    let seconds = std::env::var(SECONDS).ok();
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(10);
    let mut programs = vec![("this", binary::tollgate())];
    if let Some(path) = std::env::var_os(BASELINE) {
        programs.insert(0, ("baseline", PathBuf::from(path)));
    }
    println!("{}", markdown());
    for flood in Flood::ALL {
        let sources: &[Ipv4Addr] = if flood.has_source() {
            &[ATTACKER, CLIENT]
        } else {
            &[CLIENT]
        };
        for &source in sources {
            for (name, program) in &programs {
                let setting = Setting {
                    program: program.clone(),
                    source,
                    lasts: Duration::from_secs(seconds),
                    rate: 20,
                };
                let row = run(flood, &setting).await;
                println!("{}", row.line(name));
                for error in &row.fared.errors {
                    eprintln!("{} ({name}): {error}", flood.name());
                }
            }
        }
    }
}
