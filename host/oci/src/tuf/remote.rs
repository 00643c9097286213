//! Gets the files of a TUF repository, by the rules for registries: dialled addresses, time limits, size limits.

use std::sync::Arc;

use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode, Url};
use sigstore_tuf::{Error, Repository};
use tollgate_config::{Reference, Registries, RegistryHost, TufSource};

use crate::RegistryError;
use crate::causes::{ConnectionError, SetupError};
use crate::helper::Helpers;
use crate::session::{Host, Session};

/// The client for one refresh.
pub(super) struct Remote {
    host: Arc<Host>,
    config: Registries,
    helpers: Helpers,
    /// Names the host for which credentials are looked up.
    reference: Reference,
    metadata: Url,
    targets: Url,
    /// Whether the server may get the credentials of its host. Without TLS, everybody on the way would get them, too.
    has_credentials: bool,
}

/// The folder of the targets below the URL of a repository.
const TARGETS: &str = "targets/";

// === impl Remote ===

impl Remote {
    pub(super) fn new(config: &Registries, tuf: &TufSource) -> Result<Self, RegistryError> {
        let host = tuf.host();
        let known = config.host(host);
        let settings = RegistryHost {
            host: host.to_owned(),
            ca: known.and_then(|known| known.ca.clone()),
            plain_http: tuf.is_plain_http(),
        };
        let url = |error| RegistryError::Setup {
            host: host.to_owned(),
            source: SetupError::Url(error),
        };
        let metadata = Url::parse(&tuf.url).map_err(url)?;
        let may_be_plain = known.is_some_and(|known| known.plain_http);
        Ok(Self {
            host: Arc::new(Host::new(host, Some(&settings))?),
            config: config.clone(),
            helpers: Helpers::default(),
            reference: Reference {
                registry: host.to_owned(),
                repository: metadata.path().trim_matches('/').to_owned(),
                tag: None,
                digest: None,
            },
            targets: metadata.join(TARGETS).map_err(url)?,
            metadata,
            has_credentials: !tuf.is_plain_http() || may_be_plain,
        })
    }

    /// The file with this name, of at most so many bytes; None if the repository has no such file.
    async fn file(
        &self,
        base: &Url,
        name: &str,
        limit_bytes: u64,
    ) -> Result<Option<Vec<u8>>, RegistryError> {
        let url = base
            .join(name)
            .map_err(|error| RegistryError::Unreachable {
                host: self.reference.registry.clone(),
                source: ConnectionError::Url(error),
            })?;
        let (config, helpers) = (&self.config, &self.helpers);
        let session = Session::new(self.host.clone(), config, helpers, &self.reference, None);
        let mut session = match self.has_credentials {
            true => session,
            false => session.without_credentials(),
        };
        let asked = session.ask(Method::GET, url.as_str(), HeaderMap::new(), None);
        let response = match asked.await {
            Ok(response) => response,
            // Object stores answer 403 for a missing object.
            Err(RegistryError::Status {
                status: StatusCode::NOT_FOUND | StatusCode::FORBIDDEN,
                ..
            }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let too_large = || RegistryError::TooLarge {
            what: "a file of the TUF repository",
            limit_bytes,
            setting: "the size that its metadata declares, or a fixed limit of Tollgate",
        };
        session
            .body(response, limit_bytes, too_large)
            .await
            .map(Some)
    }
}

impl Repository for Remote {
    fn fetch_metadata<'a>(
        &'a self,
        name: &'a str,
        limit_bytes: u64,
    ) -> sigstore_tuf::transport::FetchFuture<'a> {
        Box::pin(async move {
            let got = self.file(&self.metadata, name, limit_bytes).await;
            got.map_err(|error| Error::transport_with_source(name, error))
        })
    }

    fn fetch_target<'a>(
        &'a self,
        path: &'a str,
        limit_bytes: u64,
    ) -> sigstore_tuf::transport::FetchFuture<'a> {
        Box::pin(async move {
            let got = self.file(&self.targets, path, limit_bytes).await;
            got.map_err(|error| Error::transport_with_source(path, error))
        })
    }
}
