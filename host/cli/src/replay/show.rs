//! Shows the results to a person.

use std::path::Path;

use super::report::{Results, fuel_change};
use super::side::Category;
use super::suite::Written;
use super::tally::Dimension;
use crate::terminal::{BAD, FAINT, GOOD, NOTABLE, STRONG, grouped, plain, say};

/// Maximum number of values shown for each dimension.
const MOST_GROUPS: usize = 8;

pub(super) fn results(results: &Results, examples: usize) {
    let tally = &results.tally;
    for category in Category::ALL {
        let count = tally.count(category);
        if count == 0 {
            continue;
        }
        let style = if category == Category::Reworded {
            NOTABLE
        } else {
            BAD
        };
        let title = category.title();
        say!("{style}{} {title}{style:#}", grouped(count as u64));
        for dimension in Dimension::ALL {
            let groups = tally.groups(category, dimension);
            if groups.is_empty() {
                continue;
            }
            let shown = groups.iter().take(MOST_GROUPS);
            let shown = shown.map(|(value, count)| format!("{value} {}", grouped(*count as u64)));
            let mut line = shown.collect::<Vec<_>>().join(", ");
            if groups.len() > MOST_GROUPS {
                line.push_str(&format!(" and {} more", groups.len() - MOST_GROUPS));
            }
            say!("  by {}: {}", dimension.key(), plain(&line));
        }
        for difference in tally.of(category).take(examples) {
            say!("  {STRONG}{}{STRONG:#}", plain(&difference.about.line()));
            say!("    {}", plain(&difference.what()));
        }
        if count > examples {
            say!(
                "  {FAINT}and {} more{FAINT:#}",
                grouped((count - examples) as u64)
            );
        }
    }
    for (about, error) in tally.errors.iter().take(examples.max(1)) {
        say!(
            "{BAD}not judged:{BAD:#} {}: {}",
            plain(&about.line()),
            plain(error)
        );
    }
    for damage in &results.damages {
        let segment = damage.segment.display();
        say!("{NOTABLE}{segment}: {}{NOTABLE:#}", plain(&damage.reason));
    }
    if !tally.costs.is_empty() {
        say!("{STRONG}fuel{STRONG:#}");
    }
    for (plugin, costs) in &tally.costs {
        say!(
            "  {}: {} calls, {} fuel, at most {} in one call{}",
            plain(plugin),
            grouped(costs.new.calls),
            grouped(costs.new.fuel),
            grouped(costs.new.most),
            fuel_change(costs)
        );
    }
    summary(results);
}

fn summary(results: &Results) {
    let tally = &results.tally;
    if tally.approximate > 0 {
        say!(
            "{NOTABLE}{} reviews are approximate, because they come from an audit log{NOTABLE:#}",
            grouped(tally.approximate)
        );
    }
    let reviews = grouped(tally.reviews);
    let against = plain(&results.against);
    if tally.differences.is_empty() && tally.errors.is_empty() {
        say!("{GOOD}{reviews} reviews, no difference{GOOD:#} (against {against})");
        return;
    }
    let counts = Category::ALL.into_iter().filter_map(|category| {
        let count = tally.count(category);
        (count > 0).then(|| format!("{} {}", grouped(count as u64), category.title()))
    });
    let mut counts: Vec<String> = counts.collect();
    if !tally.errors.is_empty() {
        counts.push(format!("{} not judged", grouped(tally.errors.len() as u64)));
    }
    say!(
        "{reviews} reviews: {} (against {against})",
        counts.join(", ")
    );
}

/// Prints the content of the suite.
pub(super) fn suite(file: &Path, written: &Written) {
    say!(
        "{} cases in {}",
        grouped(written.cases as u64),
        file.display()
    );
    if !written.left_out.is_empty() {
        let numbers = written.left_out.iter().map(|number| format!("#{number}"));
        say!(
            "{NOTABLE}left out: {}:{NOTABLE:#} a case goes through both endpoints, and has the same verdict there",
            numbers.collect::<Vec<_>>().join(", ")
        );
    }
}
