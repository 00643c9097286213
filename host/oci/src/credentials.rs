//! The credentials for a registry, from the files of docker and podman. The files are read again for each pull.

mod lookup;

use std::path::{Path, PathBuf};

use docker_credential::{CredentialRetrievalError, DockerCredential};
use serde_json::json;
use tollgate_config::Reference;

use super::RegistryError;
use super::helper::Helpers;
use lookup::{ConfigFile, Entry};

/// The entry of a file for a repository.
#[derive(Debug, PartialEq)]
enum Found {
    Credential(DockerCredential),
    /// The name of the helper to ask.
    Helper(String),
}

/// The name of docker's own registry in docker's files.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";

/// The credential for a repository; `None` if there is none.
pub(super) async fn credential(
    configured: Option<&Path>,
    reference: &Reference,
    helpers: &Helpers,
) -> Result<Option<DockerCredential>, RegistryError> {
    let paths = match configured {
        Some(path) => vec![path.to_owned()],
        None => places(),
    };
    let must_be_there = configured.is_some();
    let server = match reference.registry.as_str() {
        "docker.io" => DOCKER_HUB,
        registry => registry,
    };
    for path in paths {
        let credential = match find(&path, reference, must_be_there).await? {
            Some(Found::Credential(credential)) => Some(credential),
            Some(Found::Helper(name)) => {
                let credential = helpers.ask(&name, server).await;
                credential.map_err(|why| failed(&path, &why))?
            }
            None => None,
        };
        if credential.is_some() {
            return Ok(credential);
        }
    }
    Ok(None)
}

/// Finds the entry of one file for a repository.
async fn find(
    path: &Path,
    reference: &Reference,
    must_be_there: bool,
) -> Result<Option<Found>, RegistryError> {
    let Reference {
        registry,
        repository,
        ..
    } = reference;
    let to_read = path.to_owned();
    let read = tokio::task::spawn_blocking(move || tollgate_config::file::read(&to_read)).await;
    let text = match read.unwrap_or_else(|lost| Err(std::io::Error::other(lost))) {
        Ok(text) => text,
        Err(_) if !must_be_there => return Ok(None),
        Err(error) => return Err(failed(path, &error.to_string())),
    };
    let file = ConfigFile::read(&text).map_err(|why| failed(path, &why))?;
    match file.entry(registry, repository) {
        Some(Entry::Helper(name)) => Ok(Some(Found::Helper(name.to_owned()))),
        Some(Entry::Kept(entry)) => {
            let alone = json!({"auths": {registry: entry}});
            let found = decode(&alone, registry).map_err(|why| failed(path, &why))?;
            Ok(found.map(Found::Credential))
        }
        None => Ok(None),
    }
}

fn failed(path: &Path, why: &str) -> RegistryError {
    RegistryError::Credentials(format!(
        "{}: {why} (registries.credentials)",
        path.display()
    ))
}

/// Decodes the credential in a config file that has one entry and no helpers. The library would wait for helpers
/// forever.
fn decode(file: &serde_json::Value, server: &str) -> Result<Option<DockerCredential>, String> {
    match docker_credential::get_credential_from_reader(file.to_string().as_bytes(), server) {
        Ok(credential) => Ok(Some(credential)),
        Err(CredentialRetrievalError::NoCredentialConfigured) => Ok(None),
        Err(other) => Err(other.to_string()),
    }
}

/// The files that podman and docker read, in this order.
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

    fn reference(text: &str) -> Reference {
        Reference::parse(text).unwrap()
    }

    #[tokio::test]
    async fn finds_entry_for_its_repository_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        // The `auth` values encode `user:secret`.
        let text = r#"{
            "auths": {
                "registry.example.com": {"auth": "dXNlcjpzZWNyZXQ="},
                "podman.example.com/team": {"auth": "dXNlcjpzZWNyZXQ="}
            },
            "credHelpers": {"cloud.example.com": "cloud"}
        }"#;
        std::fs::write(&path, text).unwrap();
        let find = async |text: &str| find(&path, &reference(text), true).await.unwrap();
        let user = DockerCredential::UsernamePassword("user".to_owned(), "secret".to_owned());
        let user = Some(Found::Credential(user));
        assert_eq!(find("registry.example.com/policies:1").await, user);
        assert_eq!(find("other.example.com/policies:1").await, None);
        assert_eq!(find("podman.example.com/team/policies:1").await, user);
        assert_eq!(find("podman.example.com/others/policies:1").await, None);
        let cloud = Some(Found::Helper("cloud".to_owned()));
        assert_eq!(find("cloud.example.com/policies:1").await, cloud);
    }

    #[tokio::test]
    async fn configured_credentials_file_must_exist() {
        let path = Path::new("/nonexistent/config.json");
        let reference = reference("registry.example.com/policies:1");
        assert_eq!(find(path, &reference, false).await.unwrap(), None);
        let error = find(path, &reference, true).await.unwrap_err().to_string();
        assert!(error.contains("/nonexistent/config.json"), "{error}");
    }
}
