//! An installation of Sigstore: a certificate authority, a certificate log, a transparency log and a timestamp authority.
//!
//! Sources: RFC 6962 for certificate logs and Merkle trees, RFC 3161 for timestamps, Rekor's entries of type `dsse`.

use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType,
    SerialNumber, SigningKey as _,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::FromDer as _;

/// The authorities and logs.
pub(crate) struct Sigstore {
    authority: (Issuer<'static, KeyPair>, Vec<u8>),
    certificate_log: KeyPair,
    log: KeyPair,
    timestamps: Timestamps,
}

/// A timestamp authority. openssl makes its timestamps.
struct Timestamps {
    folder: tempfile::TempDir,
    chain: [Vec<u8>; 2],
}

/// The signer, and the time of the signature.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) subject: String,
    pub(crate) issuer: String,
    /// The beginning of the certificate, which is valid for ten minutes.
    pub(crate) issued: OffsetDateTime,
    /// The time of the entry in the transparency log. None for an entry without a time.
    pub(crate) logged: Option<OffsetDateTime>,
    /// Whether the bundle has a timestamp of now.
    pub(crate) is_stamped: bool,
    /// Whether the certificate is in the certificate log.
    pub(crate) is_in_certificate_log: bool,
}

// === impl Identity ===

impl Identity {
    /// A workflow that signs now.
    pub(crate) fn workflow() -> Self {
        let now = OffsetDateTime::now_utc();
        Self {
            subject:
                "https://github.com/example/policies/.github/workflows/release.yml@refs/tags/v1"
                    .to_owned(),
            issuer: "https://token.actions.githubusercontent.com".to_owned(),
            issued: now - Duration::minutes(5),
            logged: Some(now - Duration::minutes(4)),
            is_stamped: false,
            is_in_certificate_log: true,
        }
    }
}

// === impl Sigstore ===

impl Sigstore {
    pub(crate) fn new() -> Self {
        let key = || KeyPair::generate().unwrap();
        Self {
            authority: authority("fulcio", key()),
            certificate_log: key(),
            log: key(),
            timestamps: Timestamps::new(),
        }
    }

    /// The trusted root.
    pub(crate) fn root(&self) -> Value {
        let log = |key: &KeyPair| {
            let spki = key.subject_public_key_info();
            json!({
                "baseUrl": "https://log.example.com",
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": BASE64.encode(&spki),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": {"start": "2020-01-01T00:00:00Z"},
                },
                "logId": {"keyId": BASE64.encode(Sha256::digest(&spki))},
            })
        };
        let authority = |chain: &[&[u8]]| {
            let chain = chain
                .iter()
                .map(|der| json!({"rawBytes": BASE64.encode(der)}));
            json!({
                "subject": {"organization": "example", "commonName": "example"},
                "uri": "https://authority.example.com",
                "certChain": {"certificates": chain.collect::<Vec<_>>()},
                "validFor": {"start": "2020-01-01T00:00:00Z"},
            })
        };
        let [leaf, root] = &self.timestamps.chain;
        json!({
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(&self.log)],
            "ctlogs": [log(&self.certificate_log)],
            "certificateAuthorities": [authority(&[&self.authority.1])],
            "timestampAuthorities": [authority(&[leaf, root])],
        })
    }

    /// A bundle over a statement, as cosign 3 writes it for an identity.
    pub(crate) fn bundle(&self, statement: &Value, identity: &Identity) -> Value {
        let key = KeyPair::generate().unwrap();
        let certificate = self.certificate(&key, identity);
        let payload = statement.to_string().into_bytes();
        let signature = key.sign(&super::encoding(&payload)).unwrap();
        let pem = pem::encode(&pem::Pem::new("CERTIFICATE", certificate.clone()));
        let body = json!({
            "apiVersion": "0.0.1",
            "kind": "dsse",
            "spec": {
                "envelopeHash": {"algorithm": "sha256", "value": "0".repeat(64)},
                "payloadHash": {"algorithm": "sha256", "value": format!("{:x}", Sha256::digest(&payload))},
                "signatures": [{"signature": BASE64.encode(&signature), "verifier": BASE64.encode(pem)}],
            },
        });
        let mut material = json!({
            "certificate": {"rawBytes": BASE64.encode(certificate)},
            "tlogEntries": [self.entry(body.to_string().as_bytes(), identity.logged)],
        });
        if identity.is_stamped {
            let stamp = BASE64.encode(self.timestamps.stamp(&signature));
            material["timestampVerificationData"] =
                json!({"rfc3161Timestamps": [{"signedTimestamp": stamp}]});
        }
        super::bundle(&material, &payload, &signature)
    }

    /// A certificate for an identity, with the promise of the certificate log.
    fn certificate(&self, key: &KeyPair, identity: &Identity) -> Vec<u8> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        let name = identity.subject.as_str().try_into().unwrap();
        parameters.subject_alt_names = vec![match identity.subject.contains("://") {
            true => SanType::URI(name),
            false => SanType::Rfc822Name(name),
        }];
        parameters.not_before = identity.issued;
        parameters.not_after = identity.issued + Duration::minutes(10);
        parameters.serial_number = Some(SerialNumber::from_slice(&[1, 2, 3]));
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        // A UTF8String, in the extension that Fulcio has for the issuer.
        let issuer = [
            &[0x0c, identity.issuer.len() as u8][..],
            identity.issuer.as_bytes(),
        ]
        .concat();
        let issuer = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 57264, 1, 8], issuer);
        parameters.custom_extensions = vec![issuer];
        let (authority, _) = &self.authority;
        let draft = parameters.signed_by(key, authority).unwrap();
        if identity.is_in_certificate_log {
            let promise = self.promise(draft.der(), identity.issued);
            let oid = [1, 3, 6, 1, 4, 1, 11129, 2, 4, 2];
            parameters
                .custom_extensions
                .push(CustomExtension::from_oid_content(&oid, promise));
        }
        let certificate = parameters.signed_by(key, authority).unwrap();
        certificate.der().to_vec()
    }

    /// The promise of the certificate log to add a certificate, as the content of an extension.
    fn promise(&self, draft: &[u8], time: OffsetDateTime) -> Vec<u8> {
        let (_, parsed) = x509_parser::certificate::X509Certificate::from_der(draft).unwrap();
        let to_be_signed: &[u8] = parsed.tbs_certificate.as_ref();
        let authority = self.authority.0.key().subject_public_key_info();
        let milliseconds = (time.unix_timestamp() as u64 * 1000).to_be_bytes();
        let length = (to_be_signed.len() as u32).to_be_bytes();
        let signed = [
            &[0, 0][..],
            &milliseconds,
            &[0, 1],
            &Sha256::digest(&authority),
            &length[1..],
            to_be_signed,
            &[0, 0],
        ];
        let signature = self.certificate_log.sign(&signed.concat()).unwrap();
        let log = Sha256::digest(self.certificate_log.subject_public_key_info());
        let size = |bytes: &[u8]| (bytes.len() as u16).to_be_bytes();
        let promise = [
            &[0][..],
            &log,
            &milliseconds,
            &[0, 0, 4, 3],
            &size(&signature),
            &signature,
        ]
        .concat();
        let list = [&size(&promise)[..], &promise].concat();
        let list = [&size(&list)[..], &list].concat();
        assert!(list.len() < 0x100);
        // An OCTET STRING.
        let head = match list.len() {
            0..0x80 => vec![0x04, list.len() as u8],
            _ => vec![0x04, 0x81, list.len() as u8],
        };
        [head, list].concat()
    }

    /// An entry of the transparency log, in a tree of two.
    fn entry(&self, body: &[u8], time: Option<OffsetDateTime>) -> Value {
        let spki = self.log.subject_public_key_info();
        let id = Sha256::digest(&spki);
        let leaf = Sha256::digest([&[0][..], body].concat());
        let other = Sha256::digest([0_u8]);
        let root = Sha256::digest([&[1][..], &other, &leaf].concat());
        let note = format!("log.example.com - 1\n2\n{}\n", BASE64.encode(root));
        let signature = self.log.sign(note.as_bytes()).unwrap();
        let signature = BASE64.encode([&id[..4], &signature].concat());
        let mut entry = json!({
            "logIndex": "1",
            "logId": {"keyId": BASE64.encode(id)},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "inclusionProof": {
                "logIndex": "1",
                "rootHash": BASE64.encode(root),
                "treeSize": "2",
                "hashes": [BASE64.encode(other)],
                "checkpoint": {"envelope": format!("{note}\n\u{2014} log.example.com {signature}\n")},
            },
            "canonicalizedBody": BASE64.encode(body),
        });
        if let Some(time) = time {
            let seconds = time.unix_timestamp();
            // The members are in the order of their names, as the canonical form requires.
            let promised = format!(
                r#"{{"body":"{}","integratedTime":{seconds},"logID":"{id:x}","logIndex":1}}"#,
                BASE64.encode(body)
            );
            let promise = BASE64.encode(self.log.sign(promised.as_bytes()).unwrap());
            entry["integratedTime"] = seconds.to_string().into();
            entry["inclusionPromise"] = json!({"signedEntryTimestamp": promise});
        }
        entry
    }
}

/// An authority with a self-signed certificate.
fn authority(name: &str, key: KeyPair) -> (Issuer<'static, KeyPair>, Vec<u8>) {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let certificate = parameters.self_signed(&key).unwrap().der().to_vec();
    (Issuer::new(parameters, key), certificate)
}

// === impl Timestamps ===

impl Timestamps {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (root, root_der) = authority("timestamps", KeyPair::generate().unwrap());
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        parameters
            .distinguished_name
            .push(DnType::CommonName, "timestamps leaf");
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // openssl demands that this usage is the only one, and critical.
        let usage = super::hex("300a06082b06010505070308");
        let mut usage = CustomExtension::from_oid_content(&[2, 5, 29, 37], usage);
        usage.set_criticality(true);
        parameters.custom_extensions = vec![usage];
        let leaf = parameters.signed_by(&key, &root).unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("leaf.pem", &leaf.pem());
        write("key.pem", &key.serialize_pem());
        write("serial", "01\n");
        write(
            "config",
            "[tsa]\nserial = serial\nsigner_digest = sha256\ndefault_policy = 1.2.3.4\ndigests = sha256\n\
             ess_cert_id_alg = sha256\n",
        );
        Self {
            chain: [leaf.der().to_vec(), root_der],
            folder,
        }
    }

    /// A timestamp of now.
    fn stamp(&self, bytes: &[u8]) -> Vec<u8> {
        let path = |name: &str| self.folder.path().join(name);
        std::fs::write(path("data"), bytes).unwrap();
        let query = "-query -data data -sha256 -cert -out query";
        let reply = "-reply -config config -section tsa -queryfile query -signer leaf.pem -inkey key.pem -out reply";
        for arguments in [query, reply] {
            let output = Command::new("openssl")
                .arg("ts")
                .args(arguments.split(' '))
                .current_dir(self.folder.path())
                .output();
            let output = output.expect("openssl is installed");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "openssl ts {arguments}: {said}");
        }
        std::fs::read(path("reply")).unwrap()
    }
}
