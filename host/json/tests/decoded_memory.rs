//! What decoding allocates is never more than what it has taken from its account before.
//!
//! One test, because it counts what the whole process allocates.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use mimalloc::MiMalloc;
use prometheus_client::metrics::gauge::Gauge;
use tollgate_json::document::{
    Account, Json, NoRoom, ParseError, ParseErrorKind, Room, index_within, parse_within,
};

/// The host's allocator, counting the blocks that it hands out at their real size.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

const MIB: u64 = 1 << 20;

/// What a test's own bookkeeping may allocate meanwhile.
const SLACK: u64 = 64 << 10;

#[expect(unsafe_code, reason = "an allocator is unsafe to implement")]
// SAFETY: every call is handed on to MiMalloc with the arguments it came with, and what that returns is returned.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        let pointer = unsafe { MiMalloc.alloc(layout) };
        if !pointer.is_null() {
            let size = size_of_block(pointer);
            let now = ALLOCATED.fetch_add(size, Relaxed) + size;
            MOST.fetch_max(now, Relaxed);
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(size_of_block(pointer), Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, and `alloc` handed out what MiMalloc had.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }
}

#[expect(unsafe_code, reason = "the allocator is written in C")]
fn size_of_block(pointer: *mut u8) -> usize {
    // SAFETY: the pointer is MiMalloc's, and has not been freed.
    unsafe { libmimalloc_sys::mi_usable_size(pointer.cast()) }
}

/// Texts of about two megabytes that take as much memory as they can, each in its own way.
fn texts() -> Vec<(&'static str, String)> {
    let list = |element: &str| {
        let count = 2 * (1 << 20) / (element.len() + 1);
        format!("[{}]", vec![element; count].join(","))
    };
    let members = |count: usize, value: &str| {
        let member = |index| format!("\"{index}\":{value}");
        format!(
            "{{{}}}",
            (0..count).map(member).collect::<Vec<_>>().join(",")
        )
    };
    vec![
        ("objects of one member", list(r#"{"":0}"#)),
        ("empty objects", list("{}")),
        ("empty arrays", list("[]")),
        ("arrays in arrays", list("[[[[[[[[0]]]]]]]]")),
        ("integers", list("0")),
        ("numbers with a fraction", list("0.5")),
        ("empty strings", list(r#""""#)),
        ("short strings", list(r#""abc""#)),
        ("objects of three members", list(r#"{"a":0,"b":0,"c":0}"#)),
        (
            "objects of four members",
            list(r#"{"a":0,"b":0,"c":0,"d":0}"#),
        ),
        ("one object", members(200_000, "0")),
        ("one object of objects", members(100_000, r#"{"":{}}"#)),
        (
            "the same member again and again",
            format!("{{{}\"a\":1}}", r#""a":1,"#.repeat(300_000)),
        ),
        ("one string", format!("[\"{}\"]", "x".repeat(2 << 20))),
        (
            "one string of escapes",
            format!("[\"{}\"]", r"\u0001".repeat(300_000)),
        ),
        (
            "one string with one escape",
            format!("[\"{}\\n\"]", "x".repeat(900_000)),
        ),
        (
            "strings with one escape",
            list(&format!("\"{}\\n\"", "x".repeat(70_000))),
        ),
        (
            "an array that does not end",
            format!("[{}", "0,".repeat(1 << 20)),
        ),
    ]
}

type Read = fn(&Bytes, &Account) -> Result<Json, ParseError>;

/// Builds everything at once.
fn built(text: &Bytes, account: &Account) -> Result<Json, ParseError> {
    parse_within(text, 20, account)
}

/// Builds everything when it is read.
fn read(text: &Bytes, account: &Account) -> Result<Json, ParseError> {
    let before = ALLOCATED.load(Relaxed);
    MOST.store(before, Relaxed);
    let document = index_within(text, 20, account)?;
    // Everything is charged by now, so nothing that reading allocates may go beyond it, even for a moment.
    walk(&document);
    let most = (MOST.load(Relaxed) - before) as u64;
    assert!(
        most <= account.bytes() + SLACK,
        "{most} bytes, {} were taken",
        account.bytes()
    );
    Ok(document)
}

fn walk(json: &Json) {
    match json {
        Json::Array(elements) => elements.iter().for_each(walk),
        Json::Object(members) => members.values().for_each(walk),
        _ => {}
    }
}

#[test]
fn decoding_allocates_no_more_than_reserved() {
    let refused = decoding_stays_within(&[1, 4, 16, 64, 1024], built);
    assert!(refused >= 20, "{refused} texts were refused");
    let refused = decoding_stays_within(&[1, 16, 1024], read);
    assert!(refused >= 12, "{refused} texts were refused");
    ordinary_objects_are_charged_for_what_they_take();
}

/// Reads every text within each limit, in MiB. Returns how many texts were refused.
fn decoding_stays_within(limits: &[u64], read: Read) -> u32 {
    let mut refused = 0;
    for (name, text) in texts() {
        let text = Bytes::from(text);
        for limit in limits.iter().map(|limit| limit * MIB) {
            let gauge = Gauge::default();
            let room = Room::new(limit, MIB, gauge.clone());
            let account = room.account();
            let before = ALLOCATED.load(Relaxed);
            MOST.store(before, Relaxed);
            let document = read(&text, &account);
            let most = (MOST.load(Relaxed) - before) as u64;
            let kept = (ALLOCATED.load(Relaxed).saturating_sub(before)) as u64;
            assert!(most <= limit + SLACK, "{name}: {most} bytes of {limit}");
            match document {
                Ok(document) => {
                    assert!(
                        kept <= account.bytes() + SLACK,
                        "{name}: {kept} bytes are kept, {} were taken",
                        account.bytes()
                    );
                    assert!(document.count_nodes(usize::MAX) > 0);
                }
                Err(error) => {
                    assert_eq!(
                        account.bytes(),
                        0,
                        "{name}: a failed parse must release its memory"
                    );
                    if matches!(error.kind, ParseErrorKind::NoRoom(NoRoom::TooLarge { .. })) {
                        refused += 1;
                    }
                }
            }
            drop(account);
            assert_eq!(gauge.get(), 0, "{name}");
        }
    }
    refused
}

/// Charging too much would refuse what fits.
fn ordinary_objects_are_charged_for_what_they_take() {
    let container =
        r#"{"name":"app","image":"registry.example.com/app:1.4","env":[{"name":"A","value":"1"}]}"#;
    let text = format!(
        r#"{{"kind":"Pod","metadata":{{"name":"web","labels":{{"app":"web"}}}},"spec":{{"containers":[{}]}}}}"#,
        vec![container; 2_000].join(",")
    );
    let text = Bytes::from(text);
    for decode in [built as Read, read] {
        let room = Room::new(1024 * MIB, MIB, Gauge::default());
        let account = room.account();
        let before = ALLOCATED.load(Relaxed);
        let document = decode(&text, &account).expect("it is JSON");
        let kept = (ALLOCATED.load(Relaxed) - before) as u64;
        let taken = account.bytes();
        println!(
            "{} bytes of text: {kept} allocated, {taken} taken",
            text.len()
        );
        assert!(kept <= taken && taken <= kept * 3 / 2, "{kept} {taken}");
        drop(document);
    }
}
