use crate::syntax::{MOST_OPEN_BRACKETS, too_deep, unsupported};

#[test]
fn names_builtins_that_are_not_available() {
    let rego = "package a\n# external_data({})\nx := \"http.send(\"\ny := http.send({})\nz := time.now_ns()\nmy_external_data(z)\n";
    let found: Vec<String> = unsupported(rego)
        .into_iter()
        .map(|(line, problem)| format!("{line} {problem}"))
        .collect();
    assert_eq!(
        found,
        [
            "4 http.send: a plugin has no network",
            "5 time: the builtins of time are not available",
        ]
    );
}

#[test]
fn expression_in_parentheses_is_no_call_of_the_line_before() {
    for (rego, expected) in [
        ("x { a.b\n (c - d) > 1 }", "x { a.b;\n (c - d) > 1 }"),
        ("a[\"#(\"] # why\n\n(b) > 1", "a[\"#(\"]; # why\n\n(b) > 1"),
        ("f(\n(b)\n)", "f(\n(b)\n)"),
        ("a := `\nb\n(`", "a := `\nb\n(`"),
    ] {
        assert_eq!(crate::syntax::adapted(rego), expected);
    }
}

#[test]
fn further_bodies_of_a_set_rule_get_its_head() {
    for (rego, expected) in [
        (
            "v[{\"m\": m}] { # {\n  a[\"}\"]\n} {\n  c\n}\n{ d }\n",
            "v[{\"m\": m}] { # {\n  a[\"}\"]\n} v[{\"m\": m}] {\n  c\n}\nv[{\"m\": m}] { d }\n",
        ),
        ("f(x) = y { a } { b }", "f(x) = y { a } { b }"),
        (
            "v[x] { a }\nw = 1 { b } { c }",
            "v[x] { a }\nw = 1 { b } { c }",
        ),
    ] {
        assert_eq!(crate::syntax::adapted(rego), expected);
    }
}

#[test]
fn brackets_are_counted_in_code_alone() {
    let nested =
        |levels: usize| format!("a := 1\nx := {}{}", "[".repeat(levels), "]".repeat(levels));
    assert_eq!(too_deep(&nested(MOST_OPEN_BRACKETS)), None);
    assert_eq!(too_deep(&nested(MOST_OPEN_BRACKETS + 1)), Some(2));
    let many = "[".repeat(MOST_OPEN_BRACKETS * 2);
    for text in [
        format!("# {many}\n"),
        format!("x := \"\\\"{many}\""),
        format!("x := `{many}\n`"),
    ] {
        assert_eq!(too_deep(&text), None, "{text}");
    }
}
