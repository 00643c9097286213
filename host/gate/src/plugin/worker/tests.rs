//! Tests how the host handles misbehaving children. Short shell scripts replace the child.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

use tollgate_config::Limits;
use tollgate_engine::Tier;

use super::pace::niced;
use super::*;

/// The output of a child that hands over the code for its own run.
const COMPILED_ONCE: &str = r#"{"compiled":{"codeBytes":4,"fallback":null}}\nCODE"#;
/// A part of the order for a child that is to hand over no code.
const KEEPS_CODE: &str = r#""maxCodeBytes":0,"#;

/// A worker whose children read their order and are this shell script.
fn worker(folder: &Path, script: &str) -> Worker {
    worker_of(folder, &format!("read -r order\n{script}"))
}

/// A worker whose children are all this shell script.
fn worker_of(folder: &Path, script: &str) -> Worker {
    let program = folder.join("child");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    Worker {
        max_standstill: Duration::from_secs(1),
        ..Worker::new(program, 1 << 20, Store::new(folder, 1 << 20), [0; 32])
    }
}

fn order() -> Order {
    Order {
        plugin: "plugin".to_owned(),
        limits: Limits::default(),
        capabilities: std::collections::BTreeSet::new(),
        max_wasm_stack_bytes: 1 << 19,
        tier: Tier::Serving,
        keeps_instances: false,
        once: Tier::Baseline,
        cpu_seconds: 60,
        memory_bytes: 1 << 30,
        code_bytes: 0,
        max_code_bytes: 0,
        task: Task::Describe,
    }
}

async fn refused(worker: &Worker) -> PrepareError {
    let prepared = worker
        .prepare(order(), "{}".to_owned(), b"bytes", false)
        .await;
    prepared.expect_err("this child prepares nothing")
}

#[tokio::test]
async fn kills_idle_child() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"echo '{"stage":"configure"}'; exec sleep 600"#;
    let began = Instant::now();
    let error = refused(&worker(folder.path(), script)).await;
    println!("{error}");
    assert!(
        matches!(
            error,
            PrepareError::Standstill {
                stage: Stage::Configure,
                ..
            }
        ),
        "{error}"
    );
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn does_not_kill_busy_child() {
    let folder = tempfile::tempdir().unwrap();
    // The child works for two to three seconds and says nothing meanwhile.
    let script = r#"end=$(($(date +%s) + 3)); while [ "$(date +%s)" -lt "$end" ]; do :; done
        echo '{"refused":{"stage":"describe","reason":"worked"}}'"#;
    let error = refused(&worker(folder.path(), script)).await;
    assert_eq!(error.to_string(), "describe: worked");
}

/// The nice value of the process that wrote its id to a file.
fn niceness(file: &Path) -> Option<i32> {
    let id = std::fs::read_to_string(file).ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.trim())).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(16)?.parse().ok()
}

#[tokio::test]
async fn child_is_niced_after_two_seconds_of_cpu() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("number");
    let script = format!("echo $$ > {0}; while :; do :; done", file.display());
    let worker = worker(folder.path(), &script);
    let look = async {
        let mut seen = Vec::new();
        let began = Instant::now();
        while seen.last() != Some(&niced()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let nice = niceness(&file);
            if nice.is_some_and(|nice| seen.last() != Some(&nice)) {
                seen.extend(nice);
            }
            assert!(began.elapsed() < Duration::from_secs(100), "{seen:?}");
        }
        seen
    };
    let own = rustix::process::getpriority_process(None).unwrap();
    tokio::select! {
        error = refused(&worker) => panic!("{error}"),
        seen = look => assert_eq!(seen, [own, niced()]),
    }
}

#[tokio::test]
async fn slow_plugins_do_not_delay_others() {
    let folder = tempfile::tempdir().unwrap();
    let lanes = |worker: &mut Worker| worker.lanes = Lanes::new(1);
    let mut sleeper = worker(folder.path(), "exec sleep 600");
    sleeper.max_standstill = Duration::from_secs(600);
    lanes(&mut sleeper);
    let sleeping = refused(&sleeper);
    let other = async {
        // The sleeper has the only turn.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let began = Instant::now();
        let _pace = sleeper.lanes.enter().await;
        began.elapsed()
    };
    tokio::select! {
        error = sleeping => panic!("the sleeper ended: {error}"),
        waited = other => {
            println!("waited {waited:?}");
            assert!(waited < Duration::from_secs(30), "{waited:?}");
        }
    }
}

#[tokio::test]
async fn reports_how_child_was_lost() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"echo '{"stage":"compile"}'; echo 'out of luck' >&2; kill -KILL $$"#;
    let error = refused(&worker(folder.path(), script)).await.to_string();
    assert!(
        error.starts_with("compile: the process that prepares the plugin ended with signal: 9"),
        "{error}"
    );
    assert!(error.ends_with("it printed: out of luck"), "{error}");
}

#[tokio::test]
async fn rejects_code_from_child_that_runs_guest_code() {
    let folder = tempfile::tempdir().unwrap();
    // The child hands over its code, and then a guest that has broken out sends more.
    let script = format!("printf '{COMPILED_ONCE}{COMPILED_ONCE}'");
    let worker = worker(folder.path(), &script);
    let error = refused(&worker).await;
    assert!(matches!(error, PrepareError::Protocol(_)), "{error}");
    let stored = std::fs::read_dir(folder.path().join("prepared")).unwrap();
    assert_eq!(stored.count(), 1, "only the first code is stored");
    // The next child has the code, and is to send none at all.
    let error = refused(&worker).await;
    assert!(matches!(error, PrepareError::Protocol(_)), "{error}");
}

/// Prepares the plugin with two settings at once, and returns the orders of the children.
async fn orders(compiled_once: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("orders");
    let script = format!(
        r#"read -r order; printf '%s\n' "$order" >> '{}'
        case "$order" in *'{KEEPS_CODE}'*);; *) printf '{compiled_once}';; esac
        echo '{{"refused":{{"stage":"configure","reason":"seen"}}}}'"#,
        log.display()
    );
    let worker = worker_of(folder.path(), &script);
    let prepare = |name: &str, settings: &str| {
        let order = Order {
            plugin: name.to_owned(),
            ..order()
        };
        worker.prepare(order, settings.to_owned(), b"bytes", false)
    };
    let (first, second) = tokio::join!(prepare("first", "{}"), prepare("second", r#"{"a":1}"#));
    for prepared in [first, second] {
        let error = prepared.expect_err("this child prepares nothing");
        assert_eq!(error.to_string(), "configure: seen");
    }
    let orders = std::fs::read_to_string(log).unwrap();
    orders.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn plugins_of_the_same_bytes_share_one_compilation() {
    let orders = orders(COMPILED_ONCE).await;
    let [first, second] = &orders[..] else {
        panic!("{orders:?}");
    };
    assert!(first.contains(r#""codeBytes":0"#), "{first}");
    assert!(!first.contains(KEEPS_CODE), "{first}");
    assert!(second.contains(r#""codeBytes":4"#), "{second}");
    assert!(second.contains(KEEPS_CODE), "{second}");
}

#[tokio::test]
async fn waiting_for_the_same_compilation_takes_no_place() {
    let folder = tempfile::tempdir().unwrap();
    let mut worker = worker_of(folder.path(), "exec sleep 600");
    worker.max_standstill = Duration::from_secs(600);
    worker.lanes = Lanes::new(1);
    // The first one moves to the slow lane, because its child does nothing. The others wait for it.
    let waiting = futures_util::future::join_all((0..4).map(|_| refused(&worker)));
    let other = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(worker.lanes.enter().await);
        // A plugin that has waited for the place would have it now.
        tokio::time::sleep(Duration::from_millis(500)).await;
        drop(worker.lanes.enter().await);
    };
    tokio::select! {
        errors = waiting => panic!("the children ended: {errors:?}"),
        entered = tokio::time::timeout(Duration::from_secs(30), other) => entered.unwrap(),
    }
}

#[tokio::test]
async fn hands_over_no_code_that_is_too_large() {
    let orders = orders(r#"{"compiled":{"codeBytes":0,"fallback":null}}\n"#).await;
    let [first, second] = &orders[..] else {
        panic!("{orders:?}");
    };
    assert!(!first.contains(KEEPS_CODE), "{first}");
    // The second child compiles the plugin, too, and does not hand it over again.
    assert!(second.contains(r#""codeBytes":0"#), "{second}");
    assert!(second.contains(KEEPS_CODE), "{second}");
}

#[tokio::test]
async fn rejects_component_over_size_limit() {
    let folder = tempfile::tempdir().unwrap();
    let line = r#"{"configured":{"manifest":{"name":"","version":"","description":"","settingsSchema":null,"rules":[],"labels":[]},"fallback":null,"componentBytes":4194305}}"#;
    let error = refused(&worker(
        folder.path(),
        &format!("echo '{line}'; cat /dev/zero"),
    ))
    .await;
    assert!(matches!(error, PrepareError::TooLarge { .. }), "{error}");
}

/// A child for plugins whose code is the same and whose memory contains the name of the settings. The component has places
/// for two images, and imports another memory. `places` are what the compiling child says.
fn sharing(folder: &Path, places: &str) -> String {
    format!(
        r#"read -r order; printf '%s\n' "$order" >> '{log}'
        case "$order" in
        *'"configure"'*)
            case "$order" in *'{KEEPS_CODE}'*);; *) printf '{COMPILED_ONCE}';; esac
            case "$order" in *first*) pages=1;; *) pages=2;; esac
            offset=0
            echo '{{"configured":{{"manifest":{{"name":"p","version":"1","description":"","settingsSchema":null,"rules":[],"labels":[]}},"fallback":null,"componentBytes":9,"images":[3,2],"memories":[{{"minimum":'$pages',"maximum":null,"offset":'$offset',"bytes":65536}}]}}}}'
            case "$order" in *first*) printf 'COMPONENTone12MEMONE';; *) printf 'COMPONENTtwo34MEMTWO';; esac
            head -c 65530 /dev/zero;;
        *'"layOut"'*)
            echo '{{"compiled":{{"codeBytes":65538,"fallback":null,"places":[1]}}}}'
            printf '<'; head -c 65536 /dev/zero; printf '>';;
        *'"compile"'*)
            case "$order" in *'"memories":[{{'*)
                echo '{{"laidOut":{{"codeBytes":65538,"place":1}}}}'
                printf '<'; head -c 65536 /dev/zero; printf '>';;
            esac
            echo '{{"compiled":{{"codeBytes":10,"fallback":null,"places":{places}}}}}'
            printf 'c---d--efg';;
        esac"#,
        log = folder.join("orders").display()
    )
}

/// The code of the component, and that of its memories without zeros.
fn parts(code: &Compiled) -> std::io::Result<String> {
    let parts = code
        .parts()
        .map(|part| std::fs::read_to_string(part.path()));
    let parts: Vec<_> = parts.collect::<Result<_, _>>()?;
    Ok(parts.join("|").replace('\0', ""))
}

/// Prepares a plugin whose settings are a text, and returns its code.
async fn prepared(worker: &Worker, settings: &str) -> Result<String, PrepareError> {
    let prepared = worker
        .prepare(order(), settings.to_owned(), b"bytes", false)
        .await?;
    Ok(parts(&prepared.code)?)
}

fn compilations(folder: &Path) -> usize {
    orders_to(folder, "compile")
}

/// Number of children that had a task.
fn orders_to(folder: &Path, task: &str) -> usize {
    let orders = std::fs::read_to_string(folder.join("orders")).unwrap_or_default();
    let task = format!("\"{task}\":");
    orders.lines().filter(|order| order.contains(&task)).count()
}

#[tokio::test]
async fn plugins_with_other_memory_share_one_compilation() {
    let folder = tempfile::tempdir().unwrap();
    let worker = worker_of(folder.path(), &sharing(folder.path(), "[1,5]"));
    let (first, second) = tokio::join!(prepared(&worker, "first"), prepared(&worker, "second"));
    assert_eq!(first.unwrap(), "coned12efg|<MEMONE>");
    assert_eq!(second.unwrap(), "ctwod34efg|<MEMTWO>");
    assert_eq!(compilations(folder.path()), 1);
    // Their memories have different sizes. The child that compiled lays one out. A third plugin has a memory of the same size
    // as the second one.
    assert_eq!(orders_to(folder.path(), "layOut"), 1);
    assert_eq!(
        prepared(&worker, "third").await.unwrap(),
        "ctwod34efg|<MEMTWO>"
    );
    assert_eq!(orders_to(folder.path(), "layOut"), 1);
    // A restart finds the code of each of them.
    assert_eq!(
        prepared(&worker, "second").await.unwrap(),
        "ctwod34efg|<MEMTWO>"
    );
    assert_eq!(compilations(folder.path()), 1);
}

#[tokio::test]
async fn plugins_with_the_same_memory_need_one_child_that_compiles() {
    let folder = tempfile::tempdir().unwrap();
    let worker = worker_of(folder.path(), &sharing(folder.path(), "[1,5]"));
    let (second, third) = tokio::join!(prepared(&worker, "second"), prepared(&worker, "third"));
    assert_eq!(second.unwrap(), "ctwod34efg|<MEMTWO>");
    assert_eq!(third.unwrap(), "ctwod34efg|<MEMTWO>");
    assert_eq!(compilations(folder.path()), 1);
    assert_eq!(orders_to(folder.path(), "layOut"), 0);
}

/// A guest that has broken out could have every snapshot refused, and its component without a snapshot as well.
#[tokio::test]
async fn snapshot_that_is_always_refused_ends() {
    let folder = tempfile::tempdir().unwrap();
    let refuses = r#"echo '{"refused":{"stage":"compileSnapshot","reason":"no room"}}'; exit; "#;
    let script = sharing(folder.path(), "[1,5]");
    let laid_out = r#"echo '{"laidOut""#;
    let refused = script.replace(laid_out, &format!("{refuses}{laid_out}"));
    assert_ne!(script, refused);
    let error = prepared(&worker_of(folder.path(), &refused), "first").await;
    let error = error.expect_err("every attempt is refused").to_string();
    assert_eq!(error, "compile the snapshot: no room");
    assert_eq!(compilations(folder.path()), 3);
}

#[tokio::test]
async fn damaged_and_foreign_code_is_not_shared() {
    let folder = tempfile::tempdir().unwrap();
    let script = sharing(folder.path(), "[1,5]");
    let worker = worker_of(folder.path(), &script);
    prepared(&worker, "first").await.unwrap();
    for file in std::fs::read_dir(folder.path().join("code")).unwrap() {
        std::fs::write(file.unwrap().path(), b"hostile code").unwrap();
    }
    assert_eq!(
        prepared(&worker, "second").await.unwrap(),
        "ctwod34efg|<MEMTWO>"
    );
    assert_eq!(compilations(folder.path()), 2);
    let foreign = Worker {
        host: Some(b"another build".to_vec()),
        ..worker_of(folder.path(), &script)
    };
    prepared(&foreign, "third").await.unwrap();
    assert_eq!(compilations(folder.path()), 3);
}

#[tokio::test]
async fn rejects_places_that_do_not_fit() {
    for places in ["[]", "[1]", "[1,5,8]", "[1,9]", "[1,2]"] {
        let folder = tempfile::tempdir().unwrap();
        let worker = worker_of(folder.path(), &sharing(folder.path(), places));
        let error = prepared(&worker, "first").await.expect_err(places);
        println!("{places}: {error:?}");
    }
    // Places in a memory's module, from the child that compiles the component, and from one of its own.
    for place in ["3", "18446744073709551615"] {
        let folder = tempfile::tempdir().unwrap();
        let script =
            sharing(folder.path(), "[1,5]").replace(r#""place":1"#, &format!(r#""place":{place}"#));
        let error = prepared(&worker_of(folder.path(), &script), "first").await;
        println!("{place}: {:?}", error.expect_err(place));
    }
    for places in ["[]", "[1,2]", "[3]"] {
        let folder = tempfile::tempdir().unwrap();
        let script = sharing(folder.path(), "[1,5]")
            .replace(r#""places":[1]"#, &format!(r#""places":{places}"#));
        let worker = worker_of(folder.path(), &script);
        prepared(&worker, "first").await.unwrap();
        let error = prepared(&worker, "second").await;
        println!("{places}: {:?}", error.expect_err(places));
    }
}

#[tokio::test]
async fn rejects_memories_that_nobody_ordered() {
    let laid_out = r#"echo '{"laidOut":{"codeBytes":4,"place":1}}'; printf CODE"#;
    // From the child that runs guest code, and a second one from the child that compiles.
    for before in [
        r#"echo '{"configured""#,
        r#"echo '{"compiled":{"codeBytes":10"#,
    ] {
        let folder = tempfile::tempdir().unwrap();
        let script = sharing(folder.path(), "[1,5]");
        let hostile = script.replace(before, &format!("{laid_out}; {before}"));
        assert_ne!(script, hostile);
        let error = prepared(&worker_of(folder.path(), &hostile), "first").await;
        assert!(
            matches!(error, Err(PrepareError::Protocol(ProtocolError::Unordered))),
            "{error:?}"
        );
    }
    // Too few: the host orders the module from another child.
    let folder = tempfile::tempdir().unwrap();
    let script = sharing(folder.path(), "[1,5]").replace(r#""memories":[{'*)"#, "never'*)");
    let worker = worker_of(folder.path(), &script);
    assert_eq!(
        prepared(&worker, "first").await.unwrap(),
        "coned12efg|<MEMONE>"
    );
    assert_eq!(orders_to(folder.path(), "layOut"), 1);
}

#[tokio::test]
async fn rejects_memories_that_the_plugin_cannot_have() {
    let one = "{\"minimum\":'$pages',\"maximum\":null,\"offset\":'$offset',\"bytes\":65536}";
    let many = vec![one; 17].join(",");
    let changes = [
        // Larger than `limits.memory`, and than any memory.
        ("pages=1", "pages=513"),
        ("pages=1", "pages=18446744073709551615"),
        ("\"maximum\":null", "\"maximum\":0"),
        ("\"maximum\":null", "\"maximum\":65537"),
        // Contents outside of the memory, without a whole page, and none.
        ("offset=0", "offset=1"),
        ("\"bytes\":65536", "\"bytes\":131072"),
        ("\"bytes\":65536", "\"bytes\":6"),
        ("\"bytes\":65536", "\"bytes\":0"),
        // More than `limits.memories`.
        (one, &many),
    ];
    for (from, to) in changes {
        let folder = tempfile::tempdir().unwrap();
        let script = sharing(folder.path(), "[1,5]");
        assert!(script.contains(from), "{from}");
        let worker = worker_of(folder.path(), &script.replace(from, to));
        let error = prepared(&worker, "first").await.expect_err(to);
        assert!(
            matches!(error, PrepareError::Protocol(ProtocolError::Memory)),
            "{to}: {error}"
        );
    }
}

#[tokio::test]
async fn rejects_too_many_images() {
    let folder = tempfile::tempdir().unwrap();
    let images = vec!["0"; 1001].join(",");
    let script = sharing(folder.path(), "[1,5]").replace("[3,2]", &format!("[{images}]"));
    let error = prepared(&worker_of(folder.path(), &script), "first").await;
    let error = tollgate_admission::chain(&error.unwrap_err());
    assert!(error.contains("more than 1000 images"), "{error}");
}

/// A child that compiles code which names its tier. `baseline` is what a child does with the baseline compiler.
fn tiered(folder: &Path, baseline: &str) -> String {
    format!(
        r#"read -r order; printf '%s\n' "$order" >> '{log}'
        case "$order" in
        *'"configure"'*)
            case "$order" in *'"once":"baseline"'*) {baseline};; esac
            case "$order" in *'{KEEPS_CODE}'*);; *) printf '{COMPILED_ONCE}';; esac
            echo '{{"configured":{{"manifest":{{"name":"p","version":"1","description":"","settingsSchema":null,"rules":[],"labels":[]}},"fallback":null,"componentBytes":9,"images":[3]}}}}'
            printf 'COMPONENTone';;
        *'"compile"'*)
            echo '{{"compiled":{{"codeBytes":8,"fallback":null,"places":[0]}}}}'
            case "$order" in *'"tier":"interim"'*) printf '___quick';; *) printf '___quiet';; esac;;
        esac"#,
        log = folder.join("orders").display()
    )
}

fn interim_worker(folder: &Path, script: &str) -> Worker {
    Worker {
        // Without the place of the image.
        min_interim_bytes: 6,
        ..worker_of(folder, script)
    }
}

async fn prepared_for_start(worker: &Worker) -> (String, Option<Box<Unfinished>>) {
    let prepared = worker
        .prepare(order(), "{}".to_owned(), b"bytes", true)
        .await
        .expect("this child prepares everything");
    let code = parts(&prepared.code).unwrap();
    (code, prepared.unfinished)
}

#[tokio::test]
async fn interim_code_serves_until_optimised_code_is_ready() {
    let folder = tempfile::tempdir().unwrap();
    let worker = interim_worker(folder.path(), &tiered(folder.path(), ":"));
    let (code, unfinished) = prepared_for_start(&worker).await;
    assert_eq!(code, "onequick");
    let code = worker.finish(&unfinished.unwrap()).await.unwrap();
    assert_eq!(parts(&code).unwrap(), "onequiet");
    assert_eq!(compilations(folder.path()), 2);
    // A restart finds the optimised code.
    let (code, unfinished) = prepared_for_start(&worker).await;
    assert_eq!(code, "onequiet");
    assert!(unfinished.is_none());
    assert_eq!(compilations(folder.path()), 2);
}

#[tokio::test]
async fn plugin_with_other_settings_needs_no_interim_code() {
    let folder = tempfile::tempdir().unwrap();
    let worker = interim_worker(folder.path(), &tiered(folder.path(), ":"));
    let other = worker
        .prepare(order(), r#"{"a":1}"#.to_owned(), b"bytes", false)
        .await;
    assert!(other.unwrap().unfinished.is_none());
    let (code, unfinished) = prepared_for_start(&worker).await;
    assert_eq!(code, "onequiet");
    assert!(unfinished.is_none());
    assert_eq!(compilations(folder.path()), 1);
}

#[tokio::test]
async fn small_plugins_have_no_interim_code() {
    let folder = tempfile::tempdir().unwrap();
    let worker = Worker {
        min_interim_bytes: 7,
        ..worker_of(folder.path(), &tiered(folder.path(), ":"))
    };
    let (code, unfinished) = prepared_for_start(&worker).await;
    assert_eq!(code, "onequiet");
    assert!(unfinished.is_none());
}

#[tokio::test]
async fn optimised_code_serves_if_interim_code_cannot_be_made() {
    let folder = tempfile::tempdir().unwrap();
    let script = tiered(folder.path(), ":").replace("printf '___quick'", "exit 1");
    let worker = interim_worker(folder.path(), &script);
    let (code, unfinished) = prepared_for_start(&worker).await;
    assert_eq!(code, "onequiet");
    assert!(unfinished.is_none());
}

/// The compilers of the children that configure, in this order.
fn once_tiers(folder: &Path) -> Vec<&'static str> {
    let orders = std::fs::read_to_string(folder.join("orders")).unwrap();
    let orders = orders
        .lines()
        .filter(|order| order.contains(r#""configure":"#));
    orders
        .map(|order| match order.contains(r#""once":"baseline""#) {
            true => "baseline",
            false => "once",
        })
        .collect()
}

#[tokio::test]
async fn other_compiler_takes_what_the_baseline_compiler_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let refuses = r#"echo '{"refused":{"stage":"compile","reason":"not supported"}}'; exit"#;
    let worker = worker_of(folder.path(), &tiered(folder.path(), refuses));
    for settings in ["{}", r#"{"a":1}"#] {
        let prepared = prepared(&worker, settings).await;
        prepared.expect("the other compiler supports it");
    }
    // The second plugin finds the code of the first one, and asks no compiler.
    assert_eq!(once_tiers(folder.path()), ["baseline", "once", "once"]);
}

#[tokio::test]
async fn plugin_that_fails_with_the_baseline_compiler_gets_the_other_one() {
    for ends in [
        r#"echo '{"refused":{"stage":"configure","reason":"trap","isFault":true}}'; exit"#,
        r#"echo '{"stage":"describe"}'; kill -SEGV $$"#,
    ] {
        let folder = tempfile::tempdir().unwrap();
        let script = tiered(folder.path(), &format!("printf '{COMPILED_ONCE}'; {ends}"));
        let worker = worker_of(folder.path(), &script);
        let code = prepared(&worker, "{}").await;
        assert_eq!(code.expect("the other code works"), "onequiet");
        assert_eq!(once_tiers(folder.path()), ["baseline", "once"], "{ends}");
    }
}

#[tokio::test]
async fn plugin_that_refuses_its_settings_runs_once() {
    for ends in [
        r#"echo '{"refused":{"stage":"configure","reason":"it rejects its settings"}}'; exit"#,
        r#"echo '{"refused":{"stage":"configure","reason":"out-of-fuel","isFault":false}}'; exit"#,
    ] {
        let folder = tempfile::tempdir().unwrap();
        let worker = worker_of(folder.path(), &tiered(folder.path(), ends));
        let error = prepared(&worker, "{}").await.expect_err(ends);
        assert!(
            matches!(
                error,
                PrepareError::Refused {
                    stage: Stage::Configure,
                    ..
                }
            ),
            "{error}"
        );
        assert_eq!(once_tiers(folder.path()), ["baseline"]);
    }
}
