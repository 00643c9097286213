//! Answers questions about images, with registries and the policies of a plugin.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures_util::FutureExt as _;
use tollgate_admission::chain;
use tollgate_admission::images::{Answer, Failure, ImageVerifier, Pending, Question};
use tollgate_config::{Images as Grant, Reference, Registries};

use super::cache::{Cache, Key, Lifetimes, Subject};
use super::looks::Looks;
use super::{ImageObserver, Judged, Requests};
use crate::signature::Readied;
use crate::{Registry, RegistryError, TrustedRoots};

/// The images of a host: a client for registries, and the answers so far.
#[derive(Clone)]
pub struct Images(Arc<Inner>);

struct Inner {
    registry: Registry,
    cache: Mutex<Cache>,
    looks: Looks,
    observer: Arc<dyn ImageObserver>,
}

/// The images that a plugin may have verified, with the keys of its policies.
pub struct BoundImages {
    images: Images,
    policies: Vec<(Arc<Readied>, [u8; 32])>,
    lifetimes: Lifetimes,
}

/// A question, ready to be asked.
#[derive(Clone)]
struct Order {
    image: Arc<Reference>,
    policy: Arc<Readied>,
    subject: Subject,
    lifetimes: Lifetimes,
}

/// Why there is no answer when too many questions wait.
const CROWDED: &str = "too many images wait for their registries";
/// Why there is no answer when a look has ended without one.
const NO_RESULT: &str = "the registry does not answer";

// === impl Images ===

impl Images {
    /// Creates the client. It asks nothing before a plugin does. `registries` has the CAs and credentials.
    #[must_use]
    /// `roots` are the trusted roots from TUF repositories.
    pub fn new(
        registries: Registries,
        roots: Arc<TrustedRoots>,
        observer: Arc<dyn ImageObserver>,
    ) -> Self {
        let requests = Arc::new(Requests(observer.clone()));
        let registry = Registry::new(registries)
            .without_cache()
            .with_roots(roots)
            .with_progress(Some(requests));
        Self(Arc::new(Inner {
            registry,
            cache: Mutex::new(Cache::new()),
            looks: Looks::new(),
            observer,
        }))
    }

    /// Reads the keys and trusted roots of a plugin's policies.
    ///
    /// # Errors
    /// When a file cannot be used.
    pub fn of(&self, grant: &Grant) -> Result<BoundImages, RegistryError> {
        let policies = grant.policies.iter().map(|policy| {
            let readied = Arc::new(Readied::read(policy, self.0.registry.roots())?);
            let digest = readied.digest();
            Ok((readied, digest))
        });
        Ok(BoundImages {
            images: self.clone(),
            policies: policies.collect::<Result<_, RegistryError>>()?,
            lifetimes: Lifetimes {
                verified: grant.verified_for,
                refused: grant.refused_for,
                resolved: grant.resolved_for,
                last_known_good: grant.last_known_good_for,
            },
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Cache, Instant) -> T) -> T {
        let mut cache = self.0.cache.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut cache, Instant::now())
    }

    fn known(&self, order: &Order) -> Option<Answer> {
        let answer =
            self.change(|cache, now| cache.answer(&order.subject, order.lifetimes, now))?;
        self.note(&answer);
        Some(answer)
    }

    fn fall_back(&self, order: &Order, reason: &str) -> Answer {
        let answer = self.change(|cache, now| {
            let known = cache.answer(&order.subject, order.lifetimes, now);
            known.unwrap_or_else(|| {
                cache.last_known_good(&order.subject, order.lifetimes, reason, now)
            })
        });
        self.note(&answer);
        answer
    }

    fn note(&self, answer: &Answer) {
        if answer
            .as_ref()
            .is_ok_and(|verified| verified.last_known_good)
        {
            self.0.observer.fell_back();
        }
    }

    /// Finds the answer, and returns it.
    async fn find_out(&self, order: Order) -> Answer {
        if let Some(answer) = self.known(&order) {
            return answer;
        }
        let digest = match self.resolve(&order).await {
            Some(digest) => digest,
            // The cache says why: the tag is missing, or its registry is away.
            None => return self.fall_back(&order, NO_RESULT),
        };
        let key = order.subject.of_digest(&digest);
        let (images, judging) = (self.clone(), order.clone());
        let judge = move || async move { images.judge(&judging, &digest, key).await }.boxed();
        match self.0.looks.at(key, judge) {
            Some(look) => look.await,
            None => return self.fall_back(&order, CROWDED),
        }
        self.fall_back(&order, NO_RESULT)
    }

    /// Finds the digest of an image. None if it has none, or if its registry does not answer.
    async fn resolve(&self, order: &Order) -> Option<Arc<str>> {
        let digest = |cache: &mut Cache, now| cache.digest(&order.subject, order.lifetimes, now);
        let known = self.change(digest);
        let Some(tag) = order.subject.tag.filter(|_| known.is_none()) else {
            return known;
        };
        let (images, image) = (self.clone(), order.image.clone());
        let look = move || async move { images.look_up(&image, tag).await }.boxed();
        self.0.looks.at(tag, look)?.await;
        self.change(digest)
    }

    /// Asks the registry for the digest of a tag.
    async fn look_up(&self, image: &Reference, tag: Key) {
        let Some(_turn) = self.0.looks.turn(&image.registry).await else {
            return;
        };
        let found = self.0.registry.image_digest(image).await;
        let result = match found {
            Ok(Some(digest)) => {
                self.change(|cache, now| cache.resolved(tag, Arc::from(digest), now));
                "resolved"
            }
            Ok(None) => {
                let failure = Failure::not_found(&format!("{image}: the registry has no such tag"));
                self.change(|cache, now| cache.refused(tag, failure, now));
                "not-found"
            }
            Err(error) => self.no_answer(tag, &error),
        };
        self.0.observer.looked(result);
    }

    /// Asks the registry for the signatures of a digest, and judges them.
    async fn judge(&self, order: &Order, digest: &str, key: Key) {
        let is_judged = self.change(|cache, now| cache.is_judged(&key, order.lifetimes, now));
        if is_judged {
            return;
        }
        let Some(_turn) = self.0.looks.turn(&order.image.registry).await else {
            return;
        };
        let image = crate::by_digest(&order.image, digest);
        let registry = &self.0.registry;
        let result = match registry.judge_image(&image, digest, &order.policy).await {
            Ok(Judged::Met(signers)) => {
                self.change(|cache, now| cache.verified(key, signers, now));
                "verified"
            }
            Ok(Judged::Refused(failure)) => {
                let name = failure.name();
                self.change(|cache, now| cache.refused(key, failure, now));
                name
            }
            Err(error) => self.no_answer(key, &error),
        };
        self.0.observer.looked(result);
    }

    fn no_answer(&self, key: Key, error: &RegistryError) -> &'static str {
        let reason = chain(error);
        tracing::warn!(reason, "no answer of the registry about an image");
        self.change(|cache, now| cache.away(key, &reason, now));
        "unavailable"
    }
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Images").finish_non_exhaustive()
    }
}

// === impl BoundImages ===

impl BoundImages {
    /// Returns what to ask. The host has checked the question, so an error is a defect of the host.
    fn order(&self, question: &Question) -> Result<Order, Failure> {
        let image = Reference::of_image(&question.image)
            .map_err(|error| Failure::unavailable(&error.to_string()))?;
        let mut policies = self.policies.iter();
        let found = policies.find(|(readied, _)| *readied.policy().name == *question.policy);
        let (policy, digest) =
            found.ok_or_else(|| Failure::unavailable("the plugin has no such policy"))?;
        Ok(Order {
            subject: Subject::new(&image, *digest),
            image: Arc::new(image),
            policy: policy.clone(),
            lifetimes: self.lifetimes,
        })
    }
}

impl ImageVerifier for BoundImages {
    fn known(&self, question: &Question) -> Option<Answer> {
        match self.order(question) {
            Ok(order) => self.images.known(&order),
            Err(failure) => Some(Err(failure)),
        }
    }

    fn ask<'a>(&'a self, question: &'a Question) -> Pending<'a> {
        match self.order(question) {
            Ok(order) => Box::pin(async move { self.images.find_out(order).await }),
            Err(failure) => Box::pin(std::future::ready(Err(failure))),
        }
    }

    fn last_known_good(&self, question: &Question, reason: &str) -> Answer {
        let order = self.order(question)?;
        self.images.fall_back(&order, reason)
    }
}

impl fmt::Debug for BoundImages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundImages").finish_non_exhaustive()
    }
}
