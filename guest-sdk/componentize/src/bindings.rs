//! The bindings of Go and C, from the contract: for whoever changes the contract or moves to another generator.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use wit_bindgen_core::wit_parser::Resolve;
use wit_bindgen_core::{Files, WorldGenerator};

#[derive(Args, Debug)]
pub(crate) struct Bindings {
    /// For which language.
    language: Language,
    /// The folder with the contract.
    #[arg(long, default_value = "wit")]
    wit: PathBuf,
    /// The world.
    #[arg(long, default_value = "plugin")]
    world: String,
    /// The folder that they are written to.
    output: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Language {
    C,
    Go,
}

// === impl Bindings ===

impl Bindings {
    pub(crate) fn write(&self) -> anyhow::Result<()> {
        let mut resolve = Resolve::default();
        let (package, _) = resolve.push_dir(&self.wit)?;
        let world = resolve.select_world(&[package], Some(&self.world))?;
        let mut files = Files::default();
        self.generator().generate(&mut resolve, world, &mut files)?;
        for (name, content) in files.iter() {
            write(&self.output.join(name), content)?;
        }
        Ok(())
    }

    fn generator(&self) -> Box<dyn WorldGenerator> {
        match self.language {
            Language::C => wit_bindgen_c::Opts {
                rename_world: Some("tollgate".to_owned()),
                ..Default::default()
            }
            .build(),
            Language::Go => wit_bindgen_go::Opts {
                pkg_name: Some(
                    "github.com/tollgate-dev/tollgate/guest-sdk/go/internal/bindings".to_owned(),
                ),
                ..Default::default()
            }
            .build(),
        }
    }
}

fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().context("the file has a folder")?;
    std::fs::create_dir_all(folder)?;
    std::fs::write(path, content).with_context(|| path.display().to_string())
}
