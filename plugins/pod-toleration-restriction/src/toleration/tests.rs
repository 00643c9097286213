//! The tables of pkg/util/tolerations/tolerations_test.go of Kubernetes.

use super::*;

fn named(name: &str) -> Toleration {
    let (key, operator, value, effect, seconds) = match name {
        "all" => ("", EXISTS, "", "", None),
        "all-nosched" => ("", EXISTS, "", NO_SCHEDULE, None),
        "all-noexec" => ("", EXISTS, "", NO_EXECUTE, None),
        "foo" => ("foo", EXISTS, "", "", None),
        "foo-bar" => ("foo", EQUAL, "bar", "", None),
        "foo-nosched" => ("foo", EXISTS, "", NO_SCHEDULE, None),
        "foo-bar-nosched" => ("foo", EQUAL, "bar", NO_SCHEDULE, None),
        "foo-baz-nosched" => ("foo", EQUAL, "baz", NO_SCHEDULE, None),
        "faz-nosched" => ("faz", EXISTS, "", NO_SCHEDULE, None),
        "faz-baz-nosched" => ("faz", EQUAL, "baz", NO_SCHEDULE, None),
        "foo-prefnosched" => ("foo", EXISTS, "", "PreferNoSchedule", None),
        "foo-noexec" => ("foo", EXISTS, "", NO_EXECUTE, None),
        "foo-bar-noexec" => ("foo", EQUAL, "bar", NO_EXECUTE, None),
        "foo-noexec-10" => ("foo", EXISTS, "", NO_EXECUTE, Some(10)),
        "foo-noexec-0" => ("foo", EXISTS, "", NO_EXECUTE, Some(0)),
        "foo-bar-noexec-10" => ("foo", EQUAL, "bar", NO_EXECUTE, Some(10)),
        // The table has a name with a slip, which is an empty toleration.
        "foo-prenosched" => ("", "", "", "", None),
        _ => panic!("{name}"),
    };
    Toleration {
        key: key.to_owned(),
        operator: operator.to_owned(),
        value: value.to_owned(),
        effect: effect.to_owned(),
        toleration_seconds: seconds,
    }
}

const NAMES: [&str; 16] = [
    "all",
    "all-nosched",
    "all-noexec",
    "foo",
    "foo-bar",
    "foo-nosched",
    "foo-bar-nosched",
    "foo-baz-nosched",
    "faz-nosched",
    "faz-baz-nosched",
    "foo-prefnosched",
    "foo-noexec",
    "foo-bar-noexec",
    "foo-noexec-10",
    "foo-noexec-0",
    "foo-bar-noexec-10",
];

fn list(names: &[&str]) -> Vec<Toleration> {
    names.iter().map(|name| named(name)).collect()
}

/// The rows of `TestIsSuperset`.
#[test]
fn covers_what_kube_apiserver_says() {
    for (name, covered) in [
        (
            "all",
            "all-nosched all-noexec foo foo-bar foo-nosched foo-bar-nosched foo-baz-nosched faz-nosched \
            faz-baz-nosched foo-prefnosched foo-noexec foo-bar-noexec foo-noexec-10 foo-noexec-0 foo-bar-noexec-10",
        ),
        (
            "all-nosched",
            "foo-nosched foo-bar-nosched foo-baz-nosched faz-nosched faz-baz-nosched",
        ),
        (
            "all-noexec",
            "foo-noexec foo-bar-noexec foo-noexec-10 foo-noexec-0 foo-bar-noexec-10",
        ),
        (
            "foo",
            "foo-bar foo-nosched foo-bar-nosched foo-baz-nosched foo-prefnosched foo-noexec foo-bar-noexec \
            foo-noexec-10 foo-noexec-0 foo-bar-noexec-10",
        ),
        (
            "foo-bar",
            "foo-bar-nosched foo-bar-noexec foo-bar-noexec-10",
        ),
        ("foo-nosched", "foo-bar-nosched foo-baz-nosched"),
        ("foo-bar-nosched", ""),
        ("faz-nosched", "faz-baz-nosched"),
        ("faz-baz-nosched", ""),
        ("foo-prenosched", ""),
        (
            "foo-noexec",
            "foo-noexec foo-bar-noexec foo-noexec-10 foo-noexec-0 foo-bar-noexec-10",
        ),
        ("foo-bar-noexec", "foo-bar-noexec-10"),
        ("foo-noexec-10", "foo-noexec-0 foo-bar-noexec-10"),
        ("foo-noexec-0", ""),
        ("foo-bar-noexec-10", ""),
    ] {
        let covered: Vec<&str> = covered.split_whitespace().collect();
        for other in NAMES {
            let expected = other == name || covered.contains(&other);
            assert_eq!(
                named(name).covers(&named(other)),
                expected,
                "{name}, {other}"
            );
        }
    }
}

/// The rows of `TestVerifyAgainstWhitelist`.
#[test]
fn lists_what_kube_apiserver_says() {
    for (name, tolerations, whitelist, expected) in [
        (
            "equal input and whitelist",
            &["foo-bar-nosched", "foo-baz-nosched"][..],
            &["foo-bar-nosched", "foo-baz-nosched"][..],
            true,
        ),
        (
            "duplicate input allowed",
            &["foo-bar-nosched", "foo-bar-nosched"],
            &["foo-bar-nosched", "foo-baz-nosched"],
            true,
        ),
        (
            "allow all",
            &["foo-bar-nosched", "foo-bar-nosched"],
            &["all"],
            true,
        ),
        (
            "duplicate input forbidden",
            &["foo-bar-nosched", "foo-bar-nosched"],
            &["foo-baz-nosched"],
            false,
        ),
        (
            "value mismatch",
            &["foo-bar-nosched", "foo-baz-nosched"],
            &["foo-baz-nosched"],
            false,
        ),
        (
            "input does not exist in whitelist",
            &["foo-bar-nosched"],
            &["foo-baz-nosched"],
            false,
        ),
        ("disjoint sets", &["foo-bar"], &["foo-nosched"], false),
        ("empty whitelist", &["foo-bar"], &[], true),
        ("empty input", &[], &["foo-bar"], true),
    ] {
        assert_eq!(
            are_listed(&list(tolerations), &list(whitelist)),
            expected,
            "{name}"
        );
    }
}

/// The rows of `TestMergeTolerations`.
#[test]
fn merges_like_kube_apiserver() {
    let three = ["foo-bar-nosched", "faz-baz-nosched", "foo-noexec-10"];
    let others = ["foo-bar-nosched", "foo-baz-nosched", "foo-noexec-10"];
    for (name, first, second, expected) in [
        (
            "disjoint",
            &three[..],
            &["foo-prefnosched", "foo-baz-nosched"][..],
            &[
                "foo-bar-nosched",
                "faz-baz-nosched",
                "foo-noexec-10",
                "foo-prefnosched",
                "foo-baz-nosched",
            ][..],
        ),
        ("duplicate", &three, &three, &three),
        (
            "merge redundant",
            &["foo-bar-nosched", "foo-baz-nosched"],
            &["foo-nosched", "faz-baz-nosched"],
            &["foo-nosched", "faz-baz-nosched"],
        ),
        ("merge all", &others, &["all"], &["all"]),
        ("merge into all", &["all"], &others, &["all"]),
    ] {
        let all = [first, second].concat();
        let all: Vec<Entry> = list(&all).into_iter().map(Entry::from).collect();
        let merged: Vec<Toleration> = merge(&all).into_iter().map(|one| one.toleration).collect();
        assert_eq!(merged, list(expected), "{name}");
    }
}

/// `TestFuzzed`: what was there before is covered afterwards. The numbers come from a fixed sequence.
#[test]
fn merged_list_covers_all_tolerations() {
    let mut state = 1234_u32;
    let mut next = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as usize % below
    };
    for _ in 0..1000 {
        let mut lists = [Vec::new(), Vec::new()];
        for list in &mut lists {
            for _ in 0..next(10) {
                let mut one = Toleration {
                    key: "a".repeat(next(6) + 1),
                    effect: EFFECTS[next(4)].to_owned(),
                    ..Toleration::default()
                };
                match next(10) {
                    0..3 => one.operator = EXISTS.to_owned(),
                    _ => {
                        one.operator = EQUAL.to_owned();
                        one.value = "b".repeat(next(6) + 1);
                    }
                }
                if one.effect == NO_EXECUTE && next(2) == 0 {
                    one.toleration_seconds = i64::try_from(next(10)).ok();
                }
                assert_eq!(one.error(), None);
                list.push(one);
            }
        }
        let all: Vec<Toleration> = lists.concat();
        let entries: Vec<Entry> = all.iter().cloned().map(Entry::from).collect();
        let merged: Vec<Toleration> = merge(&entries)
            .into_iter()
            .map(|one| one.toleration)
            .collect();
        assert!(merged.is_empty() || are_listed(&all, &merged), "{all:?}");
    }
}

#[test]
fn annotations_are_read_like_go_reads_them() {
    let one = Toleration {
        key: "a".to_owned(),
        toleration_seconds: Some(3),
        ..Toleration::default()
    };
    let text =
        r#"[{"KEY": "b", "key": "a", "value": null, "tolerationSeconds": 3, "other": [1]}, null]"#;
    assert_eq!(parse(text), Some(vec![one, Toleration::default()]));
    assert_eq!(parse("null"), Some(Vec::new()));
    assert_eq!(parse(" [] "), Some(Vec::new()));
    for text in [
        "{}",
        "[1]",
        "[{\"key\": 1}]",
        "[{}",
        "[{\"tolerationSeconds\": 1.5}]",
        "x",
        " ",
    ] {
        assert_eq!(parse(text), None, "{text}");
    }
}
