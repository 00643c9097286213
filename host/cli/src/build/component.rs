//! Builds the component of a project, and stamps it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, anyhow};
use sha2::{Digest as _, Sha256};
use tollgate_componentize::componentize;

use super::sources::Sources;
use super::stamp::{Stamp, TOLLGATE, relative};
use crate::language::{Built, Language};

/// A component that was built just now.
pub(crate) struct Component {
    /// The policy's name.
    pub(super) name: String,
    /// The component's file.
    pub(super) file: PathBuf,
    pub(super) bytes: Vec<u8>,
}

/// Folder of the component in a project.
pub(super) const OUTPUT: &str = "dist";

/// Builds a project with the language's own tools, and writes its component with a stamp.
///
/// The component goes to `output`, or else to `dist/NAME.wasm` in the project. `apart` are the keys of files in the
/// project that are no sources.
pub(super) fn make(
    folder: &Path,
    language: &dyn Language,
    output: Option<&Path>,
    apart: &BTreeSet<String>,
) -> anyhow::Result<Component> {
    let mut sources = Sources::in_folder(folder);
    sources.apart.clone_from(apart);
    // The sources are hashed before the build. An edit during the build makes the component stale.
    let (began, mut begun) = (SystemTime::now(), sources.hashes()?);
    let scratch = tempfile::Builder::new().prefix("tollgate-build-").tempdir();
    let scratch =
        scratch.context("cannot create a temporary folder: check that TMPDIR is writable")?;
    let Built { name, file, inputs } = language.build(folder, scratch.path())?;
    let module = std::fs::read(&file).with_context(|| file.display().to_string())?;
    let bytes = componentize(&module)
        .map_err(|error| anyhow!("the build result is not a plugin: {error}"))?;
    let output = output
        .map(Path::to_owned)
        .unwrap_or_else(|| default_output(folder, &name));
    write(&output, &bytes).with_context(|| format!("cannot write {}", output.display()))?;
    let folder = &std::fs::canonicalize(folder).with_context(|| folder.display().to_string())?;
    sources.outside = outside(folder, &inputs);
    if let Some(earlier) = Stamp::read(&output) {
        sources.apart.extend(earlier.apart);
    }
    begun.retain(|key, _| !sources.apart.contains(key));
    let stamp = Stamp {
        tollgate: TOLLGATE.to_owned(),
        language: language.name().to_owned(),
        project: relative(output.parent().unwrap_or(Path::new("")), folder)?,
        component: format!("{:x}", Sha256::digest(&bytes)),
        sources: sources.complete(begun, began)?,
        outside: sources.outside,
        apart: sources.apart,
    };
    stamp.write(&output)?;
    Ok(Component {
        name,
        file: output,
        bytes,
    })
}

fn default_output(folder: &Path, name: &str) -> PathBuf {
    let output = folder.join(OUTPUT).join(format!("{name}.wasm"));
    output
        .strip_prefix(".")
        .map(Path::to_owned)
        .unwrap_or(output)
}

/// Returns the inputs outside the project's folder, by their real paths. Files in the folder are sources anyway. Leaves
/// out a folder that contains the project, because it would add all of its files.
fn outside(folder: &Path, inputs: &[PathBuf]) -> Vec<PathBuf> {
    // An input may be missing, such as a lock file.
    let inputs = inputs
        .iter()
        .filter_map(|input| std::fs::canonicalize(input).ok());
    let outside: BTreeSet<PathBuf> = inputs
        .filter(|input| !input.starts_with(folder) && !folder.starts_with(input))
        .collect();
    outside.into_iter().collect()
}

/// Writes a file atomically, because a server or `tollgate test --watch` may be about to read it.
pub(super) fn write(file: &Path, content: &[u8]) -> anyhow::Result<()> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(folder)?;
    let mut temporary = tempfile::Builder::new()
        .permissions(readable())
        .tempfile_in(folder)?;
    std::io::Write::write_all(&mut temporary, content)?;
    temporary.persist(file)?;
    Ok(())
}

/// Permissions that let everybody read the file, like the output of a compiler.
fn readable() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o644)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_only_inputs_outside_the_project() {
        let root = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(root.path()).unwrap();
        let (project, sdk) = (root.join("project"), root.join("sdk"));
        for folder in [&project, &sdk] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(project.join("policy.c"), "").unwrap();
        let inputs = [
            project.join("../sdk"),
            project.join("policy.c"),
            project.join("none.h"),
            root.clone(),
        ];
        assert_eq!(outside(&project, &inputs), [sdk]);
    }

    #[test]
    fn component_goes_to_the_projects_own_folder() {
        assert_eq!(
            default_output(Path::new("."), "x"),
            Path::new("dist/x.wasm")
        );
        assert_eq!(
            default_output(Path::new("a/b"), "x"),
            Path::new("a/b/dist/x.wasm")
        );
    }
}
