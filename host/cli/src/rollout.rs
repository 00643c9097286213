//! `tollgate rollout`

mod answer;
mod resource;

use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use clap::{Args, Subcommand, ValueEnum};
use http::StatusCode;
use serde_json::{Value, json};
use tollgate_admission::RolloutChange;
use tollgate_config::{PluginConfig, PluginName};

use super::FAILURE;
use super::admin::AdminClient;
use super::explain::replicas::{ServiceName, clients};
use super::kubectl::Live;
use super::terminal::{BAD, FAINT, GOOD, NOTABLE, STRONG, plain, say, tell};

/// Show, promote or roll back the rollouts of a running server.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct RolloutArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show the rollouts: their steps, their observations, and the conditions that they wait for.
    Status {
        /// Plugin whose rollout to show. Without it, all rollouts are shown.
        plugin: Option<PluginName>,
        #[command(flatten)]
        servers: Servers,
        /// Output format.
        #[arg(short, long, value_enum, default_value = "text")]
        output: Output,
    },
    /// Begin the next step now. After a rollback, begin again with the first step.
    Promote {
        /// Plugin whose rollout to promote.
        plugin: PluginName,
        #[command(flatten)]
        servers: Servers,
    },
    /// Let the old version answer everything from now on. Needs no registry.
    Rollback {
        /// Plugin whose rollout to roll back.
        plugin: PluginName,
        #[command(flatten)]
        servers: Servers,
    },
}

/// The servers to ask.
#[derive(Args, Debug)]
struct Servers {
    #[command(flatten)]
    admin: AdminClient,
    /// Service of an installation whose replicas are all asked, at the addresses of its pods: for a machine that reaches
    /// pods. `admin.authentication` must be configured, as `admin.enabled` of the chart does.
    #[arg(long, value_name = "NAMESPACE/NAME", conflicts_with = "url")]
    service: Option<ServiceName>,
    /// Read and change the status of ClusterAdmissionPlugins with kubectl, in place of asking servers. A change is an
    /// annotation that the leader of the replicas obeys.
    #[arg(long, conflicts_with_all = ["url", "service"])]
    resource: bool,
    #[command(flatten)]
    live: Live,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// The answer of one server.
struct Answer {
    /// The replica's name; none without `--service`.
    replica: Option<String>,
    result: anyhow::Result<(StatusCode, Bytes)>,
}

const EXAMPLES: &str = "\
Examples:
  tollgate rollout status                                 every rollout of a server
  tollgate rollout rollback image-rewrite                 the old version answers everything from now on
  tollgate rollout promote image-rewrite                  the next step begins now
  tollgate rollout rollback image-rewrite --service tollgate-system/tollgate --token-file token
                                                          on all replicas
  tollgate rollout promote image-rewrite --resource       of a ClusterAdmissionPlugin, with kubectl

Exit code: 0 when all servers did what was asked, 1 when one of them refused, did not answer or has no rollout of the plugin, \
2 when none could be asked.";

// === impl RolloutArgs ===

impl RolloutArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::Status {
                plugin,
                servers,
                output,
            } => status(plugin.as_ref(), &servers, output),
            What::Promote { plugin, servers } => change(&plugin, RolloutChange::Promote, &servers),
            What::Rollback { plugin, servers } => {
                change(&plugin, RolloutChange::RollBack, &servers)
            }
        }
    }
}

/// Describes the rollout of an entry for `tollgate check`; empty without one.
pub(super) fn plan(config: &PluginConfig) -> String {
    let Some(plan) = config.active_rollout() else {
        return String::new();
    };
    let what = if plan.is_version {
        "a new version"
    } else {
        "the mode enforce"
    };
    let mut text = format!("\n  rollout of {what}, {}", plan.gates);
    for line in plan.lines() {
        text.push_str(&format!("\n    {line}"));
    }
    text.push_str(&format!(
        "\n    then it answers everything; a gate that fails: {}, a fault: rollback",
        plan.on_failure.as_str()
    ));
    text
}

fn status(
    plugin: Option<&PluginName>,
    servers: &Servers,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let (all, has_failed) = if servers.resource {
        let all = resource::all(&servers.live)?;
        (answer::selected(all, plugin)?, false)
    } else {
        servers.rollouts(plugin)?
    };
    if output == Output::Json {
        say!("{:#}", json!({ "rollouts": all }));
    } else {
        if all.is_empty() && !has_failed {
            say!("no rollout: a plugin has one if its entry has the key `rollout`");
        }
        for rollout in &all {
            show(rollout);
        }
    }
    Ok(exit_code(has_failed))
}

fn change(
    plugin: &PluginName,
    change: RolloutChange,
    servers: &Servers,
) -> anyhow::Result<ExitCode> {
    if servers.resource {
        let asked = resource::change(&servers.live, plugin, change)?;
        say!(
            "{plugin}: asked the leader of the replicas for {asked}: tollgate rollout status {plugin} --resource shows the effect"
        );
        return Ok(ExitCode::SUCCESS);
    }
    let path = format!("/rollouts/{plugin}/{}", change.name());
    let answers = servers.ask(|client| {
        let path = path.clone();
        async move { client.post(&path).await }
    })?;
    let mut has_failed = false;
    for answer in answers {
        match answer.changed(plugin, change) {
            Ok(rollout) => show(&rollout),
            Err(error) => {
                has_failed = true;
                tell!("tollgate: {}{plugin}: {error:#}", answer.prefix());
            }
        }
    }
    Ok(exit_code(has_failed))
}

fn exit_code(has_failed: bool) -> ExitCode {
    if has_failed {
        ExitCode::from(FAILURE)
    } else {
        ExitCode::SUCCESS
    }
}

/// Prints a rollout: its step, its observations and the last changes.
fn show(rollout: &Value) {
    let text = |name: &str| plain(rollout[name].as_str().unwrap_or_default());
    let phase = text("phase");
    let on = match rollout["replica"].as_str() {
        Some(replica) => format!(" on {}", plain(replica)),
        None => String::new(),
    };
    let style = match answer::is_good(&phase) {
        Some(true) => GOOD,
        Some(false) => BAD,
        None => NOTABLE,
    };
    say!(
        "{STRONG}{}{STRONG:#}{on}: {style}{phase}{style:#}",
        text("plugin")
    );
    for (what, side) in [("old", &rollout["old"]), ("new", &rollout["new"])] {
        if let Some(source) = side["source"].as_str() {
            let digest = side["digest"].as_str().unwrap_or_default();
            say!(
                "  {FAINT}{what}: {} {}{FAINT:#}",
                plain(source),
                plain(digest)
            );
        }
    }
    if !text("blocked").is_empty() {
        say!("  blocked: {}", text("blocked"));
    }
    if !text("fileProblem").is_empty() {
        say!("  {BAD}state{BAD:#}: {}", text("fileProblem"));
    }
    let current = rollout["step"].as_u64();
    let is_under_way = matches!(&*phase, "running" | "stopped");
    let steps = rollout["steps"].as_array().into_iter().flatten();
    for (number, step) in (1_u64..).zip(steps) {
        let mark = match current {
            Some(current) if number == current && is_under_way => ">",
            Some(current) if number < current || phase == "promoted" => "+",
            _ => " ",
        };
        say!(
            "  {mark} {number}. {}",
            plain(step.as_str().unwrap_or_default())
        );
    }
    let observed = &rollout["observed"];
    if observed.is_object() {
        say!(
            "  {} review(s) of the new version in this step, {} new denial(s), {} fault(s)",
            observed["reviews"],
            observed["newDenials"],
            observed["faults"]
        );
    }
    if !text("waits").is_empty() {
        say!("  {}", text("waits"));
    }
    for change in rollout["history"].as_array().into_iter().flatten() {
        let text = |name: &str| plain(change[name].as_str().unwrap_or_default());
        say!(
            "  {FAINT}{} {} (step {}) by {}: {}{FAINT:#}",
            text("time"),
            text("phase"),
            change["step"],
            text("by"),
            text("reason")
        );
    }
}

// === impl Servers ===

impl Servers {
    /// Returns the rollouts of all servers, or those of a plugin, and whether one of them did not answer or has none.
    fn rollouts(&self, plugin: Option<&PluginName>) -> anyhow::Result<(Vec<Value>, bool)> {
        let mut all = Vec::new();
        let (mut has_answered, mut has_failed) = (false, false);
        for answer in self.ask(|client| async move { client.get("/rollouts").await })? {
            let rollouts = answer.rollouts();
            has_answered |= rollouts.is_ok();
            match rollouts.and_then(|rollouts| answer::selected(rollouts, plugin)) {
                Ok(rollouts) => all.extend(rollouts),
                Err(error) => {
                    has_failed = true;
                    tell!("tollgate: {}{error:#}", answer.prefix());
                }
            }
        }
        ensure!(
            has_answered || !has_failed,
            "no server answered: see the reasons above"
        );
        Ok((all, has_failed))
    }

    /// Asks every server the same.
    fn ask<F>(&self, ask: impl Fn(AdminClient) -> F) -> anyhow::Result<Vec<Answer>>
    where
        F: Future<Output = anyhow::Result<(StatusCode, Bytes)>>,
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let Some(service) = &self.service else {
            let result = runtime.block_on(ask(self.admin.clone()))?;
            return Ok(vec![Answer {
                replica: None,
                result: Ok(result),
            }]);
        };
        let clients = clients(service, &self.live, &self.admin)?;
        let answers = clients.into_iter().map(|(replica, client)| Answer {
            replica: Some(replica),
            result: runtime.block_on(ask(client)),
        });
        Ok(answers.collect())
    }
}

// === impl Answer ===

impl Answer {
    fn prefix(&self) -> String {
        let replica = self.replica.as_deref();
        replica.map_or_else(String::new, |replica| {
            format!("replica {}: ", plain(replica))
        })
    }

    /// The body of an answer with the status 200.
    fn body(&self) -> anyhow::Result<Value> {
        let (status, body) = match &self.result {
            Ok(answer) => answer,
            Err(error) => bail!("{error:#}"),
        };
        if *status != StatusCode::OK {
            let text = String::from_utf8_lossy(body).into_owned();
            bail!("{}", plain(text.trim()));
        }
        serde_json::from_slice(body).context(answer::UNEXPECTED)
    }

    fn rollouts(&self) -> anyhow::Result<Vec<Value>> {
        let rollouts = answer::rollouts(self.body()?)?.into_iter();
        Ok(rollouts.map(|rollout| self.named(rollout)).collect())
    }

    fn changed(&self, plugin: &PluginName, change: RolloutChange) -> anyhow::Result<Value> {
        let rollout = self.body()?;
        answer::changed(&rollout, plugin, change)?;
        Ok(self.named(rollout))
    }

    fn named(&self, mut rollout: Value) -> Value {
        if let Some(replica) = &self.replica {
            rollout["replica"] = json!(replica);
        }
        rollout
    }
}
