use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tollgate_config::PluginName;

use super::begun;
use crate::{By, Identity, Phase, State, Store, Unusable};

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
    assert_eq!(store.read(&guard(), &state.identity).unwrap(), None);
    store.write(&guard(), &state).unwrap();
    let read = store.read(&guard(), &state.identity).unwrap();
    assert_eq!(read, Some(state.clone()));
    let file = only_file(cache.path());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    // Another configuration has its own files.
    let elsewhere = Store::within(cache.path(), Path::new("/etc/other.yaml")).unwrap();
    assert_eq!(elsewhere.read(&guard(), &state.identity).unwrap(), None);
}

#[test]
fn refuses_files_that_are_damaged_too_long_or_of_another_version() {
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
        text.replace("\"step\": 0", "\"step\": 18446744073709551615"),
    ];
    for text in unusable {
        fs::write(&file, text).unwrap();
        let read = store.read(&guard(), &state.identity);
        assert!(matches!(read, Err(Unusable::Damaged { .. })), "{read:?}");
    }
    // A folder in its place can be opened, but not read.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let read = store.read(&guard(), &state.identity);
    assert!(matches!(read, Err(Unusable::Unreadable { .. })), "{read:?}");
    fs::remove_dir(&file).unwrap();
    fs::write(&file, text).unwrap();
    let read = store.read(&guard(), &state.identity).unwrap();
    assert_eq!(read, Some(state));
}

#[test]
fn state_is_found_without_the_bytes_of_the_new_version() {
    let cache = tempfile::tempdir().unwrap();
    let store = Store::within(cache.path(), Path::new("/etc/tollgate.yaml")).unwrap();
    let unknown = Identity::stored("0123456789abcdef");
    let of = |digits: &str, at: u64| State::begin(Identity::stored(digits), at);
    let read = |identity: &Identity| store.read(&guard(), identity).unwrap();
    assert_eq!(read(&unknown), None, "there is no folder yet");
    let older = of("0123456789abcdef1111111111111111", 1);
    let newer = of("0123456789abcdef2222222222222222", 2);
    for state in [&newer, &older, &of("ffff456789abcdef2222222222222222", 3)] {
        store.write(&guard(), state).unwrap();
    }
    assert_eq!(read(&unknown), Some(newer.clone()));
    // Rolled back without the bytes: each version of the plan is, until one of them has taken the state over.
    let back = State::begin(unknown.clone(), 4).rolled_back(5).unwrap();
    store.write(&guard(), &back).unwrap();
    assert_eq!(read(&unknown).unwrap().phase, Phase::RolledBack);
    let taken = read(&newer.identity).unwrap();
    assert_eq!(
        (taken.phase, &taken.identity),
        (Phase::RolledBack, &newer.identity)
    );
    store.write(&guard(), &taken).unwrap();
    assert_eq!(read(&older.identity), Some(older));
    assert_eq!(read(&newer.identity), Some(taken));
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
    assert!(store.read(&guard(), &now.identity).unwrap().is_some());
    assert!(store.read(&guard(), &before.identity).unwrap().is_some());
    assert!(store.read(&labels, &now.identity).unwrap().is_none());
    store.retain(&BTreeMap::new());
    assert!(store.read(&guard(), &now.identity).unwrap().is_none());
}
