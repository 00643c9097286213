use serde_json::json;

use super::*;

fn after(pointer: &str, value: serde_json::Value) -> Secrecy {
    let mut secrecy = Secrecy::Sealed;
    secrecy.reads(pointer, &Json::from(value));
    secrecy
}

#[test]
fn reading_outside_of_secret_keeps_texts() {
    for pointer in [
        "/kind",
        "/type",
        "/metadata/name",
        "/metadata/labels",
        "/metadata/labels/app",
    ] {
        assert_eq!(after(pointer, "x".into()), Secrecy::Sealed, "{pointer}");
    }
}

#[test]
fn reading_content_of_secret_withholds_texts() {
    for pointer in [
        "",
        "/data",
        "/data/password",
        "/stringData/password",
        "/metadata",
        "/metadata/annotations",
        "/metadata/annotations/a",
        "/metadatas/name",
    ] {
        assert_eq!(after(pointer, "x".into()), Secrecy::Broken, "{pointer}");
    }
}

#[test]
fn reading_member_names_that_mutators_chose_withholds_texts() {
    let after = |pointer: &str| {
        let mut secrecy = Secrecy::Sealed;
        secrecy.reads_names(pointer);
        secrecy
    };
    for pointer in ["", "/metadata", "/metadata/labels"] {
        assert_eq!(after(pointer), Secrecy::Sealed, "{pointer}");
    }
    for pointer in ["/data", "/stringData", "/metadata/annotations"] {
        assert_eq!(after(pointer), Secrecy::Broken, "{pointer}");
    }
}

#[test]
fn content_may_be_moved_only_to_content_fields() {
    for pointer in [
        "/data",
        "/data/a",
        "/stringData/a",
        "/metadata/annotations/a",
    ] {
        assert!(is_content(pointer), "{pointer}");
    }
    for pointer in [
        "",
        "/metadata",
        "/metadata/labels/a",
        "/type",
        "/metadata/finalizers",
    ] {
        assert!(!is_content(pointer), "{pointer}");
    }
}

#[test]
fn texts_about_other_objects_are_not_withheld() {
    let mut secrecy = Secrecy::of(false);
    secrecy.reads("/data/password", &Json::text("x"));
    assert_eq!(secrecy.text("said".to_owned()), "said");
}

#[test]
fn cuts_pointer_at_first_unknown_name() {
    let secret = Json::from(serde_json::json!({"metadata": {"labels": {"a/b": "x"}}}));
    let broken = Secrecy::Broken;
    assert_eq!(
        broken.pointer("/metadata/labels/a~1b", Some(&secret)),
        "/metadata/labels/a~1b"
    );
    assert_eq!(
        broken.pointer("/metadata/labels/c2VjcmV0/x", Some(&secret)),
        "/metadata/labels/[withheld]"
    );
    assert_eq!(
        Secrecy::Sealed.pointer("/metadata/labels/c", Some(&secret)),
        "/metadata/labels/c"
    );
}

#[test]
fn finding_value_below_content_reads_its_name() {
    let after = |pointer: &str| {
        let mut secrecy = Secrecy::Sealed;
        secrecy.finds(pointer);
        secrecy
    };
    for pointer in [
        "",
        "/data",
        "/metadata",
        "/metadata/annotations",
        "/metadata/name",
        "/metadata/labels/a",
    ] {
        assert_eq!(after(pointer), Secrecy::Sealed, "{pointer}");
    }
    for pointer in ["/data/a", "/stringData/a", "/metadata/annotations/a"] {
        assert_eq!(after(pointer), Secrecy::Broken, "{pointer}");
    }
}

#[test]
fn patch_whose_success_depends_on_content_is_detected() {
    let goes = |operation: serde_json::Value| {
        let operations = Operation::parse_all(&Json::from(serde_json::json!([operation])));
        goes_by_content(&operations.expect("the operation is valid")[0])
    };
    for operation in [
        json!({"op": "test", "path": "/data/pin", "value": "MTIzNA=="}),
        json!({"op": "test", "path": "/data", "value": {}}),
        json!({"op": "test", "path": "/metadata/annotations/a", "value": "b"}),
        json!({"op": "test", "path": "", "value": {}}),
        json!({"op": "test", "path": "/metadata", "value": {}}),
        json!({"op": "copy", "from": "/data/pin", "path": "/metadata/labels/a"}),
        json!({"op": "move", "from": "", "path": "/x"}),
        json!({"op": "replace", "path": "/data/pin", "value": ""}),
        json!({"op": "remove", "path": "/stringData/pin"}),
        json!({"op": "add", "path": "/data/pin/x", "value": ""}),
        json!({"op": "copy", "from": "/type", "path": "/data/pin/x"}),
    ] {
        assert!(goes(operation.clone()), "{operation}");
    }
    for operation in [
        json!({"op": "test", "path": "/type", "value": "Opaque"}),
        json!({"op": "test", "path": "/metadata/labels/a", "value": "b"}),
        json!({"op": "add", "path": "/data/pin", "value": ""}),
        json!({"op": "add", "path": "/metadata/annotations/a", "value": "b"}),
        json!({"op": "add", "path": "/metadata/annotations", "value": {}}),
        json!({"op": "replace", "path": "/data", "value": {}}),
        json!({"op": "remove", "path": "/metadata/labels/a"}),
        json!({"op": "copy", "from": "/metadata/labels/a", "path": "/metadata/annotations/a"}),
    ] {
        assert!(!goes(operation.clone()), "{operation}");
    }
}

#[test]
fn secrets_of_lookups_go_nowhere() {
    for is_secret in [false, true] {
        let mut secrecy = Secrecy::of(is_secret);
        assert!(secrecy.may_write("/spec/replicas") && secrecy.may_write("/data/password"));
        secrecy.reads_elsewhere();
        assert!(secrecy.withholds());
        for pointer in [
            "/spec/replicas",
            "/data/password",
            "/metadata/annotations/a",
        ] {
            assert!(!secrecy.may_write(pointer), "{pointer}");
        }
        secrecy.reads("/data/password", &Json::text("hush"));
        assert_eq!(secrecy, Secrecy::Elsewhere);
    }
    assert!(Secrecy::Broken.may_write("/data/password"));
    assert!(!Secrecy::Broken.may_write("/type"));
    assert_eq!(Secrecy::Broken.max(Secrecy::Elsewhere), Secrecy::Elsewhere);
}
