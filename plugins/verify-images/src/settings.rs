//! The settings: which images need which policy.

use tollgate_sdk::image::{ImagePrefix, ImageReference};
use tollgate_sdk::prelude::*;

/// The settings as the configuration has them.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    pub(crate) rules: Vec<RuleSettings>,
    #[serde(default)]
    pub(crate) tags: Tags,
    #[serde(default)]
    pub(crate) unavailable: Unavailable,
    #[serde(default)]
    pub(crate) verify_unchanged: bool,
}

/// A rule, as in the settings.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleSettings {
    images: Vec<String>,
    policy: Option<String>,
    #[serde(default)]
    exempt: bool,
}

/// What happens with tags in Pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tags {
    /// The plugin adds the verified digest.
    #[default]
    Replace,
    /// An image without a digest is denied.
    Refuse,
    /// A verified tag is admitted. It can move before a node pulls it.
    Allow,
}

/// What happens with images whose registry does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unavailable {
    /// They are denied.
    #[default]
    Deny,
    /// They are admitted with a warning.
    Warn,
}

/// The parsed rules.
pub(crate) struct Rules(Vec<Rule>);

struct Rule {
    /// None covers every image.
    prefix: Option<ImagePrefix>,
    demand: Demand,
}

/// What a rule asks of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// It must meet the policy with this name.
    Policy(String),
    /// Nothing.
    Nothing,
}

/// The prefix of all images.
const EVERY: &str = "*";

// === impl Rules ===

impl Rules {
    pub(crate) fn read(settings: &[RuleSettings]) -> Result<Self, SettingsErrors> {
        let mut errors = SettingsErrors::new();
        let mut rules: Vec<Rule> = Vec::new();
        if settings.is_empty() {
            errors.at(
                "/rules",
                "must have a rule: without one, every image is denied",
            );
        }
        for (index, rule) in settings.iter().enumerate() {
            let demand = match (&rule.policy, rule.exempt) {
                (Some(policy), false) if !policy.is_empty() => Demand::Policy(policy.clone()),
                (None, true) => Demand::Nothing,
                _ => {
                    errors.at(
                        pointer!["rules", index],
                        "must have either the name of a policy, or exempt: true",
                    );
                    continue;
                }
            };
            if rule.images.is_empty() {
                errors.at(
                    pointer!["rules", index, "images"],
                    "must have an image prefix",
                );
            }
            for (place, text) in rule.images.iter().enumerate() {
                let at = pointer!["rules", index, "images", place];
                let prefix = match text.as_str() {
                    EVERY => None,
                    text => match text.parse::<ImagePrefix>() {
                        Ok(prefix) => Some(prefix),
                        Err(error) => {
                            errors.at(at, format!("is no image prefix, and not \"*\": {error}"));
                            continue;
                        }
                    },
                };
                if rules.iter().any(|rule| rule.prefix == prefix) {
                    errors.at(at, "is in the rules already");
                    continue;
                }
                rules.push(Rule {
                    prefix,
                    demand: demand.clone(),
                });
            }
        }
        errors.or(Self(rules))
    }

    /// Returns what the rule with the longest prefix asks of an image.
    ///
    /// # Errors
    /// When the text is no image, or when no rule covers it.
    pub(crate) fn demand(&self, image: &str) -> Result<&Demand, String> {
        let image: ImageReference = image
            .parse()
            .map_err(|error| format!("is no valid image: {error}"))?;
        let covers = |rule: &&Rule| {
            rule.prefix
                .as_ref()
                .is_none_or(|prefix| prefix.matches(&image))
        };
        let length = |rule: &&Rule| rule.prefix.as_ref().map_or(0, ImagePrefix::length);
        let rule = self.0.iter().filter(covers).max_by_key(length);
        rule.map(|rule| &rule.demand)
            .ok_or_else(|| "no rule of the settings covers the image".to_owned())
    }
}
