use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate_config::Reference;

use super::super::access::Access;
use super::super::cache::{Rules, Subject};
use super::*;

fn key(index: usize) -> Key {
    let image = Reference::of_image(&format!("a.example/app-{index}:1")).unwrap();
    let (policy, root) = ([0; 32], None);
    let subject = Subject::new(&image, Rules { policy, root }, Access::OfHost);
    subject.tag.unwrap()
}

#[tokio::test]
async fn equal_questions_share_a_look() {
    let (looks, count) = (Looks::new(), Arc::new(AtomicUsize::new(0)));
    let gate = Arc::new(Semaphore::new(0));
    let begin = || {
        let (count, gate) = (count.clone(), gate.clone());
        async move {
            count.fetch_add(1, Ordering::Relaxed);
            let _ = gate.acquire().await;
        }
        .boxed()
    };
    let waiting: Vec<Look> = (0..100).filter_map(|_| looks.at(key(0), begin)).collect();
    gate.close();
    futures_util::future::join_all(waiting).await;
    assert_eq!(count.load(Ordering::Relaxed), 1);
    // The next question looks again.
    looks.at(key(0), begin).expect("it begins").await;
    assert_eq!(count.load(Ordering::Relaxed), 2);
    assert!(looks.under_way.lock().unwrap().is_empty());
}

#[tokio::test]
async fn look_goes_on_when_nobody_waits() {
    let (looks, (done, is_done)) = (Looks::new(), oneshot::channel());
    let look = looks.at(key(0), || {
        async move {
            tokio::task::yield_now().await;
            let _ = done.send(());
        }
        .boxed()
    });
    drop(look);
    is_done.await.expect("it was not aborted");
}

#[tokio::test]
async fn waiting_looks_are_bounded() {
    let looks = Looks::new();
    let forever = || std::future::pending::<()>().boxed();
    for index in 0..MOST_WAITING {
        assert!(looks.at(key(index), forever).is_some());
    }
    assert!(looks.at(key(MOST_WAITING), forever).is_none());
    assert!(looks.at(key(0), forever).is_some());
}

#[tokio::test]
async fn registry_that_hangs_stops_no_other() {
    let looks = Looks::new();
    let mut turns = Vec::new();
    for _ in 0..MOST_AT_A_REGISTRY {
        turns.push(looks.turn("slow.example").await);
    }
    let slow = looks.turn("slow.example").now_or_never();
    assert!(slow.is_none(), "it has to wait");
    assert!(looks.turn("fast.example").now_or_never().is_some());
    turns.pop();
    assert!(looks.turn("slow.example").now_or_never().is_some());
}
