//! What a reader gets of the counts: sorted, selected, in parts, and within the bound.

use super::*;

fn summary(counts: &[(Verdict, u64)]) -> Summary {
    let mut summary = Summary::default();
    for (verdict, times) in counts {
        for _ in 0..*times {
            summary.add(*verdict);
        }
    }
    summary
}

fn add(counts: &mut Counts, namespace: Option<&str>, plugin: &str, verdicts: &[(Verdict, u64)]) {
    counts.add(namespace, &[(plugin, summary(verdicts))].into());
}

fn counts() -> Counts {
    let mut counts = Counts::default();
    add(&mut counts, Some("bank"), "labels", &[(Verdict::Pass, 5)]);
    add(&mut counts, Some("shop"), "labels", &[(Verdict::Fail, 3)]);
    let images = [(Verdict::Error, 2), (Verdict::Warn, 7)];
    add(&mut counts, Some("shop"), "images", &images);
    add(&mut counts, Some("shop-b"), "labels", &[(Verdict::Warn, 1)]);
    add(&mut counts, None, "labels", &[(Verdict::Skip, 1)]);
    counts.sort();
    counts
}

fn search() -> ScanSearch {
    ScanSearch {
        limit: 50,
        ..ScanSearch::default()
    }
}

fn names(page: &Value) -> Vec<String> {
    let results = page["results"].as_array().expect("a list").iter();
    let name = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let named = results.map(|one| format!("{} {}", name(&one["namespace"]), name(&one["plugin"])));
    named.collect()
}

#[test]
fn lists_the_most_failures_first() {
    let page = counts().select(&search(), |_| true);
    let expected = [
        "shop labels",
        "shop images",
        "shop-b labels",
        "- labels",
        "bank labels",
    ];
    assert_eq!(names(&page), expected);
    let sum = json!({"error": 2, "fail": 3, "warn": 8, "skip": 1, "pass": 5});
    assert_eq!(page["summary"], sum);
    assert_eq!(
        (&page["namespaces"], &page["total"]),
        (&json!(3), &json!(5))
    );
    assert_eq!(page["results"][1]["warn"], 7);
    assert_eq!((&page["next"], &page["omitted"]), (&Value::Null, &json!(0)));
}

#[test]
fn sums_up_namespaces_and_plugins() {
    let by = |by| counts().select(&ScanSearch { by, ..search() }, |_| true);
    let page = by(By::Namespace);
    assert_eq!(names(&page), ["shop -", "shop-b -", "- -", "bank -"]);
    let shop = &page["results"][0];
    assert_eq!(
        (&shop["plugins"], &shop["fail"], &shop["warn"]),
        (&json!(2), &json!(3), &json!(7))
    );
    assert!(shop.get("plugin").is_none(), "{shop}");
    let page = by(By::Plugin);
    assert_eq!(names(&page), ["- labels", "- images"]);
    assert_eq!(page["results"][0]["namespaces"], 3);
    assert!(page["results"][0].get("namespace").is_none(), "{page}");
}

#[test]
fn selects_by_name_and_result() {
    let of = |part: &str, result: Option<&str>| {
        let search = ScanSearch {
            search: Some(part.to_owned()),
            result: result.map(str::to_owned),
            ..search()
        };
        let page = counts().select(&search, |_| true);
        assert_eq!(page["total"], 5);
        names(&page)
    };
    assert_eq!(of("SHOP-", None), ["shop-b labels"]);
    assert_eq!(of("image", None), ["shop images"]);
    assert_eq!(of("shop", Some("warn")), ["shop images", "shop-b labels"]);
    assert_eq!(of("labels", Some("skip")), ["- labels"]);
    assert_eq!(of("nothing", None), [""; 0]);
}

#[test]
fn parts_have_every_entry_once_and_in_order() {
    let mut counts = Counts::default();
    // Names of which one begins like the other, with a character before and after the slash.
    for namespace in ["a", "a-b", "a0", "b"] {
        for plugin in ["p", "p-q", "a/p"] {
            for failures in [0, 1, 20] {
                let namespace = format!("{namespace}{failures}");
                add(
                    &mut counts,
                    Some(&namespace),
                    plugin,
                    &[(Verdict::Fail, failures)],
                );
            }
        }
    }
    counts.sort();
    let whole = names(&counts.select(&search(), |_| true));
    assert_eq!(whole.len(), 36);
    for limit in [1, 5, 36] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let part = ScanSearch {
                after,
                limit,
                ..search()
            };
            let page = counts.select(&part, |_| true);
            seen.extend(names(&page));
            after = page["next"].as_str().map(str::to_owned);
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, whole, "{limit}");
    }
}

#[test]
fn rows_are_bounded_and_the_rest_is_counted() {
    let mut counts = Counts::new(10);
    for index in 0..100 {
        let verdict = if index % 20 == 0 {
            Verdict::Fail
        } else {
            Verdict::Pass
        };
        add(
            &mut counts,
            Some(&format!("team-{index}")),
            "labels",
            &[(verdict, 1)],
        );
        assert!(counts.rows.len() <= 20);
    }
    counts.sort();
    let page = counts.select(&search(), |_| true);
    assert_eq!((&page["total"], &page["omitted"]), (&json!(10), &json!(90)));
    assert_eq!(
        (&page["summary"]["fail"], &page["summary"]["pass"]),
        (&json!(5), &json!(95))
    );
    assert!(names(&page)[4].starts_with("team-"), "{page}");
    assert_eq!(page["results"][4]["fail"], 1, "no failure is left out");
}

#[test]
fn leaves_out_namespaces_of_others() {
    let page = counts().select(&search(), |namespace| namespace != Some("shop"));
    assert_eq!(names(&page), ["shop-b labels", "- labels", "bank labels"]);
    assert_eq!(
        (&page["handedOver"], &page["namespaces"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(page["summary"]["fail"], 0);
}

#[test]
fn part_of_a_thousand_namespaces_is_small() {
    let mut counts = Counts::default();
    for namespace in 0..1_000 {
        for plugin in 0..20 {
            let (namespace, plugin) = (format!("team-{namespace}"), format!("plugin-{plugin}"));
            add(
                &mut counts,
                Some(&namespace),
                &plugin,
                &[(Verdict::Pass, 3)],
            );
        }
    }
    counts.sort();
    let page = counts.select(&search(), |_| true);
    assert_eq!(
        (&page["total"], &page["omitted"]),
        (&json!(20_000), &json!(0))
    );
    assert!(
        page.to_string().len() < 16_000,
        "{}",
        page.to_string().len()
    );
}
