use regex_lite::Regex;

use super::{Extent, Matcher, Pattern};

/// Numbers that look random, and are the same in every run.
struct Random(u64);

/// The pieces that random expressions consist of.
const ATOMS: [&str; 40] = [
    "a",
    "b",
    "-",
    "é",
    "\\.",
    "\\n",
    "\\x41",
    "\\x{e9}",
    "\\u00e9",
    ".",
    "\\d",
    "\\D",
    "\\w",
    "\\W",
    "\\s",
    "\\S",
    "[a-c]",
    "[^a-c]",
    "[^é]",
    "[\\w.-]",
    "[^\\W_]",
    "[\\D]",
    "[[:alpha:]]",
    "[[:^space:]]",
    "[a-c&&b]",
    "[^\\n]",
    "[a[b-]]",
    "^",
    "$",
    "\\A",
    "\\z",
    "\\b",
    "\\B",
    "(?i)",
    "(?m)",
    "(?s)",
    "(?U)",
    "(?x) ",
    "(?-u)",
    "(?R)",
];
const REPETITIONS: [&str; 10] = ["", "", "", "*", "+", "?", "{2}", "{1,3}", "{,2}", "+?"];
const CHARACTERS: [&str; 16] = [
    "a", "b", "c", "A", "_", "-", ".", "0", "9", " ", "\n", "\r", "é", "É", "٣", "\u{2028}",
];

// === impl Random ===

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    fn expression(&mut self, depth: usize) -> String {
        let mut text = String::new();
        for _ in 0..=self.below(3) {
            let atom = match self.below(6) {
                0 if depth > 0 => format!("(?:{})", self.expression(depth - 1)),
                1 if depth > 0 => {
                    format!(
                        "({}|{})",
                        self.expression(depth - 1),
                        self.expression(depth - 1)
                    )
                }
                _ => self.of(&ATOMS).to_owned(),
            };
            text.push_str(&atom);
            text.push_str(self.of(&REPETITIONS));
        }
        text
    }

    fn value(&mut self) -> String {
        (0..self.below(7)).map(|_| self.of(&CHARACTERS)).collect()
    }
}

#[test]
fn an_automaton_answers_as_regex_lite_does() {
    let mut random = Random(7);
    let (mut valid, mut automata, mut matches) = (0, 0, 0);
    for _ in 0..6_000 {
        let text = random.expression(2);
        let Ok(within) = Regex::new(&text) else {
            assert!(
                Pattern::whole(&text).is_err() && Pattern::within(&text).is_err(),
                "{text}"
            );
            continue;
        };
        valid += 1;
        // With the flag `x`, a `#` would begin a comment. There is none in these expressions.
        let whole = Regex::new(&format!("^(?:{text})$")).unwrap();
        for (extent, regex) in [(Extent::Whole, &whole), (Extent::Within, &within)] {
            let pattern = Pattern::new(&text, extent).unwrap();
            automata += usize::from(matches!(pattern.matcher, Matcher::Automaton(_)));
            for _ in 0..30 {
                let value = random.value();
                let expected = regex.is_match(&value);
                matches += usize::from(expected);
                assert_eq!(pattern.matches(&value), expected, "`{text}` on {value:?}");
            }
        }
    }
    println!("{valid} expressions, {automata} automata, {matches} matches");
    assert!(
        valid > 2_000 && automata > 2_000 && matches > 10_000,
        "{valid} {automata} {matches}"
    );
}

#[test]
fn ordinary_expressions_have_an_automaton() {
    for text in [
        "[a-z]+",
        "web|db",
        "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
        "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
        ".+@example[.]com",
        "\\d{4}-\\d{2}-\\d{2}",
        "v\\d+(\\.\\d+){0,2}",
        "[^ ]{1,15}",
    ] {
        let pattern = Pattern::whole(text).unwrap();
        assert!(matches!(pattern.matcher, Matcher::Automaton(_)), "{text}");
    }
}

#[test]
fn an_expression_without_a_small_automaton_works() {
    for (text, matching, other) in [
        (".*x.{40}", format!("x{}", "é".repeat(40)), "y".repeat(41)),
        ("(?i)blue", "BLUE".to_owned(), "blues".to_owned()),
        ("\\bblue\\b", "blue".to_owned(), "blues".to_owned()),
    ] {
        let pattern = Pattern::whole(text).unwrap();
        assert!(matches!(pattern.matcher, Matcher::Regex(_)), "{text}");
        assert!(
            pattern.matches(&matching) && !pattern.matches(&other),
            "{text}"
        );
    }
}

#[test]
fn a_comment_ends_with_its_line() {
    let pattern = Pattern::whole("(?x) a b # two letters").unwrap();
    assert!(pattern.matches("ab") && !pattern.matches("ab "));
}

#[test]
fn an_expression_cannot_escape_its_anchors() {
    for text in ["a)|(b", "("] {
        let error = Pattern::whole(text).unwrap_err();
        assert!(!error.to_string().is_empty());
    }
    assert!(!Pattern::whole("a|b").unwrap().matches("ab"));
    assert!(Pattern::within("a|b").unwrap().matches("xb"));
    assert!(!Pattern::within("^b").unwrap().matches("xb"));
    assert!(!Pattern::whole("a").unwrap().matches("a\n"));
}
