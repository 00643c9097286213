//! `cargo xtask loading`: how long plugins take to load, beside another build.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::json;

/// Unit of CPU times in `/proc`.
const PROC_TICK: Duration = Duration::from_millis(10);
/// Place of the CPU times of ended children in `/proc/self/stat`, behind the name of the program.
const CHILDREN_USER: usize = 13;
const CHILDREN_SYSTEM: usize = 14;
const LANGUAGES: [&str; 5] = ["rust", "c", "go", "javascript", "python"];

/// Measure how long plugins take to load, beside another build of `tollgate`.
///
/// Both builds run `tollgate check` in turn, without a cache of compiled code where the case does not name one. Prints
/// the medians and their ratio. Build the plugins first: `cargo test --workspace --test languages`.
#[derive(Args, Debug)]
pub(crate) struct Loading {
    /// Binary to compare with.
    #[arg(long, value_name = "FILE")]
    before: PathBuf,
    /// Binary to measure.
    #[arg(long, value_name = "FILE", default_value = "target/release/tollgate")]
    after: PathBuf,
    /// Folder with a folder for each language, and `trusted-registries.wasm` in each.
    #[arg(long, value_name = "FOLDER", default_value = "target/languages")]
    languages: PathBuf,
    /// Another build of the Python policy, for the case "changed policy".
    #[arg(long, value_name = "FILE")]
    changed: Option<PathBuf>,
    /// Number of rounds.
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    rounds: usize,
}

/// Plugins to load: the file of each, and how many of them.
struct Case {
    name: String,
    plugin: PathBuf,
    number: usize,
    /// A plugin that the cache of compiled code has seen before.
    before: Option<PathBuf>,
}

/// The time of one start.
#[derive(Clone, Copy)]
struct Taken {
    wall: Duration,
    cpu: Duration,
}

/// A folder that is deleted with this value.
struct Scratch(PathBuf);

// === impl Loading ===

impl Loading {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        println!("| case | wall before | after | ratio | CPU before | after | ratio |");
        println!("|---|---:|---:|---:|---:|---:|---:|");
        for case in self.cases() {
            let mut taken: BTreeMap<&Path, Vec<Taken>> = BTreeMap::new();
            for _ in 0..self.rounds {
                for binary in [&*self.before, &self.after] {
                    taken.entry(binary).or_default().push(case.run(binary)?);
                }
            }
            let median = |binary: &Path, time: fn(&Taken) -> Duration| {
                let mut times: Vec<_> = taken[binary].iter().map(time).collect();
                times.sort();
                times[times.len() / 2].as_secs_f64()
            };
            let columns = [(|taken: &Taken| taken.wall) as fn(&Taken) -> _, |taken| {
                taken.cpu
            }];
            let columns = columns.map(|time| {
                let (before, after) = (median(&self.before, time), median(&self.after, time));
                format!("{before:.2} s | {after:.2} s | {:.2} ×", after / before)
            });
            println!("| {} | {} |", case.name, columns.join(" | "));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn cases(&self) -> Vec<Case> {
        let plugin = |language: &str| {
            self.languages
                .join(language)
                .join("trusted-registries.wasm")
        };
        let case = |name: String, language, number, before| Case {
            name,
            plugin: plugin(language),
            number,
            before,
        };
        let mut cases = Vec::new();
        for language in LANGUAGES {
            cases.push(case(format!("one plugin in {language}"), language, 1, None));
        }
        for number in [20, 100] {
            let name = format!("{number} plugins in rust, other settings each");
            cases.push(case(name, "rust", number, None));
        }
        if let Some(changed) = &self.changed {
            cases.push(Case {
                name: "changed policy in python, after the one before".to_owned(),
                plugin: changed.clone(),
                number: 1,
                before: Some(plugin("python")),
            });
        }
        cases
    }
}

// === impl Case ===

impl Case {
    fn run(&self, binary: &Path) -> anyhow::Result<Taken> {
        let scratch = Scratch::new()?;
        if let Some(before) = &self.before {
            scratch.check(binary, before, 1)?;
        }
        scratch.check(binary, &self.plugin, self.number)
    }
}

// === impl Scratch ===

impl Scratch {
    fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("tollgate-loading-{}", std::process::id()));
        // The cache of compiled code exists, because earlier builds of `check` did not create it.
        let code = path.join("code");
        fs::create_dir_all(&code).with_context(|| code.display().to_string())?;
        Ok(Self(path))
    }

    /// Loads the plugin under a number of names and settings.
    fn check(&self, binary: &Path, plugin: &Path, number: usize) -> anyhow::Result<Taken> {
        let plugin = fs::canonicalize(plugin).with_context(|| {
            format!("no plugin {}: build the languages first", plugin.display())
        })?;
        let plugins = (0..number).map(|number| {
            json!({
                "name": format!("plugin-{number}"),
                "source": format!("file:{}", plugin.display()),
                "settings": {"allowed": [format!("registry-{number}.example.com")]},
            })
        });
        let configuration = json!({
            "tls": {"selfSigned": {}},
            "engine": {"cacheDirectory": self.0.join("code")},
            "plugins": plugins.collect::<Vec<_>>(),
        });
        let file = self.0.join("tollgate.yaml");
        fs::write(&file, configuration.to_string())?;
        let (began, cpu) = (Instant::now(), cpu_of_children()?);
        let output = Command::new(binary)
            .args(["check", "--config"])
            .arg(&file)
            .stdin(Stdio::null())
            .output()
            .with_context(|| binary.display().to_string())?;
        let wall = began.elapsed();
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "{} did not load {}:\n{said}{}",
            binary.display(),
            plugin.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(Taken {
            wall,
            cpu: cpu_of_children()?.saturating_sub(cpu),
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _: std::io::Result<()> = fs::remove_dir_all(&self.0);
    }
}

/// CPU time of all children that have ended, with their own children.
fn cpu_of_children() -> anyhow::Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat
        .rsplit_once(')')
        .context("/proc/self/stat has no name")?;
    let fields: Vec<_> = fields.split_ascii_whitespace().collect();
    let ticks = [CHILDREN_USER, CHILDREN_SYSTEM].map(|field| {
        let ticks = fields.get(field).and_then(|ticks| ticks.parse().ok());
        ticks.unwrap_or(0_u32)
    });
    Ok(PROC_TICK * ticks.iter().sum())
}
