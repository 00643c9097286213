//! Moves operands out of negations, as OPA's compiler does.
//!
//! OPA writes `not f(input.x)` as `y := input.x; not f(y)`. Without `x`, the rule does not hold. For regorus, the call
//! is undefined, so that its negation holds. The equality of two references is an exception: nothing is moved.
//! A module that imports `future.keywords` or `future.keywords.not` has OPA's keyword `not`, whose operands stay.
//! Lines stay as they are.

use std::ops::Range;

/// The beginning of the names that operands get.
const NAME: &str = "tollgate_operand_";

/// A text with the kind of each of its bytes.
struct Code<'t> {
    text: &'t str,
    kinds: Vec<Kind>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    String,
    Comment,
}

/// The operator between the two sides of an expression.
enum Operator {
    Equality(Range<usize>),
    Comparison(Range<usize>),
}

/// Rewrites all negations of a text.
pub(crate) fn adapted(text: &str) -> String {
    let code = Code::new(text);
    if code.has_keyword() {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let (mut copied, mut count) = (0, 0);
    for at in code.words("not") {
        let start = at + "not".len();
        let Some(expression) = code.expression(start).filter(|_| at >= copied) else {
            continue;
        };
        let operands = code.operands(expression.clone());
        if operands.is_empty() {
            continue;
        }
        out.push_str(&text[copied..at]);
        let mut rest = String::new();
        copied = at;
        for operand in operands {
            count += 1;
            out.push_str(&format!("{NAME}{count} := {}; ", &text[operand.clone()]));
            rest.push_str(&text[copied..operand.start]);
            rest.push_str(&format!("{NAME}{count}"));
            copied = operand.end;
        }
        rest.push_str(&text[copied..expression.end]);
        copied = expression.end;
        out.push_str(&rest);
    }
    out.push_str(&text[copied..]);
    out
}

// === impl Code ===

impl<'t> Code<'t> {
    fn new(text: &'t str) -> Self {
        let mut kinds = Vec::with_capacity(text.len());
        let mut quote = None;
        let (mut is_escaped, mut is_comment) = (false, false);
        for byte in text.bytes() {
            let kind = match (quote, byte) {
                (Some(end), _) => {
                    if is_escaped {
                        is_escaped = false;
                    } else if byte == b'\\' && end == b'"' {
                        is_escaped = true;
                    } else if byte == end {
                        quote = None;
                    }
                    Kind::String
                }
                (None, b'\n') => {
                    is_comment = false;
                    Kind::Code
                }
                (None, _) if is_comment => Kind::Comment,
                (None, b'#') => {
                    is_comment = true;
                    Kind::Comment
                }
                (None, b'"' | b'`') => {
                    quote = Some(byte);
                    Kind::String
                }
                (None, _) => Kind::Code,
            };
            kinds.push(kind);
        }
        Self { text, kinds }
    }

    /// Whether a module imports the keyword `not`, alone or with all others.
    fn has_keyword(&self) -> bool {
        self.words("import").any(|at| {
            let mut rest = self.text[at + "import".len()..].trim_start();
            while rest.starts_with('#') {
                rest = rest.split_once('\n').map_or("", |(_, next)| next);
                rest = rest.trim_start();
            }
            let ends = |one: char| one.is_whitespace() || matches!(one, ';' | '#');
            let path = rest.split(ends).next().unwrap_or_default();
            let path = path.replace("[\"", ".").replace("\"]", "");
            matches!(&*path, "future.keywords" | "future.keywords.not")
        })
    }

    /// The byte at a place, if it is code.
    fn at(&self, place: usize) -> Option<u8> {
        let kind = *self.kinds.get(place)?;
        (kind == Kind::Code).then(|| self.text.as_bytes()[place])
    }

    fn is_word_at(&self, place: usize) -> bool {
        self.at(place)
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    }

    /// The places of a keyword.
    fn words(&self, word: &'static str) -> impl Iterator<Item = usize> {
        self.text
            .match_indices(word)
            .map(|(at, _)| at)
            .filter(move |&at| {
                let is_bound = at == 0 || !self.is_word_at(at - 1) && self.at(at - 1) != Some(b'.');
                self.at(at).is_some() && is_bound && !self.is_word_at(at + word.len())
            })
    }

    /// The expression that begins after a place. None if it is not understood.
    fn expression(&self, start: usize) -> Option<Range<usize>> {
        let mut depth = 0_usize;
        let mut end = start;
        while end < self.text.len() {
            match self.at(end) {
                Some(b'(' | b'[' | b'{') => depth += 1,
                Some(b')' | b']' | b'}') if depth == 0 => break,
                Some(b')' | b']' | b'}') => depth -= 1,
                Some(b';' | b'\n') if depth == 0 => break,
                None if depth == 0 && self.kinds[end] == Kind::Comment => break,
                _ => {}
            }
            end += 1;
        }
        let range = self.trimmed(start..end);
        let last = self.text[range.clone()].chars().next_back()?;
        let goes_on = "=<>!+-*/%&|,".contains(last) && self.at(range.end - 1).is_some();
        let has_with = self.words("with").any(|at| range.contains(&at));
        let has_comment = self.kinds[range.clone()].contains(&Kind::Comment);
        (!goes_on && !has_with && !has_comment).then_some(range)
    }

    fn trimmed(&self, range: Range<usize>) -> Range<usize> {
        let text = &self.text[range.clone()];
        let start = range.start + (text.len() - text.trim_start().len());
        let end = range.end - (text.len() - text.trim_end().len());
        start..end.max(start)
    }

    /// The operands that OPA moves out of a negated expression, in the order of the text.
    fn operands(&self, expression: Range<usize>) -> Vec<Range<usize>> {
        match self.operator(&expression) {
            Some(Operator::Equality(at)) => {
                let sides = [expression.start..at.start, at.end..expression.end];
                sides
                    .into_iter()
                    .flat_map(|side| self.of_side(self.trimmed(side)))
                    .collect()
            }
            Some(Operator::Comparison(at)) => {
                let sides = [expression.start..at.start, at.end..expression.end];
                let sides = sides.map(|side| self.trimmed(side));
                sides
                    .into_iter()
                    .filter(|side| !self.is_simple(side))
                    .collect()
            }
            None if self.has_arithmetic(&expression) => Vec::new(),
            None => match self.arguments(&expression) {
                Some(arguments) => {
                    let moved = |argument: &Range<usize>| !self.is_simple(argument);
                    arguments.into_iter().filter(moved).collect()
                }
                None => self.indexes(&expression),
            },
        }
    }

    /// What OPA moves out of one side of an equality.
    fn of_side(&self, side: Range<usize>) -> Vec<Range<usize>> {
        if self.is_simple(&side) {
            Vec::new()
        } else if self.arguments(&side).is_some() || self.has_arithmetic(&side) {
            vec![side]
        } else {
            self.indexes(&side)
        }
    }

    /// Finds an operator that compares, outside of brackets.
    fn operator(&self, expression: &Range<usize>) -> Option<Operator> {
        let bytes = self.text.as_bytes();
        let mut depth = 0_usize;
        for at in expression.clone() {
            let Some(byte) = self.at(at) else { continue };
            match byte {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => depth = depth.saturating_sub(1),
                b'=' | b'!' | b'<' | b'>' if depth == 0 => {
                    let is_double = bytes.get(at + 1) == Some(&b'=');
                    let range = at..at + 1 + usize::from(is_double);
                    return Some(match byte {
                        b'=' => Operator::Equality(range),
                        _ => Operator::Comparison(range),
                    });
                }
                b'i' if depth == 0 && self.words("in").any(|word| word == at) => {
                    return Some(Operator::Comparison(at..at + 2));
                }
                _ => {}
            }
        }
        None
    }

    fn has_arithmetic(&self, expression: &Range<usize>) -> bool {
        let mut depth = 0_usize;
        expression.clone().any(|at| {
            match self.at(at) {
                Some(b'(' | b'[' | b'{') => depth += 1,
                Some(b')' | b']' | b'}') => depth = depth.saturating_sub(1),
                Some(b'+' | b'-' | b'*' | b'/' | b'%' | b'&' | b'|') => return depth == 0,
                _ => {}
            }
            false
        })
    }

    /// The arguments, if the expression is a call.
    fn arguments(&self, expression: &Range<usize>) -> Option<Vec<Range<usize>>> {
        let open = expression.clone().find(|&at| self.at(at) == Some(b'('))?;
        let is_name = |at: usize| self.is_word_at(at) || self.at(at) == Some(b'.');
        let is_call = open > expression.start
            && (expression.start..open).all(is_name)
            && self.closing(open)? + 1 == expression.end;
        is_call.then(|| self.elements(open + 1..expression.end - 1))
    }

    /// The places between brackets of a reference that are more than a name.
    fn indexes(&self, reference: &Range<usize>) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let mut at = reference.start;
        if !self.is_word_at(at) {
            return found;
        }
        while at < reference.end {
            if self.at(at) == Some(b'[')
                && let Some(end) = self.closing(at)
            {
                let index = self.trimmed(at + 1..end);
                if !self.is_simple(&index) {
                    found.push(index);
                }
                at = end;
            }
            at += 1;
        }
        found
    }

    fn closing(&self, open: usize) -> Option<usize> {
        let mut depth = 0_usize;
        (open..self.text.len()).find(|&at| {
            match self.at(at) {
                Some(b'(' | b'[' | b'{') => depth += 1,
                Some(b')' | b']' | b'}') => depth -= 1,
                _ => {}
            }
            depth == 0
        })
    }

    /// The parts between commas.
    fn elements(&self, list: Range<usize>) -> Vec<Range<usize>> {
        let mut elements = Vec::new();
        let (mut depth, mut start) = (0_usize, list.start);
        for at in list.clone() {
            match self.at(at) {
                Some(b'(' | b'[' | b'{') => depth += 1,
                Some(b')' | b']' | b'}') => depth = depth.saturating_sub(1),
                Some(b',') if depth == 0 => {
                    elements.push(self.trimmed(start..at));
                    start = at + 1;
                }
                _ => {}
            }
        }
        elements.push(self.trimmed(start..list.end));
        elements
    }

    /// Whether an operand is a name, a number or a string.
    fn is_simple(&self, operand: &Range<usize>) -> bool {
        let is_literal = operand.clone().all(|at| self.kinds[at] == Kind::String);
        let is_name = operand.clone().all(|at| self.is_word_at(at));
        let text = &self.text[operand.clone()];
        is_literal || is_name || text.parse::<f64>().is_ok()
    }
}
