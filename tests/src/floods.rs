//! Floods: harmful traffic, and measurements of a well-behaved client during it.
//!
//! ```text
//! server ◄── attack      from 127.0.0.2, or from the same address as the client
//!        ◄── client      a few reviews a second, as kube-apiserver sends them
//!        ──► measured    answered, failed, their times; the server's peak memory
//! ```
//!
//! All floods are limited in count and time, and stay on the loopback interface.

mod attack;
mod client;
mod connect;
mod reload;
mod table;

pub use attack::{Flood, start as hold};
pub use client::Fared;
pub use table::{Row, markdown};

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::configuration::Configuration;
use crate::hostile;
use crate::server::{Server, Start, metric};

/// Address of the well-behaved client.
pub const CLIENT: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Address of the attack, unless it uses the client's address.
pub const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Time limit for an attack to reach its full strength.
const BUILDS_UP: Duration = Duration::from_secs(30);

/// The settings of a flood.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The `tollgate` binary.
    pub program: PathBuf,
    /// The address from which the attack comes.
    pub source: Ipv4Addr,
    /// How long reviews are sent.
    pub lasts: Duration,
    /// Reviews per second.
    pub rate: u32,
}

/// Runs a flood against its own server.
///
/// # Panics
/// Panics if the server does not start.
pub async fn run(flood: Flood, setting: &Setting) -> Row {
    if matches!(flood, Flood::SleeperAtStart | Flood::SleeperAtReload) {
        return reload::run(flood, setting).await;
    }
    let mut configuration = configuration(&setting.program);
    configuration.plugin_of("harmless", &hostile::harmless(), json!({}));
    if flood == Flood::ConditionCost {
        configuration.plugin_of("conditional", &hostile::harmless(), pairwise_condition());
    }
    let server = start(&setting.program, configuration);
    let warm_up = Duration::from_secs(1);
    client::send(&server, setting.rate, warm_up).await;
    let mut attack = attack::start(flood, &server, setting.source);
    stands(flood, &server).await;
    let fared = client::send(&server, setting.rate, setting.lasts).await;
    let row = Row::new(flood, setting, fared, server.peak_kib());
    attack.abort_all();
    row
}

/// Waits until the attack is at its full strength.
async fn stands(flood: Flood, server: &Server) {
    let until = Instant::now() + BUILDS_UP;
    while let Some(connections) = flood.connections() {
        let open = metric(&server.metrics().await, "tollgate_connections", &[]);
        if open >= connections || Instant::now() >= until {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
}

/// Creates an empty configuration that the binary can read. Older binaries have no probes listener.
fn configuration(program: &Path) -> Configuration {
    let help = Command::new(program).args(["serve", "--help"]).output();
    let help = help.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let configuration = Configuration::new().with("engine.answerCache", 0);
    if String::from_utf8_lossy(&help.stdout).contains("--probes-listen") {
        configuration
    } else {
        configuration.without("probes")
    }
}

fn start(program: &Path, configuration: Configuration) -> Server {
    Start::default()
        .program(program.to_owned())
        .start(configuration)
}

/// A condition that compares every element of a list with every other one.
fn pairwise_condition() -> Value {
    let expression = "object.spec.list.all(a, object.spec.list.all(b, a == b || a != b))";
    let expression = format!("!has(object.spec.list) || {expression}");
    let rule = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]});
    let condition = json!({"name": "pairwise", "expression": expression});
    json!({"failurePolicy": "Ignore", "match": {"rules": [rule], "matchConditions": [condition]}})
}
