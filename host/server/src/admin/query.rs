//! The parameters of a request to the admin listener.

use tollgate_admission::scan::{By, RESULTS, ScanSearch};
use tollgate_admission::search::Search;

/// The decoded parameters, each at most once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Query(Vec<(String, String)>);

/// Entries in an answer if the request does not name a number.
const DEFAULT_LIMIT: usize = 50;
/// Most entries in an answer.
const MOST: usize = 200;
/// Longest value, in bytes. Kept names are not longer.
const LONGEST_VALUE: usize = 256;

// === impl Query ===

impl Query {
    /// Reads the parameters of a URI. Refuses those that are not known.
    pub(super) fn parse(query: Option<&str>, known: &[&str]) -> Result<Self, String> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        let parts = query.unwrap_or_default().split('&');
        for part in parts.filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let name = known
                .iter()
                .find(|known| **known == name)
                .ok_or_else(|| format!("unknown parameter: expected {}", known.join(", ")))?;
            let value = decode(value).ok_or_else(|| {
                format!(
                    "the parameter {name} is not valid: expected at most {LONGEST_VALUE} bytes of UTF-8, \
                     percent-encoded"
                )
            })?;
            if pairs.iter().any(|(other, _)| other == name) {
                return Err(format!("the parameter {name} is given twice"));
            }
            pairs.push(((*name).to_owned(), value));
        }
        Ok(Self(pairs))
    }

    /// Whether the request has no parameters.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a parameter, unless it is absent or empty.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        let value = found.map(|(_, value)| value.as_str());
        value.filter(|value| !value.is_empty())
    }

    /// The most entries to return.
    pub(super) fn limit(&self) -> Result<usize, String> {
        let Some(text) = self.text("limit") else {
            return Ok(DEFAULT_LIMIT);
        };
        let limit = text.parse().ok();
        limit
            .filter(|limit| (1..=MOST).contains(limit))
            .ok_or_else(|| format!("the parameter limit must be a number from 1 to {MOST}"))
    }

    /// The question about the results of the background scan.
    pub(super) fn scan(&self) -> Result<ScanSearch, String> {
        let result = self.text("result");
        if result.is_some_and(|word| !RESULTS.contains(&word)) {
            let words = RESULTS.join(", ");
            return Err(format!("the parameter result must be one of {words}"));
        }
        let by = match self.text("by") {
            None => By::Both,
            Some(word) => {
                By::parse(word).ok_or("the parameter by must be namespace, plugin or empty")?
            }
        };
        Ok(ScanSearch {
            search: self.text("search").map(str::to_owned),
            result: result.map(str::to_owned),
            by,
            after: self.text("after").map(str::to_owned),
            limit: self.limit()?,
        })
    }

    /// The question about decisions.
    pub(super) fn search(&self) -> Result<Search, String> {
        let text = |name| self.text(name).map(str::to_owned);
        let before = self.text("before").map(str::parse).transpose();
        let before = before.map_err(|_| {
            "the parameter before must be the number of a decision, as `next` has it".to_owned()
        })?;
        Ok(Search {
            uid: text("uid"),
            user: text("user"),
            object: text("object"),
            namespace: text("namespace"),
            plugin: text("plugin"),
            verdict: text("verdict"),
            before,
            limit: self.limit()?,
        })
    }
}

/// Decodes a value as forms encode it: `+` is a space.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    let text = String::from_utf8(bytes).ok()?;
    (text.len() <= LONGEST_VALUE).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<Query, String> {
        Query::parse(Some(query), &["limit", "user", "before"])
    }

    #[test]
    fn decodes_values_as_forms_encode_them() {
        let query = parse("user=system%3aanna+b%C3%A4r&limit=7").expect("valid");
        assert_eq!(query.text("user"), Some("system:anna bär"));
        assert_eq!(query.limit(), Ok(7));
        assert_eq!(query.text("before"), None);
        let empty = parse("user=&&limit").expect("valid");
        assert_eq!(
            (empty.text("user"), empty.limit()),
            (None, Ok(DEFAULT_LIMIT))
        );
        assert!(!empty.is_empty() && parse("").expect("valid").is_empty());
    }

    #[test]
    fn refuses_what_it_does_not_understand() {
        for (query, word) in [
            ("users=anna", "expected limit, user, before"),
            ("user=%4", "not valid"),
            ("user=%zz", "not valid"),
            ("user=%ff", "not valid"),
            ("user=a&user=b", "twice"),
        ] {
            let error = parse(query).expect_err(query);
            assert!(error.contains(word), "{error}");
        }
        let long = format!("user={}", "a".repeat(LONGEST_VALUE + 1));
        assert!(parse(&long).is_err());
        for query in ["limit=0", "limit=201", "limit=-1", "limit=many"] {
            assert!(parse(query).expect("decodes").search().is_err(), "{query}");
        }
        let before = parse("before=last").expect("decodes").search();
        assert!(before.expect_err("no number").contains("before"));
    }

    #[test]
    fn reads_search_of_decisions() {
        let search = parse("user=anna&before=12").expect("valid").search();
        let expected = Search {
            user: Some("anna".to_owned()),
            before: Some(12),
            limit: DEFAULT_LIMIT,
            ..Search::default()
        };
        assert_eq!(search, Ok(expected));
    }

    #[test]
    fn reads_search_of_scan_results() {
        let scan = |query: &str| {
            let known = ["limit", "after", "search", "result", "by"];
            Query::parse(Some(query), &known).expect("decodes").scan()
        };
        let expected = ScanSearch {
            search: Some("team-1".to_owned()),
            result: Some("fail".to_owned()),
            by: By::Namespace,
            after: Some("1 2 team-10 ".to_owned()),
            limit: 7,
        };
        let found = scan("search=team-1&result=fail&by=namespace&after=1+2%20team-10+&limit=7");
        assert_eq!(found, Ok(expected));
        assert_eq!(scan("by=&result=").map(|found| found.by), Ok(By::Both));
        for (query, word) in [
            ("result=bad", "error, fail, warn, skip, pass"),
            ("by=object", "by must be"),
            ("limit=0", "limit"),
        ] {
            let error = scan(query).expect_err(query);
            assert!(error.contains(word), "{error}");
        }
    }
}
