//! What served last, written down for the next start: where what is wanted cannot be had by then, this goes on.
//!
//! One file for each plugin, in a folder for each configuration, beside the artifacts:
//! `last-good/<configuration>/<plugin>.json`. Settings may be secret, so nobody else may read them. A file comes into
//! being by renaming, and names the artifacts that it needs, which the cache keeps for its sake. The configuration that is
//! in force is beside them, as a document that reads as a configuration file does.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::config::{Capability, Limits, PluginConfig, PluginName, Reference, Registries, Source};

/// The records of one configuration.
#[derive(Clone, Debug)]
pub struct LastGood {
    /// Of all configurations that share the cache.
    all: PathBuf,
    folder: PathBuf,
}

/// What decides how a plugin runs: which bytes, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Served {
    /// Where the bytes were from.
    pub source: Source,
    /// What they are, as `/plugins` has it.
    pub digest: String,
    /// What it was configured with.
    pub settings: Value,
    /// What it could use.
    pub limits: Limits,
    /// What it could import.
    pub capabilities: BTreeSet<Capability>,
}

/// A record as it is written.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    version: u32,
    source: String,
    digest: String,
    settings: Value,
    limits: Limits,
    capabilities: BTreeSet<Capability>,
    needs: Vec<String>,
}

/// A configuration as it is written.
#[derive(Deserialize, Serialize)]
struct InForce {
    version: u32,
    document: Value,
}

/// What the cache has to know of a record, whatever its version.
#[derive(Deserialize)]
struct Needs {
    needs: Vec<String>,
}

const FOLDER: &str = "last-good";
/// A host of another version leaves what it cannot read alone, and writes its own over it.
const VERSION: u32 = 1;
/// The file of the configuration. No plugin has a file like this.
const CONFIGURATION: &str = "configuration.last-good";
/// What begins a file's name until it is whole.
const UNFINISHED: &str = ".new-";
/// Whoever wrote a file for so long is gone.
const LONGEST_WRITE: Duration = Duration::from_secs(60);
/// A configuration that nobody has served for so long is gone.
const LONGEST_UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);

// === impl LastGood ===

impl LastGood {
    /// The records of a configuration; none where nothing is kept on disk.
    #[must_use]
    pub fn new(registries: &Registries, origin: &Path) -> Option<Self> {
        Self::within(registries.cache_directory.as_ref()?, origin)
    }

    /// The records of a configuration within a cache; none where there is no such path.
    #[must_use]
    pub fn within(cache: &Path, origin: &Path) -> Option<Self> {
        let all = cache.join(FOLDER);
        let origin = std::path::absolute(origin).ok()?;
        let mut name = format!(
            "{:x}",
            Sha256::digest(origin.as_os_str().as_encoded_bytes())
        );
        name.truncate(16);
        let folder = all.join(name);
        Some(Self { all, folder })
    }

    /// What served last of a plugin.
    #[must_use]
    pub fn of(&self, name: &PluginName) -> Option<Served> {
        Served::read(&self.path(name))
    }

    /// What plugins had the last time, whether or not they are configured by now.
    #[must_use]
    pub fn limits(&self) -> Vec<Limits> {
        let served = files(&self.folder).filter_map(|path| Served::read(&path));
        served.map(|served| served.limits).collect()
    }

    /// The configuration that was in force, as a document; none where none was recorded.
    #[must_use]
    pub fn configuration(&self) -> Option<Value> {
        let path = self.folder.join(CONFIGURATION);
        let text = fs::read(&path).ok()?;
        let read: Option<InForce> = serde_json::from_slice(&text).ok();
        let in_force = read.filter(|in_force| in_force.version == VERSION);
        if in_force.is_none() {
            tracing::warn!(file = %path.display(), "the recorded configuration is damaged or another version's; it is not used");
        }
        in_force.map(|in_force| in_force.document)
    }

    /// The names of the plugins that have records.
    pub(crate) fn names(&self) -> Vec<PluginName> {
        let stems = files(&self.folder).filter_map(|path| {
            let stem = path.file_stem()?.to_str()?;
            PluginName::parse(stem).ok()
        });
        stems.collect()
    }

    /// Records the configuration that is in force, and that it still is.
    pub(crate) fn record_configuration(&self, document: Value) {
        let in_force = InForce {
            version: VERSION,
            document,
        };
        let written = serde_json::to_vec_pretty(&in_force)
            .map_err(io::Error::from)
            .and_then(|text| self.put(CONFIGURATION, &text));
        if let Err(error) = written {
            tracing::warn!(
                folder = %self.folder.display(), %error,
                "failed to record the configuration in force (registries.cacheDirectory); a start could not fall back to it"
            );
        }
    }

    /// Writes down what serves now, and that it still does; `needs` are the artifacts by which it could be served again.
    pub(crate) fn record(&self, name: &PluginName, served: &Served, needs: Vec<String>) {
        if let Err(error) = self.write(name, served, needs) {
            tracing::warn!(
                plugin = %name, folder = %self.folder.display(), %error,
                "what serves cannot be written down (registries.cacheDirectory); a start could not fall back to it"
            );
        }
    }

    /// Forgets all but these, and what a host that was killed left unfinished.
    pub(crate) fn retain(&self, names: &BTreeSet<&PluginName>) {
        for path in unfinished(&self.folder).filter(|path| is_older(path, LONGEST_WRITE)) {
            drop(fs::remove_file(&path));
        }
        for path in files(&self.folder) {
            let name = path.file_stem().and_then(|stem| stem.to_str());
            if !name.is_some_and(|name| names.iter().any(|wanted| wanted.as_str() == name)) {
                // It may be gone already.
                drop(fs::remove_file(&path));
            }
        }
    }

    /// Removes the records of other configurations that nobody serves any more.
    pub(crate) fn clear_out(&self) {
        for folder in folders(&self.all).filter(|folder| *folder != self.folder) {
            let configuration = folder.join(CONFIGURATION);
            let all = files(&folder)
                .chain(unfinished(&folder))
                .chain([configuration]);
            for path in all.filter(|path| is_unused(path)) {
                drop(fs::remove_file(&path));
            }
            // Which it is only when it is empty.
            drop(fs::remove_dir(&folder));
        }
    }

    fn path(&self, name: &PluginName) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }

    fn write(&self, name: &PluginName, served: &Served, needs: Vec<String>) -> io::Result<()> {
        let record = Record {
            version: VERSION,
            source: served.source.to_string(),
            digest: served.digest.clone(),
            settings: served.settings.clone(),
            limits: served.limits.clone(),
            capabilities: served.capabilities.clone(),
            needs,
        };
        self.put(
            &format!("{name}.json"),
            &serde_json::to_vec_pretty(&record)?,
        )
    }

    /// Makes a file by renaming, or says of one that it still holds.
    fn put(&self, name: &str, text: &[u8]) -> io::Result<()> {
        let path = self.folder.join(name);
        if fs::read(&path).is_ok_and(|written| written == text) {
            return File::open(&path)?.set_modified(SystemTime::now());
        }
        for folder in [&self.all, &self.folder] {
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?,
            }
        }
        // For its owner alone, as all temporary files are.
        let mut file = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .tempfile_in(&self.folder)?;
        file.write_all(text)?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        Ok(())
    }
}

/// The artifacts that records of any configuration need.
pub(super) fn needed(cache: &Path) -> BTreeSet<String> {
    let records = folders(&cache.join(FOLDER)).flat_map(|folder| files(&folder));
    let needs = records.filter(|path| !is_unused(path)).filter_map(|path| {
        let needs: Needs = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        Some(needs.needs)
    });
    needs.flatten().collect()
}

fn is_unused(path: &Path) -> bool {
    is_older(path, LONGEST_UNUSED)
}

fn is_older(path: &Path, limit: Duration) -> bool {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > limit))
}

fn folders(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    entries(folder).filter(|path| path.is_dir())
}

fn files(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    entries(folder).filter(|path| path.extension().is_some_and(|kind| kind == "json"))
}

fn unfinished(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    entries(folder).filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(UNFINISHED))
    })
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

// === impl Served ===

impl Served {
    /// What a plugin of this configuration and these bytes is.
    pub(crate) fn of(config: &PluginConfig, digest: &str) -> Self {
        Self {
            source: config.source.clone(),
            digest: digest.to_owned(),
            settings: config.settings.clone(),
            limits: config.limits.clone(),
            capabilities: config.capabilities.clone(),
        }
    }

    fn read(path: &Path) -> Option<Self> {
        let text = fs::read(path).ok()?;
        let read = || -> Option<Self> {
            let record: Record = serde_json::from_slice(&text).ok()?;
            let source = match record.source.strip_prefix("oci://") {
                Some(reference) => Source::Oci(Reference::parse(reference).ok()?),
                None => Source::File(record.source.strip_prefix("file:")?.into()),
            };
            (record.version == VERSION).then_some(Self {
                source,
                digest: record.digest,
                settings: record.settings,
                limits: record.limits,
                capabilities: record.capabilities,
            })
        };
        let served = read();
        if served.is_none() {
            tracing::warn!(file = %path.display(), "the record of what served last is damaged or another version's; it is not used");
        }
        served
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn name(name: &str) -> PluginName {
        PluginName::parse(name).unwrap()
    }

    fn served(source: &str, settings: Value) -> Served {
        let source = match source.strip_prefix("oci://") {
            Some(reference) => Source::Oci(Reference::parse(reference).unwrap()),
            None => Source::File(source.into()),
        };
        let mut config = PluginConfig::new(name("a"), source);
        config.settings = settings;
        config.limits.fuel = 7;
        Served::of(&config, "sha256:1")
    }

    fn records(cache: &Path, origin: &str) -> LastGood {
        let registries = Registries {
            cache_directory: Some(cache.to_owned()),
            ..Registries::default()
        };
        LastGood::new(&registries, Path::new(origin)).unwrap()
    }

    #[test]
    fn reads_what_was_written_and_shows_it_to_nobody_else() {
        let cache = tempfile::tempdir().unwrap();
        let records = records(cache.path(), "/etc/tollgate.yaml");
        for source in ["/plugins/a.wasm", "oci://registry.example.com/a:1"] {
            let served = served(source, json!({"password": "secret"}));
            records.record(&name("a"), &served, Vec::new());
            assert_eq!(records.of(&name("a")), Some(served));
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&records.path(&name("a"))), 0o600);
        assert_eq!(mode(&records.folder), 0o700);
        assert_eq!(records.limits()[0].fuel, 7);
        assert_eq!(records.of(&name("b")), None);
    }

    #[test]
    fn a_damaged_record_and_one_of_another_version_are_none() {
        let cache = tempfile::tempdir().unwrap();
        let records = records(cache.path(), "/etc/tollgate.yaml");
        records.record(&name("a"), &served("/a.wasm", json!({})), Vec::new());
        let path = records.path(&name("a"));
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("\"version\": 1", "\"version\": 2")).unwrap();
        assert_eq!(records.of(&name("a")), None);
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        assert_eq!(records.of(&name("a")), None);
    }

    #[test]
    fn a_record_is_written_only_when_it_changes() {
        use std::os::unix::fs::MetadataExt as _;
        let cache = tempfile::tempdir().unwrap();
        let records = records(cache.path(), "/etc/tollgate.yaml");
        let inode = || fs::metadata(records.path(&name("a"))).unwrap().ino();
        records.record(&name("a"), &served("/a.wasm", json!({})), Vec::new());
        let first = inode();
        records.record(&name("a"), &served("/a.wasm", json!({})), Vec::new());
        assert_eq!(inode(), first);
        records.record(&name("a"), &served("/a.wasm", json!({"b": 1})), Vec::new());
        assert_ne!(inode(), first);
    }

    #[test]
    fn each_configuration_has_its_own_and_forgets_its_own() {
        let cache = tempfile::tempdir().unwrap();
        let (one, other) = (
            records(cache.path(), "/one"),
            records(cache.path(), "/other"),
        );
        let served = served("/a.wasm", json!({}));
        one.record(&name("a"), &served, vec!["sha256:a".to_owned()]);
        one.record(&name("b"), &served, vec!["sha256:b".to_owned()]);
        other.record(&name("a"), &served, vec!["sha256:c".to_owned()]);
        let needs = |digests: &[&str]| digests.iter().map(ToString::to_string).collect();
        assert_eq!(
            needed(cache.path()),
            needs(&["sha256:a", "sha256:b", "sha256:c"])
        );
        one.retain(&BTreeSet::from([&name("b")]));
        assert_eq!(one.of(&name("a")), None);
        assert_eq!(other.of(&name("a")), Some(served));
        assert_eq!(needed(cache.path()), needs(&["sha256:b", "sha256:c"]));

        let long_ago = SystemTime::now() - LONGEST_UNUSED - Duration::from_secs(1);
        let file = File::open(other.path(&name("a"))).unwrap();
        file.set_modified(long_ago).unwrap();
        assert_eq!(needed(cache.path()), needs(&["sha256:b"]));
        File::create(other.folder.join(".new-a"))
            .and_then(|file| file.set_modified(long_ago))
            .unwrap();
        one.clear_out();
        assert!(!other.folder.exists());
        assert!(one.of(&name("b")).is_some());
    }

    #[test]
    fn the_configuration_is_recorded_beside_the_plugins() {
        let cache = tempfile::tempdir().unwrap();
        let (one, other) = (
            records(cache.path(), "/one"),
            records(cache.path(), "/other"),
        );
        assert_eq!(one.configuration(), None);
        let document = json!({"plugins": [{"name": "a", "settings": {"password": "secret"}}]});
        other.record_configuration(document.clone());
        one.record_configuration(document.clone());
        one.record(
            &name("configuration"),
            &served("/a.wasm", json!({})),
            Vec::new(),
        );
        one.retain(&BTreeSet::from([&name("configuration")]));
        assert_eq!(one.configuration(), Some(document));
        assert_eq!(one.names(), [name("configuration")]);
        let path = one.folder.join(CONFIGURATION);
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        assert!(needed(cache.path()).is_empty());

        fs::write(&path, "{").unwrap();
        assert_eq!(one.configuration(), None);
        let long_ago = SystemTime::now() - LONGEST_UNUSED - Duration::from_secs(1);
        let file = File::open(other.folder.join(CONFIGURATION)).unwrap();
        file.set_modified(long_ago).unwrap();
        one.clear_out();
        assert!(!other.folder.exists());
    }

    #[test]
    fn what_was_left_unfinished_is_removed_and_what_is_being_written_is_not() {
        let cache = tempfile::tempdir().unwrap();
        let records = records(cache.path(), "/etc/tollgate.yaml");
        records.record(&name("a"), &served("/a.wasm", json!({})), Vec::new());
        let (left, begun) = (
            records.folder.join(".new-left"),
            records.folder.join(".new-begun"),
        );
        let file = File::create(&left).unwrap();
        file.set_modified(SystemTime::now() - LONGEST_WRITE - Duration::from_secs(1))
            .unwrap();
        File::create(&begun).unwrap();
        records.retain(&BTreeSet::from([&name("a")]));
        assert!(!left.exists());
        assert!(begun.exists());
        assert!(records.of(&name("a")).is_some());
    }
}
