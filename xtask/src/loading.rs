//! `cargo xtask loading`: how long plugins take to load, beside another build.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::json;

/// Unit of CPU times in `/proc`.
const PROC_TICK: Duration = Duration::from_millis(10);
/// Places of the CPU times in `/proc/PID/stat`, behind the name of the program: user and system, of the process and of its
/// children that have ended.
const CPU_TIMES: [usize; 4] = [11, 12, 13, 14];
/// Longest time for a start.
const MAX_START: Duration = Duration::from_secs(300);
const LANGUAGES: [&str; 5] = ["rust", "c", "go", "javascript", "python"];

/// Measure how long plugins take to load, beside another build of `tollgate`.
///
/// Both builds run `tollgate serve` in turn, until `/readyz` is 200. There is no compiled code yet, unless the case says so.
/// Prints the medians and their ratio, and the time until optimised code serves where interim code served first. Build the
/// plugins first: `cargo test --workspace --test languages`.
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
    /// A plugin that another process has served before, with the same cache of compiled code.
    before: Option<PathBuf>,
}

/// The time of one start.
#[derive(Clone, Copy)]
struct Taken {
    wall: Duration,
    cpu: Duration,
    /// Wall-clock time until no plugin has interim code.
    optimised: Duration,
}

/// A folder that is deleted with this value.
struct Scratch(PathBuf);

/// A server that ends with this value.
struct Server(Child);

// === impl Loading ===

impl Loading {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        println!(
            "| case | ready before | after | ratio | CPU before | after | ratio | optimised |"
        );
        println!("|---|---:|---:|---:|---:|---:|---:|---:|");
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
            let optimised = median(&self.after, |taken| taken.optimised);
            println!(
                "| {} | {} | {optimised:.2} s |",
                case.name,
                columns.join(" | ")
            );
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
        for (language, number) in [("rust", 100), ("python", 1)] {
            let name = format!("{number} in {language}, compiled before");
            cases.push(case(name, language, number, Some(plugin(language))));
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
            scratch.serve(binary, before, self.number)?;
        }
        scratch.serve(binary, &self.plugin, self.number)
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

    /// Serves the plugin under a number of names and settings, until all code is optimised.
    fn serve(&self, binary: &Path, plugin: &Path, number: usize) -> anyhow::Result<Taken> {
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
        let log = self.0.join("log");
        let [probes, admin] = free_ports()?;
        let began = Instant::now();
        let server = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(&file)
            .args(["--probes-listen", &probes, "--admin-listen", &admin])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?)
            .spawn()
            .with_context(|| binary.display().to_string())?;
        let process = server.id();
        let mut server = Server(server);
        let mut until = |what: &str, is_so: &dyn Fn() -> anyhow::Result<bool>| {
            while !is_so()? {
                let said = || fs::read_to_string(&log).unwrap_or_default();
                ensure!(
                    server.0.try_wait()?.is_none(),
                    "the server ended:\n{}",
                    said()
                );
                ensure!(began.elapsed() < MAX_START, "never {what}:\n{}", said());
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(began.elapsed())
        };
        let is_ready =
            || Ok(get(&probes, "/readyz").is_some_and(|answer| answer.starts_with("HTTP/1.1 200")));
        let wall = until("ready", &is_ready)?;
        let cpu = cpu_with_children(process)?;
        let plugins = || {
            let answer = get(&admin, "/plugins").context("there is no answer from /plugins")?;
            Ok::<_, anyhow::Error>(answer.replace(char::is_whitespace, ""))
        };
        let has_interim_code = || Ok(!plugins()?.contains(r#""code":"interim""#));
        let optimised = until("optimised", &has_interim_code)?;
        let loaded = plugins()?.matches(r#""state":"loaded""#).count();
        ensure!(
            loaded == number,
            "{} loaded {loaded} of {number}: {}",
            binary.display(),
            fs::read_to_string(&log)?
        );
        Ok(Taken {
            wall,
            cpu,
            optimised,
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _: std::io::Result<()> = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _: std::io::Result<()> = self.0.kill();
        let _: std::io::Result<ExitStatus> = self.0.wait();
    }
}

/// Addresses that nothing listens on.
fn free_ports() -> anyhow::Result<[String; 2]> {
    let open = || TcpListener::bind("127.0.0.1:0");
    let (one, other) = (open()?, open()?);
    Ok([one, other].map(|listener| {
        let address = listener.local_addr();
        address.map_or_else(|_| String::new(), |address| address.to_string())
    }))
}

/// The whole answer to a request. None if there is none.
fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// CPU time of a process, and of its children that have ended.
fn cpu_with_children(process: u32) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, fields) = stat
        .rsplit_once(')')
        .context("the statistics have no name")?;
    let fields: Vec<_> = fields.split_ascii_whitespace().collect();
    let ticks = CPU_TIMES.map(|field| {
        let ticks = fields.get(field).and_then(|ticks| ticks.parse().ok());
        ticks.unwrap_or(0_u32)
    });
    Ok(PROC_TICK * ticks.iter().sum())
}
