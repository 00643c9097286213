//! The project's own tasks:
//!
//! - `cargo xtask demo` shows what Tollgate does.
//! - `cargo xtask test` runs every test.
//! - `cargo xtask bench` measures.
//! - `cargo xtask fuzz` looks for unexpected inputs.
//! - `cargo xtask fields` writes the fields of Kubernetes' kinds.
//! - `cargo xtask image` builds the image.
//! - `cargo xtask kubernetes` builds the Kubernetes programs that the tests need.
//! - `cargo xtask layout` records the order of functions for the linker.
//! - `cargo xtask lookups` measures lookups.
//! - `cargo xtask loading` measures how long plugins take to load.
//! - `cargo xtask manifests` renders the plain manifests from the chart.
//! - `cargo xtask oracles` records answers of cosign and OPA, and compares the plugin `rego` with OPA.
//! - `cargo xtask policies` measures Rego and CEL beside OPA and kube-apiserver.
//! - `cargo xtask recordings` measures recording and replay.
//! - `cargo xtask release` builds everything that a release has.
//! - `cargo xtask scan` measures the background scan.

mod bench;
mod cargo;
mod demo;
mod fields;
mod figures;
mod floods;
mod fuzz;
mod image;
mod kubernetes;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod layout;
mod loading;
mod lookups;
mod manifests;
mod oracles;
mod policies;
mod recordings;
mod release;
mod scan;
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
    Fields(fields::Fields),
    Floods(floods::Floods),
    Fuzz(fuzz::Fuzz),
    Image(image::Image),
    Kubernetes(kubernetes::Kubernetes),
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    Layout(layout::Layout),
    Lookups(lookups::Lookups),
    Loading(loading::Loading),
    Manifests(manifests::Manifests),
    Oracles(oracles::Oracles),
    Policies(policies::Policies),
    Recordings(recordings::Recordings),
    Release(release::Release),
    Scan(scan::Scan),
    Soak(soak::Soak),
    Test(test::Test),
}

fn main() -> ExitCode {
    let done = match Chore::parse() {
        Chore::Bench(bench) => bench.run(),
        Chore::Demo(demo) => demo.run(),
        Chore::Fields(fields) => fields.run(),
        Chore::Floods(floods) => floods.run(),
        Chore::Fuzz(fuzz) => fuzz.run(),
        Chore::Image(image) => image.run(),
        Chore::Kubernetes(kubernetes) => kubernetes.run(),
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Chore::Layout(layout) => layout.run(),
        Chore::Lookups(lookups) => lookups.run(),
        Chore::Loading(loading) => loading.run(),
        Chore::Manifests(manifests) => manifests.run(),
        Chore::Oracles(oracles) => oracles.run(),
        Chore::Policies(policies) => policies.run(),
        Chore::Recordings(recordings) => recordings.run(),
        Chore::Release(release) => release.run(),
        Chore::Scan(scan) => scan.run(),
        Chore::Soak(soak) => soak.run(),
        Chore::Test(test) => test.run(),
    };
    done.unwrap_or_else(|error| {
        terminal::failure(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}
