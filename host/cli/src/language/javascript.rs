//! JavaScript and TypeScript: the SDK bundles the policy and makes a component of it with QuickJS.

use std::path::Path;

use anyhow::{Context as _, anyhow, ensure};
use serde_json::Value;

use super::sdk::{self, Sdk};
use super::tool::{Tool, is_at_least};
use super::{Built, Language, Pipeline, Template, is_newer};
use crate::terminal::{NOTABLE, tell};

/// JavaScript or TypeScript, told apart by the file that holds the policy.
pub(super) struct JavaScript {
    name: &'static str,
    policy: &'static str,
    template: &'static Template,
}

const INSTALL: &str = "install Node 20 or later with npm, from https://nodejs.org or your distribution (Debian: nodejs npm)";

const NODE: Pipeline = Pipeline {
    github: "      - uses: actions/setup-node@v4\n        with: { node-version: 22 }\n",
    debian: "    - apt-get update && apt-get install --yes nodejs npm",
    unit_tests: Some("npm test"),
};

pub(super) static JAVASCRIPT: JavaScript = JavaScript {
    name: "js",
    policy: "policy.js",
    template: &Template {
        sample: &[
            ("policy.js", include_str!("js/policy.js.template")),
            ("image.js", include_str!("js/image.js.template")),
            ("policy.test.js", include_str!("js/policy.test.js.template")),
        ],
        empty: &[
            ("policy.js", include_str!("empty/policy.js.template")),
            (
                "policy.test.js",
                include_str!("empty/policy.test.js.template"),
            ),
        ],
        files: &[
            ("package.json", include_str!("js/package.json.template")),
            (".gitignore", include_str!("js/gitignore.template")),
        ],
        unit_tests: "npm test                            # the policy, without WebAssembly",
        fuel: 1_500_000,
        pipeline: NODE,
    },
};

pub(super) static TYPESCRIPT: JavaScript = JavaScript {
    name: "ts",
    policy: "policy.ts",
    template: &Template {
        sample: &[
            (
                "policy.ts",
                include_str!("../../../../languages/javascript/trusted-registries/policy.ts"),
            ),
            (
                "image.ts",
                include_str!("../../../../languages/javascript/trusted-registries/image.ts"),
            ),
            ("policy.test.ts", include_str!("ts/policy.test.ts.template")),
        ],
        empty: &[
            ("policy.ts", include_str!("empty/policy.ts.template")),
            (
                "policy.test.ts",
                include_str!("empty/policy.test.js.template"),
            ),
        ],
        files: &[
            ("package.json", include_str!("ts/package.json.template")),
            ("tsconfig.json", include_str!("ts/tsconfig.json.template")),
            (".gitignore", include_str!("js/gitignore.template")),
        ],
        unit_tests: "npm test                            # its types, and the policy without WebAssembly",
        fuel: 1_500_000,
        pipeline: NODE,
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
        let package = Package::read(&folder.join("package.json"))?;
        let installed = folder.join("node_modules/.package-lock.json");
        if is_newer(&folder.join("package.json"), &installed) {
            Tool::new("npm", folder, INSTALL)
                .args(["install", "--no-audit", "--no-fund", "--loglevel", "error"])
                .run()?;
        }
        check_types(folder)?;
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
        Ok(Built {
            name: package.name,
            file,
            inputs: package.local.iter().map(|path| folder.join(path)).collect(),
        })
    }
}

/// The parts of a `package.json` that a build needs.
struct Package {
    /// The name without its scope.
    name: String,
    /// The folders and files of the dependencies that come from this machine, such as the SDK.
    local: Vec<String>,
}

// === impl Package ===

impl Package {
    fn read(manifest: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(manifest).with_context(|| manifest.display().to_string())?;
        let package: Value =
            serde_json::from_str(&text).with_context(|| manifest.display().to_string())?;
        let name = package["name"]
            .as_str()
            .and_then(|name| name.rsplit('/').next());
        let name = name.ok_or_else(|| anyhow!("{}: missing \"name\"", manifest.display()))?;
        let dependencies = ["dependencies", "devDependencies"]
            .iter()
            .filter_map(|key| package[key].as_object())
            .flat_map(|dependencies| dependencies.values());
        let local = dependencies.filter_map(|source| source.as_str()?.strip_prefix("file:"));
        Ok(Self {
            name: name.to_owned(),
            local: local.map(ToOwned::to_owned).collect(),
        })
    }
}

/// The type check that a project needs.
#[derive(Debug, PartialEq)]
enum Types {
    /// The project has no TypeScript.
    None,
    /// The check can run.
    Checkable,
    /// The check cannot run. The text says what to do.
    Missing(&'static str),
}

/// Checks the types of a project with TypeScript. The build itself only removes types.
fn check_types(folder: &Path) -> anyhow::Result<()> {
    match types(folder) {
        Types::None => Ok(()),
        Types::Checkable => Tool::new("npx", folder, INSTALL)
            .args(["--no-install", "tsc", "--noEmit", "--pretty", "false"])
            .check(),
        Types::Missing(what) => {
            tell!("  {NOTABLE}types{NOTABLE:#}    not checked: {what}");
            Ok(())
        }
    }
}

fn types(folder: &Path) -> Types {
    let has_configuration = folder.join("tsconfig.json").is_file();
    if !has_configuration && !has_sources(folder) {
        return Types::None;
    }
    let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let has_compiler = folder
        .ancestors()
        .any(|folder| folder.join("node_modules/.bin/tsc").exists());
    match (has_compiler, has_configuration) {
        (false, _) => Types::Missing("run `npm install --save-dev typescript`"),
        (true, false) => Types::Missing("add a tsconfig.json, such as `tollgate new` writes"),
        (true, true) => Types::Checkable,
    }
}

/// Whether a TypeScript file lies directly in the folder.
fn has_sources(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| {
        entries.any(|entry| {
            entry.is_ok_and(|entry| {
                entry
                    .path()
                    .extension()
                    .is_some_and(|ending| ending == "ts")
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_dependencies_of_this_machine() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().join("package.json");
        let text = r#"{"name": "@shop/no-latest", "dependencies": {"@tollgate/sdk": "file:../sdk", "ajv": "8.17.1"}}"#;
        std::fs::write(&manifest, text).unwrap();
        let package = Package::read(&manifest).unwrap();
        assert_eq!(package.name, "no-latest");
        assert_eq!(package.local, ["../sdk"]);
    }

    #[test]
    fn checks_types_of_project_with_typescript_only() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        write("policy.js");
        assert_eq!(types(folder.path()), Types::None);
        write("helper.ts");
        let missing = |types| matches!(types, Types::Missing(what) if what.contains("npm install --save-dev typescript"));
        assert!(missing(types(folder.path())));
        write("node_modules/.bin/tsc");
        assert!(
            matches!(types(folder.path()), Types::Missing(what) if what.contains("tsconfig.json"))
        );
        write("tsconfig.json");
        assert_eq!(types(folder.path()), Types::Checkable);
        // A workspace has one compiler for all of its projects.
        let project = folder.path().join("project");
        std::fs::create_dir(&project).unwrap();
        std::fs::write(project.join("tsconfig.json"), "{}").unwrap();
        assert_eq!(types(&project), Types::Checkable);
    }
}
