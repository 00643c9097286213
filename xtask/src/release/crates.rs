//! The crates that are compiled into a program: what `cargo tree` resolves, with the checksums of `Cargo.lock`.
//!
//! Macros and what only build scripts use are not in a program, so they are not listed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;

use crate::workspace::Workspace;

/// Name and version of a crate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) name: String,
    pub(super) version: String,
}

/// A crate in a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Crate {
    /// The licence as an SPDX expression; empty if the crate names none.
    pub(super) licence: String,
    /// The SHA-256 of the package of the registry. A crate of this repository has none.
    pub(super) checksum: Option<String>,
    /// The folder in this repository. A crate of the registry has none.
    pub(super) folder: Option<String>,
    /// The crates that it uses.
    pub(super) uses: BTreeSet<Id>,
}

/// The crates of some programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Crates {
    /// The programs' own crates.
    pub(super) roots: Vec<Id>,
    pub(super) all: BTreeMap<Id, Crate>,
}

// === impl Crates ===

impl Crates {
    /// Asks cargo for the crates of packages that are built together for a target.
    pub(super) fn of(
        workspace: &Workspace,
        packages: &[&str],
        target: &str,
    ) -> anyhow::Result<Self> {
        let mut command = workspace.cargo();
        command.args(["tree", "--locked", "--edges", "normal,no-proc-macro"]);
        command.args([
            "--target",
            target,
            "--prefix",
            "depth",
            "--charset",
            "ascii",
        ]);
        command.args(["--format", "\t{p}\t{l}"]);
        for package in packages {
            command.args(["-p", package]);
        }
        let output = command.output().context("cannot run cargo tree")?;
        anyhow::ensure!(
            output.status.success(),
            "cargo tree failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let tree = String::from_utf8(output.stdout).context("cargo tree did not print UTF-8")?;
        let lock = std::fs::read_to_string(workspace.root().join("Cargo.lock"))
            .context("cannot read Cargo.lock")?;
        Self::read(&tree, &lock, &workspace.root().display().to_string())
    }

    /// Reads the lines of `cargo tree`: depth, name, version, place and licence. A crate that was printed before comes
    /// again without what it uses, so each line is one use.
    fn read(tree: &str, lock: &str, folder: &str) -> anyhow::Result<Self> {
        let checksums = checksums(lock);
        let mut crates = Self::default();
        let mut above: Vec<Id> = Vec::new();
        for line in tree.lines().filter(|line| !line.trim().is_empty()) {
            let unknown = || format!("cargo tree printed a line of another form: `{line}`");
            let mut parts = line.split('\t');
            let depth: usize = parts
                .next()
                .and_then(|text| text.parse().ok())
                .with_context(unknown)?;
            let package = parts.next().with_context(unknown)?;
            let licence = parts.next().with_context(unknown)?.trim_end_matches(" (*)");
            let mut words = package.split(' ');
            let id = Id {
                name: words.next().with_context(unknown)?.to_owned(),
                version: words
                    .next()
                    .and_then(|word| word.strip_prefix('v'))
                    .with_context(unknown)?
                    .to_owned(),
            };
            let place = package
                .split_once(" (")
                .map(|(_, rest)| rest.trim_end_matches(')'));
            let place = place.and_then(|place| place.strip_prefix(folder));
            let checksum = checksums
                .get(&id)
                .with_context(|| format!("{} {} is not in Cargo.lock", id.name, id.version))?;
            let known = crates.all.entry(id.clone()).or_insert_with(|| Crate {
                licence: licence.replace('/', " OR ").replace("  ", " "),
                checksum: checksum.clone(),
                folder: place.map(|place| place.trim_start_matches('/').to_owned()),
                uses: BTreeSet::new(),
            });
            anyhow::ensure!(
                known.checksum.is_some() != known.folder.is_some(),
                "{} {} is neither of the registry nor of this repository",
                id.name,
                id.version
            );
            above.truncate(depth);
            match above.last() {
                Some(user) => {
                    let user = crates.all.get_mut(user).with_context(unknown)?;
                    user.uses.insert(id.clone());
                }
                None => crates.roots.push(id.clone()),
            }
            above.push(id);
        }
        anyhow::ensure!(!crates.roots.is_empty(), "cargo tree printed no crate");
        Ok(crates)
    }

    /// Fails if a program names a crate of the registry that is not listed. Messages of panics name the files of crates,
    /// and so prove some of them; a program that names none proves nothing.
    pub(super) fn ensure_names_of(&self, program: &[u8]) -> anyhow::Result<usize> {
        let named = named_crates(program);
        let known: BTreeSet<String> = self
            .all
            .keys()
            .map(|id| format!("{}-{}", id.name, id.version))
            .collect();
        let unlisted: Vec<&str> = named.difference(&known).map(String::as_str).collect();
        anyhow::ensure!(
            unlisted.is_empty(),
            "the binary has crates that the SBOM does not list: {}; was it built from these sources?",
            unlisted.join(", ")
        );
        Ok(named.len())
    }
}

/// The folders of crates in cargo's folder of sources that a program names.
fn named_crates(program: &[u8]) -> BTreeSet<String> {
    const SOURCES: &[u8] = b"/registry/src/";
    let mut named = BTreeSet::new();
    let mut rest = program;
    while let Some(at) = rest.windows(SOURCES.len()).position(|part| part == SOURCES) {
        rest = &rest[at + SOURCES.len()..];
        let path = &rest[..rest.len().min(200)];
        // The folder of the registry, and then that of the crate.
        let mut folders = path.split(|byte| *byte == b'/');
        if let (Some(_), Some(folder), Some(_)) = (folders.next(), folders.next(), folders.next()) {
            named.extend(std::str::from_utf8(folder).ok().map(str::to_owned));
        }
    }
    named
}

/// The checksums of `Cargo.lock`. Crates of this repository have none.
fn checksums(lock: &str) -> BTreeMap<Id, Option<String>> {
    let packages = lock.split("[[package]]").skip(1);
    let packages = packages.filter_map(|package| {
        let value = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.strip_prefix(" = \"")?.trim_end_matches('"').to_owned())
        };
        let id = Id {
            name: value("name")?,
            version: value("version")?,
        };
        Some((id, value("checksum")))
    });
    packages.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"tool\"\nversion = \"0.1.0\"\ndependencies = [\n \"a\",\n]\n\n\
                        [[package]]\nname = \"a\"\nversion = \"1.2.3\"\nsource = \"registry\"\nchecksum = \"aa\"\n\n\
                        [[package]]\nname = \"b\"\nversion = \"2.0.0\"\nsource = \"registry\"\nchecksum = \"bb\"\n";

    fn id(name: &str, version: &str) -> Id {
        Id {
            name: name.to_owned(),
            version: version.to_owned(),
        }
    }

    #[test]
    fn reads_uses_licences_and_checksums() {
        let tree = "0\ttool v0.1.0 (/home/x/host/tool)\tApache-2.0\n1\ta v1.2.3\tMIT/Apache-2.0\n2\tb v2.0.0\tMIT\n\
                    1\tb v2.0.0\tMIT (*)\n";
        let crates = Crates::read(tree, LOCK, "/home/x").unwrap();
        assert_eq!(crates.roots, [id("tool", "0.1.0")]);
        let tool = &crates.all[&id("tool", "0.1.0")];
        assert_eq!(tool.folder.as_deref(), Some("host/tool"));
        assert_eq!(
            tool.uses,
            BTreeSet::from([id("a", "1.2.3"), id("b", "2.0.0")])
        );
        let a = &crates.all[&id("a", "1.2.3")];
        assert_eq!(
            (a.licence.as_str(), a.checksum.as_deref()),
            ("MIT OR Apache-2.0", Some("aa"))
        );
        assert_eq!(a.uses, BTreeSet::from([id("b", "2.0.0")]));
        assert!(Crates::read("0\tc v1.0.0\tMIT\n", LOCK, "/home/x").is_err());
        assert!(Crates::read("", LOCK, "/home/x").is_err());
    }

    #[test]
    fn refuses_a_binary_with_an_unlisted_crate() {
        let tree = "0\ttool v0.1.0 (/home/x/host/tool)\tApache-2.0\n1\ta v1.2.3\tMIT\n";
        let crates = Crates::read(tree, LOCK, "/home/x").unwrap();
        let program = b"\x00/cargo/registry/src/index-1/a-1.2.3/src/lib.rs\x00panic";
        assert_eq!(crates.ensure_names_of(program).unwrap(), 1);
        let other = b"\x00/cargo/registry/src/index-1/c-9.9.9/src/lib.rs\x00";
        let error = crates.ensure_names_of(other).unwrap_err().to_string();
        assert!(error.contains("c-9.9.9"), "{error}");
    }
}
