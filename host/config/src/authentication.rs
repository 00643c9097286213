//! Authentication: what a client must present before the server evaluates its reviews.

use std::path::{Path, PathBuf};

use super::read::Fields;

/// The credentials that a client must present. Without any of these, anybody who reaches the port may call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authentication {
    /// Accepted client certificates, checked in the TLS handshake.
    pub client_certificate: Option<ClientCertificate>,
    /// File of bearer tokens. A client must present one of them.
    pub bearer: Option<PathBuf>,
    /// File of names and hashed passwords. A client must present one pair.
    pub basic: Option<PathBuf>,
    /// Tokens that kube-apiserver verifies. Only the admin listener accepts them: a review must not wait for
    /// kube-apiserver, which waits for the review.
    pub token_review: Option<TokenReview>,
}

/// The tokens of the cluster that are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenReview {
    /// The audiences that a token must have one of. Empty means kube-apiserver's own.
    pub audiences: Vec<String>,
}

/// The client certificates that are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// PEM file of the CAs that may have issued the certificate.
    pub ca: PathBuf,
    /// Accepted common names, DNS names or URIs. Empty accepts every certificate of the CAs.
    pub subjects: Vec<String>,
}

const CA_EXPECTED: &str = "the path of a PEM file with the CA of the clients' certificates";
const AUDIENCE_EXPECTED: &str = "an audience of tokens, such as tollgate";
const SUBJECT_EXPECTED: &str =
    "a common name, DNS name or URI of a client's certificate, such as kube-apiserver";

// === impl Authentication ===

impl Authentication {
    /// Reads the credentials of clients that send reviews.
    pub(crate) fn read(fields: &mut Fields<'_>, folder: &Path) -> Self {
        let is_given = fields.has("authentication");
        let fields = fields.section("authentication");
        if is_given && fields.is_empty() {
            fields.reject(
                "clientCertificate, bearer or basic; leave the key out to accept every caller",
            );
        }
        Self::read_keys(fields, folder, None)
    }

    /// Reads the credentials of administrators.
    pub(crate) fn read_of_admin(fields: &mut Fields<'_>, folder: &Path) -> Self {
        let mut fields = fields.section("authentication");
        if fields.is_empty() {
            fields.reject("clientCertificate, bearer, basic or tokenReview");
        }
        let token_review = fields
            .optional("tokenReview")
            .and_then(|node| node.object())
            .map(TokenReview::read);
        Self::read_keys(fields, folder, token_review)
    }

    fn read_keys(mut fields: Fields<'_>, folder: &Path, token_review: Option<TokenReview>) -> Self {
        let client_certificate = fields
            .optional("clientCertificate")
            .and_then(|node| node.object())
            .and_then(|fields| ClientCertificate::read(fields, folder));
        let authentication = Self {
            client_certificate,
            bearer: read_file(&mut fields, "bearer", "bearer tokens", folder),
            basic: read_file(
                &mut fields,
                "basic",
                "names and passwords, as `htpasswd -B` writes it",
                folder,
            ),
            token_review,
        };
        fields.finish();
        authentication
    }
}

// === impl TokenReview ===

impl TokenReview {
    fn read(mut fields: Fields<'_>) -> Self {
        let nodes = fields.optional("audiences").and_then(|node| {
            let nodes = node.elements("audiences of tokens")?;
            if nodes.is_empty() {
                node.reject("audiences; leave the key out to accept tokens for kube-apiserver");
            }
            Some(nodes)
        });
        fields.finish();
        let nodes = nodes.unwrap_or_default();
        let audience = |node: &super::read::Node<'_>| {
            let text = node.quotable_text(AUDIENCE_EXPECTED)?;
            if text.is_empty() {
                node.reject(AUDIENCE_EXPECTED);
            }
            Some(text.to_owned())
        };
        Self {
            audiences: nodes.iter().filter_map(audience).collect(),
        }
    }
}

fn read_file(
    fields: &mut Fields<'_>,
    key: &'static str,
    of: &str,
    folder: &Path,
) -> Option<PathBuf> {
    let mut fields = fields.optional(key)?.object()?;
    let file = fields
        .required("file", &format!("the path of a file with {of}"))
        .and_then(|node| node.path_in(folder));
    fields.finish();
    file
}

// === impl ClientCertificate ===

impl ClientCertificate {
    fn read(mut fields: Fields<'_>, folder: &Path) -> Option<Self> {
        let ca = fields
            .required("ca", CA_EXPECTED)
            .and_then(|node| node.path_in(folder));
        let nodes = fields.optional("subjects").and_then(|node| {
            let nodes = node.elements("subjects of certificates")?;
            if nodes.is_empty() {
                node.reject("subjects; leave the key out to accept every certificate of the CA");
            }
            Some(nodes)
        });
        fields.finish();
        let subject = |node: &super::read::Node<'_>| {
            let text = node.quotable_text(SUBJECT_EXPECTED)?;
            if text.is_empty() {
                node.reject(SUBJECT_EXPECTED);
            }
            Some(text.to_owned())
        };
        let subjects = nodes
            .unwrap_or_default()
            .iter()
            .filter_map(subject)
            .collect();
        Some(Self { ca: ca?, subjects })
    }
}
