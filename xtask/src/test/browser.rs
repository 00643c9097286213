//! Installs what the tests of the page need: Chromium from the distribution, and the packages that drive it from npm.
//! Without them, these tests are skipped.

use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::terminal::{self, NOTABLE};
use crate::toolchain;
use crate::workspace::Workspace;

/// Files and the packages of Debian that have them. Without a font, pictures of the page have no text.
const FILES: [(&str, &str); 2] = [
    ("/usr/bin/chromium", "chromium"),
    (
        "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
        "fonts-dejavu-core",
    ),
];
/// Commands, and the packages of Debian that have them.
const COMMANDS: [(&str, &str); 2] = [("node", "nodejs"), ("npm", "npm")];
/// The script that installs the packages of npm.
const INSTALL: &str = "tests/page/install";

/// Installs everything, or says what is missing.
pub(super) fn install(workspace: &Workspace) -> anyhow::Result<()> {
    let file = FILES
        .iter()
        .find(|(file, package)| !toolchain::ensure_file(file, package));
    let command = COMMANDS
        .iter()
        .find(|(command, package)| !toolchain::ensure_command(command, package));
    if let Some((missing, _)) = file.or(command) {
        skipped(&format!("{missing} is not installed"));
        return Ok(());
    }
    terminal::paragraph("  ", INSTALL);
    let status = Command::new(workspace.root().join(INSTALL))
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {INSTALL}"))?;
    if !status.success() {
        skipped(&format!("{INSTALL} failed ({status})"));
    }
    Ok(())
}

fn skipped(why: &str) {
    anstream::println!("  {NOTABLE}the page is not tested in a browser, because {why}{NOTABLE:#}");
}
