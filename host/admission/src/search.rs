//! The question that a reader asks about the kept decisions: which ones, and how many of them.

/// Selects some of the kept decisions. An absent part selects all of them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Search {
    /// The beginning of the uid.
    pub uid: Option<String>,
    /// A part of the user's name, in any case.
    pub user: Option<String>,
    /// A part of `Kind namespace/name`, in any case. Objects without a namespace are `Kind name`.
    pub object: Option<String>,
    /// The namespace, in full.
    pub namespace: Option<String>,
    /// A part of the name of a plugin that was called, in any case.
    pub plugin: Option<String>,
    /// The verdict, in full.
    pub verdict: Option<String>,
    /// Selects decisions with a lower number. Later decisions have higher numbers.
    pub before: Option<u64>,
    /// The most decisions to return.
    pub limit: usize,
}

/// The fields of one decision that a search compares.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'d> {
    /// The uid of the review.
    pub uid: &'d str,
    /// The name of the user.
    pub user: &'d str,
    /// The kind of the object.
    pub kind: &'d str,
    /// The namespace, unless the object is cluster-scoped.
    pub namespace: Option<&'d str>,
    /// The name of the object.
    pub name: &'d str,
    /// The verdict.
    pub verdict: &'d str,
}

// === impl Search ===

impl Search {
    /// Whether a decision is among the selected ones. `plugins` are the names of the plugins that were called.
    pub fn selects<'p>(
        &self,
        subject: &Subject<'_>,
        plugins: impl IntoIterator<Item = &'p str>,
    ) -> bool {
        let begins = |uid: &str| subject.uid.starts_with(uid);
        let is = |wanted: &str| subject.namespace == Some(wanted);
        all(self.uid.as_deref(), begins)
            && all(self.verdict.as_deref(), |verdict| {
                subject.verdict == verdict
            })
            && all(self.namespace.as_deref(), is)
            && all(self.user.as_deref(), |user| contains(subject.user, user))
            && all(self.object.as_deref(), |object| {
                contains(&subject.object(), object)
            })
            && all(self.plugin.as_deref(), |wanted| {
                plugins.into_iter().any(|name| contains(name, wanted))
            })
    }
}

// === impl Subject ===

impl Subject<'_> {
    fn object(&self) -> String {
        match self.namespace {
            Some(namespace) => format!("{} {namespace}/{}", self.kind, self.name),
            None => format!("{} {}", self.kind, self.name),
        }
    }
}

/// Whether the part is absent or matches.
fn all(part: Option<&str>, matches: impl FnOnce(&str) -> bool) -> bool {
    part.is_none_or(matches)
}

/// Whether one text contains another one, in any case.
#[must_use]
pub fn contains(text: &str, part: &str) -> bool {
    text.to_lowercase().contains(&part.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBJECT: Subject<'static> = Subject {
        uid: "705ab4f5-6393-11e8-b7cc-42010a800002",
        user: "system:serviceaccount:shop:Deployer",
        kind: "Pod",
        namespace: Some("shop"),
        name: "web-1",
        verdict: "denied",
    };

    fn selects(search: &Search) -> bool {
        search.selects(&SUBJECT, ["labels", "image-rewrite"])
    }

    fn of(set: impl FnOnce(&mut Search, Option<String>), text: &str) -> bool {
        let mut search = Search::default();
        set(&mut search, Some(text.to_owned()));
        selects(&search)
    }

    #[test]
    fn empty_search_selects_everything() {
        assert!(selects(&Search::default()));
    }

    #[test]
    fn compares_each_part_in_its_own_way() {
        let uid = |text| of(|search, text| search.uid = text, text);
        assert!(uid("705ab4f5") && uid("7") && !uid("6393"));
        let user = |text| of(|search, text| search.user = text, text);
        assert!(user("deployer") && user("SYSTEM:") && !user("anna"));
        let object = |text| of(|search, text| search.object = text, text);
        assert!(object("pod") && object("shop/web") && object("Pod shop/web-1"));
        assert!(!object("web-2") && !object("shop web"));
        let namespace = |text| of(|search, text| search.namespace = text, text);
        assert!(namespace("shop") && !namespace("sho") && !namespace(""));
        let plugin = |text| of(|search, text| search.plugin = text, text);
        assert!(plugin("labels") && plugin("Rewrite") && !plugin("team"));
        let verdict = |text| of(|search, text| search.verdict = text, text);
        assert!(verdict("denied") && !verdict("den"));
    }

    #[test]
    fn all_parts_must_match() {
        let search = Search {
            user: Some("deployer".to_owned()),
            plugin: Some("team".to_owned()),
            ..Search::default()
        };
        assert!(!selects(&search));
    }

    #[test]
    fn object_without_namespace_is_kind_and_name() {
        let subject = Subject {
            namespace: None,
            kind: "Namespace",
            ..SUBJECT
        };
        let search = Search {
            object: Some("namespace web".to_owned()),
            ..Search::default()
        };
        assert!(search.selects(&subject, []));
    }
}
