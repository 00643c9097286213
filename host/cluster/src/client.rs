//! The connection to kube-apiserver, and the names that this replica has there.

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tollgate_config::{Cluster, is_label};

use crate::Installation;

/// The reason why this replica has no name in its cluster.
#[derive(Debug, thiserror::Error)]
#[error(
    "the name of this replica is not known: set cluster.replica, or POD_NAME to the name of the pod"
)]
pub struct NamelessError;

const LONGEST_NAME: usize = 63;

/// The reason why this replica cannot talk to kube-apiserver.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig file cannot be used: that of `KUBECONFIG`, or a user's own.
    #[error("cannot use the kubeconfig file: correct it, or set KUBECONFIG to another one")]
    Kubeconfig(#[source] kube::config::KubeconfigError),
    /// The pod has no service account.
    #[error("cannot find kube-apiserver: run in a pod with a service account, or set KUBECONFIG")]
    InCluster(#[source] kube::config::InClusterError),
    /// The client cannot be built.
    #[error("cannot set up the client of kube-apiserver")]
    Client(#[source] Box<kube::Error>),
}

// === impl Installation ===

impl Installation {
    /// Returns the names that the configuration gives. The namespace is that of the client by default. The replica's
    /// name is `POD_NAME` by default, and then the host's name.
    ///
    /// # Errors
    /// When the replica has no name.
    pub fn new(cluster: &Cluster, client: &Client) -> Result<Self, NamelessError> {
        let named = cluster.replica.clone();
        let named = named.or_else(|| std::env::var("POD_NAME").ok());
        let named = named.or_else(host_name);
        let replica = named.filter(|name| is_label(name, LONGEST_NAME));
        let namespace = cluster.namespace.clone();
        Ok(Self {
            name: cluster.installation.clone(),
            namespace: namespace.unwrap_or_else(|| client.default_namespace().to_owned()),
            replica: replica.ok_or(NamelessError)?,
        })
    }
}

fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_lowercase())
}

/// Creates a client: of the file that `KUBECONFIG` names if it is set, and else of the pod's service account.
///
/// The client connects when it is first used. So kube-apiserver may be away meanwhile.
///
/// # Errors
/// When the file or the service account cannot be used.
pub async fn connect() -> Result<Client, ClientError> {
    let config = if std::env::var_os("KUBECONFIG").is_some() {
        let file = Kubeconfig::from_env().map_err(ClientError::Kubeconfig)?;
        of_file(file.unwrap_or_default(), &KubeConfigOptions::default()).await?
    } else {
        Config::incluster().map_err(ClientError::InCluster)?
    };
    Client::try_from(config).map_err(|error| ClientError::Client(Box::new(error)))
}

/// Creates a client with the rights of a user at a terminal, as kubectl does: of the files that `KUBECONFIG` names, or
/// else of `~/.kube/config`. Without either, it is the client of the pod's service account.
///
/// # Errors
/// When a file or the service account cannot be used, or the context does not exist.
pub async fn connect_as_user(context: Option<&str>) -> Result<Client, ClientError> {
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let is_absent = |error: &KubeconfigError| match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(error, _) => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    };
    let is_named = context.is_some() || std::env::var_os("KUBECONFIG").is_some();
    let config = match Kubeconfig::read() {
        Ok(file) => of_file(file, &options).await?,
        Err(error) if !is_named && is_absent(&error) => {
            Config::incluster().map_err(ClientError::InCluster)?
        }
        Err(error) => return Err(ClientError::Kubeconfig(error)),
    };
    Client::try_from(config).map_err(|error| ClientError::Client(Box::new(error)))
}

async fn of_file(file: Kubeconfig, options: &KubeConfigOptions) -> Result<Config, ClientError> {
    let names_proxy = file.clusters.iter().any(|named| {
        let cluster = named.cluster.as_ref();
        cluster.is_some_and(|cluster| cluster.proxy_url.is_some())
    });
    let mut config = Config::from_custom_kubeconfig(file, options)
        .await
        .map_err(ClientError::Kubeconfig)?;
    // HTTPS_PROXY is for registries. In a pod, the client does not use it either.
    if !names_proxy {
        config.proxy_url = None;
    }
    Ok(config)
}
