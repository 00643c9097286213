//! The JSON Schema of suites.

use std::path::Path;

use serde_json::{Value, json};
use tollgate_config::schema::{CONFIG_DESCRIPTIONS, Description, Head, Trace, derive, render};

use super::suite::Suite;

/// The keys of suites. The keys below `plugins` have the descriptions of the configuration.
const DESCRIPTIONS: &[Description] = &[
    (
        "config",
        "A configuration file, instead of plugins. Everything in it applies.",
    ),
    (
        "plugins",
        "The plugins under test, as in a configuration. Several plugins are a chain, as in the host.",
    ),
    ("defaults", "Defaults for all cases."),
    (
        "fuelGrowth",
        "How many percent the fuel may exceed that of a snapshot. Default: 10.",
    ),
    ("cases", "The cases. Each is a review."),
    ("name", "Describes the case. Unique in the suite."),
    (
        "rows",
        "Variants of the case. A key that a row omits comes from the case; set and unset add up.",
    ),
    (
        "object",
        "A manifest or an AdmissionReview, or the name of a file with any number of them.",
    ),
    (
        "oldObject",
        "The object before the request, or the name of a file with it. The operation is then UPDATE.",
    ),
    (
        "set",
        "Values to set in the object, by JSON Pointer. Missing objects on the way are created, and - adds to a list.",
    ),
    ("unset", "JSON Pointers to remove from the object."),
    (
        "operation",
        "The operation of the request. For DELETE, object is the old object.",
    ),
    (
        "resource",
        "The resource of the request, such as mice, v1/pods or apps/v1/deployments. Default: that of the object's kind.",
    ),
    (
        "subResource",
        "The subresource of the request, such as scale. Default: none.",
    ),
    ("user", "The name of the user."),
    ("groups", "The groups of the user."),
    ("namespace", "The namespace of the request."),
    ("dryRun", "Whether the request is a dry run."),
    (
        "namespaces",
        "The Namespaces of the cluster, or the name of a file with them.",
    ),
    (
        "cluster",
        "Objects of the cluster for lookups, or the name of a file with them.",
    ),
    (
        "cases[].access",
        "What users may do in the cluster, for plugins with the capability access. Everything else is denied. Without the key, there is no authorizer.",
    ),
    (
        "rows[].access",
        "What users may do in the cluster, for plugins with the capability access. Everything else is denied. Without the key, there is no authorizer.",
    ),
    (
        "defaults.access",
        "What users may do in the cluster, for plugins with the capability access. Everything else is denied. Without the key, there is no authorizer.",
    ),
    (
        "cases[].images",
        "The images that registries have, for plugins with the capability images. Others are not found. Without the key, no registry answers.",
    ),
    (
        "rows[].images",
        "The images that registries have, for plugins with the capability images. Others are not found. Without the key, no registry answers.",
    ),
    (
        "defaults.images",
        "The images that registries have, for plugins with the capability images. Others are not found. Without the key, no registry answers.",
    ),
    ("images[].image", "The image, such as nginx:1.29."),
    ("images[].policy", "The policy. Default: every policy."),
    (
        "images[].result",
        "verified; last-known-good: verified before, and no registry answers; unsigned; untrusted: not as the policy requires; not-found; or unavailable.",
    ),
    (
        "images[].digest",
        "The digest. Default: that of the image, or one that is made of its name.",
    ),
    ("images[].signers", "The signers of a verified image."),
    (
        "images[].reason",
        "The reason of a failure, as the plugin gets it.",
    ),
    ("access[].user", "The name of the user who may do it, or *."),
    ("access[].group", "The group whose users may do it."),
    ("access[].verb", "The verb, such as delete, or *."),
    (
        "access[].apiGroup",
        "The API group of the resource, or *. Default: the core group.",
    ),
    (
        "access[].resource",
        "The resource, such as pods or pods/exec. * is all, and */scale one subresource of all.",
    ),
    (
        "access[].namespace",
        "The namespace of the resource. Default: every one.",
    ),
    (
        "access[].name",
        "The name of the object. Default: every one.",
    ),
    (
        "access[].path",
        "Instead of a resource: a path such as /metrics. At the end, * is every continuation.",
    ),
    (
        "now",
        "The time that the capability clock returns, such as 2026-07-01T12:00:00Z.",
    ),
    (
        "cases[].settings",
        "Replaces the plugin's settings. With several plugins, one entry per plugin name.",
    ),
    (
        "rows[].settings",
        "Replaces the plugin's settings. With several plugins, one entry per plugin name.",
    ),
    (
        "defaults.settings",
        "Replaces the plugin's settings. With several plugins, one entry per plugin name.",
    ),
    (
        "fuel",
        "The most fuel that one call may use, such as 5000 or 30k.",
    ),
    (
        "expect",
        "The expected result: a verdict, or an object with details.",
    ),
    (
        "expect.verdict",
        "allow, deny, fault (denied because of a plugin's fault) or not-called (no rules match). A message, code or causes imply deny.",
    ),
    ("expect.message", "A part of the denial's message."),
    ("expect.code", "The HTTP status of the denial."),
    ("causes", "All causes, in order."),
    (
        "causes[].field",
        "The field, as Kubernetes or as the plugin writes it.",
    ),
    ("causes[].message", "A part of the cause's message."),
    ("expect.warnings", "All warnings in order, a part of each."),
    (
        "expect.annotations",
        "Some audit annotations. null: there must be none.",
    ),
    (
        "expect.object",
        "The whole object after the mutators, or the name of a file with it.",
    ),
    (
        "expect.fields",
        "Some places of the object after the mutators, by JSON Pointer. null: there must be nothing.",
    ),
    (
        "expect.unchanged",
        "Whether the mutators leave the object unchanged.",
    ),
    ("expect.fault", "The kind of fault that a plugin ends with."),
    (
        "expect.notLoaded",
        "A part of the reason why a plugin is not loaded.",
    ),
    (
        "expect.snapshot",
        "Whether the result is compared with the snapshot that `tollgate test --update` wrote.",
    ),
];

/// Returns the JSON Schema of a suite of `tollgate test`.
pub(crate) fn suite() -> Value {
    let head = Head {
        name: "suite",
        title: "Suite of tollgate test",
        descriptions: &[DESCRIPTIONS, CONFIG_DESCRIPTIONS],
    };
    render(head, &trace())
}

/// Runs the reader of suites.
fn trace() -> Trace {
    // Only an artifact has signatures, and only a case with a name has rows.
    let source = "oci://registry.example.com/a:1";
    let base = json!({
        "plugins": [{ "name": "a", "source": source, "shadow": { "source": source },
            "rollout": { "to": { "source": source }, "steps": [{}] } }],
        "cases": [{ "name": "a", "object": {}, "expect": "allow", "rows": [{}] }],
    });
    derive(&[base], |document, collector| {
        let _ = Suite::read(document, Path::new("/nowhere/policy.test.yaml"), collector);
    })
}

#[cfg(test)]
mod tests {
    use tollgate_config::problem::Collector;
    use tollgate_config::schema::{described, violations};
    use tollgate_config::yaml;

    use super::*;

    const SUITE: &str = "
plugins: [{ name: x, source: file:x.wasm, limits: { fuel: 5M } }]
fuelGrowth: 5
defaults: { user: jane, namespace: shop, fuel: 5000, now: 2026-07-01T12:00:00Z }
cases:
  - name: rows
    object: web.yaml
    oldObject: { kind: Pod }
    set: { /spec/replicas: 3 }
    unset: [/spec/paused]
    namespaces: [{ metadata: { name: shop } }]
    settings: { a: 1 }
    rows:
      - { expect: allow }
      - { name: b, groups: [dev], dryRun: true, operation: UPDATE, expect: { causes: [{ field: spec, message: m }], code: 403 } }
      - { expect: { fields: { /a: null }, annotations: { a: null, b: c }, object: out.yaml, warnings: [w] } }
      - { expect: { fault: out-of-fuel, verdict: deny } }
";

    fn document(text: &str) -> Value {
        yaml::read(text, &Collector::default()).unwrap()
    }

    fn reads(document: &Value) -> bool {
        let collector = Collector::default();
        let suite = Suite::read(document, Path::new("x.test.yaml"), &collector);
        collector.finish(suite).is_ok()
    }

    /// Compares the published file with the code. With `TOLLGATE_WRITE=1`, writes the file.
    #[test]
    fn published_schema_is_that_of_the_reader() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas/suite.json");
        if std::env::var_os("TOLLGATE_WRITE").is_some() {
            std::fs::write(&path, format!("{:#}\n", suite())).unwrap();
        }
        let published = std::fs::read_to_string(&path).unwrap_or_default();
        let published: Value = serde_json::from_str(&published).unwrap_or_default();
        assert!(
            published == suite(),
            "docs/schemas/suite.json differs from the code: write it with `tollgate schema suite`"
        );
    }

    #[test]
    fn every_key_has_a_description() {
        let tables = [DESCRIPTIONS, CONFIG_DESCRIPTIONS];
        let (missing, unused) = described(&trace(), &tables);
        assert!(missing.is_empty(), "no description: {missing:?}");
        let unused: Vec<_> = unused
            .into_iter()
            .filter(|end| DESCRIPTIONS.iter().any(|(key, _)| key == end))
            .collect();
        assert!(unused.is_empty(), "describe no key: {unused:?}");
    }

    #[test]
    fn schema_accepts_what_the_reader_accepts() {
        let suite = document(SUITE);
        assert!(reads(&suite));
        assert_eq!(violations(&super::suite(), &suite), [""; 0]);
    }

    #[test]
    fn schema_and_reader_find_the_same_mistakes() {
        let schema = suite();
        for (from, to, expected) in [
            (
                "operation: UPDATE",
                "operaton: UPDATE",
                "cases[0].rows[1].operaton: unknown key",
            ),
            (
                "operation: UPDATE",
                "operation: PATCH",
                "cases[0].rows[1].operation: expected another word",
            ),
            (
                "expect: allow",
                "expect: alow",
                "cases[0].rows[0].expect: none of 2 forms",
            ),
            (
                "fault: out-of-fuel",
                "fault: out-of-feul",
                "cases[0].rows[3].expect: none of 2 forms",
            ),
            (
                "fuel: 5000",
                "fuel: [5000]",
                "defaults.fuel: none of 2 forms",
            ),
            (
                "limits: { fuel: 5M }",
                "limits: { feul: 5M }",
                "plugins[0].limits.feul: unknown key",
            ),
            (
                "unset: [/spec/paused]",
                "unset: /spec/paused",
                "cases[0].unset: expected array",
            ),
        ] {
            let suite = document(&SUITE.replace(from, to));
            assert!(!reads(&suite), "the reader accepts {to}");
            assert_eq!(violations(&schema, &suite), [expected]);
        }
    }
}
