//! Calculations with what is no number.

use regorus::{Engine, Value};

use crate::arithmetic::adapted;

#[test]
fn operators_become_calls_on_the_same_lines() {
    for (text, expected) in [
        ("x := a - b", "x := tollgate_subtract(a , b)"),
        (
            "x := a - b - c",
            "x := tollgate_subtract(tollgate_subtract(a , b) , c)",
        ),
        (
            "x := a - (b - c)",
            "x := tollgate_subtract(a , (tollgate_subtract(b , c)))",
        ),
        (
            "x := (a + b) * c",
            "x := tollgate_multiply((tollgate_add(a , b)) , c)",
        ),
        (
            "x := a + b * c",
            "x := tollgate_add(a , tollgate_multiply(b , c))",
        ),
        ("x := a -1", "x := tollgate_subtract(a ,1)"),
        ("x := y[n - 1]", "x := y[tollgate_subtract(n , 1)]"),
        (
            "x := {1} | a & b",
            "x := tollgate_union({1} , tollgate_intersection(a , b))",
        ),
        (
            "x := a # - 1\n    x - 1 > 0",
            "x := a # - 1\n    tollgate_subtract(x , 1) > 0",
        ),
        ("x := \"6\" - \"\"", "x := tollgate_subtract(\"6\" , \"\")"),
        (
            "x := `6` - y[\"-\"]",
            "x := tollgate_subtract(`6` , y[\"-\"])",
        ),
        ("x := -1", "x := -1"),
        ("x := \"a - b\"", "x := \"a - b\""),
    ] {
        let module = |body: &str| format!("package p\nv {{\n    {body}\n}}\n");
        assert_eq!(adapted(&module(text), false), module(expected));
    }
    assert_eq!(adapted("no rego {", false), "no rego {");
}

#[test]
fn blanks_around_operators_change_nothing() {
    for spaced in [
        "a + b - c",
        "a * b + c",
        "a + b * c",
        "x * 100 / y",
        "n - 1 - 2",
        "a - b - c - x - y",
        "( a + b ) * ( c - n )",
        "( ( a ) ) - ( b )",
        "a - ( b - c ) % n",
        "count( {a} | {b} & {c} - {x} )",
        "count( {a} - {b} - {c} )",
        "[ a , b + c - n ][ n - 9 + 1 ]",
        "count( \"6\" ) + count( `7` ) - 1",
        "to_number( \"6\" ) - a * 2",
        "-1 - n",
    ] {
        let body = |expression: &str| {
            format!(
                "package p\nv[z] {{ a := 7; b := 5; c := 3; x := 2; y := 4; n := 9; z := {expression} }}"
            )
        };
        let tight = spaced.replace(' ', "");
        let plain = value(&body(spaced)).unwrap();
        assert_eq!(plain.as_set().unwrap().len(), 1, "{spaced}: {plain}");
        for text in [spaced, &tight] {
            let ours = value(&adapted(&body(text), false));
            assert_eq!(ours.as_ref(), Ok(&plain), "{text}");
        }
    }
}

/// The value of `v`, or the error.
fn value(text: &str) -> Result<Value, String> {
    let mut engine = Engine::new();
    engine.set_rego_v0(true);
    for (name, function) in crate::arithmetic::functions() {
        let function = Box::new(move |values| Ok(function(values)));
        engine.add_extension(name.to_owned(), 2, function).unwrap();
    }
    let added = engine.add_policy("p".to_owned(), text.to_owned());
    added.map_err(|error| error.to_string())?;
    let value = engine.eval_rule("data.p.v".to_owned());
    value.map_err(|error| error.to_string())
}

#[test]
fn calculation_with_a_text_is_undefined() {
    let rego = "package p\nimport future.keywords\n\
                values := [x | y := [7, \"6\", null, 5][_]; x := y - 3]\n\
                sets := {1, 2} - {2}\nnegated { not \"6\" % 2 > 1 }\nzero { 1 / 0 }\n\
                union := {1} | [2]\nfloat { 5.5 % 2 }\nboth := {1} & {1, 2}";
    let mut engine = Engine::new();
    engine.set_rego_v0(true);
    engine.set_strict_builtin_errors(false);
    for (name, function) in crate::arithmetic::functions() {
        let function = Box::new(move |values| Ok(function(values)));
        engine.add_extension(name.to_owned(), 2, function).unwrap();
    }
    engine
        .add_policy("p".to_owned(), adapted(rego, false))
        .unwrap();
    let mut value = |name: &str| engine.eval_rule(format!("data.p.{name}")).unwrap();
    assert_eq!(value("values"), Value::from_json_str("[4, 2]").unwrap());
    assert_eq!(value("sets").as_set().unwrap().len(), 1);
    assert_eq!(value("both").as_set().unwrap().len(), 1);
    for name in ["zero", "union", "float"] {
        assert_eq!(value(name), Value::Undefined, "{name}");
    }
}
