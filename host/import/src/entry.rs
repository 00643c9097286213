//! Entries of the configuration, and their text.

use serde::Serialize;
use serde_json::Value;
use tollgate_cel::policy::{Abilities, Policy, Settings};

/// An entry of `plugins`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The plugin's name.
    pub name: String,
    /// The plugin's source.
    pub source: String,
    /// The requests that the plugin is called for.
    #[serde(rename = "match")]
    pub matching: Matching,
    /// `Fail` or `Ignore`.
    pub failure_policy: &'static str,
    /// What the plugin may ask about the rights of users. None if the policy does not name `authorizer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// The objects of the cluster that the policy reads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lookups: Vec<Value>,
    /// The policy.
    pub settings: Value,
    /// The file and line of the policy, for notes.
    #[serde(skip)]
    pub place: (String, usize),
}

/// `access` of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    /// Whether the policy asks about service accounts.
    pub service_accounts: bool,
}

/// `match` of an entry.
#[derive(Clone, Debug, Serialize)]
pub struct Matching {
    /// The rules.
    pub rules: Vec<Rule>,
}

/// A rule of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// The operations.
    pub operations: Vec<String>,
    /// The API groups.
    pub api_groups: Vec<String>,
    /// The API versions.
    pub api_versions: Vec<String>,
    /// The resources.
    pub resources: Vec<String>,
    /// `Cluster`, `Namespaced` or `*`. None means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

#[derive(Serialize)]
struct Configuration<'a> {
    plugins: &'a [Entry],
}

/// The function of CEL that asks about a service account.
const SERVICE_ACCOUNT: &str = "serviceAccount(";
/// The longest name of a plugin.
const LONGEST_NAME: usize = 40;

/// Writes a configuration file, with texts of several lines as blocks.
///
/// # Errors
/// When a value cannot be written as YAML.
pub fn write(entries: &[Entry]) -> Result<String, serde_saphyr::ser::Error> {
    let configuration = Configuration { plugins: entries };
    let text = serde_saphyr::to_string(&configuration)?;
    let read: Option<Value> = serde_saphyr::from_str(&text).ok();
    if read == serde_json::to_value(&configuration).ok() {
        return Ok(text);
    }
    // A block cannot hold every text. Quotes can.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(&configuration, options)
}

/// Returns what a policy in CEL asks about the rights of users.
pub(crate) fn access_of(settings: &Value) -> Option<Access> {
    let read: Settings = serde_json::from_value(settings.clone()).ok()?;
    let abilities = Abilities {
        namespace: true,
        access: true,
    };
    let policy = Policy::new(read, abilities).ok()?;
    policy.asks_about_rights().then(|| Access {
        service_accounts: settings.to_string().contains(SERVICE_ACCOUNT),
    })
}

/// Makes the name of a plugin of another name, unlike all names that are taken.
pub(crate) fn plugin_name(name: &str, taken: &[Entry]) -> String {
    let mut label: String = name
        .chars()
        .map(|character| match character.to_ascii_lowercase() {
            character if character.is_ascii_alphanumeric() => character,
            _ => '-',
        })
        .take(LONGEST_NAME)
        .collect();
    label = label.trim_matches('-').to_owned();
    if label.is_empty() {
        label.push_str("policy");
    }
    let is_taken = |name: &str| taken.iter().any(|entry| entry.name == name);
    if !is_taken(&label) {
        return label;
    }
    let numbered = (2..).map(|number| {
        let suffix = format!("-{number}");
        let stem: String = label.chars().take(LONGEST_NAME - suffix.len()).collect();
        format!("{}{suffix}", stem.trim_end_matches('-'))
    });
    let mut free = numbered.filter(|name| !is_taken(name));
    free.next().unwrap_or(label)
}
