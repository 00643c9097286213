use std::path::Path;

use tollgate_config::Config;

use super::super::{LANGUAGES, of_project};
use super::*;

/// Spellings of the sample's name.
const SAMPLE_NAMES: [&str; 4] = [
    "trusted-registries",
    "trusted_registries",
    "TrustedRegistries",
    "trustedRegistries",
];

/// Writes a project, and returns the files with their content, without the SDK.
fn written(project: &Project<'_>, language: &dyn Language) -> Vec<(PathBuf, String)> {
    let written = project.write(language).unwrap();
    let files = written.into_iter().filter(|path| path.is_file());
    files
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            (path, text)
        })
        .collect()
}

fn project<'a>(folder: &'a Path, start: Start, resource: &'a Resource) -> Project<'a> {
    Project {
        name: "no-latest",
        folder,
        clone: None,
        start,
        resource,
        description: None,
        ci: None,
    }
}

/// Whether a line has a placeholder. Go can open two braces on a line, and CI systems have expressions.
fn has_placeholder(text: &str) -> bool {
    let is_left = |line: &str| line.contains("{{") && line.contains("}}") && !line.contains("${{");
    text.lines().any(is_left)
}

#[test]
fn fills_every_placeholder_of_every_template() {
    let resource = Resource::default();
    for language in LANGUAGES {
        for (start, ci) in [
            (Start::Sample, Some(Ci::Github)),
            (Start::Empty, Some(Ci::Gitlab)),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let project = Project {
                ci,
                ..project(folder.path(), start, &resource)
            };
            for (path, text) in written(&project, *language) {
                assert!(!has_placeholder(&text), "{}:\n{text}", path.display());
                for name in SAMPLE_NAMES {
                    assert!(
                        !text.contains(name),
                        "{name} in {}:\n{text}",
                        path.display()
                    );
                }
            }
            // The generated `.gitignore` has to exclude the private key that `serve` creates.
            let ignored = std::fs::read_to_string(folder.path().join(".gitignore")).unwrap();
            assert!(ignored.contains("/dist\n") && ignored.contains("/tollgate-tls\n"));
            assert_eq!(of_project(folder.path()).unwrap().name(), language.name());
        }
    }
    assert_eq!(type_name("no-latest"), "NoLatest");
}

#[test]
fn sample_contains_the_reference_policy() {
    let resource = Resource::default();
    for language in LANGUAGES {
        let folder = tempfile::tempdir().unwrap();
        let files = written(&project(folder.path(), Start::Sample, &resource), *language);
        let policy = files
            .iter()
            .any(|(_, text)| text.contains("must be from one of"));
        assert!(policy, "{}: no file contains the policy", language.name());
    }
}

#[test]
fn empty_policy_is_about_its_resource_and_nothing_of_the_sample() {
    let resource: Resource = "apps/v1/deployments".parse().unwrap();
    for language in LANGUAGES {
        let folder = tempfile::tempdir().unwrap();
        let files = written(&project(folder.path(), Start::Empty, &resource), *language);
        for (path, text) in &files {
            for word in ["registr", "image", "Pod", "pods"] {
                assert!(
                    !text.contains(word),
                    "{word} in {}:\n{text}",
                    path.display()
                );
            }
        }
        let has = |words: &[&str]| {
            files
                .iter()
                .any(|(_, text)| words.iter().all(|word| text.contains(word)))
        };
        assert!(
            has(&["\"deployments\"", "\"apps\""]) || has(&["'deployments'", "'apps'"]),
            "{}",
            language.name()
        );
        assert!(
            has(&["apiVersion: apps/v1", "kind: Deployment"]),
            "{}",
            language.name()
        );
        Config::load(&folder.path().join("tollgate.yaml")).unwrap();
    }
}

#[test]
fn description_is_quoted_in_every_language() {
    let resource = Resource::default();
    let description = "Says \"no\" */ to \\ 'ü' {{name}}";
    let literal = r#""Says \"no\" */ to \\ 'ü' {{name}}""#;
    for language in LANGUAGES {
        for start in [Start::Sample, Start::Empty] {
            let folder = tempfile::tempdir().unwrap();
            let project = Project {
                description: Some(description),
                ..project(folder.path(), start, &resource)
            };
            let files = written(&project, *language);
            let count = files
                .iter()
                .filter(|(_, text)| text.contains(literal))
                .count();
            assert!(count > 0, "{} {start:?}", language.name());
            for (path, text) in files {
                assert!(!text.contains(DESCRIPTION), "{}:\n{text}", path.display());
            }
            let readme = std::fs::read_to_string(folder.path().join("README.md")).unwrap();
            assert!(readme.contains("Says \"no\""), "{readme}");
        }
    }
}

#[test]
fn pipelines_build_test_and_publish() {
    let resource = Resource::default();
    for language in LANGUAGES {
        for (ci, file) in [(Ci::Github, GITHUB.0), (Ci::Gitlab, GITLAB.0)] {
            let folder = tempfile::tempdir().unwrap();
            let project = Project {
                ci: Some(ci),
                ..project(folder.path(), Start::Empty, &resource)
            };
            project.write(*language).unwrap();
            let text = std::fs::read_to_string(folder.path().join(file)).unwrap();
            let pipeline: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
            assert!(pipeline.is_object());
            for step in [
                "tollgate build",
                "tollgate test --junit dist/report.xml",
                "tollgate push dist/no-latest.wasm",
                "--source",
            ] {
                assert!(text.contains(step), "{step} is not in\n{text}");
            }
            let unit_tests = language.template().pipeline.unit_tests;
            assert!(
                unit_tests.is_none_or(|command| text.contains(command)),
                "{text}"
            );
        }
    }
}
