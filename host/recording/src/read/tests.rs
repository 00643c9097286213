use std::time::{Duration, SystemTime};

use serde_json::json;
use tollgate_json::document::Json;

use crate::format::{Endpoint, Origin, PluginNote};
use crate::segment::{Ring, RingOptions};

use super::*;

fn options(max_bytes: u64) -> RingOptions {
    RingOptions {
        max_bytes,
        origin: Origin::Server,
        host: "test".to_owned(),
    }
}

fn record(index: u64, padding: &str) -> Record {
    Record {
        time: SystemTime::UNIX_EPOCH + Duration::from_secs(index),
        endpoint: Endpoint::Validate,
        only: None,
        set: None,
        calls: Vec::new(),
        answer: Json::from(json!({ "allowed": true })),
        review: Json::from(
            json!({ "request": { "uid": format!("u-{index}"), "padding": padding } }),
        ),
    }
}

fn set(version: &str) -> PluginSetNote {
    PluginSetNote {
        plugins: vec![PluginNote {
            name: "team".to_owned(),
            version: version.to_owned(),
            ..PluginNote::default()
        }],
    }
}

/// Text that hardly compresses.
fn noise(seed: u64, bytes: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let characters = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + u8::try_from(state % 26).unwrap())
    });
    characters.take(bytes).collect()
}

fn uids(records: &mut Records) -> Vec<u64> {
    let uids = records.map(|entry| {
        let uid = entry.record.review.at("/request/uid").unwrap().unwrap();
        uid.as_text().unwrap()[2..].parse().unwrap()
    });
    uids.collect()
}

#[test]
fn reads_back_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = Ring::open(folder.path(), options(1 << 20)).unwrap();
    for index in 0..10 {
        let set = set(if index < 5 { "1" } else { "2" });
        ring.add(record(index, ""), Some(&set)).unwrap();
        if index == 3 {
            assert_eq!(ring.flush().unwrap().reviews, 4);
        }
    }
    assert_eq!(ring.waiting(), 6);
    drop(ring);
    let recording = Recording::open(folder.path()).unwrap();
    assert_eq!(recording.segments(), 1);
    let entries: Vec<Entry> = recording.records().collect();
    assert_eq!(entries.len(), 10);
    for (index, entry) in entries.iter().enumerate() {
        assert_eq!(entry.number, index as u64 + 1);
        let version = &entry.plugins.as_ref().unwrap().plugins[0].version;
        assert_eq!(version, if index < 5 { "1" } else { "2" });
        let mut expected = record(index as u64, "");
        expected.set = entry.record.set;
        assert_eq!(entry.record, expected);
    }
}

#[test]
fn deletes_the_oldest_segments() {
    let folder = tempfile::tempdir().unwrap();
    let max_bytes = 1 << 20;
    for round in 0..2 {
        let mut ring = Ring::open(folder.path(), options(max_bytes)).unwrap();
        for index in 0..40 {
            let index = round * 40 + index;
            ring.add(record(index, &noise(index, 60_000)), Some(&set("1")))
                .unwrap();
            ring.flush().unwrap();
            let recording = Recording::open(folder.path()).unwrap();
            assert!(recording.bytes() <= max_bytes);
        }
    }
    let mut records = Recording::open(folder.path()).unwrap().records();
    let found = uids(&mut records);
    assert!(records.damages().is_empty(), "{:?}", records.damages());
    assert!(found.len() > 15, "{}", found.len());
    let first = 80 - found.len() as u64;
    assert_eq!(found, (first..80).collect::<Vec<_>>());
}

#[test]
fn review_that_does_not_fit_is_lost_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = Ring::open(folder.path(), options(1 << 17)).unwrap();
    ring.add(record(1, ""), None).unwrap();
    ring.flush().unwrap();
    let error = ring.add(record(2, &noise(2, 700_000)), None).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(ring.waiting(), 0);
    ring.add(record(3, ""), Some(&set("1"))).unwrap();
    ring.flush().unwrap();
    let mut records = Recording::open(folder.path()).unwrap().records();
    assert_eq!(uids(&mut records), [1, 3]);
}

#[test]
fn torn_segment_keeps_its_complete_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = Ring::open(folder.path(), options(1 << 20)).unwrap();
    for index in 0..4 {
        ring.add(record(index, &noise(index, 2000)), None).unwrap();
        ring.flush().unwrap();
    }
    drop(ring);
    let paths = segments(folder.path()).unwrap();
    let [path] = &paths[..] else {
        panic!("one segment is enough for this");
    };
    let whole = std::fs::read(path).unwrap();
    let mut counts = Vec::new();
    for length in 0..whole.len() {
        std::fs::write(path, &whole[..length]).unwrap();
        let mut records = Recording::open(path).unwrap().records();
        let found = uids(&mut records);
        assert_eq!(
            found,
            (0..found.len() as u64).collect::<Vec<_>>(),
            "{length}"
        );
        counts.push(found.len());
        if found.len() < 3 && records.damages().is_empty() {
            // The cut is between two blocks.
            assert!(length > 0, "an empty file has no header");
        }
    }
    assert!(counts.is_sorted());
    assert_eq!(counts[0], 0);
    // The last byte of a block may come after its last line.
    assert!(counts[whole.len() - 1] >= 3, "{counts:?}");
}

#[test]
fn damaged_segment_does_not_hide_the_others() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let mut ring = Ring::open(folder.path(), options(1 << 20)).unwrap();
        ring.add(record(round, &noise(round, 3000)), None).unwrap();
        ring.flush().unwrap();
    }
    let mut paths = Recording::open(folder.path()).unwrap().segments;
    let second = paths
        .iter()
        .position(|path| {
            let mut records = Recording::open(path).unwrap().records();
            uids(&mut records) == [1]
        })
        .unwrap();
    let second = paths.remove(second);
    let mut bytes = std::fs::read(&second).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    std::fs::write(&second, bytes).unwrap();
    let mut records = Recording::open(folder.path()).unwrap().records();
    let mut found = uids(&mut records);
    found.sort_unstable();
    assert_eq!(found, [0, 2]);
    let [damage] = records.damages() else {
        panic!("{:?}", records.damages());
    };
    assert_eq!((&damage.segment, damage.is_torn), (&second, false));
}

#[test]
fn other_files_are_no_recording() {
    let folder = tempfile::tempdir().unwrap();
    let error = Recording::open(folder.path()).unwrap_err();
    assert!(error.to_string().contains("has no recording"), "{error}");
    let file = folder.path().join("pod.yaml");
    std::fs::write(&file, "kind: Pod").unwrap();
    let mut records = Recording::open(&file).unwrap().records();
    assert_eq!(records.by_ref().count(), 0);
    assert_eq!(records.damages().len(), 1);
    assert!(Recording::open(&folder.path().join("gone")).is_err());
}
