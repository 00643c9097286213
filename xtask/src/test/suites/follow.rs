//! Follows the output of a program.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// Runs a program to its end. Calls `line` with each line of its two outputs, and with None after each `period`.
pub(super) fn follow(
    command: &mut Command,
    period: Duration,
    mut line: impl FnMut(Option<&str>),
) -> anyhow::Result<ExitStatus> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        let (send, receive) = channel();
        if let Some(stdout) = stdout {
            let send = send.clone();
            scope.spawn(move || read(stdout, &send));
        }
        if let Some(stderr) = stderr {
            scope.spawn(move || read(stderr, &send));
        }
        let mut reported = Instant::now();
        loop {
            match receive.recv_timeout(period.saturating_sub(reported.elapsed())) {
                Ok(text) => line(Some(&text)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if reported.elapsed() >= period {
                line(None);
                reported = Instant::now();
            }
        }
    });
    Ok(child.wait()?)
}

/// Sends each line. Replaces what is not UTF-8.
fn read(output: impl Read, lines: &Sender<String>) {
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let text = String::from_utf8_lossy(&line);
        if lines.send(text.trim_end_matches('\r').to_owned()).is_err() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs(script: &str) -> (Vec<String>, ExitStatus) {
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        let status = follow(
            command.args(["-c", script]),
            Duration::from_secs(600),
            |line| {
                lines.extend(line.map(str::to_owned));
            },
        );
        lines.sort();
        (lines, status.expect("the shell runs"))
    }

    #[test]
    fn gives_lines_of_both_outputs_and_the_status() {
        let (lines, status) = outputs("echo out; echo error >&2; printf '\\377'; exit 3");
        assert_eq!(lines, ["error", "out", "\u{fffd}"]);
        assert_eq!(status.code(), Some(3));
    }

    #[test]
    fn calls_after_each_period() {
        let mut periods = 0;
        let mut command = Command::new("sleep");
        let status = follow(command.arg("0.1"), Duration::from_millis(10), |line| {
            periods += usize::from(line.is_none());
        });
        assert!(status.expect("sleep runs").success());
        assert!(periods > 0);
    }
}
