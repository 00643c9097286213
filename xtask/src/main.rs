//! The project's own tasks:
//!
//! - `cargo xtask demo` shows what Tollgate does.
//! - `cargo xtask test` runs every test.
//! - `cargo xtask bench` measures.
//! - `cargo xtask fuzz` looks for unexpected inputs.
//! - `cargo xtask image` builds the image.
//! - `cargo xtask kubernetes` builds the Kubernetes programs that the tests need.
//! - `cargo xtask manifests` renders the plain manifests from the chart.

mod bench;
mod cargo;
mod demo;
mod floods;
mod fuzz;
mod image;
mod kubernetes;
mod manifests;
mod soak;
mod terminal;
mod test;
mod toolchain;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

/// Run one of the project's own tasks.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about)]
enum Chore {
    Bench(bench::Bench),
    Demo(demo::Demo),
    Floods(floods::Floods),
    Fuzz(fuzz::Fuzz),
    Image(image::Image),
    Kubernetes(kubernetes::Kubernetes),
    Manifests(manifests::Manifests),
    Soak(soak::Soak),
    Test(test::Test),
}

fn main() -> ExitCode {
    let done = match Chore::parse() {
        Chore::Bench(bench) => bench.run(),
        Chore::Demo(demo) => demo.run(),
        Chore::Floods(floods) => floods.run(),
        Chore::Fuzz(fuzz) => fuzz.run(),
        Chore::Image(image) => image.run(),
        Chore::Kubernetes(kubernetes) => kubernetes.run(),
        Chore::Manifests(manifests) => manifests.run(),
        Chore::Soak(soak) => soak.run(),
        Chore::Test(test) => test.run(),
    };
    done.unwrap_or_else(|error| {
        terminal::failure(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}
