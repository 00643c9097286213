//! Reads an order from standard input, carries it out, and writes the results to standard output.

use std::process::ExitCode;

use anyhow::Context as _;
use tollgate_bench::load::Order;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let order: Order = serde_json::from_reader(std::io::stdin().lock())
        .context("expected an order as JSON on standard input; see bench/src/load.rs")?;
    let measured = order.run()?;
    serde_json::to_writer(std::io::stdout().lock(), &measured)?;
    Ok(())
}
