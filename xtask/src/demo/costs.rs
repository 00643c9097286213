//! Reads the plugins' calls and costs from the host's metrics. The difference of two readings is the cost of one
//! review.

use std::collections::BTreeMap;

/// The cost of one plugin in one phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cost {
    /// Number of calls by outcome.
    pub(super) outcomes: BTreeMap<String, f64>,
    pub(super) fuel: f64,
    pub(super) seconds: f64,
}

/// The costs of all plugins, by name and phase.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Costs(BTreeMap<(String, String), Cost>);

// === impl Costs ===

impl Costs {
    /// Reads OpenMetrics text.
    pub(super) fn read(text: &str) -> Self {
        let mut costs = Self::default();
        for line in text
            .lines()
            .filter(|line| line.starts_with("tollgate_plugin_"))
        {
            let Some((name, rest)) = line.split_once('{') else {
                continue;
            };
            let Some((labels, value)) = rest.split_once("} ") else {
                continue;
            };
            let Ok(value) = value.parse::<f64>() else {
                continue;
            };
            // These labels contain no comma or quote: they are plugin names and words from fixed lists.
            let label = |key: &str| {
                let mut labels = labels.split(',').filter_map(|label| label.split_once('='));
                labels
                    .find(|(known, _)| *known == key)
                    .map(|(_, value)| value.trim_matches('"').to_owned())
            };
            let (Some(plugin), Some(phase)) = (label("plugin"), label("phase")) else {
                continue;
            };
            let cost = costs.0.entry((plugin, phase)).or_default();
            match name {
                "tollgate_plugin_calls_total" => {
                    cost.outcomes
                        .insert(label("outcome").unwrap_or_default(), value);
                }
                "tollgate_plugin_fuel_total" => cost.fuel = value,
                "tollgate_plugin_duration_seconds_sum" => cost.seconds = value,
                _ => {}
            }
        }
        costs
    }

    /// Returns the costs since `before`, with the plugin's name and the outcome of its call.
    pub(super) fn since(&self, before: &Self) -> Vec<(String, String, Cost)> {
        let mut rows = Vec::new();
        for (key, now) in &self.0 {
            let then = before.0.get(key).cloned().unwrap_or_default();
            let ended = now.outcomes.iter().find(|(outcome, count)| {
                **count > then.outcomes.get(*outcome).copied().unwrap_or_default()
            });
            if let Some((outcome, _)) = ended {
                let cost = Cost {
                    outcomes: BTreeMap::new(),
                    fuel: now.fuel - then.fuel,
                    seconds: now.seconds - then.seconds,
                };
                rows.push((key.0.clone(), outcome.clone(), cost));
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
# HELP tollgate_plugin_calls Calls of a plugin, by export and outcome.
tollgate_plugin_calls_total{plugin=\"a\",phase=\"validate\",outcome=\"allowed\"} 3
tollgate_plugin_calls_total{plugin=\"a\",phase=\"validate\",outcome=\"denied\"} 0
tollgate_plugin_fuel_total{plugin=\"a\",phase=\"validate\"} 3000
tollgate_plugin_duration_seconds_sum{plugin=\"a\",phase=\"validate\"} 0.5
# EOF";

    #[test]
    fn difference_is_cost_of_one_review() {
        let after = BEFORE
            .replace("\"denied\"} 0", "\"denied\"} 1")
            .replace("3000", "4500")
            .replace("0.5", "0.75");
        let rows = Costs::read(&after).since(&Costs::read(BEFORE));
        let cost = Cost {
            outcomes: BTreeMap::new(),
            fuel: 1500.0,
            seconds: 0.25,
        };
        assert_eq!(rows, [("a".to_owned(), "denied".to_owned(), cost)]);
    }

    #[test]
    fn omits_plugins_that_were_not_called() {
        assert_eq!(Costs::read(BEFORE).since(&Costs::read(BEFORE)), []);
    }
}
