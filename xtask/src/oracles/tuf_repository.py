"""Writes a TUF repository in three states with python-tuf, as one JSON object: state, path, text.

first: root 1. second: root 3 after two rotations, and another target. delegated: the target is in a delegated role.
Root, targets and the delegated role have keys of different kinds. The metadata expires in 2100. The targets are trusted
roots of Sigstore, each with a certificate authority and a log of its own.
"""

import base64
import hashlib
import json
import sys
from datetime import datetime, timezone

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import (
    DelegatedRole,
    Delegations,
    Metadata,
    MetaFile,
    Root,
    Snapshot,
    TargetFile,
    Targets,
    Timestamp,
)

EXPIRES = datetime(2100, 1, 1, tzinfo=timezone.utc)
TARGET = "trusted_root.json"


def trusted_root(name):
    """A trusted root of Sigstore. Nobody has its keys any more."""
    key, log = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=timezone.utc))
        .not_valid_after(EXPIRES)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoded = lambda data: base64.b64encode(data).decode()
    public = log.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    valid = {"start": "2020-01-01T00:00:00Z"}
    return json.dumps({
        "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
        "certificateAuthorities": [{
            "subject": {"organization": "example", "commonName": name},
            "uri": "https://authority.example.com",
            "certChain": {"certificates": [{"rawBytes": encoded(certificate.public_bytes(Encoding.DER))}]},
            "validFor": valid,
        }],
        "tlogs": [{
            "baseUrl": "https://log.example.com",
            "hashAlgorithm": "SHA2_256",
            "publicKey": {"rawBytes": encoded(public), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": valid},
            "logId": {"keyId": encoded(hashlib.sha256(public).digest())},
        }],
    })


def roots():
    return [CryptoSigner.generate_ecdsa(), CryptoSigner.generate_ed25519(), CryptoSigner.generate_rsa()]


class Repository:
    def __init__(self):
        self.files = {}
        self.root_signers = roots()
        self.online = CryptoSigner.generate_ed25519()
        self.offline = CryptoSigner.generate_ecdsa()
        self.delegate = CryptoSigner.generate_ecdsa()
        self.root = Root(expires=EXPIRES, consistent_snapshot=True)
        for signer in self.root_signers:
            self.root.add_key(signer.public_key, "root")
        self.root.roles["root"].threshold = 2
        for role, signer in [("timestamp", self.online), ("snapshot", self.online), ("targets", self.offline)]:
            self.root.add_key(signer.public_key, role)
        self.targets = Targets(expires=EXPIRES)
        self.snapshot = Snapshot(expires=EXPIRES)
        self.timestamp = Timestamp(expires=EXPIRES)
        self.roles = None
        self.write_root(self.root_signers)

    def write(self, name, signed, signers):
        metadata = Metadata(signed)
        for signer in signers:
            metadata.sign(signer, append=True)
        self.files[name] = metadata.to_bytes().decode()

    def write_root(self, signers):
        self.write(f"{self.root.version}.root.json", self.root, signers)

    def rotate_root(self):
        old, new = self.root_signers, roots()
        for signer in old:
            self.root.revoke_key(signer.public_key.keyid, "root")
        for signer in new:
            self.root.add_key(signer.public_key, "root")
        self.root.version += 1
        self.root_signers = new
        self.write_root(old + new)

    def publish(self, text):
        target = TargetFile.from_data(TARGET, text.encode(), ["sha256"])
        self.files[f"targets/{target.hashes['sha256']}.{TARGET}"] = text
        into = self.roles if self.roles else self.targets
        into.targets[TARGET] = target
        if self.roles:
            self.write(f"{self.roles.version}.roots.json", self.roles, [self.delegate])
            self.snapshot.meta["roots.json"] = MetaFile(self.roles.version)
        self.write(f"{self.targets.version}.targets.json", self.targets, [self.offline])
        self.snapshot.meta["targets.json"] = MetaFile(self.targets.version)
        self.write(f"{self.snapshot.version}.snapshot.json", self.snapshot, [self.online])
        snapshot = self.files[f"{self.snapshot.version}.snapshot.json"].encode()
        self.timestamp.snapshot_meta = MetaFile.from_data(self.snapshot.version, snapshot, ["sha256"])
        self.write("timestamp.json", self.timestamp, [self.online])
        state = dict(self.files)
        for role in [self.targets, self.snapshot, self.timestamp]:
            role.version += 1
        return state

    def delegate_target(self):
        del self.targets.targets[TARGET]
        self.roles = Targets(expires=EXPIRES)
        role = DelegatedRole("roots", [self.delegate.public_key.keyid], 1, True, paths=["*.json"])
        keys = {self.delegate.public_key.keyid: self.delegate.public_key}
        self.targets.delegations = Delegations(keys, {"roots": role})


repository = Repository()
states = {"first": repository.publish(trusted_root("first"))}
repository.rotate_root()
repository.rotate_root()
states["second"] = repository.publish(trusted_root("second"))
repository.delegate_target()
states["delegated"] = repository.publish(trusted_root("delegated"))
# A file that a state shares with the one before is written once.
before = {}
for state in states.values():
    for path in [path for path in state if before.get(path) == state[path]]:
        del state[path]
    before = {**before, **state}
json.dump(states, sys.stdout, indent=1)
print()
