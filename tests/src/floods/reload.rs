//! A plugin that sleeps while it is loaded: at the start of the server, and after a change of the configuration.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Fared, send_each};
use super::table::Row;
use super::{Flood, Setting, configuration};
use crate::server::Start;
use crate::{hostile, wat};

/// Time limit for a change to take effect.
const IN_FORCE: Duration = Duration::from_secs(3);

/// A plugin that sleeps for a day in `describe`.
const SLEEPER: &str = r#"
(import "wasi:clocks/monotonic-clock@0.2.0" "subscribe-duration" (func $subscribe (param i64) (result i32)))
(import "wasi:io/poll@0.2.0" "[method]pollable.block" (func $block (param i32)))
(func (export "tollgate:admission/lifecycle@0.1.0#describe") (result i32)
    (call $block (call $subscribe (i64.const 86400000000000)))
    unreachable)"#;

/// A plugin that denies everything.
const DENIES: &str = r#"
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (i32.store8 (i32.const 512) (i32.const 1))
    (i32.const 512))"#;

/// Adds the sleeper to the configuration, and replaces the policy by one that denies.
fn change(folder: &Path, sleeper: &[u8]) {
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.join(name), bytes).expect("the folder can be written to");
    };
    write("sleeper.wasm", sleeper);
    write("policy.wasm", &wat::plugin("validator", DENIES));
    let path = folder.join("tollgate.yaml");
    let text = std::fs::read(path).expect("the server was started with it");
    let mut root: Value = serde_json::from_slice(&text).expect("it was written as JSON");
    let source = format!("file:{}", folder.join("sleeper.wasm").display());
    let plugins = root["plugins"].as_array_mut().expect("it is a list");
    plugins.push(json!({"name": "sleeper", "source": source, "failurePolicy": "Ignore"}));
    write("tollgate.yaml", root.to_string().as_bytes());
}

pub(super) async fn run(flood: Flood, setting: &Setting) -> Row {
    let mut configuration = configuration(&setting.program);
    configuration.plugin_of("policy", &hostile::harmless(), json!({}));
    let at_start = flood == Flood::SleeperAtStart;
    let sleeper = wat::plugin("with-wasi-clock", SLEEPER);
    if at_start {
        configuration.plugin_of("sleeper", &sleeper, json!({"failurePolicy": "Ignore"}));
    }
    let folder = configuration.folder().to_owned();
    let mut start = Start::default().program(setting.program.clone());
    if at_start {
        start = start.at_once();
    }
    let server = start.start(configuration);
    let began = Instant::now();
    if !at_start {
        change(&folder, &sleeper);
    }
    let each = send_each(&server, setting.rate, setting.lasts).await;
    let mut fared = Fared::default();
    let mut first = None;
    for answered in &each {
        let since = answered.began.duration_since(began);
        let denied = answered.allowed == Ok(false);
        if first.is_none() && answered.allowed == Ok(at_start) {
            first = Some(since + answered.took);
        }
        // Until the time limit for the change, both answers are right.
        let allowed = at_start || (since < IN_FORCE && !denied);
        fared.add(answered, allowed);
    }
    fared.sort();
    let mut row = Row::new(flood, setting, fared, server.peak_kib());
    let what = if at_start {
        "first answer"
    } else {
        "change in force"
    };
    row.note = match first {
        Some(time) => format!("{what} after {:.1} s", time.as_secs_f64()),
        None => format!("no {what} within {:.0} s", setting.lasts.as_secs_f64()),
    };
    row
}
