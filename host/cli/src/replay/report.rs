//! Writes the results for machines: JSON, JUnit XML, and Markdown for a pull request.

use std::fmt::Write as _;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use serde_json::{Map, Value, json};
use tollgate_recording::Damage;

use super::side::Category;
use super::tally::{Costs, Dimension, Tally};
use crate::terminal::{grouped, plain};

/// The results of a replay, with its inputs.
#[derive(Debug)]
pub(super) struct Results {
    pub(super) tally: Tally,
    /// The segments that could not be read to their end.
    pub(super) damages: Vec<Damage>,
    /// The baseline: `recorded`, or the file of the old configuration.
    pub(super) against: String,
    /// Name, version and digest of each new plugin.
    pub(super) plugins: Vec<(String, String, String)>,
}

/// Maximum number of differences in one text of JUnit.
const MOST_IN_JUNIT: usize = 100;

// === impl Results ===

impl Results {
    /// Whether a segment is damaged. A segment that a crash cut short is not.
    pub(super) fn is_damaged(&self) -> bool {
        self.damages.iter().any(|damage| !damage.is_torn)
    }

    /// Returns everything as JSON. Two replays of the same recording have the same bytes.
    pub(super) fn json(&self) -> Value {
        let tally = &self.tally;
        let summary: Map<String, Value> = Category::ALL
            .into_iter()
            .map(|category| (category.key().to_owned(), tally.count(category).into()))
            .collect();
        let groups: Map<String, Value> = Category::ALL
            .into_iter()
            .filter(|category| tally.count(*category) > 0)
            .map(|category| {
                let dimensions = Dimension::ALL.into_iter().map(|dimension| {
                    let groups = tally.groups(category, dimension).into_iter();
                    let counts: Map<String, Value> =
                        groups.map(|(value, count)| (value, count.into())).collect();
                    (dimension.key().to_owned(), counts.into())
                });
                let dimensions: Map<String, Value> = dimensions.collect();
                (category.key().to_owned(), dimensions.into())
            })
            .collect();
        let costs: Map<String, Value> = tally
            .costs
            .iter()
            .map(|(plugin, costs)| {
                let costs = json!({ "old": costs.old.to_json(), "new": costs.new.to_json() });
                (plugin.clone(), costs)
            })
            .collect();
        let errors = tally.errors.iter().map(|(about, error)| {
            let mut value = about.to_json();
            value["error"] = error.as_str().into();
            value
        });
        json!({
            "reviews": tally.reviews,
            "approximate": tally.approximate,
            "against": self.against,
            "plugins": self.plugins.iter().map(|(name, version, digest)| {
                json!({ "name": name, "version": version, "digest": digest })
            }).collect::<Vec<_>>(),
            "summary": summary,
            "groups": groups,
            "fuel": costs,
            "differences": tally.differences.iter().map(super::tally::Difference::to_json).collect::<Vec<_>>(),
            "errors": errors.collect::<Vec<_>>(),
            "damages": self.damages.iter().map(|damage| json!({
                "segment": damage.segment.display().to_string(),
                "torn": damage.is_torn,
                "reason": damage.reason,
            })).collect::<Vec<_>>(),
        })
    }

    /// Returns JUnit XML with a test for each kind of difference.
    pub(super) fn junit(&self) -> anyhow::Result<String> {
        let mut report = Report::new("tollgate replay");
        let mut suite = TestSuite::new("replay");
        for category in Category::ALL {
            let count = self.tally.count(category);
            let status = if count == 0 || category == Category::Reworded {
                TestCaseStatus::success()
            } else {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                let title = category.title();
                status.set_message(format!("{count} reviews are {title}"));
                let lines = self.tally.of(category).take(MOST_IN_JUNIT);
                let lines =
                    lines.map(|one| plain(&format!("{}: {}", one.about.line(), one.what())));
                status.set_description(lines.collect::<Vec<_>>().join("\n"));
                status
            };
            let name = format!("no review is {}", category.title());
            let mut case = TestCase::new(name, status);
            case.set_classname("tollgate.replay");
            suite.add_test_case(case);
        }
        let mut status = TestCaseStatus::success();
        if !self.tally.errors.is_empty() || self.is_damaged() {
            status = TestCaseStatus::non_success(NonSuccessKind::Error);
            let (errors, damages) = (self.tally.errors.len(), self.damages.len());
            status.set_message(format!(
                "{errors} reviews were not judged, {damages} segments are damaged"
            ));
        }
        let mut case = TestCase::new("every review is judged", status);
        case.set_classname("tollgate.replay");
        suite.add_test_case(case);
        report.add_test_suite(suite);
        Ok(report.to_string()?)
    }

    /// Returns Markdown for a comment on a pull request.
    pub(super) fn markdown(&self, examples: usize) -> String {
        let tally = &self.tally;
        let mut text = String::from("### Replay of recorded reviews\n\n");
        // Writing into a String cannot fail.
        let mut line = |line: &str| {
            let _: std::fmt::Result = writeln!(text, "{line}");
        };
        line(&format!(
            "{} reviews, compared with {}.",
            grouped(tally.reviews),
            code(&self.against)
        ));
        if tally.approximate > 0 {
            line("The recording is approximate, because it comes from an audit log.");
        }
        line("");
        if tally.differences.is_empty() {
            line("No difference.");
        } else {
            line("| difference | reviews | plugins |");
            line("|---|---|---|");
        }
        for category in Category::ALL {
            let count = tally.count(category);
            if count == 0 {
                continue;
            }
            let plugins = tally.groups(category, Dimension::Plugin);
            let plugins = plugins
                .iter()
                .map(|(plugin, count)| format!("{} {}", code(plugin), grouped(*count as u64)));
            let plugins = plugins.collect::<Vec<_>>().join(", ");
            line(&format!(
                "| {} | {} | {plugins} |",
                category.title(),
                grouped(count as u64)
            ));
        }
        for category in Category::ALL {
            let count = tally.count(category);
            if count == 0 {
                continue;
            }
            line("");
            line(&format!(
                "<details><summary>{}: {}</summary>\n",
                category.title(),
                grouped(count as u64)
            ));
            for dimension in Dimension::ALL {
                let groups = tally.groups(category, dimension);
                if groups.is_empty() {
                    continue;
                }
                let groups = groups.iter().take(10);
                let groups = groups
                    .map(|(value, count)| format!("{} {}", code(value), grouped(*count as u64)));
                line(&format!(
                    "- by {}: {}",
                    dimension.key(),
                    groups.collect::<Vec<_>>().join(", ")
                ));
            }
            line("");
            for difference in tally.of(category).take(examples) {
                line(&format!(
                    "- {}: {}",
                    code(&difference.about.line()),
                    code(&difference.what())
                ));
            }
            line("\n</details>");
        }
        if !tally.errors.is_empty() {
            line("");
            line(&format!("{} reviews were not judged.", tally.errors.len()));
        }
        if !tally.costs.is_empty() {
            line("\n| plugin | calls | fuel | most in one call | change of fuel |");
            line("|---|---|---|---|---|");
        }
        for (plugin, costs) in &tally.costs {
            line(&format!(
                "| {} | {} | {} | {} | {} |",
                code(plugin),
                grouped(costs.new.calls),
                grouped(costs.new.fuel),
                grouped(costs.new.most),
                percent(costs).unwrap_or_else(|| "–".to_owned())
            ));
        }
        text
    }
}

/// Returns the change of a plugin's fuel for people, or nothing if there is none.
pub(super) fn fuel_change(costs: &Costs) -> String {
    match percent(costs) {
        Some(percent) if costs.old.fuel != costs.new.fuel => format!(" ({percent})"),
        _ => String::new(),
    }
}

/// Returns the change of a plugin's fuel in percent. None if there was no fuel before.
fn percent(costs: &Costs) -> Option<String> {
    let (old, new) = (i128::from(costs.old.fuel), i128::from(costs.new.fuel));
    if old == 0 {
        return None;
    }
    let tenths = (new - old) * 1000 / old;
    let sign = if tenths < 0 { "-" } else { "+" };
    let tenths = tenths.abs();
    Some(format!("{sign}{}.{} %", tenths / 10, tenths % 10))
}

/// Returns text from outside as code, in one line that cannot become markup.
fn code(text: &str) -> String {
    let text = plain(text).replace('`', "'").replace('|', "\\|");
    format!("`{text}`")
}

#[cfg(test)]
mod tests {
    use super::super::side::Side;
    use super::super::tally::{About, Cost, Difference};
    use super::*;

    fn results() -> Results {
        let about = About {
            number: 12,
            uid: "u-12".to_owned(),
            endpoint: "validate",
            operation: "CREATE".to_owned(),
            kind: "Pod".to_owned(),
            namespace: Some("shop".to_owned()),
            name: "web`|<b>".to_owned(),
            user: "jane".to_owned(),
            is_secret: false,
        };
        let denied = Side {
            message: "team: <script> is\nmissing".to_owned(),
            code: Some(403),
            ..Side::default()
        };
        let plugins = [("team".to_owned(), Some(0))].into();
        let allowed = Side {
            allowed: true,
            ..Side::default()
        };
        let mut tally = Tally {
            reviews: 1200,
            differences: vec![Difference::new(
                Category::Denied,
                about,
                plugins,
                &allowed,
                &denied,
            )],
            ..Tally::default()
        };
        let cost = |fuel| Cost {
            calls: 3,
            fuel,
            most: fuel,
        };
        let costs = Costs {
            old: cost(1000),
            new: cost(1125),
        };
        tally.costs.insert("team".to_owned(), costs);
        Results {
            tally,
            damages: Vec::new(),
            against: "recorded".to_owned(),
            plugins: Vec::new(),
        }
    }

    #[test]
    fn markdown_shows_groups_and_examples_without_markup_of_others() {
        let text = results().markdown(5);
        for part in [
            "| newly denied | 1 | `team` 1 |",
            "- by rule: `team rules[0]` 1",
            "- `#12 CREATE Pod shop/web'\\|<b> by jane (validate)`: `team: <script> is missing`",
            "| `team` | 3 | 1,125 | 1,125 | +12.5 % |",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn junit_fails_only_for_what_was_found() {
        let text = results().junit().unwrap();
        assert!(
            text.contains("tests=\"6\"") && text.contains("failures=\"1\""),
            "{text}"
        );
        assert!(text.contains("1 reviews are newly denied"), "{text}");
        assert!(!text.contains("<script>"), "{text}");
    }

    #[test]
    fn json_lists_every_difference() {
        let json = results().json();
        assert_eq!(json["summary"]["denied"], 1);
        assert_eq!(json["summary"]["allowed"], 0);
        assert_eq!(json["groups"]["denied"]["namespace"]["shop"], 1);
        assert_eq!(json["differences"][0]["number"], 12);
        assert_eq!(json["differences"][0]["old"]["verdict"], "allow");
        assert_eq!(json["fuel"]["team"]["new"]["fuel"], 1125);
    }
}
