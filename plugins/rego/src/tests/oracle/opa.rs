//! The program in `tests/opa`, which evaluates templates with OPA.

use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value as Json;

use super::cases::{Batch, Input};
use super::{Answer, sorted};

/// A running program. It ends when its input is closed.
pub(in crate::tests) struct Opa {
    child: Child,
    input: Option<BufWriter<ChildStdin>>,
    output: BufReader<ChildStdout>,
}

// === impl Opa ===

impl Opa {
    /// Starts the program in `TOLLGATE_OPA`, which `cargo xtask oracles` builds and sets.
    pub(in crate::tests) fn start() -> Self {
        let program = std::env::var_os("TOLLGATE_OPA").expect(
            "TOLLGATE_OPA names the program in tests/opa; run `cargo xtask oracles --only opa`",
        );
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program in TOLLGATE_OPA runs");
        Self {
            input: child.stdin.take().map(BufWriter::new),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Loads a template and evaluates its reviews. Returns the version of OPA, too.
    pub(in crate::tests) fn evaluate(&mut self, batch: &Batch) -> (String, Vec<Answer>) {
        let (version, answers) = self.ask(&batch.load, &batch.inputs);
        let version =
            version.unwrap_or_else(|| panic!("OPA does not load the template: {}", batch.load));
        (version, answers)
    }

    /// Loads the template of a line and evaluates reviews. The version is None if OPA rejects the template.
    pub(in crate::tests) fn ask(
        &mut self,
        load: &str,
        inputs: &[Input],
    ) -> (Option<String>, Vec<Answer>) {
        let mut lines = format!("{load}\n");
        for one in inputs {
            lines.push_str(&one.line());
            lines.push('\n');
        }
        let input = self.input.as_mut().unwrap();
        let output = &mut self.output;
        std::thread::scope(|scope| {
            // Written by another thread, because both pipes can be full at the same time.
            scope.spawn(move || {
                input.write_all(lines.as_bytes()).unwrap();
                input.flush().unwrap();
            });
            let loaded = read(output);
            let version = loaded["opa"].as_str().map(str::to_owned);
            let answers = inputs.iter().map(|_| answer(&read(output)));
            (version, answers.collect())
        })
    }
}

impl Drop for Opa {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

fn read(output: &mut BufReader<ChildStdout>) -> Json {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("OPA said {line:?}: {error}"))
}

fn answer(said: &Json) -> Answer {
    if let Some(error) = said["error"].as_str() {
        return Err(error.to_owned());
    }
    let violations = said["violations"].as_array().into_iter().flatten();
    let violations = violations.map(|one| (one[0].as_str().unwrap().to_owned(), one[1].clone()));
    Ok(sorted(violations.collect()))
}
