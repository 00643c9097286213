use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn tenants(budget: TenantBudget) -> Arc<Tenants> {
    Arc::new(Tenants::new(budget))
}

fn budget() -> TenantBudget {
    TenantBudget {
        calls: 4,
        fuel: 1_000_000,
        fuel_per_namespace: 100_000,
        cpu_time: 500 * SECOND,
        cpu_time_per_namespace: 100 * SECOND,
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(50)
}

async fn admit(tenants: &Arc<Tenants>, namespace: &str) -> Result<Admitted, Exhausted> {
    tenants.admit(&Arc::from(namespace), SECOND, soon()).await
}

fn refusal(admitted: Result<Admitted, Exhausted>) -> Option<Exhausted> {
    admitted.err()
}

#[tokio::test]
async fn debt_of_a_namespace_stops_only_its_own_calls() {
    let tenants = tenants(budget());
    let mut hog = admit(&tenants, "hog").await.expect("it has budget");
    hog.charge(900_000, Duration::ZERO);
    drop(hog);
    let refused = refusal(admit(&tenants, "hog").await);
    assert_eq!(refused, Some(Exhausted::BudgetOfNamespace));
    assert_eq!(refusal(admit(&tenants, "other").await), None);
}

#[tokio::test]
async fn all_namespaces_share_one_budget() {
    let tenants = tenants(budget());
    for namespace in ["a", "b"] {
        let mut call = admit(&tenants, namespace).await.expect("it has budget");
        call.charge(700_000, Duration::ZERO);
    }
    let refused = refusal(admit(&tenants, "c").await);
    assert_eq!(refused, Some(Exhausted::BudgetOfAll));
}

#[tokio::test]
async fn call_waits_for_a_debt_that_is_paid_before_its_deadline() {
    let tenants = tenants(budget());
    let mut call = admit(&tenants, "a").await.expect("it has budget");
    call.charge(102_000, Duration::ZERO);
    drop(call);
    // 2,000 of 100,000 per second take 20 ms.
    assert_eq!(refusal(admit(&tenants, "a").await), None);
}

#[tokio::test]
async fn namespace_gets_half_of_the_places() {
    let tenants = tenants(budget());
    let mut calls = Vec::new();
    for _ in 0..2 {
        calls.push(admit(&tenants, "hog").await.expect("there is a place"));
    }
    let refused = refusal(admit(&tenants, "hog").await);
    assert_eq!(refused, Some(Exhausted::PlacesOfNamespace));
    for namespace in ["b", "c"] {
        calls.push(admit(&tenants, namespace).await.expect("there is a place"));
    }
    assert_eq!(
        refusal(admit(&tenants, "d").await),
        Some(Exhausted::PlacesOfAll)
    );
    drop(calls);
    assert_eq!(refusal(admit(&tenants, "d").await), None);
}

#[tokio::test]
async fn call_that_is_dropped_pays_for_its_time() {
    let tenants = tenants(TenantBudget {
        cpu_time_per_namespace: Duration::from_millis(1),
        ..budget()
    });
    let call = admit(&tenants, "a").await.expect("it has budget");
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(call);
    let refused = refusal(admit(&tenants, "a").await);
    assert_eq!(refused, Some(Exhausted::BudgetOfNamespace));
}

#[tokio::test]
async fn namespaces_without_debt_are_forgotten() {
    let tenants = tenants(budget());
    let mut debtor = admit(&tenants, "debtor").await.expect("it has budget");
    debtor.charge(10_000_000, Duration::ZERO);
    drop(debtor);
    // The debt of all is paid with the next line, so that the others may call.
    *tenants.all.bucket() = Bucket::new(u64::MAX, SECOND, Instant::now());
    for index in 0..2 * MANY_NAMESPACES {
        let mut call = admit(&tenants, &format!("n-{index}"))
            .await
            .expect("it has budget");
        call.charge(0, Duration::ZERO);
    }
    let known = tenants.namespaces.lock().unwrap();
    assert!(known.len() <= MANY_NAMESPACES + 1, "{}", known.len());
    assert!(known.contains_key("debtor"));
}
