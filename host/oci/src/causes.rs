//! The causes of a [`RegistryError`](super::RegistryError).

use std::path::PathBuf;
use std::str::FromStr;

use reqwest::Url;
use tollgate_admission::chain;

/// Why a registry gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The path of a request and the registry's address do not make a URL.
    #[error(transparent)]
    Url(<Url as FromStr>::Err),
    /// The request failed. The advice stands behind all causes, so they are a part of this message.
    #[error("{}{hint}", chain(.error))]
    Request {
        /// The error, without the URL.
        error: reqwest::Error,
        /// Advice on how to solve the problem; empty if there is none.
        hint: &'static str,
    },
    /// The registry does not say where to upload a blob.
    #[error("its answer has no upload location")]
    NoUploadLocation,
    /// The redirects do not end.
    #[error("too many redirects")]
    TooManyRedirects,
}

/// Why the client does not authenticate to a registry.
#[derive(Debug, thiserror::Error)]
pub enum ChallengeError {
    /// The header of the challenge cannot be parsed.
    #[error("cannot parse its WWW-Authenticate header")]
    Header,
    /// The challenge does not say where to get a token.
    #[error("its realm is not a URL")]
    Realm,
    /// The challenge has an unknown scheme.
    #[error("its challenge is neither Bearer nor Basic")]
    Scheme,
    /// A redirect leads the identity token to another server.
    #[error("a redirect would send the identity token to {origin}")]
    Redirect {
        /// The origin of the other server.
        origin: String,
    },
    /// The authorization server does not use TLS.
    #[error("the credentials would be sent to {realm} without TLS")]
    NoTls {
        /// The URL of the authorization server.
        realm: Url,
    },
    /// The answer of the authorization server cannot be parsed. The answer may be a token, so the error shows no part
    /// of it.
    #[error("cannot parse the answer to the token request")]
    Answer,
    /// The answer of the authorization server has no token.
    #[error("the answer to the token request has no token")]
    NoToken,
}

/// Why the client for a registry cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The name of the registry does not make a URL.
    #[error(transparent)]
    Url(<Url as FromStr>::Err),
    /// The file with the registry's CAs cannot be used.
    #[error("{}: {problem} (registries.hosts[].ca)", .path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: AuthoritiesProblem,
    },
    /// The HTTP client cannot be set up.
    #[error(transparent)]
    Client(reqwest::Error),
}

/// Why a file with CAs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesProblem {
    /// The file cannot be read.
    #[error(transparent)]
    Read(std::io::Error),
    /// The file is not valid PEM.
    #[error(transparent)]
    Pem(reqwest::Error),
    /// The file has no certificate.
    #[error("expected PEM with one or more CERTIFICATE sections")]
    Empty,
}

/// Why a file with a trusted root cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RootProblem {
    /// The file cannot be read.
    #[error(transparent)]
    Read(std::io::Error),
    /// The file is no trusted root, or one that Tollgate cannot use.
    #[error("{0}; expected a trusted_root.json of Sigstore")]
    Invalid(String),
}

/// Why the trusted root of a TUF repository cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TufProblem {
    /// The pinned root cannot be read.
    #[error("{}: {error} (signatures.tuf.root)", .path.display())]
    Pinned {
        /// The file.
        path: PathBuf,
        /// The problem.
        error: std::io::Error,
    },
    /// The metadata is not valid, or the repository cannot be reached.
    #[error("{}", line(.0))]
    Update(sigstore_tuf::Error),
    /// The refresh took longer than `registries.timeout`.
    #[error("no complete answer within {seconds} s (registries.timeout)")]
    TooSlow {
        /// The limit, in seconds.
        seconds: u64,
    },
    /// The target is no trusted root, or one that Tollgate cannot use.
    #[error("{0}; expected a trusted_root.json of Sigstore (signatures.tuf.target)")]
    Invalid(String),
    /// Nothing is kept, and the repository has not supplied anything.
    #[error("nothing is kept of it in registries.cacheDirectory, and {failure}")]
    Nothing {
        /// Why the repository has not supplied anything.
        failure: String,
    },
    /// The metadata has expired, and the time is over for which it counts nevertheless.
    #[error(
        "its {role} metadata expired at {expired} and counted for {counted_for} after that \
         (signatures.tuf.lastKnownGoodFor); the last refresh: {failure}"
    )]
    Expired {
        /// The role that expired first.
        role: &'static str,
        /// The time of the expiry.
        expired: String,
        /// The time that it counted after that.
        counted_for: String,
        /// Why there is no newer metadata.
        failure: String,
    },
}

/// The error and its causes in one line of limited length. Parts of it come from the repository.
fn line(error: &sigstore_tuf::Error) -> String {
    /// Maximum length, in characters.
    const LONGEST: usize = 1000;
    let text = chain(error);
    let cut = text.chars().take(LONGEST);
    cut.flat_map(|character| match character.is_control() {
        true => character.escape_default().collect::<Vec<char>>(),
        false => vec![character],
    })
    .collect()
}

/// Why a file with keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeysProblem {
    /// The file cannot be read.
    #[error(transparent)]
    Read(std::io::Error),
    /// The file is not valid PEM.
    #[error(transparent)]
    Pem(pem::PemError),
    /// A key is of a kind that Tollgate does not support.
    #[error("unsupported kind of key; expected ECDSA P-256 or P-384, Ed25519 or RSA")]
    Kind,
    /// The file has no key.
    #[error("no key found; expected PEM with one or more PUBLIC KEY sections, such as cosign.pub")]
    Empty,
}
