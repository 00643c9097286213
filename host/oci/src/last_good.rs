//! Records of the plugins that served last. If a desired version cannot be loaded at the next start, the recorded
//! version serves.
//!
//! Each configuration has a folder beside the artifacts, with one file for each plugin:
//! `last-good/<configuration>/<plugin>.json`. Settings may be secret, so only the owner can read the files. A file is
//! created by renaming. A record names the artifacts that it needs, and the cache keeps them. The folder also has the
//! configuration in effect, as a document in the format of a configuration file.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tollgate_config::{
    Capability, Limits, PluginConfig, PluginName, Reference, Registries, Source,
};

use super::private::{UNFINISHED, write_private};

/// The records of one configuration.
#[derive(Clone, Debug)]
pub struct LastGood {
    /// The folder of all configurations that share the cache.
    all: PathBuf,
    folder: PathBuf,
}

/// The version of a plugin that served: its bytes, and the parts of its entry that decide how it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Served {
    /// The source of the bytes.
    pub source: Source,
    /// The digest of the bytes, as `/plugins` shows it.
    pub digest: String,
    /// The settings of the plugin.
    pub settings: Value,
    /// The limits of the plugin.
    pub limits: Limits,
    /// The capabilities of the plugin, which decide on its imports.
    pub capabilities: BTreeSet<Capability>,
}

/// The file format of a plugin's record.
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

/// The file format of a recorded configuration.
#[derive(Deserialize, Serialize)]
struct InForce {
    version: u32,
    document: Value,
}

/// The part of a record that the cache reads, in any version of the format.
#[derive(Deserialize)]
struct Needs {
    needs: Vec<String>,
}

const FOLDER: &str = "last-good";
/// Version of the file formats. A host ignores files of other versions, and replaces them with its own.
const VERSION: u32 = 1;
/// Name of the configuration's file. No record of a plugin has such a name.
const CONFIGURATION: &str = "configuration.last-good";
/// An unfinished file that is older than this is abandoned.
const LONGEST_WRITE: Duration = Duration::from_secs(60);
/// A record that has not been renewed for this long counts as unused.
const LONGEST_UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);

/// Stands for the slash in the name of a namespace's plugin. No label contains it.
const OF_NAMESPACE: &str = "_";

/// The name of the file of a plugin, without its extension.
fn stem(name: &PluginName) -> String {
    name.as_str().replace('/', OF_NAMESPACE)
}

// === impl LastGood ===

impl LastGood {
    /// The records of a configuration; `None` if nothing is kept on disk.
    #[must_use]
    pub fn new(registries: &Registries, origin: &Path) -> Option<Self> {
        Self::within(registries.cache_directory.as_ref()?, origin)
    }

    /// The records of a configuration within a cache; `None` if the path of the configuration cannot be made absolute.
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

    /// The recorded version of a plugin.
    #[must_use]
    pub fn of(&self, name: &PluginName) -> Option<Served> {
        Served::read(&self.path(name))
    }

    /// The limits of all recorded plugins, whether or not the plugins are still configured.
    #[must_use]
    pub fn limits(&self) -> Vec<Limits> {
        let served = files(&self.folder).filter_map(|path| Served::read(&path));
        served.map(|served| served.limits).collect()
    }

    /// The recorded configuration, as a document; `None` if there is none that can be used.
    #[must_use]
    pub fn configuration(&self) -> Option<Value> {
        let path = self.folder.join(CONFIGURATION);
        let text = fs::read(&path).ok()?;
        let read: Option<InForce> = serde_json::from_slice(&text).ok();
        let in_force = read.filter(|in_force| in_force.version == VERSION);
        if in_force.is_none() {
            tracing::warn!(file = %path.display(), "ignoring the recorded configuration, because it is damaged or has another format version");
        }
        in_force.map(|in_force| in_force.document)
    }

    /// The names of the plugins that have records, without new versions of rollouts. A member of a group is a plugin.
    pub fn names(&self) -> Vec<PluginName> {
        let stems = files(&self.folder).filter_map(|path| {
            let stem = path.file_stem()?.to_str()?;
            let (entry, member) = match stem.split_once('.') {
                Some((entry, member)) => (entry, Some(member)),
                None => (stem, None),
            };
            let name = PluginName::parse_any(&entry.replacen(OF_NAMESPACE, "/", 1)).ok()?;
            let name = member.map_or(name.clone(), |member| name.of_member(member));
            Some(name).filter(|name| name.shadow_of().is_none())
        });
        stems.collect()
    }

    /// Records the configuration in effect, or renews its record.
    pub fn record_configuration(&self, document: Value) {
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
                "failed to record the configuration in effect (registries.cacheDirectory); a restart could not fall back to it"
            );
        }
    }

    /// Records the serving version of a plugin, or renews its record. `needs` are the digests of the artifacts that are
    /// needed to serve it again.
    pub fn record(&self, name: &PluginName, served: &Served, needs: Vec<String>) {
        if let Err(error) = self.write(name, served, needs) {
            tracing::warn!(
                plugin = %name, folder = %self.folder.display(), %error,
                "failed to record the serving version (registries.cacheDirectory); a restart could not fall back to it"
            );
        }
    }

    /// Deletes the records of all other plugins, and the files that a killed host left unfinished.
    pub fn retain(&self, names: &BTreeSet<&PluginName>) {
        for path in unfinished(&self.folder).filter(|path| is_older(path, LONGEST_WRITE)) {
            drop(fs::remove_file(&path));
        }
        for path in files(&self.folder) {
            let name = path.file_stem().and_then(|stem| stem.to_str());
            if !name.is_some_and(|name| names.iter().any(|wanted| stem(wanted) == name)) {
                // The file may be gone already.
                drop(fs::remove_file(&path));
            }
        }
    }

    /// Deletes the unused records of other configurations.
    pub fn clear_out(&self) {
        for folder in folders(&self.all).filter(|folder| *folder != self.folder) {
            let configuration = folder.join(CONFIGURATION);
            let all = files(&folder)
                .chain(unfinished(&folder))
                .chain([configuration]);
            for path in all.filter(|path| is_unused(path)) {
                drop(fs::remove_file(&path));
            }
            // This removes the folder only if it is empty.
            drop(fs::remove_dir(&folder));
        }
    }

    fn path(&self, name: &PluginName) -> PathBuf {
        self.folder.join(format!("{}.json", stem(name)))
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
            &format!("{}.json", stem(name)),
            &serde_json::to_vec_pretty(&record)?,
        )
    }

    /// Writes a file by renaming. If the file already has this content, only renews its time.
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
        write_private(&path, text)
    }
}

/// The artifacts that the records of all configurations need. Unused records do not count.
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
    /// The version of a plugin with this configuration and these bytes.
    pub fn of(config: &PluginConfig, digest: &str) -> Self {
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
            tracing::warn!(file = %path.display(), "ignoring the record of the last known good, because it is damaged or has another format version");
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
    fn record_round_trips_and_is_private() {
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
    fn ignores_damaged_record_and_other_format_version() {
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
    fn writes_record_only_when_it_changes() {
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
    fn keeps_records_of_configurations_apart() {
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
    fn records_of_namespaces_lie_beside_the_others() {
        let cache = tempfile::tempdir().unwrap();
        let records = records(cache.path(), "/etc/tollgate.yaml");
        let tenant = PluginName::of_tenant("team-a", "guard").unwrap();
        let plugin = name("guard");
        for name in [&tenant, &plugin] {
            records.record(name, &served(name.as_str(), json!({})), Vec::new());
        }
        let mut names = records.names();
        names.sort();
        assert_eq!(names, [plugin.clone(), tenant.clone()]);
        assert!(records.of(&tenant).is_some());
        records.retain(&BTreeSet::from([&plugin]));
        assert!(records.of(&tenant).is_none() && records.of(&plugin).is_some());
    }

    #[test]
    fn records_configuration_beside_plugins() {
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
    fn deletes_abandoned_files_but_no_recent_ones() {
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
