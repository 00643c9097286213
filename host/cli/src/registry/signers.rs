//! The flags that say who must have signed an artifact.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use tollgate_config::{SignaturePolicy, Signatures, Signer, SignerProof, TextPattern, TrustedRoot};

/// Who must have signed an artifact.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new(SIGNER).multiple(true).args(["key", "identity"])))]
pub(in super::super) struct Signers {
    /// PEM file with public keys, such as cosign.pub. May be given several times. A signature by any of them is enough.
    #[arg(long, value_name = "FILE")]
    key: Vec<PathBuf>,
    /// Identity in the certificate of a keyless signature: an email address or a URI. * stands for characters except /.
    #[arg(long, value_name = "PATTERN", requires_all = ["issuer", "trusted_root"])]
    identity: Option<String>,
    /// Issuer of the identity, such as https://token.actions.githubusercontent.com
    #[arg(long, value_name = "PATTERN", requires = "identity")]
    issuer: Option<String>,
    /// Trusted root of keyless signatures: a trusted_root.json of Sigstore. A file in --config may have `signatures.tuf`.
    #[arg(long, value_name = "FILE", requires = "identity")]
    trusted_root: Option<PathBuf>,
    /// Accept only signatures that name the repository of the reference. A policy in a file has `bindRepository`.
    #[arg(long, requires = SIGNER)]
    bind_repository: bool,
}

/// The flags that name a signer.
const SIGNER: &str = "signer";
/// Name of the policy that the flags make, in messages.
const FLAGS: &str = "on the command line";

// === impl Signers ===

impl Signers {
    /// The policy that the flags make; None if they name nobody.
    pub(in super::super) fn policy(&self) -> Option<Signatures> {
        let keys = self.key.iter().cloned().map(Signer::of_key);
        let identity = self.identity.as_ref().zip(self.issuer.as_ref());
        let identity = identity.map(|(subject, issuer)| Signer {
            name: subject.as_str().into(),
            proof: SignerProof::Identity {
                issuer: TextPattern::new(issuer),
                subject: TextPattern::new(subject),
            },
        });
        let signers: Vec<Signer> = keys.chain(identity).collect();
        if signers.is_empty() {
            return None;
        }
        Some(Signatures::of_policy(SignaturePolicy {
            trusted_root: self.trusted_root.clone().map(TrustedRoot::File),
            bind_repository: self.bind_repository,
            ..SignaturePolicy::of_signers(FLAGS, signers)
        }))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        signers: Signers,
    }

    fn parse(arguments: &str) -> Result<Signers, clap::Error> {
        let arguments = arguments.split_whitespace();
        Command::try_parse_from(["verify"].into_iter().chain(arguments))
            .map(|command| command.signers)
    }

    #[test]
    fn binding_needs_a_signer() {
        let error = parse("--bind-repository").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MissingRequiredArgument);
        let text = error.to_string();
        assert!(
            text.contains("--key") && text.contains("--identity"),
            "{text}"
        );
        let identity =
            "--identity a@example.com --issuer https://example.com --trusted-root root.json";
        for signer in [
            "--key a.pub".to_owned(),
            "--key a.pub --key b.pub".to_owned(),
            identity.to_owned(),
            format!("--key a.pub {identity}"),
        ] {
            let signers = parse(&format!("{signer} --bind-repository")).unwrap();
            assert!(signers.bind_repository, "{signer}");
            assert!(signers.policy().is_some(), "{signer}");
            assert!(!parse(&signer).unwrap().bind_repository, "{signer}");
        }
        assert!(parse("").unwrap().policy().is_none());
    }
}
