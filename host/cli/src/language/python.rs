//! Python: the SDK makes a component of the policy and the whole of CPython, with componentize-py.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, ensure};

use super::sdk::{self, Sdk};
use super::tool::{Tool, is_at_least};
use super::{Built, Language, Pipeline, Template, is_newer};

/// Python with the SDK.
pub(super) struct Python;

const INSTALL: &str = "install Python 3.11 or later with venv, from https://www.python.org or your distribution (Debian: python3 python3-venv)";
const REQUIREMENTS: &str = "requirements.txt";
/// Python code that prints the project's name.
const NAME: &str =
    "import tomllib; print(tomllib.load(open('pyproject.toml', 'rb'))['project']['name'])";
const VERSION: &str = "import platform; print(platform.python_version())";

static TEMPLATE: Template = Template {
    sample: &[
        (
            "policy.py",
            include_str!("../../../../languages/python/trusted-registries/policy.py"),
        ),
        (
            "image.py",
            include_str!("../../../../languages/python/trusted-registries/image.py"),
        ),
        (
            "test_policy.py",
            include_str!("python/test_policy.py.template"),
        ),
    ],
    empty: &[
        ("policy.py", include_str!("empty/policy.py.template")),
        (
            "test_policy.py",
            include_str!("empty/test_policy.py.template"),
        ),
    ],
    files: &[
        (
            "pyproject.toml",
            include_str!("python/pyproject.toml.template"),
        ),
        (
            REQUIREMENTS,
            include_str!("python/requirements.txt.template"),
        ),
        (".gitignore", include_str!("python/gitignore.template")),
    ],
    unit_tests: ".venv/bin/python -m unittest        # the policy, without WebAssembly; `tollgate build` makes .venv",
    fuel: 1_000_000,
    pipeline: Pipeline {
        github: "      - uses: actions/setup-python@v5\n        with: { python-version: \"3.12\" }\n",
        debian: "    - apt-get update && apt-get install --yes python3-venv",
        unit_tests: Some(".venv/bin/python -m unittest"),
    },
};

// === impl Python ===

impl Language for Python {
    fn name(&self) -> &'static str {
        "python"
    }

    fn marker(&self) -> &'static str {
        "policy.py"
    }

    fn template(&self) -> &'static Template {
        &TEMPLATE
    }

    fn sdk(&self) -> &'static Sdk {
        &sdk::PYTHON
    }

    fn build(&self, folder: &Path, scratch: &Path) -> anyhow::Result<Built> {
        let folder =
            &std::fs::canonicalize(folder).with_context(|| folder.display().to_string())?;
        let environment = environment(folder)?;
        let python = environment.join("bin/python");
        let name = Tool::new(&python, folder, INSTALL)
            .args(["-c", NAME])
            .ask()?;
        let name = name.ok_or_else(|| {
            anyhow!(
                "{}: missing `name` under [project]",
                folder.join("pyproject.toml").display()
            )
        })?;
        let file = scratch.join("component.wasm");
        Tool::new(environment.join("bin/tollgate-py"), folder, INSTALL)
            .args(["build", "policy.py", "--output"])
            .args([&file])
            .env("VIRTUAL_ENV", &environment)
            .run()?;
        Ok(Built {
            name,
            file,
            inputs: local_requirements(folder),
        })
    }
}

/// Lists the requirements that are folders or files of this machine, such as the SDK.
fn local_requirements(folder: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(folder.join(REQUIREMENTS)).unwrap_or_default();
    let named = text.lines().map(|line| {
        let line = line.trim();
        let editable = line
            .strip_prefix("-e ")
            .or(line.strip_prefix("--editable "));
        editable.unwrap_or(line).trim()
    });
    let named = named.filter(|name| !name.is_empty() && !name.starts_with('#'));
    named
        .map(|name| folder.join(name))
        .filter(|path| path.exists())
        .collect()
}

/// Returns the active virtual environment, or else the project's own. The author installs packages into an active one.
fn environment(folder: &Path) -> anyhow::Result<PathBuf> {
    if let Some(active) = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from) {
        ensure!(
            active.join("bin/tollgate-py").is_file(),
            "the active virtual environment {} has no tollgate-py: run `pip install -r {REQUIREMENTS}`, or \
             deactivate it so that the project gets its own",
            active.display()
        );
        return Ok(active);
    }
    let python = |arguments: &[&str]| Tool::new("python3", folder, INSTALL).args(arguments);
    let version = python(&["-c", VERSION]).ask()?.unwrap_or_default();
    ensure!(
        is_at_least(&version, [3, 11]),
        "found Python {version}, which is too old: {INSTALL}"
    );
    let environment = folder.join(".venv");
    let installed = environment.join("bin/tollgate-py");
    if is_newer(&folder.join(REQUIREMENTS), &installed) {
        Tool::new("python3", folder, INSTALL)
            .args(["-m", "venv", ".venv"])
            .run()?;
        Tool::new(environment.join("bin/pip"), folder, INSTALL)
            .args([
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "-r",
                REQUIREMENTS,
            ])
            .run()?;
        let filled = std::fs::File::open(&installed).with_context(|| {
            format!("{REQUIREMENTS} does not contain tollgate-sdk, which provides tollgate-py")
        })?;
        filled.set_modified(std::time::SystemTime::now())?;
    }
    Ok(environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_requirements_of_this_machine() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sdk")).unwrap();
        let text = "# the SDK\n-e ./sdk\nPyYAML==6.0.2\n\n";
        std::fs::write(folder.path().join(REQUIREMENTS), text).unwrap();
        assert_eq!(
            local_requirements(folder.path()),
            [folder.path().join("./sdk")]
        );
    }
}
