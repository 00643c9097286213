//! Which parts of a review the Rego of a template reads.

use regorus::Engine;

use crate::reading;

fn reads(rego: &str) -> Vec<String> {
    let mut engine = Engine::new();
    engine.set_rego_v0(true);
    let text = format!(
        "package p\nimport data.lib.images\nimport input.review.object.metadata as meta\n{rego}"
    );
    engine.add_policy("p".to_owned(), text).unwrap();
    let patterns = format!("{:?}", reading::review(engine.get_modules()));
    serde_json::from_str(&patterns).unwrap()
}

#[test]
fn references_read_what_they_name() {
    for (rego, expected) in [
        (
            "v { input.review.object.metadata.labels.owner }",
            vec!["/object/metadata/labels/owner?"],
        ),
        (
            "v { input.review.object[\"metadata\"][`name`] == \"x\" }",
            vec!["/object/metadata/name"],
        ),
        (
            "v { not input.review.object.spec.hostNetwork }",
            vec!["/object/spec/hostNetwork?"],
        ),
        (
            "v { c := input.review.object.spec.containers[_]; startswith(c.image, \"a\") }",
            vec![
                "/object/spec/containers/*?",
                "/object/spec/containers/*/image",
            ],
        ),
        (
            "v { some c in input.review.object.spec.containers; c.image == c.name }",
            vec![
                "/object/spec/containers?",
                "/object/spec/containers/*?",
                "/object/spec/containers/*/image",
                "/object/spec/containers/*/name",
            ],
        ),
        (
            "v { meta.name == \"x\" }",
            vec!["/object/metadata?", "/object/metadata/name"],
        ),
        (
            "v { x := object.get(meta, \"name\", \"\"); x == \"\" }",
            vec!["/object/metadata?", "/object/metadata/name"],
        ),
        (
            "v { x := object.get(input, [\"review\", \"object\", \"spec\"], {}); x.a == 1 }",
            vec!["?", "/object?", "/object/spec?", "/object/spec/a"],
        ),
        (
            "v { count(input.review.object.spec.containers) > 2 }",
            vec!["/object/spec/containers?", "/object/spec/containers/*?"],
        ),
    ] {
        let text = match rego.contains(" in ") {
            true => format!("import future.keywords.in\n{rego}"),
            false => rego.to_owned(),
        };
        let found = reads(&text);
        let known = |pattern: &String| {
            pattern != "/object/metadata?" || expected.contains(&"/object/metadata?")
        };
        let found: Vec<&String> = found.iter().filter(|one| known(one)).collect();
        assert_eq!(found, expected, "{rego}");
    }
}

#[test]
fn values_are_followed_into_functions() {
    let rego = "v { c := input.review.object.spec.containers[_]; bad(c.resources) }\n\
                bad(r) { not r.limits.cpu }\nbad(r) { r.requests.cpu == \"1\" }";
    assert_eq!(
        reads(rego).split_off(1),
        [
            "/object/spec/containers/*?",
            "/object/spec/containers/*/resources?",
            "/object/spec/containers/*/resources/limits/cpu?",
            "/object/spec/containers/*/resources/requests/cpu",
        ]
    );
}

#[test]
fn values_that_go_elsewhere_are_read_as_a_whole() {
    for (rego, expected) in [
        // Elements of a set are compared with each other.
        (
            "all[c] { c := input.review.object.spec.containers[_] }",
            "/object/spec/containers/*",
        ),
        ("v { c = input.review.object.spec; c.a }", "/object/spec"),
        (
            "v { walk(input.review.object.spec, [_, x]); x }",
            "/object/spec",
        ),
        (
            "v { [a, b] := input.review.object.spec; a; b }",
            "/object/spec",
        ),
        ("v { input.review.object.spec == {} }", "/object/spec"),
        (
            "v { x := [y | y := input.review.object.spec]; x }",
            "/object/spec",
        ),
        (
            "f(x) = x.a { true }\nv { f(input.review.object.spec) }",
            "/object/spec/a",
        ),
        ("v { images.bad(input.review.object.spec) }", "/object/spec"),
        (
            "f(x, x) { true }\nv { f(input.review.object.spec, 1) }",
            "/object/spec",
        ),
    ] {
        let found = reads(rego);
        assert!(found.iter().any(|one| one == expected), "{rego}: {found:?}");
    }
    for rego in [
        "v { x := input; x == {} }",
        "v { f with input.review.object as {} }\nf { input.review.object.a }",
        "v { input.review == {} }",
        // Any `with` can replace a function, and so change what a value is used for.
        "v { f(input.review.object.spec) with f as g }\nf(x) { x.a }\ng(x) { x.b }",
        // More places than the analysis follows.
        "v { f(input.review.object) }\nf(x) { g(x.a) }\nf(x) { g(x.b) }\nf(x) { g(x.c) }\ng(x) { f(x.d) }\ng(x) { f(x.e) }\n\
         g(x) { f(x.f) }",
    ] {
        assert_eq!(reads(rego), [""], "{rego}");
    }
}
