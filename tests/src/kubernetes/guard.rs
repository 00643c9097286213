//! Runs processes that do not outlive the test binary, however it ends.
//!
//! All tests of a binary share a cluster, so nothing drops it at the end. A shell runs in between. It waits for the end
//! of its standard input, which the kernel closes with the test binary. Then it ends the processes and removes their
//! folder.

use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Starts the programs one after another, each with its own log. `--` separates them.
const SCRIPT: &str = r#"
folder=$1; shift
children=
while [ $# -gt 0 ]; do
    log=$1; shift
    program=$1; shift
    arguments=
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        arguments="$arguments '$1'"; shift
    done
    [ $# -gt 0 ] && shift
    eval "exec '$program' $arguments" </dev/null >"$folder/$log" 2>&1 &
    children="$children $!"
    echo $! >"$log.pid"
done
read -r line
kill -KILL $children
wait
rm -rf "$folder"
"#;

/// Ends the processes and removes their folder when it is dropped or the test binary ends.
#[derive(Debug)]
pub(super) struct Guard {
    shell: Child,
}

// === impl Guard ===

impl Guard {
    /// Starts programs, each given as the name of its log in `folder`, its path and its arguments.
    pub(super) fn start(folder: &Path, programs: &[(&str, &Path, &[String])]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "guard"]).arg(folder);
        for (index, (log, program, arguments)) in programs.iter().enumerate() {
            assert!(
                !arguments.iter().any(|argument| argument.contains('\'')),
                "an argument with a quote: {arguments:?}"
            );
            if index > 0 {
                command.arg("--");
            }
            command.arg(log).arg(program).args(*arguments);
        }
        let shell = command
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("sh cannot be run: {error}"));
        Self { shell }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // An error means that the process has already ended.
        let _: std::io::Result<std::process::ExitStatus> = self.shell.wait();
    }
}
