//! The project's tasks: `cargo xtask demo` shows Tollgate, `cargo xtask test` runs every test, `cargo xtask bench`
//! measures, `cargo xtask fuzz` looks for inputs that break the code, and `cargo xtask kubernetes` builds Kubernetes'
//! programs for the tests.

mod bench;
mod cargo;
mod demo;
mod floods;
mod fuzz;
mod kubernetes;
mod soak;
mod terminal;
mod test;
mod toolchain;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

/// Run the project's tasks.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about)]
enum Chore {
    Bench(bench::Bench),
    Demo(demo::Demo),
    Floods(floods::Floods),
    Fuzz(fuzz::Fuzz),
    Kubernetes(kubernetes::Kubernetes),
    Soak(soak::Soak),
    Test(test::Test),
}

fn main() -> ExitCode {
    let done = match Chore::parse() {
        Chore::Bench(bench) => bench.run(),
        Chore::Demo(demo) => demo.run(),
        Chore::Floods(floods) => floods.run(),
        Chore::Fuzz(fuzz) => fuzz.run(),
        Chore::Kubernetes(kubernetes) => kubernetes.run(),
        Chore::Soak(soak) => soak.run(),
        Chore::Test(test) => test.run(),
    };
    done.unwrap_or_else(|error| {
        terminal::failure(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}
