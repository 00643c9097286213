//! Parses YAML text into a plain value. A syntax problem is reported by line and column.

use std::path::Path;

use serde_json::Value;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{
    Budget, DuplicateKeyPolicy, Error, MessageFormatter, Options, UserMessageFormatter,
};

use super::problem::Collector;
use super::read::{escaped, quoted};

/// Maximum size of a configuration file. People write these files, so a longer one is a mistake.
pub(crate) const LONGEST_FILE_BYTES: u64 = 4 << 20;

/// Maximum number of keys and values. Each use of an alias counts the values that it stands for.
const MOST_VALUES: usize = 1_000_000;
const MOST_LEVELS: usize = 64;

/// Reads the text. A duplicate key is recorded as a problem. Reading then continues with the first value, so that other
/// problems are reported too.
pub fn read(text: &str, problems: &Collector) -> Option<Value> {
    let error = match serde_saphyr::from_str_with_options(text, options(DuplicateKeyPolicy::Error))
    {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    note(text, &error, problems);
    match error.without_snippet() {
        Error::DuplicateMappingKey { .. } => {
            serde_saphyr::from_str_with_options(text, options(DuplicateKeyPolicy::FirstWins)).ok()
        }
        _ => None,
    }
}

/// Returns whether the text contains only comments, white space and `---`.
pub(crate) fn is_blank(text: &str) -> bool {
    text.lines()
        .map(str::trim)
        .all(|line| line.is_empty() || line.starts_with('#') || line == "---")
}

fn options(duplicate_keys: DuplicateKeyPolicy) -> Options {
    let mut budget = Budget::default();
    // A file has room for this many values, unless it consists of brackets alone. The values behind an alias count at
    // each use, which stops an alias bomb. The ratio of uses to anchors is not limited.
    budget.max_nodes = MOST_VALUES;
    budget.max_events = 4 * MOST_VALUES;
    budget.max_aliases = MOST_VALUES;
    budget.max_anchors = MOST_VALUES;
    budget.max_merge_keys = MOST_VALUES;
    budget.enforce_alias_anchor_ratio = false;
    budget.max_depth = MOST_LEVELS;
    let mut options = Options::default();
    options.budget = Some(budget);
    options.duplicate_keys = duplicate_keys;
    // `yes`, `no`, `on` and `off` are text, as in YAML 1.2. A plugin may have such a name.
    options.strict_booleans = true;
    options.with_snippet = false;
    options
}

fn note(text: &str, error: &Error, problems: &Collector) {
    let error = error.without_snippet();
    let place = match error.location() {
        Some(location) => format!("line {}, column {}", location.line(), location.column()),
        None => String::new(),
    };
    // The formatter does not escape control characters.
    let said = escaped(&UserMessageFormatter.format_message(error));
    let message = match within_aliases(error) {
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the key {} is given twice; keep one of them", quoted(key))
        }
        Error::Budget {
            breach: BudgetBreach::Depth { .. },
            ..
        } => format!("nested deeper than {MOST_LEVELS} levels"),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            format!("more than {MOST_VALUES} keys and values, including those of aliases")
        }
        _ if is_star(text, error) => {
            "* begins the name of an alias in YAML; put it in quotes if it is text".to_owned()
        }
        _ => format!("not valid YAML: {said}"),
    };
    problems.add(place, message);
}

/// Returns the inner error if the error is inside an alias.
fn within_aliases(mut error: &Error) -> &Error {
    while let Error::AliasError { error: within, .. } = error {
        error = within;
    }
    error
}

/// Returns whether the error is about a `*`. Kubernetes' rules often contain it, and YAML reads it as an alias.
fn is_star(text: &str, error: &Error) -> bool {
    let Some(location) = error.location() else {
        return false;
    };
    let (line, column) = (
        usize::try_from(location.line()),
        usize::try_from(location.column()),
    );
    let (Ok(line), Ok(column)) = (line, column) else {
        return false;
    };
    let line = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    line.chars().nth(column.saturating_sub(1)) == Some('*')
}

/// Returns the folder at which a file's relative paths start.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
