//! `tollgate catalogue`

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, ensure};
use clap::Args;
use tollgate_config::Reference;

use super::inspect::Remote;
use super::registry::{Access, block_on, metadata, reference};
use super::terminal::{plain, say};

/// Write a page that lists artifacts, from what their manifests say. No layer is pulled, and no plugin runs.
#[derive(Args, Debug)]
#[command(visible_alias = "catalog", after_help = EXAMPLES)]
pub(super) struct Catalogue {
    /// File with a reference on each line. Lines that begin with # are comments.
    #[arg(value_name = "LIST")]
    list: PathBuf,
    /// File to write [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Title of the page.
    #[arg(long, value_name = "TEXT", default_value = "Policies")]
    title: String,
    #[command(flatten)]
    access: Access,
}

const EXAMPLES: &str = "\
Examples:
  tollgate catalogue policies.txt -o CATALOGUE.md

where policies.txt has lines such as
  oci://registry.example.com/policies/image-rewrite:1.4";

// === impl Catalogue ===

impl Catalogue {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let shown = self.list.display();
        let text =
            std::fs::read_to_string(&self.list).with_context(|| format!("cannot read {shown}"))?;
        let references = references(&text, &self.list)?;
        let mut artifacts = Vec::with_capacity(references.len());
        for reference in references {
            let (registry, _) = self.access.registry(&reference)?;
            let described = block_on(registry.describe(&reference))?;
            let described = described.with_context(|| format!("cannot describe {reference}"))?;
            let source = format!("oci://{reference}");
            artifacts.push((reference, Remote { source, described }));
        }
        let page = page(&self.title, &artifacts)?;
        match &self.output {
            None => say!("{}", page.trim_end()),
            Some(file) => {
                std::fs::write(file, page)
                    .with_context(|| format!("cannot write {}", file.display()))?;
                say!(
                    "wrote {} artifact(s) to {}",
                    artifacts.len(),
                    file.display()
                );
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn references(text: &str, list: &Path) -> anyhow::Result<Vec<Reference>> {
    let lines = text.lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let references: anyhow::Result<Vec<Reference>> = lines
        .map(|(index, line)| {
            reference(line).map_err(|error| anyhow!("{}:{}: {error}", list.display(), index + 1))
        })
        .collect();
    let references = references?;
    ensure!(
        !references.is_empty(),
        "{}: expected a reference on each line, such as oci://registry.example.com/policies/image-rewrite:1.4",
        list.display()
    );
    Ok(references)
}

/// Writes the page, in Markdown.
fn page(title: &str, artifacts: &[(Reference, Remote)]) -> Result<String, std::fmt::Error> {
    let mut page = String::new();
    writeln!(page, "# {}\n", escaped(title))?;
    writeln!(
        page,
        "Written by `tollgate catalogue` from the manifests in the registries.\n"
    )?;
    writeln!(
        page,
        "| policy | version | description | licence |\n|---|---|---|---|"
    )?;
    for (reference, remote) in artifacts {
        let cell = |key: &str| escaped(remote.text(key).unwrap_or_default());
        writeln!(
            page,
            "| {} | {} | {} | {} |",
            name(reference, remote),
            cell(metadata::VERSION),
            cell(metadata::DESCRIPTION),
            cell(metadata::LICENCES)
        )?;
    }
    for (reference, remote) in artifacts {
        section(&mut page, reference, remote)?;
    }
    Ok(page)
}

fn section(page: &mut String, reference: &Reference, remote: &Remote) -> std::fmt::Result {
    let Reference {
        registry,
        repository,
        ..
    } = reference;
    writeln!(page, "\n## {}\n", name(reference, remote))?;
    if let Some(description) = remote.text(metadata::DESCRIPTION) {
        writeln!(page, "{}\n", escaped(description))?;
    }
    for (label, key) in [
        ("Version", metadata::VERSION),
        ("Licence", metadata::LICENCES),
        ("Source code", metadata::SOURCE),
        ("Revision", metadata::REVISION),
        ("Phases", metadata::PHASES),
        ("Capabilities", metadata::CAPABILITIES),
    ] {
        if let Some(text) = remote.text(key) {
            writeln!(page, "- {label}: {}", escaped(text))?;
        }
    }
    for rule in remote.rules().unwrap_or_default() {
        writeln!(page, "- Called for: {}", escaped(&rule))?;
    }
    let digest = &remote.described.digest;
    writeln!(page, "\n    source: oci://{registry}/{repository}@{digest}")?;
    if let Some(schema) = remote.settings_schema() {
        writeln!(page, "\nSettings:\n")?;
        for line in format!("{schema:#}").lines() {
            let text = line.trim_start();
            let indent = line.len() - text.len();
            writeln!(page, "    {:indent$}{}", "", plain(text))?;
        }
    }
    Ok(())
}

fn name(reference: &Reference, remote: &Remote) -> String {
    let repository = reference.repository.rsplit('/').next().unwrap_or_default();
    escaped(remote.text(metadata::TITLE).unwrap_or(repository))
}

/// Returns a text of a registry as one line of plain Markdown.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in plain(text).chars() {
        if "\\`*_{}[]<>()#|!&~".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::inspect::sample;
    use super::*;

    #[test]
    fn page_has_a_row_and_a_section_for_each_artifact() {
        let remote = sample(&[
            (metadata::TITLE, "replicas"),
            (metadata::DESCRIPTION, "Limits | replicas"),
            (metadata::LICENCES, "MIT"),
            (metadata::SETTINGS_SCHEMA, "{\"type\":\"object\"}"),
        ]);
        let reference = Reference::parse("registry.example.com/policies/a:1").unwrap();
        let page = page("Policies", &[(reference, remote)]).unwrap();
        for part in [
            "# Policies\n",
            "| replicas |  | Limits \\| replicas | MIT |",
            "\n## replicas\n",
            "- Licence: MIT\n",
            "    source: oci://registry.example.com/policies/a@sha256:000",
            "      \"type\": \"object\"",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
    }

    #[test]
    fn texts_of_registries_are_no_markup() {
        let remote = sample(&[(metadata::TITLE, "<b>\n[x](javascript:1)\u{1b}[1m")]);
        let reference = Reference::parse("registry.example.com/policies/a:1").unwrap();
        let page = page("a\nb", &[(reference, remote)]).unwrap();
        assert!(!page.contains("<b>") || page.contains("\\<b\\>"), "{page}");
        assert!(!page.contains("](") && !page.contains('\u{1b}'), "{page}");
    }

    #[test]
    fn list_has_comments_and_names_wrong_lines() {
        let list = Path::new("policies.txt");
        let read = references("# ours\n\noci://localhost/a:1\nlocalhost/b:2\n", list).unwrap();
        assert_eq!(read.len(), 2);
        let error = references("localhost/a:1\nnothing\n", list)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("policies.txt:2: "), "{error}");
        assert!(references("# none\n", list).is_err());
    }
}
