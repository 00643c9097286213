//! An instance that served a call serves the next one as if it were new.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::reviews::{Review, pod};
use tollgate_tests::server::Server;
use tollgate_tests::wat;

/// Number of reviews, one after the other and at the same time.
const REVIEWS: usize = 40;
/// Number of plugins with the code of each hoarder. A review has more calls than the host decides about at once.
const COPIES: usize = 3;

/// A validator that denies with what it finds in its state, and changes that state.
struct Hoarder {
    name: &'static str,
    fate: Fate,
    /// Further fields of the module.
    fields: &'static str,
    /// Adds to its state. Each function leaves a digit for the denial.
    digits: &'static [&'static str],
}

/// What becomes of its instances.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    /// They serve several calls.
    Kept,
    /// They could, but each call does something that nobody resets.
    Dropped,
    /// Each call gets a new one.
    New,
}

const HOARDERS: &[Hoarder] = &[
    Hoarder {
        name: "globals",
        fate: Fate::Kept,
        fields: "(global $a (mut i32) (i32.const 3)) (global $b (mut i64) (i64.const 4))
            (global $c (mut f32) (f32.const 1.5)) (global $d (mut f64) (f64.const -0.5))",
        digits: &[
            "(global.set $a (i32.add (global.get $a) (i32.const 1))) (global.get $a)",
            "(global.set $b (i64.add (global.get $b) (i64.const 1))) (i32.wrap_i64 (global.get $b))",
            "(global.set $c (f32.add (global.get $c) (f32.const 1))) (i32.trunc_f32_s (global.get $c))",
            "(global.set $d (f64.add (global.get $d) (f64.const 1))) (i32.trunc_f64_s (global.get $d))",
        ],
    },
    Hoarder {
        name: "memory",
        fate: Fate::Kept,
        fields: r#"(memory $memory (export "memory") 9) (data (i32.const 4096) "\05")"#,
        digits: &[
            // Next to its data, in a page of its own, and at the end.
            "(i32.store8 (i32.const 4096) (i32.add (i32.load8_u (i32.const 4096)) (i32.const 1)))
             (i32.load8_u (i32.const 4096))",
            "(i32.store8 (i32.const 200000) (i32.add (i32.load8_u (i32.const 200000)) (i32.const 1)))
             (i32.load8_u (i32.const 200000))",
            "(i32.store8 (i32.const 589823) (i32.add (i32.load8_u (i32.const 589823)) (i32.const 1)))
             (i32.load8_u (i32.const 589823))",
        ],
    },
    Hoarder {
        name: "page-of-the-name",
        fate: Fate::Kept,
        fields: r#"(import "tollgate:admission/review@0.1.0" "get" (func $get (param i32 i32 i32 i32)))
            (memory $memory (export "memory") 9) (data (i32.const 3000) "/metadata/name")
            (global $at (mut i32) (i32.const 0))"#,
        // A page that depends on the length of the object's name. Earlier calls may not have written to it, nor read it: the
        // kernel counts a page that was read as written.
        digits: &[
            "(call $get (i32.const 0) (i32.const 3000) (i32.const 14) (i32.const 3104))
            (global.set $at (i32.add (i32.const 131072) (i32.shl (i32.load (i32.const 3124)) (i32.const 12))))
            (i32.load8_u (i32.const 3104))",
            "(i32.store8 (global.get $at) (i32.add (i32.load8_u (global.get $at)) (i32.const 1)))
            (i32.load8_u (global.get $at))",
        ],
    },
    Hoarder {
        name: "pointers-of-the-name",
        fate: Fate::Kept,
        fields: r#"(import "tollgate:admission/review@0.1.0" "get" (func $get (param i32 i32 i32 i32)))
            (import "tollgate:admission/review@0.1.0" "get-many" (func $get-many (param i32 i32 i32 i32)))
            (data (i32.const 3000) "/metadata/name") (data (i32.const 3200) "/absent/xxxxxxxxxxxxxxxx")
            (global $length (mut i32) (i32.const 0)) (global $name (mut i32) (i32.const 0))
            (global $absent (mut i32) (i32.const 0))"#,
        // Two pointers: the name's, and another one with as many letters as the name has. The name's is the first one only if
        // that number is even. The host keeps fewer lists than there are names.
        digits: &[
            "(call $get (i32.const 0) (i32.const 3000) (i32.const 14) (i32.const 3104))
            (global.set $length (i32.load (i32.const 3124)))
            (global.set $name (i32.and (global.get $length) (i32.const 1)))
            (global.set $absent (i32.sub (i32.const 1) (global.get $name)))
            (i32.store (i32.add (i32.const 3300) (i32.shl (global.get $name) (i32.const 3))) (i32.const 3000))
            (i32.store (i32.add (i32.const 3304) (i32.shl (global.get $name) (i32.const 3))) (i32.const 14))
            (i32.store (i32.add (i32.const 3300) (i32.shl (global.get $absent) (i32.const 3))) (i32.const 3200))
            (i32.store (i32.add (i32.const 3304) (i32.shl (global.get $absent) (i32.const 3)))
                (i32.add (i32.const 8) (global.get $length)))
            (call $get-many (i32.const 0) (i32.const 3300) (i32.const 2) (i32.const 3400))
            (i32.eq (global.get $length)
                (i32.load offset=20 (i32.add (i32.load (i32.const 3400)) (i32.mul (i32.const 24) (global.get $name)))))",
            "(i32.load8_u (i32.add (i32.load (i32.const 3400)) (i32.mul (i32.const 24) (global.get $absent))))",
        ],
    },
    Hoarder {
        name: "every-page",
        fate: Fate::Dropped,
        fields: r#"(memory $memory (export "memory") 20) (global $sum (mut i32) (i32.const 0)) (global $at (mut i32) (i32.const 0))"#,
        // 1.25 MiB, which is more than is reset.
        digits: &["(global.set $at (i32.const 40000)) (global.set $sum (i32.const 0))
            (loop $next
                (global.set $sum (i32.add (global.get $sum) (i32.load8_u (global.get $at))))
                (i32.store8 (global.get $at) (i32.const 1))
                (global.set $at (i32.add (global.get $at) (i32.const 4096)))
                (br_if $next (i32.lt_u (global.get $at) (i32.const 1310720))))
            (i32.gt_u (global.get $sum) (i32.const 0))"],
    },
    Hoarder {
        name: "every-other-page",
        fate: Fate::Dropped,
        fields: r#"(memory $memory (export "memory") 10) (global $sum (mut i32) (i32.const 0)) (global $at (mut i32) (i32.const 0))"#,
        // More regions than are reset.
        digits: &["(global.set $at (i32.const 40000)) (global.set $sum (i32.const 0))
            (loop $next
                (global.set $sum (i32.add (global.get $sum) (i32.load8_u (global.get $at))))
                (i32.store8 (global.get $at) (i32.const 1))
                (global.set $at (i32.add (global.get $at) (i32.const 8192)))
                (br_if $next (i32.lt_u (global.get $at) (i32.const 655360))))
            (i32.gt_u (global.get $sum) (i32.const 0))"],
    },
    Hoarder {
        name: "growth",
        fate: Fate::Dropped,
        fields: "",
        digits: &[
            "(memory.size)",
            "(i32.add (memory.grow (i32.const 1)) (i32.const 1))",
            "(i32.store8 (i32.const 131072) (i32.add (i32.load8_u (i32.const 131072)) (i32.const 1)))
             (i32.load8_u (i32.const 131072))",
        ],
    },
    Hoarder {
        name: "table",
        fate: Fate::New,
        fields: "(table $t 2 funcref) (elem declare func $f) (func $f)",
        digits: &[
            "(table.set $t (i32.const 0) (table.get $t (i32.const 1)))
             (table.set $t (i32.const 1) (ref.func $f))
             (ref.is_null (table.get $t (i32.const 0)))",
        ],
    },
    Hoarder {
        name: "own-name",
        fate: Fate::New,
        fields: r#"(global $a (export "tollgate:global0") (mut i32) (i32.const 3))"#,
        digits: &["(global.set $a (i32.add (global.get $a) (i32.const 1))) (global.get $a)"],
    },
];

// === impl Hoarder ===

impl Hoarder {
    fn name_of(&self, copy: usize) -> String {
        format!("{}-{copy}", self.name)
    }

    fn module(&self) -> Vec<u8> {
        let mut text = format!(
            r#"{}
            (data (i32.const 2048) "state ........")
            (func (export "tollgate:admission/validating@0.1.0#validate") (result i32)"#,
            self.fields
        );
        for (place, digit) in (2054..).zip(self.digits) {
            let written = write!(
                text,
                "(i32.store8 (i32.const {place}) (i32.add (i32.const 48) (block (result i32) {digit})))"
            );
            written.expect("a text takes it");
        }
        // `deny`, with the message above.
        text.push_str(
            "(i32.store8 (i32.const 2100) (i32.const 1))
             (i32.store (i32.const 2104) (i32.const 2048))
             (i32.store (i32.const 2108) (i32.const 14))
             (i32.const 2100))",
        );
        wat::plugin("validator", &text)
    }
}

async fn start(kept_instances: u32) -> Server {
    let mut configuration = Configuration::new()
        .with("engine.answerCache", 0)
        .with("engine.keptInstances", kept_instances)
        // Calls of forty reviews at once take turns, and a machine that does much else has little time for them.
        .with("limits.timeout", "20s")
        .with("requests.defaultTimeout", "30s");
    for copy in 0..COPIES {
        for hoarder in HOARDERS {
            configuration.plugin_of(&hoarder.name_of(copy), &hoarder.module(), json!({}));
        }
    }
    let server = Server::start(configuration);
    server.assert_all_loaded().await;
    server
}

/// Whether the kernel has `PAGEMAP_SCAN`, as Linux has from 6.7 on.
fn tells_written_pages() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    let release = release.expect("Linux has it");
    let mut numbers = release
        .split(['.', '-'])
        .map(|part| part.parse().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6_u32), Some(7))
}

/// The message of a denial.
fn denial(answer: &Value) -> String {
    let message = answer["response"]["status"]["message"].as_str();
    message.expect("it is a denial").to_owned()
}

#[tokio::test]
async fn calls_find_no_state_of_earlier_calls() {
    let reviews = ["web", "webs", "front", "a", "kept-instances", "of", "names"];
    let reviews = reviews.map(|name| Review::create(pod(name)).build());
    let new = start(0).await;
    let expected = denial(&new.validate(&reviews[0]).await.json());
    assert!(expected.contains("state 4520"), "{expected}");
    let server = start(64).await;
    for number in 0..REVIEWS {
        let review = &reviews[number % reviews.len()];
        let answer = server.validate(review).await;
        assert_eq!(denial(&answer.json()), expected, "review {number}");
    }
    let answers = (0..REVIEWS).map(|number| server.validate(&reviews[number % reviews.len()]));
    for answer in futures_util::future::join_all(answers).await {
        assert_eq!(denial(&answer.json()), expected);
    }
    if !tells_written_pages() {
        eprintln!(
            "SKIPPED: this kernel does not tell which pages were written, so no instance is kept"
        );
        return;
    }
    let all = (0..COPIES).flat_map(|copy| HOARDERS.iter().map(move |one| (one, copy)));
    for (hoarder, copy) in all {
        let (name, fate) = (hoarder.name_of(copy), hoarder.fate);
        let shown = server.plugin_status(&name).await;
        assert_eq!(shown["keepsInstances"], fate != Fate::New, "{name}");
        let idle = shown["idleInstances"].as_u64();
        assert_eq!(
            idle.is_some_and(|idle| idle > 0),
            fate == Fate::Kept,
            "{name}: {shown}"
        );
    }
}
