use crate::bodies::adapted;

#[test]
fn further_bodies_of_a_rule_get_its_head() {
    for (rego, expected) in [
        (
            "f(x) = y {\n  y := x.a\n} {\n  y := x.b\n}\n{ y := x.c }",
            "f(x) = y {\n  y := x.a\n} f(x) = y {\n  y := x.b\n}\nf(x) = y { y := x.c }",
        ),
        ("a = {1} { b } { c }", "a = {1} { b } a = {1} { c }"),
        ("a { b } { c }", "a { b } a { c }"),
        (
            "a[x] = 1 { b[x] } { c[x] }",
            "a[x] = 1 { b[x] } a[x] = 1 { c[x] }",
        ),
        ("a = 1 { b } else = 2 { c }", "a = 1 { b } else = 2 { c }"),
        (
            "a = \"}{\" { b } { c }",
            "a = \"}{\" { b } a = \"}{\" { c }",
        ),
        (
            "f(x) = \"#\" # why }\n{ b }\n{ c }",
            "f(x) = \"#\" # why }\n{ b }\nf(x) = \"#\" { c }",
        ),
    ] {
        let [rego, expected] = [rego, expected].map(|text| format!("package t\n{text}\n"));
        assert_eq!(adapted(&rego, false), expected);
    }
    let broken = "package t\na { b } {";
    assert_eq!(adapted(broken, false), broken);
}
