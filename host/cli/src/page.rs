//! `tollgate page`

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use clap::Args;
use http::StatusCode;
use serde_json::Value;
use tollgate_server::{LocalPage, PageSource};

use super::admin::AdminClient;
use super::explain::replicas::{ServiceName, clients};
use super::kubectl::Live;
use super::terminal::{say, tell};

/// Show plugins, decisions, exceptions and costs of running replicas in a browser.
///
/// The page is served on this machine alone. It asks the replicas with your credentials, and changes nothing.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ShowPage {
    /// Loopback address to serve the page on. Port 0 takes a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    #[command(flatten)]
    admin: AdminClient,
    /// Service of an installation whose replicas are all shown, at the addresses of their pods: for a machine that reaches
    /// pods. `admin.authentication` must be configured, as `admin.enabled` of the chart does.
    #[arg(long, value_name = "NAMESPACE/NAME", conflicts_with = "url")]
    service: Option<ServiceName>,
    #[command(flatten)]
    live: Live,
}

const EXAMPLES: &str = "\
Examples:
  kubectl -n tollgate-system port-forward deployment/tollgate 8081 &
  tollgate page                                           one replica, through a forwarded port
  tollgate page --service tollgate-system/tollgate --token-file token
                                                          all replicas of an installation

Open the printed URL in a browser on this machine. Whoever has the URL sees what you may see, until the command ends.

Exit code: 2 when the page cannot be served.";

/// The replicas, asked with the user's credentials.
struct Fleet {
    service: Option<ServiceName>,
    live: Live,
    admin: AdminClient,
    /// The replicas that were found last, by name.
    known: Mutex<Arc<BTreeMap<String, AdminClient>>>,
}

// === impl ShowPage ===

impl ShowPage {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> anyhow::Result<ExitCode> {
        let page = LocalPage::bind(self.listen);
        let page = page.context("cannot serve the page (--listen)")?;
        let fleet = Fleet {
            service: self.service,
            live: self.live,
            admin: self.admin,
            known: Mutex::default(),
        };
        let names = fleet.find().await?;
        tell!(
            "tollgate: showing {} until Ctrl+C; whoever has this URL sees the same:",
            names.join(", ")
        );
        say!("{}", page.url());
        page.run(fleet).await;
        Ok(ExitCode::SUCCESS)
    }
}

// === impl Fleet ===

impl Fleet {
    /// Finds the replicas, and returns their names.
    async fn find(&self) -> anyhow::Result<Vec<String>> {
        let found: BTreeMap<_, _> = match &self.service {
            None => [(self.name().await?, self.admin.clone())].into(),
            Some(service) => self.look_up(service.clone()).await?,
        };
        let names = found.keys().cloned().collect();
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(found);
        Ok(names)
    }

    /// The name of the only replica.
    async fn name(&self) -> anyhow::Result<String> {
        let (status, body) = self.admin.get("/replica").await?;
        let url = self.admin.url();
        ensure!(
            status == StatusCode::OK,
            "{url} answered {status}: check that it is the admin listener of a server of this version (admin.listen)"
        );
        let answer: Value = serde_json::from_slice(&body)
            .with_context(|| format!("unexpected answer from {url}: expected JSON"))?;
        let name = answer["name"].as_str().filter(|name| !name.is_empty());
        Ok(name.unwrap_or("replica").to_owned())
    }

    /// Reads the addresses of the replicas with kubectl, which takes about a second.
    async fn look_up(&self, service: ServiceName) -> anyhow::Result<BTreeMap<String, AdminClient>> {
        let (live, admin) = (self.live.clone(), self.admin.clone());
        let reading = tokio::task::spawn_blocking(move || clients(&service, &live, &admin));
        let clients = reading.await.context("looking up the replicas failed")??;
        Ok(clients.into_iter().collect())
    }
}

impl PageSource for Fleet {
    async fn replicas(&self) -> Result<Vec<String>, String> {
        self.find().await.map_err(|error| format!("{error:#}"))
    }

    async fn get(&self, replica: &str, path: &str) -> Result<(StatusCode, Bytes), String> {
        let known = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(&known)
        };
        let client = known.get(replica).or_else(|| {
            // The only replica may have another name since it was restarted.
            self.service.is_none().then_some(&self.admin)
        });
        let client = client.ok_or_else(|| format!("there is no replica {replica} any more"))?;
        let answer = client.get(path).await;
        answer.map_err(|error| format!("{error:#}"))
    }
}
