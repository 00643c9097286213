//! Writes policy reports to the cluster: applies those that differ, and deletes those that nobody desires any more.

use std::collections::BTreeSet;

use kube::Client;
use kube::core::Request;
use kube::core::params::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::Value;

use crate::api::is_not_found;
use crate::inventory::{InventoryError, Served};

/// The changes in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Reports that were created or changed.
    pub applied: usize,
    /// Reports that were deleted.
    pub deleted: usize,
    /// Reports that had not changed. The scan sent nothing for them.
    pub unchanged: usize,
    /// The reports that could not be written or deleted, with the reason.
    pub failed: Vec<String>,
    /// The names of the desired reports, with the `resourceVersion` that they have now.
    pub versions: Vec<(String, String)>,
}

/// The owner of the fields in server-side apply.
const MANAGER: &str = "tollgate-scan";
/// Number of reports in a page. A report can have some hundred KiB.
const PAGE: u32 = 20;

/// Makes the reports of a cluster as desired.
///
/// `resources` are the kinds of the reports, and `selector` selects the labels of the reports that this scan owns. A
/// report that has a desired value in every desired place is left alone.
///
/// # Errors
/// When the reports cannot be listed, as when their CustomResourceDefinitions are missing. A single report that cannot
/// be written is in [`Written::failed`].
pub async fn write_reports(
    client: &Client,
    resources: &[Served],
    selector: &str,
    desired: &[Value],
) -> Result<Written, InventoryError> {
    let mut written = Written::default();
    for resource in resources {
        let live = list(client, resource, None, selector).await?;
        let own = |report: &&Value| report["kind"] == resource.kind.as_str();
        let desired: Vec<&Value> = desired.iter().filter(own).collect();
        settle(client, resource, &live, &desired, &mut written).await;
    }
    Ok(written)
}

/// Makes the reports of one namespace, or the cluster-scoped ones, as desired, like [`write_reports`].
///
/// # Errors
/// When the reports cannot be listed. A single report that cannot be written is in [`Written::failed`].
pub async fn write_reports_in(
    client: &Client,
    resource: &Served,
    namespace: Option<&str>,
    selector: &str,
    desired: &[Value],
) -> Result<Written, InventoryError> {
    let mut written = Written::default();
    let live = list(client, resource, namespace, selector).await?;
    let desired: Vec<&Value> = desired.iter().collect();
    settle(client, resource, &live, &desired, &mut written).await;
    Ok(written)
}

/// Writes the reports that differ from the live ones, and deletes the live ones that are not desired.
async fn settle(
    client: &Client,
    resource: &Served,
    live: &[Value],
    desired: &[&Value],
    written: &mut Written,
) {
    let mut names = BTreeSet::new();
    for report in desired {
        names.insert(place(report));
        let same = live.iter().find(|live| place(live) == place(report));
        if let Some(live) = same.filter(|live| has_all(live, report)) {
            written.unchanged += 1;
            written.versions.extend(version(live));
            continue;
        }
        match apply(client, resource, report).await {
            Ok(live) => {
                written.applied += 1;
                written.versions.extend(version(&live));
            }
            Err(error) => written.failed.push(error.to_string()),
        }
    }
    for report in live.iter().filter(|report| !names.contains(&place(report))) {
        match delete(client, resource, report).await {
            Ok(()) => written.deleted += 1,
            Err(error) => written.failed.push(error.to_string()),
        }
    }
}

async fn list(
    client: &Client,
    resource: &Served,
    namespace: Option<&str>,
    selector: &str,
) -> Result<Vec<Value>, InventoryError> {
    let what = format!("list {resource}");
    let mut all = Vec::new();
    let mut params = ListParams::default().labels(selector).limit(PAGE);
    loop {
        let request = Request::new(resource.path(namespace)).list(&params);
        let request = request
            .map_err(kube::Error::BuildRequest)
            .map_err(|error| InventoryError::of(&what, &error))?;
        let page: Result<Value, _> = client.request(request).await;
        let mut page = page.map_err(|error| {
            if is_not_found(&error) {
                let why = format!(
                    "the cluster has no {}: install its CustomResourceDefinitions, or choose another --format",
                    resource.api_version()
                );
                let what = what.clone();
                return InventoryError::Failed { what, why };
            }
            InventoryError::of(&what, &error)
        })?;
        all.extend(items(&mut page).map_err(|why| {
            let what = what.clone();
            InventoryError::Failed { what, why }
        })?);
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => params = params.continue_token(token),
            _ => return Ok(all),
        }
    }
}

/// Takes the reports of a page. kube-apiserver may write an empty list as null. Without `items`, the answer is something
/// else, and no empty list.
fn items(page: &mut Value) -> Result<Vec<Value>, String> {
    match page.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => Ok(items),
        Some(Value::Null) => Ok(Vec::new()),
        _ => Err("the answer of kube-apiserver is not a list: it has no `items`".to_owned()),
    }
}

/// Writes a report, and returns it as kube-apiserver has it now.
async fn apply(
    client: &Client,
    resource: &Served,
    report: &Value,
) -> Result<Value, InventoryError> {
    let (namespace, name) = place(report);
    let what = format!("write the {} {}", resource.kind, full_name(report));
    let params = PatchParams::apply(MANAGER).force();
    let request =
        Request::new(resource.path(namespace)).patch(name, &params, &Patch::Apply(report));
    let request = request
        .map_err(kube::Error::BuildRequest)
        .map_err(|error| InventoryError::of(&what, &error))?;
    let answer = client.request(request).await;
    answer.map_err(|error| InventoryError::of(&what, &error))
}

async fn delete(client: &Client, resource: &Served, report: &Value) -> Result<(), InventoryError> {
    let (namespace, name) = place(report);
    let what = format!("delete the {} {}", resource.kind, full_name(report));
    let request = Request::new(resource.path(namespace)).delete(name, &DeleteParams::default());
    let request = request
        .map_err(kube::Error::BuildRequest)
        .map_err(|error| InventoryError::of(&what, &error))?;
    match client.request_text(request).await {
        // Somebody else was faster.
        Err(error) if is_not_found(&error) => Ok(()),
        answer => answer
            .map(drop)
            .map_err(|error| InventoryError::of(&what, &error)),
    }
}

/// Returns the namespace and the name of a report.
fn place(report: &Value) -> (Option<&str>, &str) {
    let metadata = &report["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    (metadata["namespace"].as_str(), name)
}

/// Returns the name and the `resourceVersion` of a live report.
fn version(live: &Value) -> Option<(String, String)> {
    let version = live["metadata"]["resourceVersion"].as_str()?;
    Some((place(live).1.to_owned(), version.to_owned()))
}

fn full_name(report: &Value) -> String {
    match place(report) {
        (Some(namespace), name) => format!("{namespace}/{name}"),
        (None, name) => name.to_owned(),
    }
}

/// Whether every desired value exists. Objects may have other members, too: kube-apiserver adds metadata.
fn has_all(live: &Value, desired: &Value) -> bool {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => desired.iter().all(|(name, desired)| {
            let live = live.get(name);
            live.is_some_and(|live| has_all(live, desired))
        }),
        (Value::Array(live), Value::Array(desired)) => {
            let mut pairs = live.iter().zip(desired);
            live.len() == desired.len() && pairs.all(|(live, desired)| has_all(live, desired))
        }
        (live, desired) => live == desired,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answer_without_items_is_no_empty_list() {
        for mut page in [json!({}), json!({"items": {}}), json!([]), Value::Null] {
            assert!(items(&mut page).is_err(), "{page}");
        }
        assert_eq!(items(&mut json!({"items": null})), Ok(Vec::new()));
        assert_eq!(items(&mut json!({"items": [1]})), Ok(vec![json!(1)]));
    }

    #[test]
    fn additional_metadata_is_no_change_and_another_result_is() {
        let desired = json!({
            "metadata": {"name": "r", "labels": {"a": "b"}},
            "summary": {"fail": 1},
            "results": [{"policy": "labels", "result": "fail"}],
        });
        let mut live = desired.clone();
        live["metadata"]["uid"] = json!("1");
        live["metadata"]["labels"]["c"] = json!("d");
        assert!(has_all(&live, &desired));
        live["results"][0]["result"] = json!("warn");
        assert!(!has_all(&live, &desired));
        live["results"] = json!([{"policy": "labels", "result": "fail"}, {"policy": "more"}]);
        assert!(!has_all(&live, &desired), "a longer list is a change");
        assert!(!has_all(&json!({}), &desired));
    }
}
