//! Asks the kernel once for the calls that a thread makes one after the other.
//!
//! The kernel tells whether a thread had a page fault. That takes a tenth of the time of a small call. Without a fault in all
//! that time, none of the calls had one.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use super::{EndedCall, Shelf};
use crate::pages::Pages;

/// Number of calls after which a batch ends. The number is small for two reasons. The instances of these calls serve no other call
/// until then. And after a page fault, the host looks at the memories of all of them.
const MOST_CALLS: usize = 8;

thread_local! {
    /// `None` unless a future of [`together`] runs on this thread.
    static BATCH: RefCell<Option<Vec<EndedCall>>> = const { RefCell::new(None) };
}

/// Ends the batch of this thread when it is dropped.
struct Open;

/// Runs a future that calls plugins. The instances of these calls are kept together: after eight calls, whenever the future
/// pauses, and when it ends.
pub fn together<F: Future>(mut future: Pin<&mut F>) -> impl Future<Output = F::Output> {
    poll_fn(move |context| {
        let _open = Open::new();
        future.as_mut().poll(context)
    })
}

/// Adds a call to the batch of this thread. Returns it if there is no batch, or if the memory has to be looked at anyway.
pub(super) fn add(call: EndedCall) -> Option<EndedCall> {
    let is_full = BATCH.with_borrow_mut(|batch| match batch {
        Some(calls) if call.before.is_some() => {
            calls.push(call);
            Ok(calls.len() >= MOST_CALLS)
        }
        _ => Err(call),
    });
    match is_full {
        Ok(is_full) => {
            if is_full {
                end(Some(Vec::new()));
            }
            None
        }
        Err(call) => Some(call),
    }
}

/// Ends the batch if it has an instance of this shelf. Returns whether it had one.
pub(super) fn end_if_it_has_one_of(shelf: &Shelf) -> bool {
    let has_one = BATCH.with_borrow(|batch| {
        let mut calls = batch.iter().flatten();
        calls.any(|call| std::ptr::eq(Arc::as_ptr(&call.shelf), shelf))
    });
    if has_one {
        end(Some(Vec::new()));
    }
    has_one
}

/// Ends the batch of this thread, and begins the next one.
fn end(next: Option<Vec<EndedCall>>) {
    let calls = BATCH.replace(next).unwrap_or_default();
    let Some(first) = calls.first() else {
        return;
    };
    let pages = first.shelf.keeping.pages.as_ref();
    let now = pages.and_then(Pages::faults_now);
    for call in calls {
        call.end(now);
    }
}

// === impl Open ===

impl Open {
    /// Returns `None` if the thread has a batch: the outer future ends it.
    fn new() -> Option<Self> {
        BATCH.with_borrow_mut(|batch| {
            let is_new = batch.is_none();
            batch.get_or_insert_default();
            is_new.then_some(Self)
        })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        end(None);
    }
}
