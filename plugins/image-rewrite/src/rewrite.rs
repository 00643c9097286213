//! The rules: the choice of the rule for an image, and the check that rewriting ends.
//!
//! The rule with the longest match applies, and its result is rewritten again until no rule matches. So the rules never
//! rewrite their own output, and the mutation is idempotent. Settings with a cycle are rejected.

use tollgate_sdk::image::{ImagePrefix, ImageReference};
use tollgate_sdk::prelude::*;

/// A rule, as in the settings.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rewrite {
    from: String,
    to: String,
}

/// The parsed and checked rules.
pub(crate) struct Rewrites(Vec<Step>);

struct Step {
    from: ImagePrefix,
    to: ImagePrefix,
}

// === impl Rewrites ===

impl Rewrites {
    pub(crate) fn read(rules: &[Rewrite]) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        let mut steps: Vec<Step> = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let mut prefix = |member: &str, text: &str| match text.parse::<ImagePrefix>() {
                Ok(prefix) => Some(prefix),
                Err(error) => {
                    errors.at(
                        pointer!["rewrite", index, member],
                        format!("is no image prefix: {error}"),
                    );
                    None
                }
            };
            let (from, to) = (prefix("from", &rule.from), prefix("to", &rule.to));
            if let (Some(from), Some(to)) = (from, to) {
                if steps.iter().any(|step| step.from == from) {
                    errors.at(
                        pointer!["rewrite", index, "from"],
                        "another rule has the same prefix",
                    );
                }
                steps.push(Step { from, to });
            }
        }
        let rewrites = errors.or(Self(steps))?;
        rewrites.check_end()?;
        Ok(rewrites)
    }

    /// Whether a rule is for the registry of an image reference. If none is, no rule changes it.
    pub(crate) fn may_apply(&self, image: &str) -> bool {
        self.0.iter().any(|step| step.from.may_match(image))
    }

    /// Returns the rewritten image. None if the rules do not change it.
    pub(crate) fn apply(&self, image: &ImageReference) -> Option<ImageReference> {
        let mut result = None;
        // No rule applies twice (see `check_end`), so this number of steps is enough.
        for _ in &self.0 {
            let image = result.as_ref().unwrap_or(image);
            let step = self
                .0
                .iter()
                .filter(|step| step.from.matches(image))
                .max_by_key(|step| step.from.length());
            match step
                .filter(|step| !step.is_identity())
                .and_then(|step| image.rebase(&step.from, &step.to))
            {
                Some(rewritten) => result = Some(rewritten),
                None => break,
            }
        }
        result
    }

    /// Rejects rules that may apply to their own result, directly or through other rules.
    fn check_end(&self) -> Result<(), SettingsErrors> {
        let mut errors = SettingsErrors::new();
        for index in 0..self.0.len() {
            let mut reached = vec![false; self.0.len()];
            let mut open = self.followers(index);
            while let Some(next) = open.pop() {
                if !std::mem::replace(&mut reached[next], true) {
                    open.extend(self.followers(next));
                }
            }
            if reached[index] {
                errors.at(
                    pointer!["rewrite", index, "to"],
                    "the result may be rewritten by the same rule again, without end",
                );
            }
        }
        errors.or(())
    }

    /// Returns the rules that may apply to the result of a rule.
    fn followers(&self, index: usize) -> Vec<usize> {
        let Some(step) = self.0.get(index).filter(|step| !step.is_identity()) else {
            return Vec::new();
        };
        let (to, mut covering) = (&step.to, None::<usize>);
        let mut followers = Vec::new();
        for (other, next) in self.0.iter().enumerate() {
            if next.from.contains(to) {
                // Of the rules that cover the whole result, only the longest can apply.
                if covering.is_none_or(|best| self.0[best].from.length() < next.from.length()) {
                    covering = Some(other);
                }
            } else if to.contains(&next.from) {
                followers.push(other);
            }
        }
        followers.extend(covering);
        followers.retain(|&other| !self.0[other].is_identity());
        followers
    }
}

// === impl Step ===

impl Step {
    /// Whether `from` and `to` are equal. Such a rule excludes a part of another rule's images.
    fn is_identity(&self) -> bool {
        self.from == self.to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rules: &[(&str, &str)]) -> Result<Rewrites, SettingsErrors> {
        let rules: Vec<_> = rules
            .iter()
            .map(|(from, to)| Rewrite {
                from: (*from).to_owned(),
                to: (*to).to_owned(),
            })
            .collect();
        Rewrites::read(&rules)
    }

    fn apply(rules: &[(&str, &str)], image: &str) -> Option<String> {
        read(rules)
            .unwrap()
            .apply(&image.parse().unwrap())
            .map(|image| image.to_string())
    }

    #[test]
    fn the_longest_match_wins_in_any_order() {
        let rules = [
            ("docker.io", "mirror.example.com/hub"),
            ("docker.io/library", "mirror.example.com/official"),
        ];
        for rules in [rules, [rules[1], rules[0]]] {
            assert_eq!(
                apply(&rules, "nginx:1").as_deref(),
                Some("mirror.example.com/official/nginx:1")
            );
            assert_eq!(
                apply(&rules, "acme/app").as_deref(),
                Some("mirror.example.com/hub/acme/app")
            );
            assert_eq!(apply(&rules, "ghcr.io/acme/app"), None);
        }
    }

    #[test]
    fn a_result_is_rewritten_until_no_rule_matches() {
        let rules = [
            ("k8s.gcr.io", "registry.k8s.io"),
            ("registry.k8s.io", "mirror.example.com/k8s"),
        ];
        assert_eq!(
            apply(&rules, "k8s.gcr.io/pause:3.9").as_deref(),
            Some("mirror.example.com/k8s/pause:3.9")
        );
    }

    #[test]
    fn a_rule_onto_itself_is_an_exemption() {
        let rules = [
            ("docker.io", "mirror.example.com"),
            ("docker.io/acme", "docker.io/acme/"),
        ];
        assert_eq!(apply(&rules, "acme/app"), None);
        assert!(apply(&rules, "nginx").is_some());
    }

    #[test]
    fn a_cache_within_the_same_registry_needs_an_exemption() {
        let cache = ("docker.io", "docker.io/cache");
        assert!(read(&[cache]).is_err());
        let rules = [cache, ("docker.io/cache", "docker.io/cache")];
        assert_eq!(
            apply(&rules, "nginx").as_deref(),
            Some("docker.io/cache/library/nginx")
        );
        assert_eq!(apply(&rules, "docker.io/cache/library/nginx"), None);
    }

    #[test]
    fn rules_that_go_round_in_circles_are_refused() {
        for rules in [
            &[("ghcr.io", "ghcr.io/a")] as &[_],
            &[("ghcr.io/a", "ghcr.io")],
            &[("ghcr.io", "quay.io"), ("quay.io", "ghcr.io")],
            &[
                ("ghcr.io", "quay.io/x"),
                ("quay.io", "gcr.io"),
                ("gcr.io/y", "ghcr.io/z"),
            ],
        ] {
            let errors = read(rules)
                .err()
                .unwrap_or_else(|| panic!("{rules:?} were accepted"));
            assert!(
                errors.to_string().starts_with("/rewrite/0/to: "),
                "{errors}"
            );
        }
    }

    #[test]
    fn bad_rules_are_refused_with_their_pointers() {
        let errors = read(&[
            ("nginx", "ghcr.io/a:1"),
            ("ghcr.io", "quay.io"),
            ("ghcr.io/", "gcr.io"),
        ])
        .err()
        .unwrap();
        let fields: Vec<_> = errors
            .iter()
            .map(|error| error.field.as_deref().unwrap())
            .collect();
        assert_eq!(
            fields,
            ["/rewrite/0/from", "/rewrite/0/to", "/rewrite/2/from"]
        );
    }
}
