//! JavaScript and TypeScript: the SDK bundles the policy and makes a component of it with QuickJS.

use std::path::Path;

use anyhow::{Context as _, anyhow, ensure};
use serde_json::Value;

use super::sdk::{self, Sdk};
use super::tool::{Tool, is_at_least};
use super::{Built, Language, Template, is_newer};

/// JavaScript or TypeScript, told apart by the file that holds the policy.
pub(super) struct JavaScript {
    name: &'static str,
    policy: &'static str,
    template: &'static Template,
}

const INSTALL: &str = "install Node 20 or later with npm, from https://nodejs.org or your distribution (Debian: nodejs npm)";

pub(super) static JAVASCRIPT: JavaScript = JavaScript {
    name: "js",
    policy: "policy.js",
    template: &Template {
        files: &[
            ("policy.js", include_str!("js/policy.js.template")),
            ("image.js", include_str!("js/image.js.template")),
            ("policy.test.js", include_str!("js/policy.test.js.template")),
            ("package.json", include_str!("js/package.json.template")),
            (".gitignore", include_str!("js/gitignore.template")),
        ],
        unit_tests: "npm test                            # the policy, without WebAssembly",
        fuel: 1_500_000,
    },
};

pub(super) static TYPESCRIPT: JavaScript = JavaScript {
    name: "ts",
    policy: "policy.ts",
    template: &Template {
        files: &[
            (
                "policy.ts",
                include_str!("../../../../languages/javascript/trusted-registries/policy.ts"),
            ),
            (
                "image.ts",
                include_str!("../../../../languages/javascript/trusted-registries/image.ts"),
            ),
            ("policy.test.ts", include_str!("ts/policy.test.ts.template")),
            ("package.json", include_str!("ts/package.json.template")),
            ("tsconfig.json", include_str!("ts/tsconfig.json.template")),
            (".gitignore", include_str!("js/gitignore.template")),
        ],
        unit_tests: "npm test                            # its types, and the policy without WebAssembly",
        fuel: 1_500_000,
    },
};

// === impl JavaScript ===

impl Language for JavaScript {
    fn name(&self) -> &'static str {
        self.name
    }

    fn marker(&self) -> &'static str {
        self.policy
    }

    fn template(&self) -> &'static Template {
        self.template
    }

    fn sdk(&self) -> &'static Sdk {
        &sdk::JAVASCRIPT
    }

    fn build(&self, folder: &Path, scratch: &Path) -> anyhow::Result<Built> {
        let version = Tool::new("node", folder, INSTALL)
            .args(["--version"])
            .ask()?
            .unwrap_or_default();
        ensure!(
            is_at_least(&version, [20, 0]),
            "found Node {version}, which is too old: {INSTALL}"
        );
        let name = package(&folder.join("package.json"))?;
        let installed = folder.join("node_modules/.package-lock.json");
        if is_newer(&folder.join("package.json"), &installed) {
            Tool::new("npm", folder, INSTALL)
                .args(["install", "--no-audit", "--no-fund", "--loglevel", "error"])
                .run()?;
        }
        let file = scratch.join("component.wasm");
        Tool::new("npx", folder, INSTALL)
            .args([
                "--no-install",
                "tollgate-js",
                "build",
                self.policy,
                "--output",
            ])
            .args([&file])
            .run()?;
        Ok(Built { name, file })
    }
}

/// Returns the package's name without its scope.
fn package(manifest: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(manifest).with_context(|| manifest.display().to_string())?;
    let package: Value =
        serde_json::from_str(&text).with_context(|| manifest.display().to_string())?;
    let name = package["name"]
        .as_str()
        .and_then(|name| name.rsplit('/').next());
    name.map(ToOwned::to_owned)
        .ok_or_else(|| anyhow!("{}: missing \"name\"", manifest.display()))
}
