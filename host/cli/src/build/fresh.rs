//! Brings components up to date before a command runs them, so that `test` and `bench` never run an old one.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;

use super::component::{OUTPUT, make};
use super::sources::{Sources, key_in};
use super::stamp::{Stamp, State, state};
use crate::language::{self, Language};
use crate::terminal::{FAINT, NOTABLE, plain, tell};

/// The flag of commands that build first.
#[derive(Args, Debug, Default)]
pub(crate) struct BuildFirst {
    /// Use the components as they are, without building their projects first. A component that was built from other
    /// sources is refused.
    #[arg(long)]
    no_build: bool,
}

/// A component of a project whose language is known.
pub(crate) struct Project {
    component: PathBuf,
    folder: PathBuf,
    language: &'static dyn Language,
    stamp: Option<Stamp>,
    /// Keys of files in the folder that are no sources: those that this command writes, and those of suites.
    apart: BTreeSet<String>,
}

/// Most changed sources that a message names.
const MOST_NAMED: usize = 3;

// === impl BuildFirst ===

impl BuildFirst {
    /// Builds the projects whose sources have changed. Refuses or reports stale components instead if building is
    /// switched off.
    pub(crate) fn bring_up_to_date(&self, projects: &[Project]) -> anyhow::Result<()> {
        let mut built: Vec<&Path> = Vec::new();
        for project in projects {
            // Several plugins may be in the output folder of the same project.
            if project.stamp.is_none() && built.contains(&&*project.folder) {
                project.expect_built()?;
                continue;
            }
            let state = project.state()?;
            if self.no_build {
                project.refuse(&state)?;
            } else if state == State::Current {
                project.keep_apart()?;
            } else if project.build(&state)? {
                built.push(&project.folder);
            }
        }
        Ok(())
    }
}

// === impl Project ===

impl Project {
    /// Finds the projects of components. A component that belongs to no known project is left out.
    pub(crate) fn all<'c>(
        components: impl IntoIterator<Item = &'c Path>,
        apart: &[PathBuf],
    ) -> Vec<Self> {
        let components: BTreeSet<&Path> = components.into_iter().collect();
        let projects = components.into_iter();
        let mut projects: Vec<Self> = projects
            .filter_map(|component| Self::of(component, apart))
            .collect();
        // After those with a stamp, it is known which of the others their projects do not build.
        projects.sort_by_key(|project| project.stamp.is_none());
        projects
    }

    /// Finds the project of a component: by its stamp, or by a project in the folder above `dist`. `apart` are files
    /// that are no sources.
    fn of(component: &Path, apart: &[PathBuf]) -> Option<Self> {
        let stamped = Stamp::read(component).and_then(|stamp| {
            let folder = stamp.folder(component);
            let language = language::named(&stamp.language).ok()?;
            let is_there = folder.join(language.marker()).is_file();
            is_there.then_some((folder, language, Some(stamp)))
        });
        let (folder, language, stamp) = stamped.or_else(|| {
            let output = component.parent()?;
            if output.file_name()? != OUTPUT {
                return None;
            }
            let folder = match output.parent()? {
                folder if folder.as_os_str().is_empty() => Path::new("."),
                folder => folder,
            };
            Some((folder.to_owned(), language::of_policy(folder)?, None))
        })?;
        let tidied = tidy(&folder);
        let folder = match is_same(&tidied, &folder) {
            true => tidied,
            false => folder,
        };
        let apart = apart.iter().filter_map(|file| key_in(&folder, file));
        Some(Self {
            component: component.strip_prefix("./").unwrap_or(component).to_owned(),
            apart: apart.collect(),
            folder,
            language,
            stamp,
        })
    }

    /// Returns the file of the component.
    pub(crate) fn component(&self) -> &Path {
        &self.component
    }

    /// Returns the project's folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the project's sources, to watch them.
    pub(crate) fn sources(&self) -> Sources {
        match &self.stamp {
            Some(stamp) => stamp.sources_in(&self.folder, &self.apart),
            None => Sources {
                folder: self.folder.clone(),
                outside: Vec::new(),
                apart: self.apart.clone(),
            },
        }
    }

    fn state(&self) -> anyhow::Result<State> {
        state(
            &self.component,
            self.stamp.as_ref(),
            &self.folder,
            &self.apart,
        )
    }

    /// Builds the component. Returns whether the project was built. If the project's own component is up to date, another
    /// one beside it is kept.
    fn build(&self, state: &State) -> anyhow::Result<bool> {
        if self.stamp.is_none() && self.has_current_sibling()? {
            self.expect_built()?;
            return Ok(false);
        }
        let (folder, component) = (self.folder.display(), self.component.display());
        tell!("{FAINT}building {folder}: {}{FAINT:#}", plain(&why(state)));
        let output = self.stamp.as_ref().map(|_| self.component.as_path());
        let apart = self.sources().apart;
        let made = make(&self.folder, self.language, output, &apart);
        made.with_context(|| match state {
            State::Unknown(_) => {
                format!("cannot build {folder}; to use {component} as it is, pass --no-build")
            }
            _ => format!("cannot build {folder}, so {component} is not used"),
        })?;
        self.expect_built()?;
        Ok(true)
    }

    /// Returns whether the output folder has a component of this project that is up to date.
    fn has_current_sibling(&self) -> anyhow::Result<bool> {
        let output = self.component.parent().unwrap_or(Path::new(""));
        let entries = std::fs::read_dir(output).into_iter().flatten();
        for entry in entries.filter_map(Result::ok) {
            let component = entry.path();
            let Some(stamp) = Stamp::read(&component) else {
                continue;
            };
            let is_ours = stamp.language == self.language.name()
                && is_same(&stamp.folder(&component), &self.folder);
            if is_ours
                && state(&component, Some(&stamp), &self.folder, &self.apart)? == State::Current
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reports a component that the project does not build.
    fn expect_built(&self) -> anyhow::Result<()> {
        if Stamp::read(&self.component).is_some() {
            return Ok(());
        }
        let (folder, component) = (self.folder.display(), self.component.display());
        if !self.component.is_file() {
            bail!(
                "{component}: no such file, and the project in {folder} builds another one; name that one as the \
                 plugin's source"
            );
        }
        tell!(
            "{NOTABLE}{component} is used as it is:{NOTABLE:#} the project in {folder} builds another component"
        );
        Ok(())
    }

    /// Adds the files that are no sources to the stamp. A later command may not know about them.
    fn keep_apart(&self) -> anyhow::Result<()> {
        match &self.stamp {
            Some(stamp) if !self.apart.is_subset(&stamp.apart) => {
                let mut stamp = stamp.clone();
                stamp.apart.extend(self.apart.iter().cloned());
                stamp.sources.retain(|key, _| !self.apart.contains(key));
                stamp.write(&self.component)
            }
            _ => Ok(()),
        }
    }

    /// Refuses a stale component, and reports one of unknown origin.
    fn refuse(&self, state: &State) -> anyhow::Result<()> {
        let (folder, component) = (self.folder.display(), self.component.display());
        match state {
            State::Stale(_) => bail!(
                "{component} is stale: {} since it was built; run `tollgate build {folder}`, or leave out --no-build",
                plain(&why(state))
            ),
            State::Unknown(reason) => {
                tell!(
                    "{NOTABLE}{component} may be stale:{NOTABLE:#} {reason}, so nothing shows that it belongs to the \
                     sources in {folder}"
                );
                Ok(())
            }
            State::Current | State::Missing => Ok(()),
        }
    }
}

/// Returns a path without folders that it leaves again, to be read. Links can make it another path.
fn tidy(path: &Path) -> PathBuf {
    let mut tidied = PathBuf::new();
    for part in path.components() {
        let is_left = matches!(tidied.components().next_back(), Some(Component::Normal(_)));
        match part {
            Component::CurDir => {}
            Component::ParentDir if is_left => {
                tidied.pop();
            }
            part => tidied.push(part),
        }
    }
    match tidied.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => tidied,
    }
}

/// Returns the reason to build.
fn why(state: &State) -> String {
    match state {
        State::Current => "nothing changed".to_owned(),
        State::Missing => "it has no component yet".to_owned(),
        State::Unknown(reason) => format!("the component is of unknown origin ({reason})"),
        State::Stale(changed) => {
            let named = changed.iter().take(MOST_NAMED).cloned();
            let mut named: Vec<String> = named.collect();
            if changed.len() > MOST_NAMED {
                named.push(format!("{} more", changed.len() - MOST_NAMED));
            }
            format!("{} changed", named.join(", "))
        }
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (std::fs::canonicalize(one), std::fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_project_above_the_output_folder() {
        let folder = tempfile::tempdir().unwrap();
        let component = folder.path().join("dist/x.wasm");
        assert!(
            Project::of(&component, &[]).is_none(),
            "there is no project"
        );
        std::fs::write(folder.path().join("policy.c"), "").unwrap();
        let project = Project::of(&component, &[folder.path().join("results.xml")]).unwrap();
        assert_eq!(project.folder, folder.path());
        assert_eq!(project.language.name(), "c");
        assert!(project.apart.contains("results.xml"));
        assert!(Project::of(&folder.path().join("x.wasm"), &[]).is_none());
    }

    #[test]
    fn paths_are_tidied_for_messages() {
        for (path, tidied) in [
            ("dist/..", "."),
            ("./a/dist/..", "a"),
            ("../out/../policy", "../policy"),
            ("/a/../b", "/b"),
        ] {
            assert_eq!(tidy(Path::new(path)), Path::new(tidied));
        }
    }

    #[test]
    fn names_a_few_of_the_changed_sources() {
        let changed = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        assert_eq!(why(&State::Stale(changed)), "a, b, c, 2 more changed");
    }

    #[test]
    fn without_building_only_a_stale_component_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("policy.c"), "").unwrap();
        let project = Project::of(&folder.path().join("dist/x.wasm"), &[]).unwrap();
        for state in [State::Current, State::Missing, State::Unknown("by hand")] {
            project.refuse(&state).unwrap();
        }
        let stale = State::Stale(vec!["policy.c".to_owned()]);
        let error = project.refuse(&stale).unwrap_err().to_string();
        assert!(
            error.contains("is stale: policy.c changed since it was built; run `tollgate build"),
            "{error}"
        );
    }
}
