//! TUF repositories for tests, and a server on loopback that publishes them, or misbehaves.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sigstore_tuf::canonical_json::to_canonical_bytes;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

/// The files of a repository, by their paths below its URL.
pub(crate) type Published = BTreeMap<String, Vec<u8>>;

/// A repository, and the keys of its roles.
pub(crate) struct Repository {
    pub(crate) root_keys: Vec<KeyPair>,
    pub(crate) online: KeyPair,
    pub(crate) offline: KeyPair,
    pub(crate) versions: Versions,
    /// How long the metadata of each role is valid from now on, where this is not `lasts`.
    pub(crate) valid: BTreeMap<&'static str, Duration>,
    lasts: Duration,
    pub(crate) published: Published,
}

/// The versions that are published next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Versions {
    pub(crate) root: u64,
    pub(crate) timestamp: u64,
    pub(crate) snapshot: u64,
    pub(crate) targets: u64,
}

pub(crate) const TARGET: &str = "trusted_root.json";
/// How many keys must have signed a root.
const THRESHOLD: usize = 2;

// === impl Repository ===

impl Repository {
    /// A repository with root 1 and this target.
    pub(crate) fn new(target: &str) -> Self {
        Self::lasting(target, Duration::days(30))
    }

    /// A repository whose metadata is valid for this time.
    pub(crate) fn lasting(target: &str, lasts: Duration) -> Self {
        let key = || KeyPair::generate().unwrap();
        let mut repository = Self {
            root_keys: vec![key(), key(), key()],
            online: key(),
            offline: key(),
            versions: Versions {
                root: 1,
                timestamp: 1,
                snapshot: 1,
                targets: 1,
            },
            valid: BTreeMap::new(),
            lasts,
            published: Published::new(),
        };
        repository.publish_root(&[]);
        repository.publish(target);
        repository
    }

    /// The root that an operator pins.
    pub(crate) fn pinned(&self) -> Vec<u8> {
        self.published["1.root.json"].clone()
    }

    /// Publishes the next root with new keys for every role, signed by the old and the new keys.
    pub(crate) fn rotate(&mut self) {
        let key = || KeyPair::generate().unwrap();
        let old = std::mem::replace(&mut self.root_keys, vec![key(), key(), key()]);
        (self.online, self.offline) = (key(), key());
        let old: Vec<&KeyPair> = old.iter().collect();
        self.publish_root(&old);
    }

    /// Publishes the next root, signed by these keys, too.
    pub(crate) fn publish_root(&mut self, others: &[&KeyPair]) {
        let own = self.root_keys.iter().take(THRESHOLD);
        let signers: Vec<&KeyPair> = others.iter().copied().chain(own).collect();
        let root_keys: Vec<&KeyPair> = self.root_keys.iter().collect();
        let role = |keys: &[&KeyPair], threshold: usize| {
            let ids: Vec<String> = keys.iter().map(|key| id(key)).collect();
            json!({"keyids": ids, "threshold": threshold})
        };
        let all = root_keys
            .iter()
            .copied()
            .chain([&self.online, &self.offline]);
        let keys: serde_json::Map<String, Value> = all
            .map(|key| {
                let public = json!({"public": key.public_key_pem()});
                let key_of =
                    json!({"keytype": "ecdsa", "scheme": "ecdsa-sha2-nistp256", "keyval": public});
                (id(key), key_of)
            })
            .collect();
        let signed = json!({
            "consistent_snapshot": true,
            "keys": keys,
            "roles": {
                "root": role(&root_keys, THRESHOLD),
                "timestamp": role(&[&self.online], 1),
                "snapshot": role(&[&self.online], 1),
                "targets": role(&[&self.offline], 1),
            },
        });
        let version = self.versions.root;
        let text = self.metadata("root", version, signed, &signers);
        self.published.insert(format!("{version}.root.json"), text);
        self.versions.root += 1;
    }

    /// Publishes a target, with the next versions of all roles below the root.
    pub(crate) fn publish(&mut self, target: &str) {
        let hash = sha256(target.as_bytes());
        let path = format!("targets/{hash}.{TARGET}");
        self.published.insert(path, target.into());
        let listed = json!({TARGET: {"length": target.len(), "hashes": {"sha256": hash}}});
        let version = self.versions.targets;
        let targets = json!({"targets": listed});
        let targets = self.metadata("targets", version, targets, &[&self.offline]);
        self.published
            .insert(format!("{version}.targets.json"), targets);
        self.publish_snapshot();
        self.versions.targets += 1;
    }

    /// Publishes a snapshot of the targets, and a timestamp.
    pub(crate) fn publish_snapshot(&mut self) {
        let Versions {
            snapshot: version,
            targets,
            ..
        } = self.versions;
        let listed = json!({"meta": {"targets.json": {"version": targets}}});
        let snapshot = self.metadata("snapshot", version, listed, &[&self.online]);
        self.published
            .insert(format!("{version}.snapshot.json"), snapshot);
        self.publish_timestamp(version);
        self.versions.snapshot += 1;
    }

    /// Publishes the next timestamp, for this version of the snapshot.
    pub(crate) fn publish_timestamp(&mut self, snapshot: u64) {
        let bytes = &self.published[&format!("{snapshot}.snapshot.json")];
        let pinned = json!({"version": snapshot, "length": bytes.len(), "hashes": {"sha256": sha256(bytes)}});
        let version = self.versions.timestamp;
        let listed = json!({"meta": {"snapshot.json": pinned}});
        let timestamp = self.metadata("timestamp", version, listed, &[&self.online]);
        self.published
            .insert("timestamp.json".to_owned(), timestamp);
        self.versions.timestamp += 1;
    }

    fn metadata(
        &self,
        role: &'static str,
        version: u64,
        mut signed: Value,
        signers: &[&KeyPair],
    ) -> Vec<u8> {
        let valid = self.valid.get(role).copied().unwrap_or(self.lasts);
        let expires = (OffsetDateTime::now_utc() + valid)
            .replace_nanosecond(0)
            .unwrap();
        signed["_type"] = role.into();
        signed["spec_version"] = "1.0.31".into();
        signed["version"] = version.into();
        signed["expires"] = expires.format(&Rfc3339).unwrap().into();
        let bytes = to_canonical_bytes(&signed).unwrap();
        let signatures: Vec<Value> = signers
            .iter()
            .map(|key| json!({"keyid": id(key), "sig": hex(&key.sign(&bytes).unwrap())}))
            .collect();
        json!({"signed": signed, "signatures": signatures})
            .to_string()
            .into_bytes()
    }
}

fn id(key: &KeyPair) -> String {
    sha256(key.public_key_pem().as_bytes())
}

fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A server on loopback. It ends with the process.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) url: String,
    answers: Arc<Mutex<Answers>>,
    pub(crate) requests: Arc<AtomicU64>,
    pub(crate) sent_bytes: Arc<AtomicU64>,
    /// The `Authorization` headers that it was sent.
    pub(crate) credentials: Arc<Mutex<Vec<String>>>,
}

/// How the server answers.
pub(crate) enum Answers {
    /// With these files.
    Files(Published),
    /// With these files, and with a body of a gigabyte for those whose path ends so.
    Endless(Published, &'static str),
    /// With these files, to those who have a password.
    Private(Published),
    /// With a redirect to this URL.
    Redirect(&'static str),
    /// Not at all: it closes the connection.
    Away,
}

// === impl Server ===

impl Server {
    pub(crate) fn start(published: &Published) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            url: format!("http://{}/tuf/", listener.local_addr().unwrap()),
            answers: Arc::new(Mutex::new(Answers::Files(published.clone()))),
            requests: Arc::default(),
            sent_bytes: Arc::default(),
            credentials: Arc::default(),
        };
        let own = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let own = own.clone();
                // A client that has gone needs no answer.
                std::thread::spawn(move || drop(own.answer(&stream)));
            }
        });
        server
    }

    pub(crate) fn set(&self, answers: Answers) {
        *self.answers.lock().unwrap() = answers;
    }

    pub(crate) fn publish(&self, published: &Published) {
        self.set(Answers::Files(published.clone()));
    }

    fn answer(&self, mut stream: &TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream).lines();
        let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
        let mut login = None;
        while let Some(line) = lines.next().transpose()?.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(": ").unwrap_or_default();
            if name.eq_ignore_ascii_case("authorization") {
                login = Some(value.to_owned());
            }
        }
        let is_known = login.is_some();
        self.credentials.lock().unwrap().extend(login);
        self.requests.fetch_add(1, Ordering::Relaxed);
        let path = request.split(' ').nth(1).unwrap_or_default();
        let path = path.strip_prefix("/tuf/").unwrap_or_default();
        let (head, body, endless) = {
            let answers = self.answers.lock().unwrap();
            match &*answers {
                Answers::Away => return Ok(()),
                Answers::Redirect(to) => {
                    (format!("302 Found\r\nLocation: {to}"), Vec::new(), false)
                }
                Answers::Endless(_, ending) if path.ends_with(ending) => {
                    ("200 OK".to_owned(), vec![b' '; 1 << 16], true)
                }
                Answers::Private(_) if !is_known => {
                    let head = "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"tests\"";
                    (head.to_owned(), Vec::new(), false)
                }
                Answers::Files(files) | Answers::Private(files) | Answers::Endless(files, _) => {
                    match files.get(path) {
                        Some(body) => ("200 OK".to_owned(), body.clone(), false),
                        None => ("404 Not Found".to_owned(), Vec::new(), false),
                    }
                }
            }
        };
        write!(stream, "HTTP/1.1 {head}\r\nConnection: close\r\n")?;
        if !endless {
            write!(stream, "Content-Length: {}\r\n\r\n", body.len())?;
            return stream.write_all(&body);
        }
        // Without a length, the body goes on until the client closes the connection, or for a gigabyte.
        write!(stream, "\r\n")?;
        for _ in 0..(1 << 30) / body.len() {
            stream.write_all(&body)?;
            self.sent_bytes
                .fetch_add(body.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}
