//! Who the host is to a registry: what docker and podman keep, read anew for every pull.

use std::io;
use std::path::{Path, PathBuf};

use docker_credential::{CredentialRetrievalError, DockerCredential};
use serde_json::Value;

use super::RegistryError;
use super::helper::Helpers;

/// What a file has for a registry.
#[derive(Debug, PartialEq)]
enum Found {
    Credential(DockerCredential),
    /// The name of a helper that is to be asked.
    Helper(String),
}

/// What docker calls its own registry in its files.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";

/// The credential for a registry; none where there is none.
pub(super) async fn credential(
    configured: Option<&Path>,
    registry: &str,
    helpers: &Helpers,
) -> Result<Option<DockerCredential>, RegistryError> {
    let paths = match configured {
        Some(path) => vec![path.to_owned()],
        None => places(),
    };
    let must_be_there = configured.is_some();
    let server = if registry == "docker.io" {
        DOCKER_HUB
    } else {
        registry
    };
    for path in paths {
        match find(&path, server, must_be_there).await? {
            Some(Found::Credential(credential)) => return Ok(Some(credential)),
            Some(Found::Helper(name)) => {
                let said = helpers.ask(&name, server).await;
                let said = said.map_err(|why| failed(&path, &why))?;
                if said.is_some() {
                    return Ok(said);
                }
            }
            None => {}
        }
    }
    Ok(None)
}

async fn find(
    path: &Path,
    server: &str,
    must_be_there: bool,
) -> Result<Option<Found>, RegistryError> {
    let text = match tokio::fs::read(path).await {
        Ok(text) => text,
        Err(_) if !must_be_there => return Ok(None),
        Err(error) => {
            let text = format!("{}: {error} (registries.credentials)", path.display());
            return Err(RegistryError::Credentials(text));
        }
    };
    let (text, helpers) = without_helpers(text);
    if let Some(name) = helpers.of(server) {
        return Ok(Some(Found::Helper(name)));
    }
    match docker_credential::get_credential_from_reader(io::Cursor::new(text), server) {
        Ok(credential) => Ok(Some(Found::Credential(credential))),
        Err(CredentialRetrievalError::NoCredentialConfigured) => {
            Ok(helpers.of_all.map(Found::Helper))
        }
        Err(error) => Err(failed(path, &error.to_string())),
    }
}

fn failed(path: &Path, why: &str) -> RegistryError {
    RegistryError::Credentials(format!("{}: {why}", path.display()))
}

/// Which helpers a file names.
#[derive(Default)]
struct Named {
    /// By registry.
    of_one: serde_json::Map<String, Value>,
    /// For those that the file has no credential of its own for.
    of_all: Option<String>,
}

// === impl Named ===

impl Named {
    fn of(&self, server: &str) -> Option<String> {
        Some(self.of_one.get(server)?.as_str()?.to_owned())
    }
}

/// The file without the helpers that it names: the library would run them, and wait for them for ever.
fn without_helpers(text: Vec<u8>) -> (Vec<u8>, Named) {
    let Ok(Value::Object(mut file)) = serde_json::from_slice(&text) else {
        return (text, Named::default());
    };
    let mut named = Named::default();
    if let Some(Value::Object(helpers)) = file.remove("credHelpers") {
        named.of_one = helpers;
    }
    if let Some(Value::String(name)) = file.remove("credsStore") {
        named.of_all = Some(name).filter(|name| !name.is_empty());
    }
    (Value::Object(file).to_string().into_bytes(), named)
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

    #[tokio::test]
    async fn finds_what_is_there_for_the_registry_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        // user:secret
        let text = r#"{
            "auths": {"registry.example.com": {"auth": "dXNlcjpzZWNyZXQ="}},
            "credHelpers": {"cloud.example.com": "cloud"}
        }"#;
        std::fs::write(&path, text).unwrap();
        let find = async |server| find(&path, server, true).await.unwrap();
        let expected = DockerCredential::UsernamePassword("user".to_owned(), "secret".to_owned());
        let expected = Some(Found::Credential(expected));
        assert_eq!(find("registry.example.com").await, expected);
        assert_eq!(find("other.example.com").await, None);
        let cloud = Some(Found::Helper("cloud".to_owned()));
        assert_eq!(find("cloud.example.com").await, cloud);

        std::fs::write(
            &path,
            text.replace("\"auths\"", "\"credsStore\": \"pass\", \"auths\""),
        )
        .unwrap();
        assert_eq!(find("registry.example.com").await, expected);
        assert_eq!(find("cloud.example.com").await, cloud);
        let store = Some(Found::Helper("pass".to_owned()));
        assert_eq!(find("other.example.com").await, store);
    }

    #[tokio::test]
    async fn a_file_that_is_configured_has_to_be_there() {
        let path = Path::new("/nonexistent/config.json");
        let find = async |must_be_there| find(path, "registry.example.com", must_be_there).await;
        assert_eq!(find(false).await.unwrap(), None);
        let error = find(true).await.unwrap_err().to_string();
        assert!(error.contains("/nonexistent/config.json"), "{error}");
    }
}
