//! Reads `Link` headers, with which a registry says where the next page of a list is.
//!
//! Source: RFC 8288, section 3, and OCI distribution specification 1.1, "Listing Referrers".

use reqwest::header::{HeaderMap, LINK};

/// The target of the first link to a next page. It may be relative to the URL of this page.
pub(super) fn next(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(LINK).iter();
    let mut values = values.filter_map(|value| value.to_str().ok());
    values.find_map(next_in).map(str::to_owned)
}

/// The target of the first link to a next page in the value of a header.
pub(super) fn next_in(value: &str) -> Option<&str> {
    let mut rest = value;
    loop {
        let (_, link) = rest.split_once('<')?;
        let (target, after) = link.split_once('>')?;
        let (parameters, others) = cut(after, ',');
        if is_next(parameters) {
            return Some(target.trim());
        }
        rest = others;
    }
}

/// Whether the first `rel` among the parameters of a link has the relation `next`. Later ones do not count.
fn is_next(parameters: &str) -> bool {
    let mut rest = parameters;
    while !rest.is_empty() {
        let (parameter, others) = cut(rest, ';');
        rest = others;
        let Some((name, value)) = parameter.split_once('=') else {
            continue;
        };
        if name.trim().eq_ignore_ascii_case("rel") {
            let mut relations = value.trim().trim_matches('"').split_ascii_whitespace();
            return relations.any(|relation| relation.eq_ignore_ascii_case("next"));
        }
    }
    false
}

/// The text before and after the first separator that is outside of quotes.
fn cut(text: &str, separator: char) -> (&str, &str) {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ if character == separator && !is_quoted => {
                return (&text[..at], &text[at + separator.len_utf8()..]);
            }
            _ => {}
        }
    }
    (text, "")
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn finds_the_link_to_the_next_page() {
        for (value, target) in [
            (
                r#"</v2/a/referrers/b?n=2>; rel="next""#,
                Some("/v2/a/referrers/b?n=2"),
            ),
            ("<?n=2>;rel=next", Some("?n=2")),
            (r#"<a>; REL = "last NEXT""#, Some("a")),
            (
                r#"<a>; rel="prev", <b,c;d>; title="x, <y>; rel=\"next\""; rel="next""#,
                Some("b,c;d"),
            ),
            (r#"<a>; rel="prev"; rel="next""#, None),
            (r#"<a>; title="rel=next""#, None),
            (r#"<a>; rel="nextpage""#, None),
            ("<a>", None),
            ("<a; rel=next", None),
            ("a; rel=next", None),
            ("", None),
        ] {
            assert_eq!(next_in(value), target, "{value}");
        }
    }

    #[test]
    fn reads_every_header_of_the_name() {
        let mut headers = HeaderMap::new();
        assert_eq!(next(&headers), None);
        headers.append(LINK, HeaderValue::from_static("<a>; rel=prev"));
        headers.append(LINK, HeaderValue::from_bytes(b"<\xff>; rel=next").unwrap());
        headers.append(LINK, HeaderValue::from_static("<b>; rel=next"));
        assert_eq!(next(&headers).as_deref(), Some("b"));
    }
}
