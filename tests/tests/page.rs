//! The page: what it shows is bounded and searched on the server, it needs the administrator's credentials, and in a real
//! browser it is accessible and runs nothing that a user or a plugin wrote.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tollgate_tests::binary::{profile_directory, tollgate, workspace};
use tollgate_tests::configuration::Configuration;
use tollgate_tests::reviews::{Review, pod, secret};
use tollgate_tests::server::{Server, Start};
use tollgate_tests::{guests, left_out, wat};

/// Debian's Chromium.
const CHROMIUM: &str = "/usr/bin/chromium";
/// Texts that would run or load something if they became markup.
const MARKUP: &str = "<img src=x onerror=globalThis.pwned=1>";
const SCRIPT: &str = "<script>globalThis.pwned=2</script>";
/// As long as the text that it replaces in the fixture.
const OF_PLUGIN: &str = "<svg onload=pwned()>";
const REPLACED: &str = "must be red or green";

/// Rules for every request.
fn everything() -> Value {
    json!([{ "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"] }])
}

/// A validator that wants a label, with a shadow that wants another one, and exceptions.
fn configuration() -> Configuration {
    let mut configuration = Configuration::new();
    let labels = guests::build("required-labels");
    let exceptions = ["moving house", SCRIPT].map(
        |reason| json!({ "namespaces": ["elsewhere"], "until": "2999-12-31", "reason": reason }),
    );
    let more = json!({
        "match": { "rules": everything() },
        "settings": { "labels": { "team": null } },
        "exceptions": exceptions,
        "shadow": {
            "source": format!("file:{}", labels.display()),
            "settings": { "labels": { "app": null } },
        },
    });
    configuration.plugin("required-labels", &labels, more);
    configuration
}

/// A plugin whose error at loading is markup.
fn hostile_plugin() -> Vec<u8> {
    let file = workspace().join("tests/hostile/configure-rejects.wat");
    let text = std::fs::read_to_string(&file);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert_eq!(REPLACED.len(), OF_PLUGIN.len());
    assert!(text.contains(REPLACED), "{text}");
    wat::plugin("validator", &text.replace(REPLACED, OF_PLUGIN))
}

fn review(uid: &str, user: &str, namespace: &str, name: &str) -> Value {
    let mut object = pod(name);
    object["metadata"]["namespace"] = json!(namespace);
    let mut review = Review::create(object).uid(uid).build();
    review["request"]["namespace"] = json!(namespace);
    review["request"]["name"] = json!(name);
    review["request"]["userInfo"]["username"] = json!(user);
    review
}

async fn json_of(server: &Server, path: &str) -> Value {
    let answer = server.get_admin(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

/// Returns the uids of decisions.
fn uids(answer: &Value) -> Vec<&str> {
    let decisions = answer["decisions"].as_array();
    let decisions = decisions.unwrap_or_else(|| panic!("no decisions: {answer}"));
    let uids = decisions.iter().map(|decision| decision["uid"].as_str());
    uids.map(Option::unwrap_or_default).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_decisions_in_bounded_parts() {
    let server = Server::start(configuration());
    server.assert_all_loaded().await;
    for index in 0..70 {
        let (uid, namespace) = (format!("u-{index:03}"), format!("team-{index}"));
        let user = if index % 7 == 0 { "anna" } else { "jane" };
        server
            .validate(&review(&uid, user, &namespace, "web"))
            .await;
    }
    let first = json_of(&server, "/decisions?limit=50").await;
    let next = first["next"].as_u64().expect("there is a next part");
    let second = json_of(&server, &format!("/decisions?limit=50&before={next}")).await;
    let all = [uids(&first), uids(&second)].concat();
    let newest_first: Vec<String> = (0..70).rev().map(|index| format!("u-{index:03}")).collect();
    assert_eq!(all, newest_first);
    assert_eq!(
        (&second["next"], &first["kept"]),
        (&Value::Null, &json!(70))
    );
    for (query, matched) in [
        ("user=ANNA", 10),
        ("uid=u-00", 10),
        ("object=pod+team-12/", 1),
        ("namespace=team-1", 1),
        ("plugin=required", 70),
        ("plugin=other", 0),
        ("verdict=denied&user=anna", 10),
        ("verdict=allowed", 0),
    ] {
        let found = json_of(&server, &format!("/decisions?{query}")).await;
        assert_eq!(found["matched"], matched, "{query}: {found}");
        assert!(uids(&found).len() <= 50, "{query}");
    }

    let costs = json_of(&server, "/costs").await;
    let cost = &costs["costs"][0];
    assert_eq!(cost["plugin"], "required-labels", "{costs}");
    assert_eq!((&cost["calls"], &cost["denials"]), (&json!(70), &json!(70)));
    assert!(cost["fuel"]["mean"].as_u64() > Some(0), "{costs}");
    let exceptions = json_of(&server, "/exceptions?search=moving").await;
    assert_eq!(exceptions["exceptions"][0]["plugin"], "required-labels");
    assert_eq!(
        (&exceptions["matched"], &exceptions["total"]),
        (&json!(1), &json!(2))
    );
    let refused = server.get_admin("/decisions?limit=100000").await;
    assert_eq!(refused.status, 400, "{}", refused.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn shows_no_values_of_objects() {
    let server = Server::start(configuration());
    let loot = secret("loot", "bWFya2Vy", "marker", "{\"marker\":1}");
    server
        .validate(&Review::create(loot).uid("u-1").build())
        .await;
    for path in [
        "/decisions?uid=u-1",
        "/decisions/u-1",
        "/costs",
        "/shadows?limit=5",
        "/plugins?limit=5",
        "/exceptions",
        "/scan",
        "/replica",
    ] {
        let text = server.get_admin(path).await.text();
        assert!(!text.contains("marker"), "{path}: {text}");
        assert!(!text.contains("bWFya2Vy"), "{path}: {text}");
    }
}

/// A running `tollgate page`, and the URL that it printed.
struct Page {
    child: Child,
    url: String,
}

impl Page {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(tollgate())
            .arg("page")
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("tollgate cannot be run: {error}"));
        let output = child.stdout.take().expect("standard output was asked for");
        let mut url = String::new();
        let read = BufReader::new(output).read_line(&mut url);
        read.expect("the page prints its URL");
        assert!(url.starts_with("http://127.0.0.1:"), "{url}");
        let url = url.trim().to_owned();
        Self { child, url }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _: std::io::Result<()> = self.child.kill();
        let _: std::io::Result<_> = self.child.wait();
    }
}

/// Starts a replica whose admin listener wants a token, with a certificate for the Service.
fn replica() -> Server {
    let configuration = configuration();
    let tokens = configuration.folder().join("tokens");
    std::fs::write(&tokens, "hush").expect("the token can be written");
    let bearer = json!({ "bearer": { "file": tokens.display().to_string() } });
    Server::start(
        configuration
            .with("tls.selfSigned.service", "tollgate.tollgate-system")
            .with("admin.authentication", bearer),
    )
}

/// The EndpointSlice of one replica, as kube-apiserver would have it.
fn endpoint_slice(name: &str, port: u16) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name, "namespace": "tollgate-system", "labels": { "kubernetes.io/service-name": "tollgate" },
        },
        "addressType": "IPv4",
        "ports": [{ "name": "admin", "port": port }],
        "endpoints": [{ "addresses": ["127.0.0.1"], "targetRef": { "kind": "Pod", "name": name } }],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn page_command_shows_all_replicas_with_the_users_token() {
    let (first, second) = (replica(), replica());
    for (server, uid) in [(&first, "u-first"), (&second, "u-second")] {
        server
            .validate(&review(uid, "jane", "default", "web"))
            .await;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let slices = [("pod-a", &first), ("pod-b", &second)]
        .map(|(name, server)| endpoint_slice(name, server.admin_address().port()));
    let bundles = [&first, &second]
        .map(|server| std::fs::read_to_string(server.ca_bundle()).expect("the CA can be read"));
    for (name, text) in [
        (
            "slices.yaml",
            slices.map(|slice| format!("---\n{slice}\n")).concat(),
        ),
        ("ca.crt", bundles.concat()),
        ("token", "hush".to_owned()),
    ] {
        std::fs::write(path(name), text).expect("the file can be written");
    }
    let page = Page::start(&[
        "--service",
        "tollgate-system/tollgate",
        "--live",
        &path("slices.yaml"),
        "--certificate-authority",
        &path("ca.crt"),
        "--token-file",
        &path("token"),
    ]);
    let client = reqwest::Client::builder().no_proxy().build();
    let client = client.expect("a client");
    let get = async |url: &str| {
        let answer = client.get(url).send().await.expect("an answer");
        let status = answer.status().as_u16();
        (status, answer.text().await.expect("a text"))
    };
    let (status, text) = get(&page.url).await;
    assert_eq!(status, 200);
    assert!(text.contains("<title>Tollgate</title>"), "{text}");
    let (_, text) = get(&format!("{}replicas", page.url)).await;
    let replicas: Value = serde_json::from_str(&text).expect("JSON");
    for (index, (name, uid)) in [("pod-a", "u-first"), ("pod-b", "u-second")]
        .into_iter()
        .enumerate()
    {
        let replica = &replicas["replicas"][index];
        assert_eq!(replica["name"], name, "{text}");
        let top = replica["path"].as_str().expect("a path");
        let top = format!("{}{}", page.url.trim_end_matches("page/"), &top[3..]);
        let (status, text) = get(&format!("{top}decisions?uid=u-")).await;
        assert_eq!(status, 200, "{text}");
        let found: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(uids(&found), [uid]);
        assert!(!text.contains("hush"));
    }
    // The secret in the URL is what opens the page.
    let port = page.url.split('/').nth(2).expect("an address");
    for path in ["page/", "plugins", "replica/pod-a/plugins"] {
        let (status, text) = get(&format!("http://{port}/{path}")).await;
        assert_eq!(status, 404, "{text}");
    }
}

/// Returns what a browser test needs and does not find.
fn missing(packages: &Path) -> Option<String> {
    if !Path::new(CHROMIUM).exists() {
        return Some(format!("{CHROMIUM} is not there"));
    }
    let installed = packages.join("playwright-core").is_dir() && packages.join("axe-core").is_dir();
    (!installed).then(|| "tests/page/install has not run".to_owned())
}

fn node(arguments: &[&str]) -> (bool, String) {
    let output = Command::new("node")
        .current_dir(workspace().join("tests/page"))
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("node cannot be run: {error}"));
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    println!("node {}:\n{said}", arguments.join(" "));
    (output.status.success(), said)
}

/// The folder for the pictures of the browser tests.
fn pictures(name: &str) -> String {
    let target = profile_directory().parent().map(Path::to_owned);
    let folder: PathBuf = target.unwrap_or_default().join("page").join(name);
    folder.display().to_string()
}

#[test]
fn stand_in_with_a_thousand_namespaces_works_in_a_browser() {
    if let Some(missing) = missing(&workspace().join("tests/page/node_modules")) {
        return left_out(&format!("the page in a browser: {missing}"));
    }
    let (merges, said) = node(&["--test", "merge.test.js", "scan.test.js"]);
    assert!(merges, "{said}");
    let (works, said) = node(&["browser.js", "--pictures", &pictures("stand-in")]);
    assert!(works, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn real_server_with_hostile_names_works_in_a_browser() {
    if let Some(missing) = missing(&workspace().join("tests/page/node_modules")) {
        return left_out(&format!("the page of a server in a browser: {missing}"));
    }
    let mut configuration = configuration();
    configuration.plugin_of(
        "rejects",
        &hostile_plugin(),
        json!({
            "failurePolicy": "Ignore",
            "match": { "rules": everything(), "namespaces": ["elsewhere"] },
        }),
    );
    let server = Start::default().start(configuration);
    for (index, (user, name)) in [
        ("anna", "web"),
        (MARKUP, "web"),
        ("jane", SCRIPT),
        ("jane", MARKUP),
    ]
    .into_iter()
    .enumerate()
    {
        let uid = format!("0000000{index}-6393-11e8-b7cc-42010a800002");
        server.validate(&review(&uid, user, "default", name)).await;
    }
    let expected = json!({
        "texts": [MARKUP, SCRIPT, OF_PLUGIN],
        "user": { "search": "anna", "matches": "^1 of 4 kept decisions match$" },
        "pages": false,
        "replicas": 1,
    });
    let file = server.configuration().folder().join("expected.json");
    std::fs::write(&file, expected.to_string()).expect("the file can be written");
    let url = format!("http://{}/page/", server.admin_address());
    let (works, said) = tokio::task::spawn_blocking(move || {
        let (file, pictures) = (file.display().to_string(), pictures("server"));
        node(&[
            "browser.js",
            &url,
            "--expect",
            &file,
            "--pictures",
            &pictures,
        ])
    })
    .await
    .expect("the browser test ends");
    assert!(works, "{said}");
}
