//! Plugins that differ in their settings have one mapping of their code, and each has its own memory.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_tests::checker::Endpoint;
use tollgate_tests::configuration::Configuration;
use tollgate_tests::guests;
use tollgate_tests::reviews::{Review, pod};
use tollgate_tests::server::Server;

const LABELS: [&str; 3] = ["team", "owner", "cost-centre"];
/// Optimised code replaces interim code within this time, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Three plugins of the same code, one of them with another custom section, and a plugin of other code.
fn configuration(labels: &[&str]) -> Configuration {
    let mut configuration = Configuration::new();
    let code = configuration.folder().join("code-of-plugins");
    std::fs::create_dir_all(&code).expect("the folder is there");
    let required = guests::build("required-labels");
    let bytes = std::fs::read(&required).expect("the plugin was built");
    let marked = configuration.folder().join("marked.wasm");
    std::fs::write(
        &marked,
        guests::with_section(&bytes, "note", b"another file"),
    )
    .expect("the folder is writable");
    for (label, file) in labels.iter().zip([&required, &required, &marked]) {
        let settings = json!({"labels": {*label: null}});
        configuration.plugin(label, file, json!({"settings": settings}));
    }
    configuration.sample("image-rewrite", &json!({"rewrite": []}));
    configuration.with("engine", json!({"cacheDirectory": code, "answerCache": 0}))
}

async fn until_mapped(server: &Server, wanted: usize) {
    let began = std::time::Instant::now();
    loop {
        let mapped = server.mapped_code();
        let logs = server.logs();
        let is_interim = |line: &&String| line.contains("\"is_interim\":true");
        let optimised = |line: &&String| line.contains("optimised code in use");
        let is_settled =
            logs.iter().filter(is_interim).count() == logs.iter().filter(optimised).count();
        if is_settled && mapped.len() == wanted {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{mapped:?}: {logs:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Which of the labels the plugins miss, of a Pod that has the others.
async fn missing(server: &Server, labels: &[&str], without: &str) -> (bool, String) {
    let mut object = pod("web");
    let present = labels.iter().filter(|label| **label != without);
    object["metadata"]["labels"] = present
        .map(|label| ((*label).to_owned(), json!("a")))
        .collect::<serde_json::Map<String, Value>>()
        .into();
    let review = Review::create(object).build();
    let answer = server.validate(&review).await;
    let checked = answer.checked(Endpoint::Validate, &review);
    (checked.allowed, format!("{:?}", checked.status))
}

async fn assert_each_knows_its_label(server: &Server, labels: &[&str]) {
    for round in 0..20 {
        for without in labels {
            let (allowed, status) = missing(server, labels, without).await;
            assert!(!allowed, "round {round}: a Pod without `{without}`");
            for label in labels {
                let named = status.contains(*label);
                assert_eq!(named, label == without, "round {round}: {status}");
            }
        }
        assert!(missing(server, labels, "").await.0, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugins_of_other_settings_have_one_mapping_of_their_code() {
    let server = Server::start(configuration(&LABELS));
    until_mapped(&server, 2).await;
    assert_each_knows_its_label(&server, &LABELS).await;

    // A change of settings maps no code, and reaches one plugin only.
    let path = server.configuration().folder().join("tollgate.yaml");
    let text = std::fs::read(&path).expect("the configuration is there");
    let mut root: Value = serde_json::from_slice(&text).expect("the suites write it as JSON");
    root["plugins"][2]["settings"] = json!({"labels": {"tier": null}});
    let new = path.with_extension("new");
    std::fs::write(&new, root.to_string()).expect("the folder is writable");
    std::fs::rename(&new, &path).expect("the folder is writable");
    let labels = ["team", "owner", "tier"];
    let began = std::time::Instant::now();
    while !missing(&server, &labels, "").await.0 {
        assert!(began.elapsed() < PATIENCE, "{:#?}", server.logs());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_each_knows_its_label(&server, &labels).await;
    until_mapped(&server, 2).await;

    // A restart with the first configuration finds the parts of the code in its store.
    let server = Server::start(server.kill());
    let is_interim = |line: &String| line.contains("\"is_interim\":true");
    assert!(!server.logs().iter().any(is_interim));
    assert_eq!(server.mapped_code().len(), 2);
    assert_each_knows_its_label(&server, &LABELS).await;
}
