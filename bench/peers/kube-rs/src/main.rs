//! A webhook as people write it in Rust: hyper, rustls, kube-rs' admission types, a typed Pod, one check of labels.
//!
//! The program takes the command line and the configuration file of `tollgate serve`, as far as the benchmark needs
//! them, and logs the line that the benchmark waits for. With `--floor` it reads each body and does not parse it: the
//! least that a webhook behind this server can cost.

mod labels;
mod server;
mod webhook;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser};
use mimalloc::MiMalloc;

use labels::RequiredLabels;
use webhook::Webhook;

/// The same allocator as in the host, so that the benchmark does not compare allocators.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// A webhook in Rust without a plugin host, for the benchmark.
#[derive(Debug, Parser)]
#[command(name = "peer-kube-rs", about)]
enum Cli {
    Serve(Serve),
}

/// Serve admission reviews over HTTPS on a free port of loopback.
#[derive(Args, Debug)]
struct Serve {
    /// Configuration file, as for `tollgate serve`, written as JSON.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Folder with `tls.crt` and `tls.key`.
    #[arg(long, value_name = "FOLDER")]
    tls: PathBuf,
    /// Parse nothing, and allow every review as one with this uid.
    #[arg(long, value_name = "UID")]
    floor: Option<String>,
}

fn main() -> ExitCode {
    let Cli::Serve(serve) = Cli::parse();
    match serve.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peer-kube-rs: {error:#}");
            ExitCode::FAILURE
        }
    }
}

// === impl Serve ===

impl Serve {
    fn run(self) -> anyhow::Result<()> {
        let webhook = match &self.floor {
            Some(uid) => Webhook::floor(uid),
            None => Webhook::new(RequiredLabels::read(&self.config)?),
        };
        let acceptor = server::acceptor(&self.tls)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the worker threads")?;
        runtime.block_on(server::serve(webhook, acceptor, announce))
    }
}

/// Logs the address as `tollgate serve` does.
fn announce(address: SocketAddr) {
    let line = serde_json::json!({ "message": "listening", "address": address, "admin": address });
    eprintln!("{line}");
}
