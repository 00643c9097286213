//! The page for browsers: files that are part of the program, and the headers that keep everything else out of it.
//!
//! The files have no data. Their scripts ask the other paths of the listener, by relative addresses. So the page works
//! the same on the admin listener and behind `tollgate page`.

use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::page::Page;

/// The folder of the page.
pub(super) const PAGE: &str = "/page";
/// The list of replicas that the page shows.
pub(super) const REPLICAS: &str = "/page/replicas";

/// A file of the page: its name, its media type and its content.
type File = (&'static str, &'static str, &'static str);

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

const FILES: &[File] = &[
    ("", HTML, include_str!("../../site/index.html")),
    ("page.css", CSS, include_str!("../../site/page.css")),
    ("icon.svg", SVG, include_str!("../../site/icon.svg")),
    ("api.js", SCRIPT, include_str!("../../site/api.js")),
    ("app.js", SCRIPT, include_str!("../../site/app.js")),
    (
        "decision.js",
        SCRIPT,
        include_str!("../../site/decision.js"),
    ),
    ("dom.js", SCRIPT, include_str!("../../site/dom.js")),
    ("merge.js", SCRIPT, include_str!("../../site/merge.js")),
    (
        "overview.js",
        SCRIPT,
        include_str!("../../site/overview.js"),
    ),
    ("plugin.js", SCRIPT, include_str!("../../site/plugin.js")),
    ("scan.js", SCRIPT, include_str!("../../site/scan.js")),
    ("section.js", SCRIPT, include_str!("../../site/section.js")),
    (
        "sections.js",
        SCRIPT,
        include_str!("../../site/sections.js"),
    ),
];

/// Content-Security-Policy of the page. A browser loads and runs only the page's own files, and sends nothing
/// elsewhere. No other page may embed this one, and no script may turn text into markup.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
);

/// Returns the answer to a path of the page, or none for other paths.
pub(super) fn answer(path: &str) -> Option<Page> {
    if path == PAGE {
        let location = HeaderValue::from_static("page/");
        let page = Page::text(StatusCode::PERMANENT_REDIRECT, "the page is at page/\n");
        return Some(page.with(header::LOCATION, location));
    }
    file(path).map(guarded)
}

/// Returns a file of the page, without the headers that guard it.
pub(super) fn file(path: &str) -> Option<Page> {
    let name = path.strip_prefix(PAGE)?.strip_prefix('/')?;
    let (_, media_type, content) = FILES.iter().find(|(known, ..)| *known == name)?;
    Some(Page::file(media_type, content))
}

/// Returns the list of replicas, each with its name and the relative address of its paths.
pub(super) fn replicas<'r>(replicas: impl IntoIterator<Item = (&'r str, String)>) -> Value {
    let replicas = replicas.into_iter();
    let replicas = replicas.map(|(name, path)| json!({ "name": name, "path": path }));
    json!({ "replicas": replicas.collect::<Vec<_>>() })
}

/// Adds the headers that keep other content out of the page, and the page out of other pages.
pub(super) fn guarded(page: Page) -> Page {
    let own = HeaderValue::from_static("same-origin");
    page.with(header::CONTENT_SECURITY_POLICY, POLICY)
        .with(
            header::REFERRER_POLICY,
            HeaderValue::from_static("no-referrer"),
        )
        .with(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"))
        .with(
            header::HeaderName::from_static("cross-origin-opener-policy"),
            own.clone(),
        )
        .with(
            header::HeaderName::from_static("cross-origin-resource-policy"),
            own,
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_names_only_its_own_files() {
        let (_, _, index) = FILES.first().expect("the page");
        for attribute in ["src=\"", "href=\""] {
            for rest in index.split(attribute).skip(1) {
                let name = rest.split('"').next().unwrap_or_default();
                let is_own =
                    name.starts_with('#') || FILES.iter().any(|(known, ..)| *known == name);
                assert!(is_own, "{name}");
            }
        }
        // The policy would stop these.
        for word in [
            "<style",
            " style=",
            " onclick=",
            "<script>",
            "http:",
            "https:",
        ] {
            assert!(!index.contains(word), "{word}");
        }
    }

    #[test]
    fn scripts_import_only_files_of_the_page_and_write_no_markup() {
        for (name, _, content) in FILES.iter().filter(|(_, kind, _)| *kind == SCRIPT) {
            for rest in content.split(" from \"").skip(1) {
                let import = rest.split('"').next().unwrap_or_default();
                let file = import.strip_prefix("./").unwrap_or(import);
                let is_own = FILES.iter().any(|(known, ..)| *known == file);
                assert!(is_own, "{name} imports {import}");
            }
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ] {
                assert!(!content.contains(word), "{name} has {word}");
            }
        }
    }

    #[test]
    fn other_paths_are_not_of_the_page() {
        for path in [
            "/",
            "/pages",
            "/page/nothing.js",
            "/page/../plugins",
            "/plugins",
        ] {
            assert!(answer(path).is_none(), "{path}");
        }
        assert!(answer("/page").is_some() && answer("/page/").is_some());
    }
}
