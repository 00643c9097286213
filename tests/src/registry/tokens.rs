//! A server that issues tokens for the real registry, by the distribution project's token specification.
//!
//! An authenticated user may pull and push below `policies/` and `public/`. Everybody may pull below `public/`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::Key;

/// The audience of the tokens.
pub const SERVICE: &str = "registry-of-tests";
/// The issuer of the tokens.
pub const ISSUER: &str = "tokens-of-tests";
/// The accepted identity token.
pub const IDENTITY: &str = "the-identity-token";
/// `user:secret`.
const BASIC: &str = "Basic dXNlcjpzZWNyZXQ=";

/// The server. It ends with the runtime.
pub struct Tokens {
    address: SocketAddr,
    certificate: PathBuf,
}

/// The key that signs tokens.
struct Signer {
    key: Key,
    /// The certificate in Base64, as in `x5c`.
    chain: String,
}

// === impl Tokens ===

impl Tokens {
    /// Starts the server.
    ///
    /// # Panics
    /// Panics if loopback has no free port, or if openssl is missing.
    pub async fn start() -> Self {
        let key = Key::new(&["RSA", "-pkeyopt", "rsa_keygen_bits:2048"]);
        let certificate = key.certificate();
        let text = std::fs::read_to_string(&certificate).expect("openssl has written it");
        let lines = text.lines().filter(|line| !line.starts_with("-----"));
        let chain = lines.collect();
        let signer = Arc::new(Signer { key, chain });
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("loopback has a free port");
        let address = listener.local_addr().expect("a listener has an address");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let signer = signer.clone();
                // Clients may disconnect.
                tokio::spawn(async move { drop(serve(stream, &signer).await) });
            }
        });
        Self {
            address,
            certificate,
        }
    }

    /// The URL at which tokens are requested.
    #[must_use]
    pub fn realm(&self) -> String {
        format!("http://{}/token", self.address)
    }

    /// The certificate by which the registry trusts the tokens.
    #[must_use]
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }
}

async fn serve(stream: TcpStream, signer: &Signer) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut first = String::new();
    stream.read_line(&mut first).await?;
    let (mut is_basic, mut is_known, mut length) = (false, false, 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 || line == "\r\n" {
            break;
        }
        let (name, value) = line.trim_end().split_once(": ").unwrap_or_default();
        let name = name.to_ascii_lowercase();
        if name == "authorization" {
            is_basic = true;
            is_known = value == BASIC;
        }
        if name == "content-length" {
            length = value.parse().unwrap_or_default();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let is_form = first.starts_with("POST ");
    let asked = if is_form {
        String::from_utf8_lossy(&body).into_owned()
    } else {
        let path = first.split(' ').nth(1).unwrap_or_default();
        let query = path.split_once('?').map(|(_, query)| query);
        query.unwrap_or_default().to_owned()
    };
    let asked = reqwest::Url::parse(&format!("http://localhost/?{asked}"));
    let asked = asked.expect("what is asked is a query");
    let parameter = |name: &str| {
        let mut pairs = asked.query_pairs();
        let found = pairs.find(|(key, _)| key == name);
        found.map(|(_, value)| value.into_owned())
    };
    is_known |= parameter("refresh_token").as_deref() == Some(IDENTITY);
    let (status, answer) = if (is_basic || is_form) && !is_known {
        (401, json!({"details": "who is that?"}))
    } else {
        let access = parameter("scope").and_then(|scope| access(&scope, is_known));
        let service = parameter("service").unwrap_or_default();
        let token = signer.token(&service, access);
        let name = if is_form { "access_token" } else { "token" };
        (200, json!({ name: token }))
    };
    let answer = answer.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        answer.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// Returns the granted part of a scope, such as `repository:policies/colour:pull,push`.
fn access(scope: &str, is_known: bool) -> Option<Value> {
    let (kind, rest) = scope.split_once(':')?;
    let (name, actions) = rest.rsplit_once(':')?;
    let actions = actions.split(',').filter(|action| {
        (is_known && name.starts_with("policies/"))
            || (name.starts_with("public/") && (is_known || *action == "pull"))
    });
    let actions: Vec<&str> = actions.collect();
    Some(json!({"type": kind, "name": name, "actions": actions}))
}

// === impl Signer ===

impl Signer {
    fn token(&self, service: &str, access: Option<Value>) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.expect("it is after 1970").as_secs();
        let head = json!({"typ": "JWT", "alg": "RS256", "x5c": [self.chain]});
        let claims = json!({
            "iss": ISSUER, "sub": "user", "aud": service, "jti": "1",
            "iat": now, "nbf": now - 10, "exp": now + 300,
            "access": access.into_iter().collect::<Vec<_>>(),
        });
        let text = [head, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let text = text.join(".");
        let signature = self.key.sign(text.as_bytes());
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}
