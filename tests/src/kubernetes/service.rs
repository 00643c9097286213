//! A Service with replicas behind it, and the routing of a cluster to them.
//!
//! kube-apiserver connects to a Service's cluster IP. kube-proxy picks a ready replica for each connection, and an open
//! connection keeps its replica. This module does the same at the cluster IP, which is a loopback address of this
//! machine. kube-apiserver can also route by EndpointSlices (`--enable-aggregator-routing`), but this is not covered.
//! EndpointSlices may not name loopback addresses, and a suite should not listen on any other.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::Cluster;

/// A Service. It ends when this is dropped.
pub struct Service {
    replicas: Arc<Replicas>,
    port: u16,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Replicas {
    ready: Mutex<Vec<SocketAddr>>,
    /// Notified to end the open connections.
    cut: Notify,
}

// === impl Service ===

impl Service {
    /// Creates a Service without replicas.
    ///
    /// # Panics
    /// Panics if kube-apiserver does not create it, or if the cluster IP cannot be listened on.
    pub async fn new(cluster: &Cluster, namespace: &str, name: &str) -> Self {
        let unbound = TcpListener::bind("127.0.0.1:0").await;
        let port = unbound.and_then(|listener| listener.local_addr());
        let port = port.expect("there is a free port").port();
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"ports": [{"name": "https", "port": port}]},
        });
        cluster
            .kubectl(&["create", "-f", "-"])
            .input(&service)
            .succeed();
        Self::adopt(cluster, namespace, name, port).await
    }

    /// Routes a Service that is there already, at one of its ports. Without replicas at first.
    ///
    /// # Panics
    /// Panics if the Service is not there, or if its address cannot be listened on.
    pub async fn adopt(cluster: &Cluster, namespace: &str, name: &str, port: u16) -> Self {
        let cluster_ip = cluster
            .kubectl(&[
                "get",
                "service",
                name,
                "-n",
                namespace,
                "-o",
                "jsonpath={.spec.clusterIP}",
            ])
            .succeed();
        let address = format!("{cluster_ip}:{port}");
        let listener = TcpListener::bind(&address)
            .await
            .unwrap_or_else(|error| panic!("{address} cannot be listened on: {error}"));
        let replicas = Arc::new(Replicas::default());
        let task = tokio::spawn(forward(listener, replicas.clone()));
        Self {
            replicas,
            port,
            task,
        }
    }

    /// The Service's port, which `tollgate manifests --service` needs.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Adds a replica that has become ready.
    pub fn add(&self, replica: SocketAddr) {
        self.replicas.lock().push(replica);
    }

    /// Removes a replica that is no longer ready. Its connections stay open.
    pub fn remove(&self, replica: SocketAddr) {
        self.replicas.lock().retain(|ready| *ready != replica);
    }

    /// Removes all replicas and ends their connections, although the replicas run.
    pub fn cut(&self) {
        self.replicas.lock().clear();
        self.replicas.cut.notify_one();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl Replicas ===

impl Replicas {
    fn lock(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the ready replicas in turn.
    fn next(&self) -> Option<SocketAddr> {
        let mut ready = self.lock();
        if !ready.is_empty() {
            ready.rotate_left(1);
        }
        ready.last().copied()
    }
}

async fn forward(listener: TcpListener, replicas: Arc<Replicas>) {
    // Connections end with the Service.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = replicas.cut.notified() => {
                connections.abort_all();
                continue;
            }
        };
        let Ok((mut client, _)) = accepted else {
            return;
        };
        while connections.try_join_next().is_some() {}
        // Without a replica, kube-proxy refuses a connection. This module accepts it and closes it at once.
        let Some(replica) = replicas.next() else {
            continue;
        };
        connections.spawn(async move {
            if let Ok(mut server) = TcpStream::connect(replica).await {
                // kube-proxy routes packets. Here, one side must not wait for the other's acknowledgement.
                drop((client.set_nodelay(true), server.set_nodelay(true)));
                // The two sides notice by themselves how the connection ends.
                drop(copy_bidirectional(&mut client, &mut server).await);
            }
        });
    }
}
