//! Go's decoder, which kube-apiserver and most webhooks use, reads the same documents as this host.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;
use tollgate_fuzzing::choices::Choices;
use tollgate_fuzzing::{corpus, document};
use tollgate_json::document::{ParseErrorKind, parse};

const DOCUMENTS: u64 = 5000;
const MAX_DEPTH: u32 = 100;

#[test]
fn gos_decoder_reads_the_same_documents() {
    let Some(program) = program() else {
        return;
    };
    let committed: Vec<Vec<u8>> = corpus::inputs("review")
        .iter()
        .map(|path| std::fs::read(path).expect("an input can be read"))
        .collect();
    let changed =
        (0..DOCUMENTS).map(|seed| corpus::changed(&committed, &mut Choices::seeded(seed)));
    // Few changed documents are still JSON, so as many documents are generated.
    let generated = (0..DOCUMENTS).map(|seed| {
        document::value(&mut Choices::seeded(seed))
            .to_string()
            .into_bytes()
    });
    let documents = committed.iter().cloned().chain(changed).chain(generated);
    // The program skips empty lines.
    let documents: Vec<Vec<u8>> = documents.filter(|document| !document.is_empty()).collect();
    let lines = answers(&program, &documents);
    assert_eq!(lines.len(), documents.len());
    let mut accepted = 0;
    for (document, line) in documents.iter().zip(&lines) {
        let outcome = parse(line.as_bytes(), 1000).expect("the program writes JSON");
        let shown = String::from_utf8_lossy(document);
        match (parse(document, MAX_DEPTH), outcome.member("result")) {
            (Ok(ours), Some(theirs)) => {
                accepted += 1;
                assert!(ours == *theirs, "{shown:?} is {} to Go", theirs.to_text());
            }
            (Ok(_), None) => panic!("Go refuses {shown:?}: {line}"),
            // Go replaces invalid UTF-8 and half a surrogate pair by U+FFFD.
            (Err(error), Some(_)) => assert!(
                matches!(error.kind, ParseErrorKind::TooDeep { .. })
                    || serde_json::from_slice::<Value>(document).is_err(),
                "Go accepts {shown:?}"
            ),
            (Err(_), None) => {}
        }
    }
    println!("{} documents, {accepted} accepted", documents.len());
    assert!(
        accepted > documents.len() / 3 && accepted < documents.len() * 9 / 10,
        "both decoders accept {accepted} documents: too few or too many to compare anything"
    );
}

/// Builds `tests/apiserver-patch`.
fn program() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../apiserver-patch");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-decoder");
    let build = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(source)
        .output();
    let reason = match build {
        Ok(output) if output.status.success() => return Some(program),
        Ok(output) => {
            let reason = String::from_utf8_lossy(&output.stderr).into_owned();
            let signs = ["dial tcp", "proxy", "no such host", "lookup", "i/o timeout"];
            // A missing module proxy is not a fault of the code. Any other failure is.
            assert!(
                signs.iter().any(|sign| reason.contains(sign)),
                "go cannot build tests/apiserver-patch: {reason}"
            );
            reason
        }
        Err(error) => error.to_string(),
    };
    writeln!(
        std::io::stderr(),
        "SKIPPED: Go's decoder was NOT compared: {reason}"
    )
    .expect("stderr takes it");
    None
}

fn answers(program: &Path, documents: &[Vec<u8>]) -> Vec<String> {
    let mut child = Command::new(program)
        .arg("decode")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program was built just now");
    let mut stdin = child.stdin.take().expect("it is piped");
    let lines: String = documents
        .iter()
        .map(|document| BASE64.encode(document) + "\n")
        .collect();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("it runs");
    writer
        .join()
        .expect("the writer does not panic")
        .expect("the program reads all of its input");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("the program writes UTF-8");
    text.lines().map(str::to_owned).collect()
}
