//! Go: the standard toolchain builds a core module that imports WASI preview 1.

use std::path::{Path, PathBuf};

use anyhow::{anyhow, ensure};

use super::sdk::{self, Sdk};
use super::tool::{Tool, is_at_least};
use super::{Built, Language, Pipeline, Template};

/// Go with the SDK, for `wasip1`.
pub(super) struct Go;

const INSTALL: &str =
    "install Go 1.24 or later, from https://go.dev/dl or your distribution (Debian: golang-go)";

/// Prints the folder of each module that `go.mod` replaces by a folder, for `go list -m -f`.
const REPLACED: &str = "{{with .Replace}}{{if not .Version}}{{.Dir}}{{end}}{{end}}";

static TEMPLATE: Template = Template {
    sample: &[
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
    ],
    empty: &[
        ("main.go", include_str!("empty/main.go.template")),
        ("main_test.go", include_str!("empty/main_test.go.template")),
    ],
    files: &[
        ("go.mod", include_str!("go/go.mod.template")),
        (
            "go.sum",
            include_str!("../../../../languages/go/trusted-registries/go.sum"),
        ),
        (".gitignore", include_str!("go/gitignore.template")),
    ],
    unit_tests: "go test ./...                       # the policy, without WebAssembly",
    fuel: 200_000,
    pipeline: Pipeline {
        github: "      - uses: actions/setup-go@v5\n        with: { go-version: \"1.24\" }\n",
        debian: "    - apt-get update && apt-get install --yes golang-go",
        unit_tests: Some("go test ./..."),
    },
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

    fn is_policy(&self, folder: &Path) -> bool {
        let has_code = || {
            let entries = std::fs::read_dir(folder).into_iter().flatten();
            let mut names = entries.filter_map(Result::ok).map(|entry| entry.path());
            names.any(|path| path.extension().is_some_and(|ending| ending == "go"))
        };
        folder.join(self.marker()).is_file() && has_code()
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
        let replaced = go(&["list", "-m", "-f", REPLACED, "all"]).ask()?;
        let replaced = replaced.unwrap_or_default();
        let inputs = replaced.lines().filter(|folder| !folder.is_empty());
        Ok(Built {
            name,
            file,
            inputs: inputs.map(PathBuf::from).collect(),
        })
    }
}
