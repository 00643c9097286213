//! `tollgate test`

mod actual;
mod against;
mod compare;
mod edit;
pub(super) mod example;
mod expect;
mod find;
mod gator;
mod overrides;
mod paths;
mod report;
mod run;
pub(super) mod schema;
mod show;
mod snapshot;
mod suite;
pub(super) mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;

use self::against::Against;
use self::gator::EngineSource;
pub(super) use self::paths::mistake;
use self::paths::{Paths, Written};
use self::run::{RunOptions, Tested, run};
use self::watch::Watched;
use super::build::fresh::{BuildFirst, Project};
use super::terminal::{BAD, NOTABLE, say};
use super::{FAILURE, USAGE};

/// Run the test suites of a policy through the code that the server runs.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Test {
    /// Suites, or folders to search for suites. A suite is a file with a name like policy.test.yaml, or a suite of
    /// `gator verify`.
    #[arg(value_name = "FOLDER|FILE", default_value = ".")]
    paths: Vec<PathBuf>,
    /// Run only the cases whose name contains this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Write the results of the cases with `snapshot: true` to their snapshot files.
    #[arg(long)]
    update: bool,
    /// Compare with another version of the plugin, and run each version on the other's output. In a suite with several
    /// plugins, give the plugin's name and the file.
    #[arg(long, value_name = "[NAME=]OLD.wasm")]
    against: Option<Against>,
    /// Settings of the other version, as YAML or JSON, instead of those of the suite and its cases. Use this if the
    /// other version does not know all settings of this one.
    #[arg(long, value_name = "FILE", requires = "against")]
    against_settings: Option<PathBuf>,
    /// Plugin that runs the ConstraintTemplates of gator's suites: rego=./rego.wasm, or cel=./cel_policy.wasm for those
    /// with CEL. By default, the plugins that run some in tollgate.yaml in this folder.
    #[arg(long = "engine", value_name = "NAME=SOURCE")]
    engines: Vec<EngineSource>,
    /// Check every place that a plugin reads against the fields of the object's kind, and fail the case if there is no
    /// such field. Kubernetes' own kinds are known.
    #[arg(long)]
    strict_paths: bool,
    /// File with CustomResourceDefinitions, whose kinds --strict-paths then knows. May be given several times.
    #[arg(long, value_name = "FILE", requires = "strict_paths")]
    crds: Vec<PathBuf>,
    /// Build and run again whenever a suite, a file that it names, or a source of a plugin changes.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    build_first: BuildFirst,
    /// Write the results also as JUnit XML to this file.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the results also as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Show every case with the results and costs of its plugins, not only failed cases.
    #[arg(short, long)]
    verbose: bool,
}

const EXAMPLES: &str = "\
Examples:
  tollgate test                              every suite below this folder
  tollgate test policy.test.yaml --filter \"10 replicas\"
  tollgate test --update                     accept the current results as snapshots
  tollgate test --against released.wasm      the differences from a released version
  tollgate test --watch                      build and test again at every change
  tollgate test --strict-paths --crds crds.yaml
                                             finds misspelt fields, also of custom resources
  tollgate test --no-build                   without the toolchain, for components that another step built
  tollgate test --junit results.xml          for CI
  tollgate test --engine rego=./rego.wasm --engine cel=./cel_policy.wasm policies/
                                             suites of gator verify, with Gatekeeper's templates

A component in the folder `dist` of a project is built first if its sources have changed.
Exit code: 0 when all cases pass, 1 when one fails, 2 when a suite could not be built or run.";

// === impl Test ===

impl Test {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        if self.watch {
            watch::forever(|watched| self.round(&runtime, watched));
        }
        let tested = self.once(&runtime, &mut Watched::default())?;
        Ok(exit_code(&tested))
    }

    /// Runs the suites of a folder without further options.
    pub(crate) fn of_folder(folder: &Path) -> Self {
        Self {
            paths: vec![folder.to_owned()],
            filter: None,
            update: false,
            against: None,
            against_settings: None,
            engines: Vec::new(),
            strict_paths: false,
            crds: Vec::new(),
            watch: true,
            build_first: BuildFirst::default(),
            junit: None,
            json: None,
            verbose: false,
        }
    }

    /// Whether there is a suite to run.
    ///
    /// # Errors
    /// When a folder cannot be searched.
    pub(crate) fn has_suites(&self) -> anyhow::Result<bool> {
        find::all(&self.paths).map(|suites| !suites.is_empty())
    }

    /// Runs all suites once and prints an error. Returns whether all files that the suites depend on are in `watched`.
    pub(crate) fn round(&self, runtime: &tokio::runtime::Runtime, watched: &mut Watched) -> bool {
        let result = self.once(runtime, watched);
        // A file that cannot be read may be corrected, and so may a source that does not compile.
        if let Err(error) = &result {
            say!("{BAD}{error:#}{BAD:#}");
            let suites = find::suites(&self.paths);
            watched.add_files(suites.unwrap_or_else(|_| self.paths.clone()));
        }
        result.is_ok()
    }

    /// Builds what the suites test, runs all suites, and writes the results. Adds the files that the suites depend on to
    /// `watched`.
    fn once(
        &self,
        runtime: &tokio::runtime::Runtime,
        watched: &mut Watched,
    ) -> anyhow::Result<Vec<Tested>> {
        let paths = find::suites(&self.paths)?;
        let against = match (&self.against, &self.against_settings) {
            (Some(against), Some(file)) => Some(against.clone().with_settings(file)?),
            (against, _) => against.clone(),
        };
        let (of_gator, own): (Vec<&PathBuf>, Vec<&PathBuf>) =
            paths.iter().partition(|path| gator::is_suite(path));
        if self.strict_paths && own.is_empty() {
            bail!(
                "--strict-paths has nothing to check: all of the {} suite(s) are gator's, and only suites such as \
                 policy.test.yaml are checked; name one, or leave --strict-paths out",
                of_gator.len()
            );
        }
        let mut suites = Vec::with_capacity(own.len());
        for path in own {
            suites.push(suite::Suite::load(path)?);
        }
        let mut files: Vec<PathBuf> = suites.iter().flat_map(suite::Suite::files).collect();
        files.extend(paths.iter().cloned());
        files.extend(against.iter().flat_map(Against::files));
        files.extend(self.crds.iter().cloned());
        watched.add_files(files.iter().cloned());
        files.extend(self.junit.iter().chain(&self.json).cloned());
        let projects = Project::all(suites.iter().flat_map(suite::Suite::components), &files);
        for project in &projects {
            watched.add_sources(project.sources());
        }
        self.build_first.bring_up_to_date(&projects)?;
        let components = suites.iter().flat_map(suite::Suite::components);
        watched.add_built(components.map(Path::to_owned));
        let read_paths = || Paths::read(&self.crds, Written::of(&projects));
        let strict = self.strict_paths.then(read_paths);
        let strict = strict.transpose()?;
        if strict.is_some() && !of_gator.is_empty() {
            say!("{NOTABLE}--strict-paths does not check suites of gator{NOTABLE:#}");
        }
        let options = RunOptions {
            strict: strict.as_ref(),
            filter: self.filter.as_deref(),
            update: self.update,
            against: against.as_ref(),
        };
        let mut tested = Vec::with_capacity(suites.len());
        for suite in suites {
            let suite =
                runtime.block_on(run(suite, &options, |case| show::case(case, self.verbose)))?;
            tested.push(suite);
        }
        if !of_gator.is_empty() {
            let lab = gator::Lab::open(&self.engines)?;
            for path in of_gator {
                let on_case = |case: &run::TestedCase| show::case(case, self.verbose);
                tested.push(runtime.block_on(lab.run(path, options.filter, on_case))?);
            }
        }
        if tested.iter().all(|suite| suite.cases.is_empty()) {
            bail!(
                "no case has a name that contains {:?}",
                self.filter.as_deref().unwrap_or_default()
            );
        }
        show::summary(&tested);
        if let Some(file) = &self.junit {
            write(file, &report::junit(&tested)?)?;
        }
        if let Some(file) = &self.json {
            write(file, &format!("{:#}\n", report::json(&tested)))?;
        }
        Ok(tested)
    }
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn exit_code(tested: &[Tested]) -> ExitCode {
    let mut cases = tested.iter().flat_map(|suite| &suite.cases);
    if cases.clone().any(|case| case.error.is_some()) {
        ExitCode::from(USAGE)
    } else if cases.any(|case| !case.passed()) {
        ExitCode::from(FAILURE)
    } else {
        ExitCode::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_that_cannot_be_searched_is_not_one_without_suites() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!Test::of_folder(folder.path()).has_suites().unwrap());
        let missing = Test::of_folder(&folder.path().join("missing"));
        let error = missing.has_suites().unwrap_err().to_string();
        assert!(error.contains("no such file or folder"), "{error}");
        std::fs::write(folder.path().join("policy.test.yaml"), "").unwrap();
        assert!(Test::of_folder(folder.path()).has_suites().unwrap());
    }
}
