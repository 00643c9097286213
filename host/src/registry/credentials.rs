//! Who the host is to a registry: what docker and podman keep, read anew for every pull.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use docker_credential::{CredentialRetrievalError, DockerCredential};

use super::RegistryError;

/// A credential helper is a program of somebody else's.
const HELPER_TIMEOUT: Duration = Duration::from_secs(10);
/// What docker calls its own registry in its files.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";

/// The credential for a registry; none where there is none.
pub(super) async fn credential(
    configured: Option<&Path>,
    registry: &str,
) -> Result<Option<DockerCredential>, RegistryError> {
    let paths = match configured {
        Some(path) => vec![path.to_owned()],
        None => places(),
    };
    let must_be_there = configured.is_some();
    let server = if registry == "docker.io" {
        DOCKER_HUB.to_owned()
    } else {
        registry.to_owned()
    };
    let found = tokio::task::spawn_blocking(move || find(&paths, &server, must_be_there));
    match tokio::time::timeout(HELPER_TIMEOUT, found).await {
        Ok(Ok(found)) => found,
        Ok(Err(lost)) => Err(RegistryError::Credentials(lost.to_string())),
        Err(_elapsed) => Err(RegistryError::Credentials(format!(
            "a credential helper took more than {} s",
            HELPER_TIMEOUT.as_secs()
        ))),
    }
}

fn find(
    paths: &[PathBuf],
    server: &str,
    must_be_there: bool,
) -> Result<Option<DockerCredential>, RegistryError> {
    for path in paths {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(_) if !must_be_there => continue,
            Err(error) => {
                let text = format!("{}: {error} (registries.credentials)", path.display());
                return Err(RegistryError::Credentials(text));
            }
        };
        match docker_credential::get_credential_from_reader(file, server) {
            Ok(credential) => return Ok(Some(credential)),
            Err(CredentialRetrievalError::NoCredentialConfigured) => {}
            Err(error) => {
                // What a helper printed may be the secret itself.
                let text = match &error {
                    CredentialRetrievalError::HelperFailure { helper, .. } => {
                        format!("{helper} failed for {server}")
                    }
                    other => other.to_string(),
                };
                return Err(RegistryError::Credentials(format!(
                    "{}: {text}",
                    path.display()
                )));
            }
        }
    }
    Ok(None)
}

/// Where podman and docker look, in that order.
fn places() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let below = |folder: Option<PathBuf>, path: &str| folder.map(|folder| folder.join(path));
    [
        variable("REGISTRY_AUTH_FILE"),
        below(variable("XDG_RUNTIME_DIR"), "containers/auth.json"),
        below(variable("HOME"), ".config/containers/auth.json"),
        below(variable("DOCKER_CONFIG"), "config.json"),
        below(variable("HOME"), ".docker/config.json"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_there_for_the_registry_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        // user:secret
        std::fs::write(
            &path,
            r#"{"auths": {"registry.example.com": {"auth": "dXNlcjpzZWNyZXQ="}}}"#,
        )
        .unwrap();
        let find = |server| find(std::slice::from_ref(&path), server, true).unwrap();
        let expected = DockerCredential::UsernamePassword("user".to_owned(), "secret".to_owned());
        assert_eq!(find("registry.example.com"), Some(expected));
        assert_eq!(find("other.example.com"), None);
    }

    #[test]
    fn a_file_that_is_configured_has_to_be_there() {
        let paths = [PathBuf::from("/nonexistent/config.json")];
        assert_eq!(find(&paths, "registry.example.com", false).unwrap(), None);
        let error = find(&paths, "registry.example.com", true)
            .unwrap_err()
            .to_string();
        assert!(error.contains("/nonexistent/config.json"), "{error}");
    }
}
