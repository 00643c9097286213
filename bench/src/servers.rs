//! Runs the servers of all sides: the host as it ships, the native control, and the peers.

use std::collections::HashMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use serde::Serialize;
use tollgate_tests::binary::profile_directory;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::server::{Server, Start};

use crate::documents::UID;
use crate::peers::Certificates;
use crate::plugins::{Language, Work};

/// The program that answers.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Side {
    /// `tollgate serve` with `engine.answerCache: 0`, so that every call runs.
    Host,
    /// `tollgate serve` as it ships, which knows the answers to the same review from earlier ones.
    Known,
    /// The same with reviews that all differ in a value that the plugins read, so that every call runs.
    New,
    /// The control with the same checks compiled in.
    Native,
    /// The control without any check.
    Empty,
    /// A webhook in Go: controller-runtime with a typed Pod and one check.
    ControllerRuntime,
    /// A webhook in Rust: hyper, rustls and kube-rs with a typed Pod and one check.
    KubeRs,
    /// The webhook in Rust, which reads each body and does not parse it.
    Floor,
}

/// The properties of one server.
#[derive(Clone, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Setup {
    /// The program.
    pub side: Side,
    /// The work of its plugins.
    pub work: Work,
    /// The language of its plugins.
    pub language: Language,
    /// Number of plugins, each of which is a separate module.
    pub plugins: usize,
    /// Number of server threads.
    pub threads: usize,
}

/// The running servers. Each starts when it is first needed and runs until no group needs it.
pub struct Fleet {
    running: HashMap<Setup, Server>,
    code: PathBuf,
    certificates: Certificates,
}

// === impl Side ===

impl Side {
    /// Whether this is Tollgate.
    #[must_use]
    pub fn is_host(self) -> bool {
        matches!(self, Self::Host | Self::Known | Self::New)
    }

    /// The name in a table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Known => "host, known",
            Self::New => "host, new",
            Self::Native => "native",
            Self::Empty => "empty native",
            Self::ControllerRuntime => "go webhook",
            Self::KubeRs => "kube-rs",
            Self::Floor => "floor",
        }
    }
}

// === impl Setup ===

impl Setup {
    /// The plugins' work for a table, with the language if the case compares languages.
    #[must_use]
    pub fn work(&self) -> String {
        match (self.work, self.side) {
            (Work::Images, side) if side.is_host() => {
                format!("{}, {}", self.work.name(), self.language.name())
            }
            _ => self.work.name().to_owned(),
        }
    }
}

// === impl Fleet ===

impl Fleet {
    /// Creates a fleet without running servers. Compiled plugins are kept in the target folder for the next run.
    ///
    /// # Errors
    /// Fails if that folder or the peers' certificates cannot be created.
    pub fn new() -> anyhow::Result<Self> {
        let code = profile_directory().join("bench-code");
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&code)
            .with_context(|| format!("cannot create {}", code.display()))?;
        Ok(Self {
            running: HashMap::new(),
            code,
            certificates: Certificates::new()?,
        })
    }

    /// Returns the server of a setup, and starts it if needed.
    ///
    /// # Errors
    /// Fails if a plugin is not loaded, because it would then cost nothing.
    ///
    /// # Panics
    /// Panics if the server does not start.
    pub fn get(&mut self, setup: &Setup) -> anyhow::Result<&Server> {
        if !self.running.contains_key(setup) {
            self.running.insert(setup.clone(), self.start(setup)?);
        }
        Ok(&self.running[setup])
    }

    /// Stops the servers that are not among the setups.
    pub fn keep(&mut self, setups: &[&Setup]) {
        self.running.retain(|setup, _| setups.contains(&setup));
    }

    fn start(&self, setup: &Setup) -> anyhow::Result<Server> {
        let code = self.code.display().to_string();
        let mut configuration = Configuration::new()
            .with("allowEmpty", true)
            .with("engine.cacheDirectory", code)
            .with("engine.loadTimeout", "5m");
        let (work, plugins) = (setup.work, setup.plugins);
        if setup.side == Side::Host {
            configuration = configuration.with("engine.answerCache", 0);
        }
        work.configure(&setup.language, plugins, &mut configuration);
        let threads = setup.threads.to_string();
        let mut start = Start::default()
            .environment("TOKIO_WORKER_THREADS", &threads)
            .environment("GOMAXPROCS", &threads);
        if let Some(program) = setup.side.peer() {
            start = self.certificates.give(start.program(program));
        } else if !setup.side.is_host() {
            start = start.program(profile_directory().join("native-control"));
        }
        start = match setup.side {
            Side::Empty => start.argument("--empty"),
            Side::Floor => start.argument("--floor").argument(UID),
            _ => start,
        };
        let server = start.start(configuration);
        if setup.side.is_host() {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(server.assert_all_loaded());
        }
        Ok(server)
    }
}
