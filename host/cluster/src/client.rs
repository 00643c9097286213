//! The connection to kube-apiserver, and the names that this replica has there.

use kube::config::{KubeConfigOptions, Kubeconfig};
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
    /// `KUBECONFIG` names a file that cannot be used.
    #[error("cannot use the file that KUBECONFIG names")]
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
        let file = file.unwrap_or_default();
        let names_proxy = file.clusters.iter().any(|named| {
            let cluster = named.cluster.as_ref();
            cluster.is_some_and(|cluster| cluster.proxy_url.is_some())
        });
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(file, &options)
            .await
            .map_err(ClientError::Kubeconfig)?;
        // HTTPS_PROXY is for registries. In a pod, the client does not use it either.
        if !names_proxy {
            config.proxy_url = None;
        }
        config
    } else {
        Config::incluster().map_err(ClientError::InCluster)?
    };
    Client::try_from(config).map_err(|error| ClientError::Client(Box::new(error)))
}
