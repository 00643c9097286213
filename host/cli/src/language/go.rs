//! Go: the standard toolchain builds a core module that imports WASI preview 1.

use std::path::Path;

use anyhow::{anyhow, ensure};

use super::sdk::{self, Sdk};
use super::tool::{Tool, is_at_least};
use super::{Built, Language, Template};

/// Go with the SDK, for `wasip1`.
pub(super) struct Go;

const INSTALL: &str =
    "install Go 1.24 or later, from https://go.dev/dl or your distribution (Debian: golang-go)";

static TEMPLATE: Template = Template {
    files: &[
        (
            "main.go",
            include_str!("../../../../languages/go/trusted-registries/main.go"),
        ),
        (
            "image.go",
            include_str!("../../../../languages/go/trusted-registries/image.go"),
        ),
        (
            "main_test.go",
            include_str!("../../../../languages/go/trusted-registries/main_test.go"),
        ),
        ("go.mod", include_str!("go/go.mod.template")),
        (
            "go.sum",
            include_str!("../../../../languages/go/trusted-registries/go.sum"),
        ),
        (".gitignore", include_str!("go/gitignore.template")),
    ],
    unit_tests: "go test ./...                       # the policy, without WebAssembly",
    fuel: 200_000,
};

// === impl Go ===

impl Language for Go {
    fn name(&self) -> &'static str {
        "go"
    }

    fn marker(&self) -> &'static str {
        "go.mod"
    }

    fn template(&self) -> &'static Template {
        &TEMPLATE
    }

    fn sdk(&self) -> &'static Sdk {
        &sdk::GO
    }

    fn build(&self, folder: &Path, scratch: &Path) -> anyhow::Result<Built> {
        let go = |arguments: &[&str]| Tool::new("go", folder, INSTALL).args(arguments);
        let version = go(&["env", "GOVERSION"]).ask()?.unwrap_or_default();
        ensure!(
            is_at_least(&version, [1, 24]),
            "found {version}, which is too old: {INSTALL}"
        );
        let module = go(&["list", "-m"]).ask()?;
        let module =
            module.ok_or_else(|| anyhow!("cannot read go.mod: run `go list -m` to see why"))?;
        let name = module.rsplit('/').next().unwrap_or(&module).to_owned();
        let file = scratch.join("module.wasm");
        go(&[
            "build",
            "-trimpath",
            "-buildmode=c-shared",
            "-ldflags=-s -w",
            "-o",
        ])
        .args([&file])
        .args(["."])
        .env("GOOS", "wasip1")
        .env("GOARCH", "wasm")
        .run()?;
        Ok(Built { name, file })
    }
}
