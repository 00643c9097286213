//! Decisions as the host keeps them. Nearly all parts of plugins are plain, and take a fifth of the memory of a [`Called`].

use std::borrow::Cow;
use std::sync::Arc;

use super::{Called, Decision, Places, milliseconds};
use crate::pipeline::outcome::{Ended, Report};

/// A decision that is kept. Nothing of it is lost.
#[derive(Debug)]
pub struct KeptDecision {
    /// The decision without the parts of the plugins that were called.
    about: Decision,
    parts: Box<[Part]>,
}

/// The part of one plugin.
#[derive(Debug)]
enum Part {
    Plain(Plain),
    Other(Box<Called>),
}

/// The part of a plugin that gave a verdict and nothing more.
#[derive(Debug)]
struct Plain {
    name: Arc<str>,
    digest: Option<Arc<str>>,
    mode: Word,
    failure_policy: Word,
    ended: Word,
    rule: Option<u32>,
    reused: u32,
    fuel: u64,
    cpu_milliseconds: f64,
    milliseconds: f64,
}

/// One of [`WORDS`].
#[derive(Clone, Copy, Debug)]
struct Word(u8);

/// Modes, failure policies, and ways in which plain calls end.
const WORDS: [&str; 8] = [
    "enforce",
    "warn",
    "audit",
    "Fail",
    "Ignore",
    "allowed",
    "unchanged",
    "patched",
];

// === impl KeptDecision ===

impl KeptDecision {
    /// Packs a decision.
    #[must_use]
    pub(super) fn of(mut decision: Decision) -> Self {
        let parts = std::mem::take(&mut decision.plugins).into_iter();
        Self {
            about: decision,
            parts: parts.map(Part::of).collect(),
        }
    }

    /// Keeps a decision without parts, and the parts of the plugins that were called: their reports, with the indexes of the
    /// rules that matched.
    #[must_use]
    pub(crate) fn new<'r>(
        about: Decision,
        called: impl Iterator<Item = (&'r Report, Option<usize>)>,
    ) -> Self {
        Self {
            about,
            parts: called
                .map(|(report, rule)| Part::new(report, rule))
                .collect(),
        }
    }

    /// The decision without the parts of the plugins that were called.
    #[must_use]
    pub(super) fn about(&self) -> &Decision {
        &self.about
    }

    /// The names of the plugins that were called, in the order of the calls.
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.parts.iter().map(Part::name)
    }

    /// The parts of the plugins that were called, in the order of the calls.
    pub(super) fn parts(&self) -> impl Iterator<Item = Cow<'_, Called>> {
        self.parts.iter().map(Part::called)
    }

    /// Returns the decision as it was.
    #[must_use]
    pub fn whole(&self) -> Decision {
        Decision {
            plugins: self.parts().map(Cow::into_owned).collect(),
            ..self.about.clone()
        }
    }

    /// The memory that the decision takes, in bytes. This is an estimate.
    pub(super) fn bytes(&self) -> usize {
        let parts = self.parts.iter().map(Part::bytes);
        self.about.bytes() + parts.sum::<usize>()
    }
}

// === impl Part ===

impl Part {
    /// Nearly all reports are plain, and a [`Called`] takes a while to write and to pack.
    fn new(report: &Report, rule: Option<usize>) -> Self {
        match Plain::new(report, rule) {
            Some(plain) => Self::Plain(plain),
            None => Self::Other(Box::new(Called::of(report, rule))),
        }
    }

    fn of(called: Called) -> Self {
        match Plain::of(&called) {
            Some(plain) => Self::Plain(plain),
            None => Self::Other(Box::new(called)),
        }
    }

    fn name(&self) -> &Arc<str> {
        match self {
            Self::Plain(plain) => &plain.name,
            Self::Other(called) => &called.name,
        }
    }

    fn called(&self) -> Cow<'_, Called> {
        match self {
            Self::Plain(plain) => Cow::Owned(plain.called()),
            Self::Other(called) => Cow::Borrowed(called),
        }
    }

    fn bytes(&self) -> usize {
        let more = match self {
            Self::Plain(_) => 0,
            Self::Other(called) => called.bytes(),
        };
        size_of::<Self>() + more
    }
}

// === impl Plain ===

impl Plain {
    /// Returns `None` if there is more to keep.
    fn new(report: &Report, rule: Option<usize>) -> Option<Self> {
        let Report {
            plugin,
            mode,
            failure_policy,
            ended: ended @ (Ended::Allowed | Ended::Unchanged | Ended::Patched),
            warnings,
            annotations,
            changed,
            conflicts,
            existing: None,
            reinvoked: None,
            // It is about the final object, and no part of a decision.
            unsettled: _,
            cost,
            digest,
            rollout: None,
            template: None,
            members,
        } = report
        else {
            return None;
        };
        let has_more = !changed.is_empty()
            || !conflicts.is_empty()
            || !warnings.is_empty()
            || !annotations.is_empty()
            || !members.is_empty();
        if has_more {
            return None;
        }
        Some(Self {
            mode: Word::of(mode.as_str())?,
            failure_policy: Word::of(failure_policy.as_str())?,
            ended: Word::of(ended.as_str())?,
            rule: rule.map(u32::try_from).transpose().ok()?,
            reused: cost.reused,
            fuel: cost.fuel,
            cpu_milliseconds: milliseconds(cost.cpu_time),
            milliseconds: milliseconds(cost.duration),
            name: plugin.shared(),
            digest: digest.clone(),
        })
    }

    /// Returns `None` if there is more to keep.
    fn of(called: &Called) -> Option<Self> {
        let Called {
            name,
            digest,
            mode,
            failure_policy,
            rollout: None,
            pod_template: None,
            rule,
            ended,
            excepted: None,
            reinvoked: None,
            fault: None,
            denial: None,
            existing: None,
            changed,
            conflicts,
            warnings,
            annotations: 0,
            members,
            fuel,
            reused,
            cpu_milliseconds,
            milliseconds,
        } = called
        else {
            return None;
        };
        let has_more = !changed.is_empty()
            || !conflicts.is_empty()
            || !warnings.is_empty()
            || !members.is_empty();
        if has_more {
            return None;
        }
        Some(Self {
            mode: Word::of(mode)?,
            failure_policy: Word::of(failure_policy)?,
            ended: Word::of(ended)?,
            rule: rule.map(u32::try_from).transpose().ok()?,
            reused: *reused,
            fuel: *fuel,
            cpu_milliseconds: *cpu_milliseconds,
            milliseconds: *milliseconds,
            name: name.clone(),
            digest: digest.clone(),
        })
    }

    fn called(&self) -> Called {
        Called {
            name: self.name.clone(),
            digest: self.digest.clone(),
            mode: self.mode.text(),
            failure_policy: self.failure_policy.text(),
            rule: self.rule.map(|rule| rule as usize),
            ended: self.ended.text(),
            fuel: self.fuel,
            reused: self.reused,
            cpu_milliseconds: self.cpu_milliseconds,
            milliseconds: self.milliseconds,
            rollout: None,
            pod_template: None,
            excepted: None,
            reinvoked: None,
            fault: None,
            denial: None,
            existing: None,
            changed: Places::default(),
            conflicts: Vec::new(),
            warnings: Vec::new(),
            annotations: 0,
            members: Vec::new(),
        }
    }
}

// === impl Word ===

impl Word {
    fn of(text: &str) -> Option<Self> {
        let place = WORDS.iter().position(|word| *word == text)?;
        u8::try_from(place).ok().map(Self)
    }

    fn text(self) -> Cow<'static, str> {
        Cow::Borrowed(WORDS[usize::from(self.0)])
    }
}
