//! Lines of the child process that prepares plugins. They may contain anything that a plugin chose.

use tollgate_gate::fuzzing::protocol::line;

/// Reads the bytes as a line.
pub fn target(data: &[u8]) {
    let Some((written, manifest)) = line(data) else {
        return;
    };
    let again = line(&written).expect("what is written can be read");
    assert_eq!(again.0, written, "a line changes when it is read");
    let Some(manifest) = manifest else {
        return;
    };
    // These texts are shown in `/plugins` and in a metric's label.
    let texts = [
        (&manifest.name, 128),
        (&manifest.version, 128),
        (&manifest.description, 4096),
    ];
    let labels = manifest.labels.iter();
    let labels = labels.flat_map(|(key, value)| [(key, 128), (value, 4096)]);
    for (text, limit_bytes) in texts.into_iter().chain(labels) {
        assert!(text.len() <= limit_bytes, "{} bytes", text.len());
        assert!(!text.contains(char::is_control), "{text:?}");
    }
    assert!(manifest.labels.len() <= 64);
}
