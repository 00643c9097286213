//! `tollgate import`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use tollgate::setup::{Options, Setup};
use tollgate_config::Config;
use tollgate_gate::plugin::PluginState;
use tollgate_import::{
    Dialect, Effect, Entry, Gatekeeper, Imported, InTree, Kyverno, Note, Parsed, Sources, import,
    parse, write,
};

use super::FAILURE;
use super::terminal::{BAD, GOOD, NOTABLE, plain, say, tell, written};

/// Translate policies of other engines into a configuration: Gatekeeper's templates and mutators, Kubernetes' own
/// policies, and Kyverno's policies in CEL.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Import {
    /// YAML files with policies, or folders to search for them.
    #[arg(value_name = "FILE|DIRECTORY", required = true)]
    paths: Vec<PathBuf>,
    /// Write the configuration to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Source of the plugin that runs ConstraintTemplates with Rego, as `source` of the entries.
    #[arg(long, value_name = "SOURCE", default_value = "file:./rego.wasm")]
    rego: String,
    /// Source of the plugin that runs CEL: policies of Kubernetes and Kyverno, templates with CEL, and mutators.
    #[arg(long, value_name = "SOURCE", default_value = "file:./cel_policy.wasm")]
    cel: String,
    /// Do not load the plugins. By default, a policy that its plugin rejects is left out and reported.
    #[arg(long)]
    no_check: bool,
}

const EXAMPLES: &str = "\
Examples:
  tollgate import templates/ constraints/ -o tollgate.yaml
  tollgate import gatekeeper.yaml --rego oci://registry.example.com/policies/rego:1.0
  kubectl get validatingadmissionpolicies,validatingadmissionpolicybindings -o yaml > policies.yaml
  tollgate import policies.yaml --cel oci://registry.example.com/policies/cel-policy:1.0

The report names each document with file and line:
  translated   a plugin does the same
  differs      a plugin does nearly the same
  cannot       Tollgate cannot do this, and the configuration has nothing for it
  skipped      the document is no policy
  broken       the document cannot be read

Exit code: 0 when every policy is translated, 1 when one is not, 2 when no configuration was written.";

/// Folders deeper than this are not searched, so that a link to a parent folder ends.
const DEEPEST: usize = 32;

// === impl Import ===

impl Import {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut files = Vec::new();
        for path in &self.paths {
            find(path, 0, &mut files)?;
        }
        if files.is_empty() {
            bail!("no YAML or JSON files in the given folders");
        }
        let mut parsed = Parsed::default();
        for file in &files {
            let name = file.display().to_string();
            match std::fs::read_to_string(file) {
                Ok(text) => parse(&name, &text, &mut parsed),
                Err(error) => parsed.broken.push(Note {
                    file: name,
                    line: 1,
                    subject: String::new(),
                    effect: Effect::Broken,
                    text: format!("cannot be read: {error}"),
                }),
            }
        }
        let sources = Sources {
            rego: self.rego.clone(),
            cel: self.cel.clone(),
        };
        let in_tree = InTree::new(sources.clone(), &parsed);
        let kyverno = Kyverno {
            sources: sources.clone(),
        };
        let gatekeeper = Gatekeeper { sources };
        let dialects: [&dyn Dialect; 3] = [&gatekeeper, &in_tree, &kyverno];
        let mut imported = import(&parsed, &dialects);
        let folder = match &self.output {
            Some(file) => tollgate_config::folder_of(file).to_owned(),
            None => PathBuf::from("."),
        };
        if !self.no_check && !imported.entries.is_empty() {
            leave_out_rejected(&mut imported, &folder)?;
        }
        if imported.entries.is_empty() {
            self.report(&imported);
            bail!(
                "no plugin is left, so no configuration was written{}",
                match &self.output {
                    Some(file) if file.exists() => format!("; {} is as it was", file.display()),
                    _ => String::new(),
                }
            );
        }
        let text = write(&imported.entries).context("cannot write the configuration as YAML")?;
        // The output must be a configuration, whatever the documents had.
        Config::parse(&text, &folder).context("the translation is no valid configuration")?;
        match &self.output {
            Some(file) => std::fs::write(file, &text)
                .with_context(|| format!("cannot write {}", file.display()))?,
            None => {
                use std::io::Write as _;
                written(std::io::stdout().write_all(text.as_bytes()));
            }
        }
        let lost = imported.notes.iter().any(|note| note.effect.is_loss());
        self.report(&imported);
        Ok(match lost {
            true => ExitCode::from(FAILURE),
            false => ExitCode::SUCCESS,
        })
    }

    /// Prints the report to standard output, or to standard error where that has the configuration.
    fn report(&self, imported: &Imported) {
        let print = |line: &str| match &self.output {
            Some(_) => say!("{line}"),
            None => tell!("{line}"),
        };
        for note in &imported.notes {
            let style = match note.effect {
                Effect::Translated => GOOD,
                Effect::Differs | Effect::Skipped => NOTABLE,
                Effect::Impossible | Effect::Broken => BAD,
            };
            // Columns need spaces, which `plain` joins.
            let line = note.to_string();
            let (effect, rest) = line.split_once(' ').unwrap_or((&line, ""));
            let rest = plain(rest.trim_start());
            print(&format!("{style}{effect:<10}  {rest}{style:#}"));
        }
        let count = |effect| {
            let notes = imported.notes.iter();
            notes.filter(|note| note.effect == effect).count()
        };
        print(&format!(
            "\n{} plugin(s); {} translated, {} differ, {} cannot be expressed, {} skipped, {} broken",
            imported.entries.len(),
            count(Effect::Translated),
            count(Effect::Differs),
            count(Effect::Impossible),
            count(Effect::Skipped),
            count(Effect::Broken),
        ));
    }
}

/// Loads the plugins as `tollgate check` does, and leaves out the entries that their plugin rejects.
fn leave_out_rejected(imported: &mut Imported, folder: &Path) -> anyhow::Result<()> {
    let text = write(&imported.entries).context("cannot write the configuration as YAML")?;
    let mut config =
        Config::parse(&text, folder).context("the translation is no valid configuration")?;
    for plugin in &config.plugins {
        if let tollgate_config::Source::File(path) = &plugin.source
            && !path.exists()
        {
            bail!(
                "{}: no such file; name the plugin with --rego SOURCE or --cel SOURCE, or skip the check with --no-check",
                path.display()
            );
        }
    }
    let setup = Setup::new(&config, &Options::default())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let set = runtime.block_on(setup.loader.load_all(config.take_plugins()));
    for plugin in set.all() {
        let PluginState::Failed { reason } = &plugin.state else {
            continue;
        };
        let name = plugin.config.name.as_str();
        let rejected = imported.entries.iter().position(|entry| entry.name == name);
        let Some(index) = rejected else { continue };
        let Entry {
            place: (file, line),
            ..
        } = imported.entries.remove(index);
        let is_of_plugin = |note: &Note| {
            note.effect == Effect::Translated
                && note.text.split([' ', ',']).any(|word| word == name)
        };
        imported.notes.retain(|note| !is_of_plugin(note));
        imported.notes.push(Note {
            file,
            line,
            subject: format!("plugin {name}"),
            effect: Effect::Impossible,
            text: format!("the plugin does not accept the policy: {reason}"),
        });
    }
    imported
        .notes
        .sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    Ok(())
}

/// Adds a file, or the YAML and JSON files of a folder in the order of their names.
fn find(path: &Path, depth: usize, into: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if !path.is_dir() {
        if !path.exists() {
            bail!("{}: no such file or folder", path.display());
        }
        into.push(path.to_owned());
        return Ok(());
    }
    let unreadable = || format!("cannot read the folder {}", path.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).with_context(unreadable)? {
        found.push(entry.with_context(unreadable)?.path());
    }
    found.sort();
    for path in found {
        let is_hidden = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let extension = path.extension().and_then(|extension| extension.to_str());
        let is_document = matches!(extension, Some("yaml" | "yml" | "json"));
        if !is_hidden && depth < DEEPEST && (path.is_dir() || is_document) {
            find(&path, depth + 1, into)?;
        }
    }
    Ok(())
}
