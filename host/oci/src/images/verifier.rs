//! Answers questions about images, with registries and the policies of a plugin.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures_util::FutureExt as _;
use tollgate_admission::chain;
use tollgate_admission::images::{
    Answer, Failure, ImageVerifier, Login, NoPullSecrets, Pending, PullSecrets, Question, Secrets,
    logins,
};
use tollgate_config::{Images as Grant, Reference, Registries};

use super::access::{Access, Salt};
use super::cache::{Cache, Key, Lifetimes, Rules, Subject};
use super::looks::Looks;
use super::{ImageObserver, Judged, NoAnswer, Requests};
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
    pull_secrets: Arc<dyn PullSecrets>,
    /// None if there are no random bytes. Nothing is found out with logins then.
    salt: Option<Salt>,
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
    /// The logins of the Pod, in the order in which they are tried. The host's own credentials come after them.
    logins: Arc<[Login]>,
}

/// Why there is no answer when the credentials of Pods would be needed.
const NO_READER: &str =
    "this host reads no imagePullSecrets (images.pullSecretNamespaces needs cluster.enabled)";
/// Why there is no answer when the system has no random bytes.
const NO_SALT: &str = "the system gives no random bytes, which imagePullSecrets need";
/// Why there is no answer when the Secrets were not read in time.
const NO_SECRETS: &str = "kube-apiserver has not handed out the imagePullSecrets of the Pod";
/// Why there is no answer when too many questions wait.
const CROWDED: &str = "too many images wait for their registries";
/// Why there is no answer when a look has ended without one.
const NO_RESULT: &str = "the registry does not answer";

// === impl Images ===

impl Images {
    /// Creates the client. It asks nothing before a plugin does. `registries` has the CAs and credentials. `pull_secrets`
    /// reads the credentials of Pods. Without it, an image that needs them has no answer. `roots` are the trusted roots from
    /// TUF repositories.
    #[must_use]
    pub fn new(
        registries: Registries,
        roots: Arc<TrustedRoots>,
        observer: Arc<dyn ImageObserver>,
        pull_secrets: Option<Arc<dyn PullSecrets>>,
    ) -> Self {
        let none = || Arc::new(NoPullSecrets::because(NO_READER)) as Arc<dyn PullSecrets>;
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
            pull_secrets: pull_secrets.unwrap_or_else(none),
            salt: Salt::new(),
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
        let (images, asking) = (self.clone(), order.clone());
        let look =
            move || async move { images.look_up(&asking.image, &asking.logins, tag).await }.boxed();
        self.0.looks.at(tag, look)?.await;
        self.change(digest)
    }

    /// Asks the registry for the digest of a tag.
    async fn look_up(&self, image: &Reference, logins: &[Login], tag: Key) {
        let Some(_turn) = self.0.looks.turn(&image.registry).await else {
            return;
        };
        let found = self.0.registry.image_digest(image, logins).await;
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
            Err(why) => self.no_answer(tag, &why),
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
        let judged = registry.judge_image(&image, digest, &order.policy, &order.logins);
        let result = match judged.await {
            Ok(Judged::Met(signers)) => {
                self.change(|cache, now| cache.verified(key, signers, now));
                "verified"
            }
            Ok(Judged::Refused(failure)) => {
                let name = failure.name();
                self.change(|cache, now| cache.refused(key, failure, now));
                name
            }
            Err(why) => self.no_answer(key, &why),
        };
        self.0.observer.looked(result);
    }

    /// Remembers why there is no answer. A registry that refuses the login of a Pod has answered: what the login found before
    /// does not count any more.
    fn no_answer(&self, key: Key, why: &NoAnswer) -> &'static str {
        let reason = chain(&why.error);
        tracing::warn!(reason, "no answer of the registry about an image");
        let failure = Failure::unavailable(&reason);
        let result = failure.name();
        self.change(|cache, now| match why.refuses_login {
            true => cache.refused(key, failure, now),
            false => cache.away(key, &reason, now),
        });
        result
    }
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Images").finish_non_exhaustive()
    }
}

// === impl BoundImages ===

impl BoundImages {
    /// Returns what to ask, if the credentials of the Pod are known without waiting.
    fn known_order(&self, question: &Question) -> Option<Result<Order, Failure>> {
        let secrets = match &question.puller {
            Some(puller) => Some(self.images.0.pull_secrets.known(puller)?),
            None => None,
        };
        Some(self.order(question, secrets))
    }

    /// Returns what to ask, with the Secrets of the Pod if they count. The host has checked the question, so any other error is
    /// a defect of the host.
    fn order(&self, question: &Question, secrets: Option<Secrets>) -> Result<Order, Failure> {
        let image = Reference::of_image(&question.image)
            .map_err(|error| Failure::unavailable(&error.to_string()))?;
        let mut policies = self.policies.iter();
        let found = policies.find(|(readied, _)| *readied.policy().name == *question.policy);
        let (policy, digest) =
            found.ok_or_else(|| Failure::unavailable("the plugin has no such policy"))?;
        let secrets = secrets.transpose();
        let secrets = secrets.map_err(|error| Failure::unavailable(&error.to_string()))?;
        let secrets = secrets.as_deref().unwrap_or_default();
        let logins = logins(secrets, &image.registry, &image.repository);
        let access = match &self.images.0.salt {
            _ if logins.is_empty() => Access::OfHost,
            Some(salt) => salt.access(&logins),
            None => return Err(Failure::unavailable(NO_SALT)),
        };
        let rules = Rules {
            policy: *digest,
            root: policy.root_digest(self.images.0.registry.roots()),
        };
        Ok(Order {
            subject: Subject::new(&image, rules, access),
            image: Arc::new(image),
            policy: policy.clone(),
            lifetimes: self.lifetimes,
            logins: logins.into(),
        })
    }
}

impl ImageVerifier for BoundImages {
    fn known(&self, question: &Question) -> Option<Answer> {
        match self.known_order(question)? {
            Ok(order) => self.images.known(&order),
            Err(failure) => Some(Err(failure)),
        }
    }

    fn ask<'a>(&'a self, question: &'a Question) -> Pending<'a> {
        Box::pin(async move {
            let secrets = match &question.puller {
                Some(puller) => Some(self.images.0.pull_secrets.read(puller).await),
                None => None,
            };
            self.images.find_out(self.order(question, secrets)?).await
        })
    }

    fn last_known_good(&self, question: &Question, reason: &str) -> Answer {
        let known = self.known_order(question);
        let order = known.unwrap_or_else(|| Err(Failure::unavailable(NO_SECRETS)))?;
        self.images.fall_back(&order, reason)
    }
}

impl fmt::Debug for BoundImages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundImages").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
