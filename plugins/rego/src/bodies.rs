//! Gives each body of a rule a head of its own: `f(x) = y {…} {…}` becomes `f(x) = y {…} f(x) = y {…}`.
//!
//! regorus forgets the value of a function or a rule in its further bodies. Lines stay as they are, unless a head has several.

use regorus::unstable::{Rule, RuleHead};

use crate::syntax::{parsed, without_comments};

/// Repeats heads in a text. A text that cannot be parsed stays as it is.
pub(crate) fn adapted(text: &str, is_v1: bool) -> String {
    if !can_have_several(text) {
        return text.to_owned();
    }
    let Some(mut engine) = parsed(text, is_v1) else {
        return text.to_owned();
    };
    let mut heads: Vec<(usize, String)> = Vec::new();
    for rule in engine
        .get_modules()
        .iter()
        .flat_map(|module| &module.policy)
    {
        let Rule::Spec { head, bodies, .. } = &**rule else {
            continue;
        };
        // Of a set rule, regorus parses no further bodies: `syntax` repeats its head before.
        let (RuleHead::Compr { span, .. } | RuleHead::Func { span, .. }) = head else {
            continue;
        };
        let Some((first, further)) = bodies.split_first() else {
            continue;
        };
        let place = |place: u32| usize::try_from(place).unwrap_or(usize::MAX);
        let further = further.iter().filter(|body| !body.is_else);
        // A string at the end of a head has a quote after the place where the head's span ends.
        if let Some(head) = text.get(place(span.start)..place(first.span.start)) {
            let head = without_comments(head);
            let head = head.trim_end();
            heads.extend(further.map(|body| (place(body.span.start), head.to_owned())));
        }
    }
    heads.sort_by_key(|(at, _)| *at);
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    for (at, head) in heads {
        out.push_str(text.get(copied..at).unwrap_or_default());
        out.push_str(&head);
        out.push(' ');
        copied = at;
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    out
}

/// Whether a closing brace comes before an opening one, with blanks and comments between them. Without this, there is no
/// second body, and the text need not be parsed.
fn can_have_several(text: &str) -> bool {
    text.match_indices('}').any(|(at, _)| {
        let mut rest = text[at + 1..].trim_start();
        while let Some(comment) = rest.strip_prefix('#') {
            rest = comment
                .split_once('\n')
                .map_or("", |(_, after)| after)
                .trim_start();
        }
        rest.starts_with('{')
    })
}
