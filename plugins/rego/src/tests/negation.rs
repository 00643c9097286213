use crate::negation::adapted;

#[test]
fn operands_of_negated_calls_are_moved_out() {
    for (rego, expected) in [
        (
            "not f(a.b)",
            "tollgate_operand_1 := a.b; not f(tollgate_operand_1)",
        ),
        (
            "not f(a.b, x, g(1), \"a,b\", 3)\nnot h(a[\"b\"])",
            "tollgate_operand_1 := a.b; tollgate_operand_2 := g(1); \
             not f(tollgate_operand_1, x, tollgate_operand_2, \"a,b\", 3)\n\
             tollgate_operand_3 := a[\"b\"]; not h(tollgate_operand_3)",
        ),
        (
            "not a.b > 3",
            "tollgate_operand_1 := a.b; not tollgate_operand_1 > 3",
        ),
        (
            "not a.b - 1 == 3",
            "tollgate_operand_1 := a.b - 1; not tollgate_operand_1 == 3",
        ),
        (
            "not f(x) == a.b",
            "tollgate_operand_1 := f(x); not tollgate_operand_1 == a.b",
        ),
        (
            "not \"a\" in a.b",
            "tollgate_operand_1 := a.b; not \"a\" in tollgate_operand_1",
        ),
        (
            "not a[b.c].d",
            "tollgate_operand_1 := b.c; not a[tollgate_operand_1].d",
        ),
        (
            "{ not f(a.b) }",
            "{ tollgate_operand_1 := a.b; not f(tollgate_operand_1) }",
        ),
        (
            "not f([\n a.b,\n])",
            "tollgate_operand_1 := [\n a.b,\n]; not f(tollgate_operand_1)",
        ),
    ] {
        assert_eq!(adapted(rego), expected);
    }
}

#[test]
fn everything_else_stays() {
    for rego in [
        "not a.b",
        "not a[b][_].c",
        "not a.b == c.d",
        "not a.b = \"x\"",
        "not f(x, 1, \"a\")",
        "not f(a.b) with input as x",
        "not a.b >\n 3",
        "# not f(a.b)",
        "x := \"not f(a.b)\"",
        "`not f(a.b)`",
        "do_not(a.b)",
        "x.not(a.b)",
        "not f(\n a.b # why\n)",
        "not",
        "not (",
        "not f(",
    ] {
        assert_eq!(adapted(rego), rego);
    }
}

#[test]
fn operands_stay_with_the_keyword() {
    for import in [
        "import future.keywords",
        "\timport  future.keywords # all",
        "import future.keywords.not",
        "import future[\"keywords\"]",
        "import # all\n\n  future.keywords",
        "import data.lib import future.keywords",
    ] {
        let rego = format!("package t\n{import}\na {{ not f(a.b) }}");
        assert_eq!(adapted(&rego), rego);
    }
    for other in [
        "import future.keywords.in",
        "import data.future.keywords",
        "b := `\nimport future.keywords\n`",
        "# import future.keywords",
    ] {
        let rego = format!("package t\n{other}\na {{ not f(a.b) }}");
        assert_ne!(adapted(&rego), rego);
    }
}
