//! Tests what the authentication methods accept and refuse, and their errors for unusable files.

use std::fs;

use super::*;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn write(&self, text: &str) -> PathBuf {
        let path = self.0.path().join("file");
        fs::write(&path, text).expect("written");
        path
    }
}

fn hashed(password: &str) -> String {
    bcrypt::hash(password, 4).expect("a hash")
}

fn base64(text: &str) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.encode(text)
}

async fn admitted(passwords: &Passwords, credential: &str) -> bool {
    let deadline = Instant::now() + std::time::Duration::from_secs(20);
    passwords.admit(&base64(credential), deadline).await.is_ok()
}

#[test]
fn accepts_only_exact_tokens_from_file() {
    let folder = Folder::new();
    let path = folder.write("# this year's\nfirst-token\n\n  second-token  \r\n");
    let tokens = Tokens::load(&path).expect("usable");
    assert!(tokens.accept("first-token") && tokens.accept("second-token"));
    for token in ["", "first", "first-token ", "First-token", "# this year's"] {
        assert!(!tokens.accept(token), "{token:?}");
    }
}

#[test]
fn loads_changed_tokens_and_keeps_old_ones_on_failure() {
    let folder = Folder::new();
    let tokens = Tokens::load(&folder.write("old")).expect("usable");
    assert!(!tokens.refresh().expect("usable"));
    folder.write("");
    let error = tokens.refresh().expect_err("unusable").to_string();
    assert!(error.contains("holds no token"), "{error}");
    assert!(tokens.accept("old"));
    folder.write("new");
    assert!(tokens.refresh().expect("usable"));
    assert!(tokens.accept("new") && !tokens.accept("old"));
}

#[test]
fn file_errors_name_line_but_never_content() {
    let folder = Folder::new();
    let path = folder.write("good-token\nXq7Hunter two\n");
    let error = Tokens::load(&path).expect_err("unusable").to_string();
    assert!(
        error.contains(
            "(authentication.bearer.file), line 2, is not a token: expected one token per line"
        ),
        "{error}"
    );
    assert!(!error.contains("Hunter"), "{error}");
    let good = hashed("secret");
    let costly = good.replacen("$04$", "$31$", 1);
    for (text, problem) in [
        (
            "Xq7Hunter".to_owned(),
            "line 1, is not a name and a hash with a colon between them",
        ),
        (
            "a:{SHA}Xq7Hunter".to_owned(),
            "line 1, has a hash that is not bcrypt",
        ),
        (
            format!("a:{costly}"),
            "line 1, has a hash whose cost is too high",
        ),
        (
            format!("a:{good}\na:{good}"),
            "line 2, repeats the name of an earlier",
        ),
        ("# nobody\n".to_owned(), "holds no name with a hash"),
    ] {
        let path = folder.write(&text);
        let error = Passwords::load(&path).expect_err("unusable").to_string();
        assert!(error.contains(problem), "{error}");
        assert!(error.contains("htpasswd -nB NAME"), "{error}");
        assert!(!error.contains("Hunter"), "{error}");
    }
    let missing = folder.0.path().join("missing");
    let error = Tokens::load(&missing).expect_err("unusable").to_string();
    assert!(
        error.contains("missing (authentication.bearer.file)"),
        "{error}"
    );
}

#[tokio::test]
async fn accepts_password_only_complete_and_with_its_name() {
    let folder = Folder::new();
    // htpasswd writes the hash with the letter y.
    let hash = hashed("open:sesame").replacen("$2b$", "$2y$", 1);
    let long = "x".repeat(72);
    let path = folder.write(&format!(
        "ali:{hash}\nbaba:{}\nlong:{}\n",
        hashed("other"),
        hashed(&long)
    ));
    let passwords = Passwords::load(&path).expect("usable");
    // The second round uses the hash in memory.
    for _ in 0..2 {
        assert!(admitted(&passwords, "ali:open:sesame").await);
        assert!(admitted(&passwords, "baba:other").await);
        assert!(admitted(&passwords, &format!("long:{long}")).await);
    }
    for wrong in [
        "ali:other",
        "ali:",
        "ali",
        "nobody:open:sesame",
        "",
        "baba:open:sesame",
    ] {
        assert!(!admitted(&passwords, wrong).await, "{wrong}");
    }
    assert!(!admitted(&passwords, &format!("long:{long}x")).await);
    let wrong = passwords.admit("not Base64!", Instant::now()).await;
    assert_eq!(wrong, Err(Refused::Client(AuthenticationFailure::Basic)));
}

#[tokio::test]
async fn forgets_verified_password_when_file_changes() {
    let folder = Folder::new();
    let passwords =
        Passwords::load(&folder.write(&format!("a:{}", hashed("old")))).expect("usable");
    assert!(admitted(&passwords, "a:old").await);
    folder.write(&format!("a:{}", hashed("new")));
    assert!(passwords.refresh().expect("usable"));
    assert!(!admitted(&passwords, "a:old").await);
    assert!(admitted(&passwords, "a:new").await);
}

#[test]
fn rejects_files_without_ca_certificate() {
    let folder = Folder::new();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let refusal = |text: &str| {
        let settings = config::ClientCertificate {
            ca: folder.write(text),
            subjects: Vec::new(),
        };
        let error = ClientCertificates::load(&settings, &provider).expect_err("unusable");
        error.to_string()
    };
    assert!(refusal("").contains("(authentication.clientCertificate.ca) holds no certificate"));
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(refusal(broken).contains("holds a section that is not an X.509 certificate"));
    let key = rcgen::KeyPair::generate().expect("a key");
    let leaf = rcgen::CertificateParams::new(vec!["client".to_owned()])
        .and_then(|params| params.self_signed(&key))
        .expect("a certificate");
    assert!(refusal(&leaf.pem()).contains("a certificate that is not a CA certificate"));
}
