//! Tests the reconciler in a simulated world. The test decides when loads end and when time passes.

mod cases;
mod property;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_config::stamp::Stamp;
use tollgate_config::{Config, Source};

use super::*;

/// Code that is reduced to the requests that it denies.
#[derive(Clone, Debug)]
struct TestCode {
    identity: Arc<()>,
    denies: u8,
    /// Whether the plugin's own `describe` names rules.
    has_rules: bool,
}

impl Code for TestCode {
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.identity, &other.identity)
    }

    fn fits(&self, config: &PluginConfig) -> Result<(), String> {
        if self.has_rules || config.matching.is_some() {
            Ok(())
        } else {
            Err("no rules".to_owned())
        }
    }
}

/// The state under test, and the steps that it has ordered so far.
struct World {
    state: State<TestCode>,
    now: Instant,
    loads: BTreeMap<Ticket, Order>,
    recalls: BTreeMap<Ticket, RecallOrder>,
    published: Option<Vec<Place<TestCode>>>,
    /// The plugins that each publication changed.
    swaps: Vec<Vec<String>>,
    /// The records on disk.
    record: LastKnownGood,
    answers: Vec<Report>,
    notes: Vec<Note>,
    last_caller: u64,
    versions: BTreeMap<std::path::PathBuf, u64>,
}

// === impl World ===

impl World {
    /// Starts a process with this configuration and with the records of an earlier process.
    fn started(text: &str, record: LastKnownGood) -> Self {
        let now = Instant::now();
        let minute = Duration::from_secs(60);
        let mut world = Self {
            state: State::new(entries(text), record.clone(), minute, 7, now),
            now,
            loads: BTreeMap::new(),
            recalls: BTreeMap::new(),
            published: None,
            swaps: Vec::new(),
            record,
            answers: Vec::new(),
            notes: Vec::new(),
            last_caller: 0,
            versions: BTreeMap::new(),
        };
        world.read(text);
        world
    }

    /// A world in which this whole configuration serves.
    fn serving(text: &str) -> Self {
        let mut world = Self::started(text, LastKnownGood::default());
        world.finish_all();
        world
    }

    fn read(&mut self, text: &str) {
        self.observe(Ok(entries(text)), false, false);
    }

    fn observe(
        &mut self,
        read: Result<Vec<PluginConfig>, String>,
        everything: bool,
        has_caller: bool,
    ) {
        let paths: Vec<_> = match &read {
            Ok(entries) => entries.iter().flat_map(files).cloned().collect(),
            Err(_) => self.state.files(),
        };
        let stamps = paths.into_iter().map(|path| {
            let version = self.versions.get(&path).copied().unwrap_or_default();
            (path, Some(Stamp::of_version(version)))
        });
        self.last_caller += 1;
        let event = Event::Read {
            read: read.map(|entries| (entries, Vec::new())),
            meanwhile: None,
            stamps: stamps.collect(),
            everything,
            caller_ids: if has_caller {
                vec![CallerId(self.last_caller)]
            } else {
                Vec::new()
            },
        };
        self.apply(event);
    }

    /// A caller asks for a reload.
    fn request_reload(&mut self, text: &str) {
        self.observe(Ok(entries(text)), true, true);
    }

    /// Replaces a plugin's file, or a key, with another version.
    fn replace(&mut self, file: &str, text: &str) {
        *self.versions.entry(Path::new("/").join(file)).or_default() += 1;
        self.read(text);
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(wake) = self.state.next_wake().filter(|wake| *wake <= end) {
            self.now = self.now.max(wake);
            self.apply(Event::Tick);
            assert!(
                self.state.next_wake().is_none_or(|next| next > self.now),
                "the next wake is not in the future"
            );
        }
        self.now = end;
    }

    fn apply(&mut self, event: Event<TestCode>) {
        for step in self.state.apply(event, self.now) {
            match step {
                Step::Load(order) => {
                    let name = &order.config.name;
                    let other = self.loads.values().find(|load| load.config.name == *name);
                    assert!(other.is_none(), "two loads of {name}");
                    self.loads.insert(order.ticket, order);
                }
                Step::Recall(order) => {
                    self.recalls.insert(order.ticket, order);
                }
                Step::Abort(ticket) => {
                    let load = self.loads.remove(&ticket).is_some();
                    assert!(
                        load | self.recalls.remove(&ticket).is_some(),
                        "nothing to abort"
                    );
                }
                Step::Publish { places, changed } => {
                    self.published = Some(places);
                    let changed = changed.iter().map(ToString::to_string);
                    self.swaps.push(changed.collect());
                }
                Step::Record => self.record = record(self.state.places()),
                Step::Answer { report, .. } => self.answers.push(report),
                Step::Note(note) => self.notes.push(note),
            }
        }
    }

    fn ticket(&self, name: &str) -> Ticket {
        let found = self
            .loads
            .iter()
            .find(|(_, load)| load.config.name.as_str() == name);
        *found
            .unwrap_or_else(|| panic!("{name} is not being loaded"))
            .0
    }

    /// The order of the load that is under way.
    fn order(&self, name: &str) -> &Order {
        &self.loads[&self.ticket(name)]
    }

    fn is_loading(&self, name: &str) -> bool {
        self.loads
            .values()
            .any(|load| load.config.name.as_str() == name)
    }

    /// Ends a load with success.
    fn finish(&mut self, name: &str) {
        let ticket = self.ticket(name);
        self.end(ticket, Ok(()));
    }

    /// Ends a load with a failure.
    fn fail(&mut self, name: &str) {
        let ticket = self.ticket(name);
        self.end(ticket, Err("No such file"));
    }

    fn end(&mut self, ticket: Ticket, end: Result<(), &str>) {
        let Some(order) = self.loads.remove(&ticket) else {
            return;
        };
        let digest = self.digest(&order.config);
        let outcome = match end {
            Err(reason) => Err(Failure {
                reason: reason.to_owned(),
                digest: None,
                is_unsigned: false,
            }),
            Ok(()) if order.have.as_ref() == Some(&digest) => {
                Ok(Outcome::Unchanged { is_cached: false })
            }
            Ok(()) => Ok(Outcome::New {
                loaded: loaded(&order.config, digest),
                is_cached: false,
            }),
        };
        self.apply(Event::Loaded { ticket, outcome });
    }

    /// Ends every load with success, one after another.
    fn finish_all(&mut self) {
        while let Some(ticket) = self.loads.keys().next().copied() {
            self.end(ticket, Ok(()));
        }
    }

    /// Ends every recall with success.
    fn recall_all(&mut self) {
        while let Some((ticket, order)) = self.recalls.pop_first() {
            let digest = self.record.plugins[&order.before.name].clone();
            let loaded = loaded(&order.before, digest);
            let config = order.before;
            let outcome = Ok(Recalled { config, loaded });
            self.apply(Event::Recalled { ticket, outcome });
        }
    }

    fn digest(&self, config: &PluginConfig) -> Arc<str> {
        let path = match &config.source {
            Source::File(path) => path.clone(),
            Source::Oci(_) => std::path::PathBuf::new(),
        };
        let version = self.versions.get(&path).copied().unwrap_or_default();
        format!("{}@{version}", config.source).into()
    }

    /// The plugins in effect, as text: the name and the file, `!` if there is no code to call, `-` if the plugin is
    /// disabled.
    fn in_force(&self) -> Vec<String> {
        let Some(published) = &self.published else {
            return vec!["nothing".to_owned()];
        };
        let words = published.iter().map(|place| {
            let name = &place.config.name;
            match &place.serving {
                Serving::Code(loaded) => {
                    format!("{name} {}", loaded.digest.trim_start_matches("file:/"))
                }
                Serving::Failed { .. } => format!("{name} !"),
                Serving::Disabled => format!("{name} -"),
            }
        });
        words.collect()
    }

    fn held(&self) -> Vec<(String, HeldBecause)> {
        let held = self.state.snapshot().held;
        let held = held.into_iter().flat_map(|held| held.plugins);
        held.map(|(name, because)| (name.to_string(), because))
            .collect()
    }

    fn place(&self, name: &str) -> &Place<TestCode> {
        let mut places = self.published.iter().flatten();
        let place = places.find(|place| place.config.name.as_str() == name);
        place.unwrap_or_else(|| panic!("{name} is not in force"))
    }

    fn config(&self, name: &str) -> &PluginConfig {
        &self.place(name).config
    }

    /// The code that serves.
    fn code(&self, name: &str) -> TestCode {
        let code = self.place(name).code();
        code.unwrap_or_else(|| panic!("{name} has no code"))
            .code
            .clone()
    }
}

/// Stands for the slash in the name of a namespace's plugin, which a file cannot have.
const OF_NAMESPACE: &str = "--";

/// Reads entries in short form: `name: keys`, one on each line. The default source is `file:/NAME.wasm`.
fn entries(text: &str) -> Vec<PluginConfig> {
    let entries = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| {
            let (name, keys) = line.split_once(':').unwrap_or((line, ""));
            let keys = keys.trim();
            let own = keys.split("shadow").next().unwrap_or_default();
            let own = own.split("rollout").next().unwrap_or_default();
            let source = if own.contains("source:") {
                String::new()
            } else {
                format!(", source: 'file:/{name}.wasm'")
            };
            let keys = if keys.is_empty() {
                String::new()
            } else {
                format!(", {keys}")
            };
            let name = name.replace('/', OF_NAMESPACE);
            format!("{{ name: {name}{source}{keys} }}")
        });
    let entries: Vec<String> = entries.collect();
    let text = format!(
        "allowEmpty: true\nregistries: {{ cacheDirectory: /cache }}\nplugins: [{}]",
        entries.join(", ")
    );
    let mut config =
        Config::parse(&text, Path::new("/")).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut entries = config.take_plugins();
    for entry in &mut entries {
        let Some((namespace, name)) = entry.name.entry().split_once(OF_NAMESPACE) else {
            continue;
        };
        let name = PluginName::of_tenant(namespace, name).unwrap();
        if let Some(group) = entry.group.as_deref() {
            let name = name.clone();
            entry.group = Some(Arc::new(tollgate_config::Group {
                name,
                ..group.clone()
            }));
        }
        entry.name = match entry.name.member() {
            Some(member) => name.of_member(member),
            None => name,
        };
    }
    entries
}

fn loaded(config: &PluginConfig, digest: Arc<str>) -> Loaded<TestCode> {
    Loaded {
        digest,
        code: TestCode {
            identity: Arc::new(()),
            denies: denies(config),
            has_rules: !config.source.to_string().contains("without-rules"),
        },
        stale: None,
        keys: None,
    }
}

/// The requests that a version denies, as bits. The bits depend only on the file and the settings.
fn denies(config: &PluginConfig) -> u8 {
    let text = format!("{}{}", config.source, config.settings);
    let mixed = text.bytes().fold(7_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    u8::try_from((mixed >> 7) & 0b111).unwrap_or_default()
}

fn record(places: &[Place<TestCode>]) -> LastKnownGood {
    let places = || places.iter().filter(|place| !place.config.is_shadow());
    let plugins = places().filter_map(|place| {
        let Serving::Code(loaded) = &place.serving else {
            return None;
        };
        Some((place.config.name.clone(), loaded.digest.clone()))
    });
    LastKnownGood {
        entries: Some(places().map(|place| place.config.clone()).collect()),
        plugins: plugins.collect(),
    }
}
