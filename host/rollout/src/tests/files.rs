use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tollgate_config::PluginName;

use super::begun;
use crate::{By, Identity, Phase, State, Store};

fn guard() -> PluginName {
    PluginName::parse("guard").unwrap()
}

fn other(identity: &str) -> State {
    let identity: Identity = serde_json::from_value(identity.into()).unwrap();
    State::begin(identity, 3)
}

fn only_file(folder: &Path) -> std::path::PathBuf {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

#[test]
fn state_round_trips_and_is_private() {
    let cache = tempfile::tempdir().unwrap();
    let store = Store::within(cache.path(), Path::new("/etc/tollgate.yaml")).unwrap();
    let state = begun().changed(
        Phase::Stopped,
        0,
        By::Gates,
        "1 new denial(s)".to_owned(),
        5,
    );
    assert_eq!(store.read(&guard(), &state.identity), None);
    store.write(&guard(), &state).unwrap();
    assert_eq!(store.read(&guard(), &state.identity), Some(state.clone()));
    let file = only_file(cache.path());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    // Another configuration has its own files.
    let elsewhere = Store::within(cache.path(), Path::new("/etc/other.yaml")).unwrap();
    assert_eq!(elsewhere.read(&guard(), &state.identity), None);
}

#[test]
fn ignores_files_that_are_damaged_too_long_or_of_another_version() {
    let cache = tempfile::tempdir().unwrap();
    let store = Store::within(cache.path(), Path::new("/etc/tollgate.yaml")).unwrap();
    let state = begun();
    store.write(&guard(), &state).unwrap();
    let file = only_file(cache.path());
    let text = fs::read_to_string(&file).unwrap();
    let unusable = [
        text.replace("\"version\": 1", "\"version\": 2"),
        text[..text.len() / 2].to_owned(),
        text.clone() + &" ".repeat(64 << 10),
        text.replace(state.identity.as_str(), "0123"),
    ];
    for text in unusable {
        fs::write(&file, text).unwrap();
        assert_eq!(store.read(&guard(), &state.identity), None);
    }
    fs::write(&file, text).unwrap();
    assert_eq!(store.read(&guard(), &state.identity), Some(state));
}

#[test]
fn keeps_files_of_rollouts_in_the_configuration() {
    let cache = tempfile::tempdir().unwrap();
    let store = Store::within(cache.path(), Path::new("/etc/tollgate.yaml")).unwrap();
    let (now, before, labels) = (
        other("aa"),
        other("bb"),
        PluginName::parse("labels").unwrap(),
    );
    for (name, state) in [(&guard(), &now), (&guard(), &before), (&labels, &now)] {
        store.write(name, state).unwrap();
    }
    store.retain(&BTreeMap::from([(&guard(), Some(&now.identity))]));
    store.retain(&BTreeMap::from([(&guard(), None)]));
    // An earlier rollout of the plugin is remembered, so that its return does not begin what was rolled back.
    assert!(store.read(&guard(), &now.identity).is_some());
    assert!(store.read(&guard(), &before.identity).is_some());
    assert!(store.read(&labels, &now.identity).is_none());
    store.retain(&BTreeMap::new());
    assert!(store.read(&guard(), &now.identity).is_none());
}
