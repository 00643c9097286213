//! Admission policies have the same results in kube-apiserver and as plugins.
//!
//! A test installs all of its policies in kube-apiserver at once, and sends requests as dry runs. `tollgate review` gets the
//! AdmissionReviews of the same requests, with the plugin `cel-policy` and each policy as settings. Each policy is bound
//! to the namespaces of its case.

mod both;
mod case;
mod matching;
mod mutating;
mod templates;
mod validating;

use reqwest::Method;
use tollgate_tests::kubernetes::Start;

#[tokio::test(flavor = "multi_thread")]
async fn validating_policies_have_the_results_of_plugins() {
    let Some(cluster) = Start::default().start() else {
        return;
    };
    matching::define(&cluster);
    let mut cases = validating::cases();
    cases.extend(matching::cases());
    let counts = both::compare(&cluster, &cases).await;
    println!("{counts:?}");
    let denied = counts.denied;
    assert!(denied > 80, "{denied} denied: expected more than 80");
}

#[tokio::test(flavor = "multi_thread")]
async fn mutating_policies_have_the_results_of_plugins() {
    let Some(cluster) = Start::default().start() else {
        return;
    };
    let path = format!("/apis/{}/mutatingadmissionpolicies", case::VERSION);
    let (status, _) = cluster.request(Method::GET, &path, None).await;
    if status != 200 {
        eprintln!("this kube-apiserver does not serve MutatingAdmissionPolicies");
        return;
    }
    matching::define(&cluster);
    let counts = both::compare(&cluster, &mutating::cases()).await;
    println!("{counts:?}");
    let denied = counts.denied;
    assert!(denied > 10, "{denied} denied: expected more than 10");
    assert!(counts.requests > 60, "{counts:?}");
}
