//! Groups in a configuration, and the verdicts of their expressions.

use std::path::Path;
use std::sync::Arc;

use tollgate_config::{
    Capability, Config, ConfigError, GroupExpression, GroupStep, MemberVerdict, Mode, PluginConfig,
    entries,
};

const FILE: &str = "
limits: { fuel: 5M }
plugins:
  - name: before
    source: file:./before.wasm
  - name: images
    mode: warn
    limits: { fuel: 7M }
    group:
      members:
        - { name: signed, source: file:./signed.wasm, settings: { a: 1 } }
        - { name: trusted, source: 'oci://registry.example.com/trusted:1', limits: { fuel: 9M }, capabilities: [clock] }
        - { name: labelled, source: file:./labelled.wasm }
      expression: signed() || (trusted() && labelled())
      message: the image is neither signed nor from a trusted registry
  - name: after
    source: file:./after.wasm
";

fn members(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

fn problems(text: &str) -> Vec<String> {
    match Config::parse(text, Path::new("/")) {
        Ok(_) => Vec::new(),
        Err(ConfigError::Invalid { problems, .. }) => {
            problems.iter().map(ToString::to_string).collect()
        }
        Err(error) => vec![error.to_string()],
    }
}

/// Evaluates an expression of `a`, `b` and `c`, and returns the result with the members that were asked.
fn evaluate(text: &str, verdicts: [MemberVerdict; 3]) -> (GroupStep, String) {
    let expression = GroupExpression::parse(text, &members(&["a", "b", "c"])).unwrap();
    let mut known = [None; 3];
    let mut asked = String::new();
    loop {
        match expression.step(&known) {
            GroupStep::Ask(index) => {
                assert_eq!(known[index], None, "asked twice: {text}");
                known[index] = Some(verdicts[index]);
                asked.push_str(["a", "b", "c"][index]);
            }
            step => return (step, asked),
        }
    }
}

const TRUE: MemberVerdict = MemberVerdict::Allowed;
const FALSE: MemberVerdict = MemberVerdict::Denied;
const FAULT: MemberVerdict = MemberVerdict::Faulted;
const YES: GroupStep = GroupStep::Settled(true);
const NO: GroupStep = GroupStep::Settled(false);

#[test]
fn asks_only_the_members_that_the_result_depends_on() {
    let cases = [
        ("a() || (b() && c())", [TRUE, FALSE, FALSE], YES, "a"),
        ("a() || (b() && c())", [FALSE, FALSE, TRUE], NO, "ab"),
        ("a() || (b() && c())", [FALSE, TRUE, TRUE], YES, "abc"),
        ("c() && b() && a()", [TRUE, TRUE, FALSE], NO, "c"),
        ("all", [TRUE, FALSE, TRUE], NO, "ab"),
        ("any", [FALSE, TRUE, FALSE], YES, "ab"),
        ("any", [FALSE, FALSE, FALSE], NO, "abc"),
        ("!a() && (b() || c())", [TRUE, TRUE, TRUE], NO, "a"),
        ("a() ? b() : c()", [TRUE, FALSE, TRUE], NO, "ab"),
        ("a() ? b() : c()", [FALSE, FALSE, TRUE], YES, "ac"),
        ("a() == b() || c()", [FALSE, FALSE, FALSE], YES, "ab"),
        ("a() != b() && c()", [FALSE, TRUE, TRUE], YES, "abc"),
        ("false || a() || b() || c()", [TRUE, FALSE, FALSE], YES, "a"),
    ];
    for (text, verdicts, result, asked) in cases {
        assert_eq!(
            evaluate(text, verdicts),
            (result, asked.to_owned()),
            "{text} {verdicts:?}"
        );
    }
}

#[test]
fn fault_counts_only_if_the_result_depends_on_it() {
    let cases = [
        ("a() || b() || c()", [FAULT, FALSE, TRUE], YES, "abc"),
        (
            "a() || b() || c()",
            [FAULT, FALSE, FALSE],
            GroupStep::Unknown,
            "abc",
        ),
        ("a() && b() && c()", [FAULT, FALSE, TRUE], NO, "ab"),
        (
            "a() && b() && c()",
            [FAULT, TRUE, TRUE],
            GroupStep::Unknown,
            "abc",
        ),
        ("a() && b() && c()", [FALSE, FAULT, TRUE], NO, "a"),
        ("!a() || b() || c()", [FAULT, TRUE, FALSE], YES, "ab"),
        ("a() ? b() : c()", [FAULT, TRUE, TRUE], YES, "abc"),
        (
            "a() ? b() : c()",
            [FAULT, TRUE, FALSE],
            GroupStep::Unknown,
            "abc",
        ),
        ("a() == b() || c()", [FAULT, TRUE, TRUE], YES, "abc"),
        ("(a() && b()) || c()", [FAULT, FALSE, FALSE], NO, "abc"),
    ];
    for (text, verdicts, result, asked) in cases {
        assert_eq!(
            evaluate(text, verdicts),
            (result, asked.to_owned()),
            "{text} {verdicts:?}"
        );
    }
}

/// An open verdict must stand for both. Every expression of the list is compared with its truth table.
#[test]
fn result_with_faults_is_that_of_both_possible_verdicts() {
    let texts = [
        "a() || (b() && c())",
        "(a() || b()) && !c()",
        "a() ? b() : c()",
        "a() == b() || c()",
        "!(a() && b()) != c()",
        "any",
        "all",
    ];
    let all = [TRUE, FALSE, FAULT];
    for text in texts {
        for index in 0..27 {
            let verdicts = [all[index % 3], all[index / 3 % 3], all[index / 9]];
            let mut results = Vec::new();
            for bits in 0..8 {
                let possible: [MemberVerdict; 3] =
                    std::array::from_fn(|at| match (verdicts[at], bits >> at & 1) {
                        (FAULT, 0) => FALSE,
                        (FAULT, _) => TRUE,
                        (other, _) => other,
                    });
                results.push(evaluate(text, possible).0);
            }
            let (found, _) = evaluate(text, verdicts);
            // Three-valued logic may leave open what only both sides of a contradiction would settle.
            let is_open = found == GroupStep::Unknown;
            assert!(
                is_open || results.iter().all(|result| *result == found),
                "{text} {verdicts:?}: {found:?}, {results:?}"
            );
            if !verdicts.contains(&FAULT) {
                assert!(!is_open, "{text} {verdicts:?}");
            }
        }
    }
}

#[test]
fn says_what_an_expression_must_not_have() {
    let names = members(&["signed", "trusted"]);
    let of = |text: &str| GroupExpression::parse(text, &names).unwrap_err().join("; ");
    assert_eq!(
        of("signed() && other()"),
        "names \"other\", expected members: signed(), trusted()"
    );
    assert_eq!(
        of("signed && trusted()"),
        "names the member signed, expected a call: signed()"
    );
    assert_eq!(
        of("signed(1) || trusted()"),
        "calls signed with 1 argument(s), expected none: signed()"
    );
    assert_eq!(
        of("signed()"),
        "does not name the member trusted, which would never be called"
    );
    for (text, result) in [
        ("true || signed() && trusted()", true),
        ("signed() && trusted() && false", false),
        ("signed() || trusted() || !false", true),
        ("true ? false : signed() || trusted()", false),
        ("signed() || !signed() || trusted()", true),
        ("(signed() && trusted()) || !signed() || !trusted()", true),
        ("signed() && !signed() && trusted()", false),
    ] {
        assert_eq!(
            of(text),
            format!(
                "is {result} whatever the members say, expected an expression that depends on them"
            )
        );
    }
    assert!(of("[signed(), trusted()].exists(x, x)").contains("nothing else of CEL"));
    assert!(
        of("signed() ||").contains("line 1"),
        "{}",
        of("signed() ||")
    );
    assert!(of(&"!".repeat(3_000)).contains("at most 2048"));
}

#[test]
fn members_are_plugins_with_the_keys_of_their_group() {
    let config = Config::parse(FILE, Path::new("/etc")).unwrap();
    let names: Vec<&str> = config
        .plugins
        .iter()
        .map(|plugin| plugin.name.as_str())
        .collect();
    let expected = [
        "before",
        "images.signed",
        "images.trusted",
        "images.labelled",
        "after",
    ];
    assert_eq!(names, expected);
    let [_, signed, trusted, ..] = config.plugins.as_slice() else {
        panic!("five plugins");
    };
    assert_eq!((signed.mode, trusted.mode), (Mode::Warn, Mode::Warn));
    assert_eq!(
        (signed.limits.fuel, trusted.limits.fuel),
        (7_000_000, 9_000_000)
    );
    assert_eq!(signed.settings["a"], 1);
    assert!(trusted.capabilities.contains(&Capability::Clock));
    assert_eq!(trusted.name.entry(), "images");
    assert_eq!(
        (trusted.name.group(), trusted.name.member()),
        (Some("images"), Some("trusted"))
    );
    assert!(!trusted.is_shadow());

    let entries = entries(&config.plugins);
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["before", "images", "after"]);
    let group = &entries[1];
    assert!(group.is_group());
    assert_eq!(
        group.source_in_words(),
        "group of signed, trusted, labelled"
    );
    assert_eq!(group.limits.fuel, 23_000_000);
    assert!(group.capabilities.contains(&Capability::Clock));
}

#[test]
fn group_is_made_of_members_of_one_version_only() {
    let before = Config::parse(FILE, Path::new("/etc")).unwrap().plugins;
    let changed = FILE
        .replace("name: labelled", "name: tagged")
        .replace("labelled()", "tagged()");
    let after = Config::parse(&changed, Path::new("/etc")).unwrap().plugins;
    let group = |members: &[&PluginConfig]| {
        PluginConfig::of_group(members).map(|entry| entry.source_in_words())
    };
    let old = Some("group of signed, trusted, labelled".to_owned());
    assert_eq!(group(&[&before[1], &before[2]]), None);
    let new = Some("group of signed, trusted, tagged".to_owned());
    assert_eq!(group(&[&before[1], &before[2], &before[3]]), old);
    // Settings of one version with the expression of another would be a group that nobody has written.
    assert_eq!(group(&[&after[1], &before[2], &before[3]]), None);
    assert_eq!(
        group(&[&before[1], &before[2], &before[3], &after[3]]),
        None
    );
    assert_eq!(group(&[&after[1], &after[2], &after[3]]), new);
    assert_eq!(group(&[&after[1], &after[2]]), None);
}

#[test]
fn says_what_a_group_must_not_have() {
    let of = |keys: &str, group: &str| {
        problems(&format!(
            "plugins: [{{ name: g, {keys} group: {{ {group} }} }}]"
        ))
        .join("\n")
    };
    let whole = "members: [{ name: a, source: 'file:a.wasm' }], expression: all, message: no";
    assert_eq!(of("", whole), "");
    let found = of(
        "source: 'file:a.wasm', settings: {}, shadow: { source: 'file:b.wasm' }, rollout: {}, conflicts: deny,",
        whole,
    );
    for expected in [
        "plugins[0].source: expected none beside `group`",
        "plugins[0].settings: expected none beside `group`",
        "plugins[0].shadow: expected none beside `group`: to try a change, write a second group with mode: audit",
        "plugins[0].rollout: expected none beside `group`: to try a change, write a second group with mode: audit",
        "plugins[0].conflicts: expected none beside `group`, because a group only validates",
    ] {
        assert!(found.contains(expected), "{expected}: {found}");
    }
    let versions = "members: [{ name: a, source: 'file:a.wasm', shadow: { source: 'file:b.wasm' }, rollout: {} }], \
                    expression: all, message: no";
    let found = of("", versions);
    for key in ["shadow", "rollout"] {
        let expected = format!("plugins[0].group.members[0].{key}: unknown key");
        assert!(found.contains(&expected), "{found}");
    }
    let found = of("", "members: [], expression: all, message: ''");
    assert!(
        found.contains("plugins[0].group.members: got 0 members"),
        "{found}"
    );
    assert!(
        found.contains("plugins[0].group.message: expected"),
        "{found}"
    );
    for name in ["Signed", "a-b", "in", "shadow", "1a", "_a"] {
        let members = format!(
            "members: [{{ name: '{name}', source: 'file:a.wasm' }}], expression: all, message: no"
        );
        let found = of("", &members);
        assert!(
            found.contains("plugins[0].group.members[0].name: got"),
            "{name}: {found}"
        );
    }
    let twice = "members: [{ name: a, source: 'file:a.wasm' }, { name: a, source: 'file:b.wasm' }], expression: all, message: no";
    let found = of("", twice);
    assert!(
        found.contains("group.members[1].name: got \"a\", which names another member"),
        "{found}"
    );
}
