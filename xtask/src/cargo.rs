//! Runs cargo for a waiting user. At a terminal cargo shows its progress bar. Elsewhere a short report now and then
//! replaces four hundred lines.

use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;

use crate::terminal::{self, FAINT};

/// Time between progress reports if cargo shows no progress itself.
const REPORT_PERIOD: Duration = Duration::from_secs(30);

/// The words of cargo's lines about packages, and of other lines without news.
const PACKAGE_WORDS: [&str; 3] = ["Compiling", "Checking", "Documenting"];
const IDLE_WORDS: [&str; 11] = [
    "Adding",
    "Doc-tests",
    "Downloaded",
    "Downloading",
    "Executable",
    "Finished",
    "Fresh",
    "Generated",
    "Locking",
    "Running",
    "Updating",
];

/// Runs a cargo command to its end.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    command
        .stdout(Stdio::inherit())
        .stderr(if std::io::stderr().is_terminal() {
            Stdio::inherit()
        } else {
            Stdio::piped()
        });
    finish(command, |_| {})
}

/// Runs a cargo command to its end. Prints its output, and passes on each line that is not about progress.
pub(crate) fn read(command: &mut Command, line: impl FnMut(&str) + Send) -> anyhow::Result<()> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(command, line)
}

/// Runs a cargo command that prints JSON to its end, and passes on each message.
pub(crate) fn messages(
    command: &mut Command,
    mut message: impl FnMut(Value),
) -> anyhow::Result<()> {
    let stderr = match std::io::stderr().is_terminal() {
        true => Stdio::inherit(),
        false => Stdio::piped(),
    };
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .with_context(|| format!("cannot run `{}`", typed(command)))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        if let Some(stderr) = stderr {
            scope.spawn(move || report(stderr, |_| {}));
        }
        let lines = stdout.map(|stdout| BufReader::new(stdout).lines());
        for line in lines.into_iter().flatten().map_while(Result::ok) {
            // Build scripts and procedural macros may print other lines.
            if let Ok(value) = serde_json::from_str(&line) {
                message(value);
            }
        }
    });
    let status = child.wait()?;
    anyhow::ensure!(status.success(), "`{}` failed ({status})", typed(command));
    Ok(())
}

/// Formats the command as a user would type it.
pub(crate) fn typed(command: &Command) -> String {
    let arguments = command
        .get_args()
        .map(|argument| argument.to_string_lossy());
    let variables = command.get_envs().filter_map(|(name, value)| {
        let (name, value) = (name.to_string_lossy(), value?.to_string_lossy());
        Some(if value.contains(' ') {
            format!("{name}=\"{value}\" ")
        } else {
            format!("{name}={value} ")
        })
    });
    let words: Vec<_> = std::iter::once("cargo".into()).chain(arguments).collect();
    format!("{}{}", variables.collect::<String>(), words.join(" "))
}

fn finish(command: &mut Command, line: impl FnMut(&str) + Send) -> anyhow::Result<()> {
    let mut child = command
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run `{}`", typed(command)))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let line = Mutex::new(line);
    let line = |text: &str| line.lock().unwrap_or_else(PoisonError::into_inner)(text);
    std::thread::scope(|scope| {
        if let Some(stdout) = stdout {
            scope.spawn(move || echo(stdout, line));
        }
        if let Some(stderr) = stderr {
            report(stderr, line);
        }
    });
    let status = child.wait()?;
    anyhow::ensure!(status.success(), "`{}` failed ({status})", typed(command));
    Ok(())
}

fn echo(stdout: impl Read, line: impl Fn(&str)) {
    for text in BufReader::new(stdout).lines().map_while(Result::ok) {
        println!("{text}");
        line(&text);
    }
}

/// Passes on warnings and errors, and reports the progress now and then.
fn report(stderr: impl Read + Send, line: impl Fn(&str)) {
    let (send, receive) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for text in BufReader::new(stderr).lines().map_while(Result::ok) {
                if send.send(text).is_err() {
                    break;
                }
            }
        });
        let began = Instant::now();
        let (mut packages, mut reported) = (0, Instant::now());
        loop {
            match receive.recv_timeout(REPORT_PERIOD.saturating_sub(reported.elapsed())) {
                Ok(text) => match text.split_whitespace().next() {
                    Some(word) if PACKAGE_WORDS.contains(&word) => packages += 1,
                    Some(word) if IDLE_WORDS.contains(&word) => {}
                    _ => {
                        eprintln!("{text}");
                        line(&text);
                    }
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if reported.elapsed() >= REPORT_PERIOD {
                let time = terminal::time(began.elapsed());
                let built = match packages {
                    0 => String::new(),
                    packages => format!("{packages} packages so far, "),
                };
                anstream::eprintln!("{FAINT}  … {built}{time}{FAINT:#}");
                reported = Instant::now();
            }
        }
    });
}
