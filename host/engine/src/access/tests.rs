use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tollgate_admission::access::Pending;

use super::*;

/// An authorizer that knows nothing without waiting, allows everything, and counts the questions.
#[derive(Debug, Default)]
struct Slow {
    asked: AtomicUsize,
    delay: Duration,
}

impl Authorizer for Slow {
    fn known(&self, _question: &Question) -> Option<Answer> {
        None
    }

    fn ask<'a>(&'a self, _question: &'a Question) -> Pending<'a> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {
            tokio::time::sleep(self.delay).await;
            Ok(Decision::new(true, "", None))
        })
    }
}

fn get(resource: &str, namespace: &str) -> Action {
    Action::Resource {
        verb: "get".to_owned(),
        group: String::new(),
        resource: resource.to_owned(),
        subresource: String::new(),
        namespace: namespace.to_owned(),
        name: String::new(),
    }
}

fn question(resource: &str) -> Question {
    Question {
        user: Arc::new(User::default()),
        action: get(resource, ""),
    }
}

fn asking(authorizer: Arc<dyn Authorizer>) -> Asking {
    Asking::new(&Grant::new(Access::default(), None), &authorizer)
}

fn in_a_second() -> Instant {
    Instant::now() + Duration::from_secs(1)
}

#[test]
fn service_accounts_need_a_grant_of_their_own() {
    let plain = Grant::new(Access::default(), None);
    assert_eq!(plain.refuses(&get("pods", ""), false), None);
    let refusal = plain.refuses(&get("pods", ""), true).unwrap_or_default();
    assert!(refusal.contains("serviceAccounts: true"), "{refusal}");
    let access = Access {
        service_accounts: true,
    };
    let granted = Grant::new(access, None);
    assert_eq!(granted.refuses(&get("pods", ""), true), None);
}

#[test]
fn plugin_of_a_namespace_asks_about_its_namespace_only() {
    let access = Access {
        service_accounts: true,
    };
    let grant = Grant::new(access, Some(Arc::from("shop")));
    assert_eq!(grant.refuses(&get("pods", "shop"), false), None);
    let path = Action::Path {
        verb: "get".to_owned(),
        path: "/metrics".to_owned(),
    };
    for (action, is_about_service_account) in [
        (get("pods", "blog"), false),
        (get("pods", ""), false),
        (get("pods", "shop"), true),
        (path, false),
    ] {
        let refusal = grant.refuses(&action, is_about_service_account);
        assert!(refusal.is_some(), "{action:?}");
    }
}

#[tokio::test]
async fn attempt_after_the_answer_gets_it() {
    let slow = Arc::new(Slow::default());
    let mut asking = asking(slow.clone());
    assert_eq!(asking.answer(question("pods")), None);
    let awaited = asking.awaited().expect("the question ended the attempt");
    assert_eq!(asking.awaited(), None);
    await_answer(Some(&mut asking), awaited, in_a_second())
        .await
        .expect("it is answered in time");
    let answer = asking.answer(question("pods")).expect("it is known now");
    assert!(answer.is_ok_and(|decision| decision.allowed));
    assert_eq!(slow.asked.load(Ordering::Relaxed), 1);
    assert_eq!(asking.answer(question("secrets")), None);
}

#[tokio::test]
async fn no_answer_before_the_deadline_is_a_fault() {
    let slow = Slow {
        delay: Duration::from_secs(60),
        ..Slow::default()
    };
    let mut asking = asking(Arc::new(slow));
    let deadline = Instant::now() + Duration::from_millis(20);
    let fault = await_answer(Some(&mut asking), Box::new(question("pods")), deadline).await;
    let fault = fault.expect_err("nobody answers");
    assert_eq!(fault.kind(), "access-unavailable");
}

#[tokio::test]
async fn questions_of_a_call_are_bounded() {
    let mut asking = asking(Arc::new(Slow::default()));
    for index in 0..MOST_AWAITED {
        let question = question(&index.to_string());
        assert_eq!(asking.answer(question), None);
        let awaited = asking.awaited().expect("it is awaited");
        await_answer(Some(&mut asking), awaited, in_a_second())
            .await
            .expect("it is answered in time");
    }
    let answer = asking.answer(question("one-more")).expect("nobody waits");
    let unavailable = answer.expect_err("it is not answered");
    assert!(unavailable.reason.contains("16 questions"), "{unavailable}");
}

#[test]
fn host_without_authorizer_never_allows() {
    let mut asking = asking(no_authorizer());
    let answer = asking.answer(question("pods")).expect("nobody waits");
    let unavailable = answer.expect_err("nobody answers");
    assert!(unavailable.reason.contains("this host has no authorizer"));
}
