//! Decides which changes of the effect of plugins are logged. Plugins of the configuration file have no status. Does
//! no IO.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::effect::Effect;

/// The last words about each plugin.
#[derive(Debug, Default)]
pub(super) struct Notes(BTreeMap<String, Note>);

#[derive(Debug)]
struct Note {
    status: &'static str,
    reason: String,
    since: Instant,
    /// The status that the log has.
    logged: Option<&'static str>,
}

/// Words that right themselves within this time are not logged.
const SETTLED: Duration = Duration::from_secs(5);

// === impl Notes ===

impl Notes {
    /// Takes note of the words about the plugins, and returns those to log: that a plugin is not effective, and that
    /// this is over.
    pub(super) fn news(
        &mut self,
        effects: BTreeMap<String, Effect>,
        now: Instant,
    ) -> Vec<(String, Effect)> {
        self.0.retain(|name, _| effects.contains_key(name));
        let mut news = Vec::new();
        for (name, effect) in effects {
            let fresh = || Note {
                status: effect.status,
                reason: effect.reason.clone(),
                since: now,
                logged: None,
            };
            let note = self.0.entry(name.clone()).or_insert_with(fresh);
            if (note.status, &note.reason) != (effect.status, &effect.reason) {
                *note = Note {
                    logged: note.logged,
                    ..fresh()
                };
            }
            let is_settled = now.duration_since(note.since) >= SETTLED;
            let is_news = match effect.status {
                "False" => note.logged != Some("False"),
                "True" => note.logged == Some("False"),
                _ => false,
            };
            if is_settled && is_news {
                note.logged = Some(effect.status);
                news.push((name, effect));
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(status: &'static str, reason: &str) -> BTreeMap<String, Effect> {
        let effect = Effect {
            status,
            reason: reason.to_owned(),
            message: "words".to_owned(),
        };
        BTreeMap::from([("guard".to_owned(), effect)])
    }

    #[test]
    fn only_lasting_changes_are_logged() {
        let begin = Instant::now();
        let mut notes = Notes::default();
        let mut look = |status, reason, seconds| {
            let news = notes.news(effect(status, reason), begin + Duration::from_secs(seconds));
            news.len()
        };
        // The first success is no news, and neither is a moment of failure.
        assert_eq!(look("True", "Effective", 0), 0);
        assert_eq!(look("True", "Effective", 10), 0);
        assert_eq!(look("False", "Unreachable", 11), 0);
        assert_eq!(look("True", "Effective", 13), 0);
        assert_eq!(look("True", "Effective", 20), 0);
        // A lasting one is, once, and so is its end.
        assert_eq!(look("False", "Unreachable", 21), 0);
        assert_eq!(look("False", "Unreachable", 26), 1);
        assert_eq!(look("False", "Unreachable", 60), 0);
        assert_eq!(look("Unknown", "RequestFailed", 70), 0);
        assert_eq!(look("True", "Effective", 80), 0);
        assert_eq!(look("True", "Effective", 85), 1);
        assert_eq!(look("True", "Effective", 99), 0);
    }
}
