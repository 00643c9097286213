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
const SUBJECT_EXPECTED: &str =
    "a common name, DNS name or URI of a client's certificate, such as kube-apiserver";

// === impl Authentication ===

impl Authentication {
    pub(crate) fn read(fields: &mut Fields<'_>, folder: &Path) -> Self {
        let is_given = fields.has("authentication");
        let mut fields = fields.section("authentication");
        if is_given && fields.is_empty() {
            fields.reject(
                "clientCertificate, bearer or basic; leave the key out to accept every caller",
            );
        }
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
        };
        fields.finish();
        authentication
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
