//! `image-rewrite` as in a webhook without plugins: works on the host's parsed document, with the SDK's image
//! references. It does not annotate the original images.

use serde_json::Value;
use tollgate_json::document::{Json, Pointer};
use tollgate_sdk::image::{ImagePrefix, ImageReference};

use crate::changes::Changes;

/// The rewrite rules, as pairs of prefixes.
pub(crate) struct ImageRewrite {
    rules: Vec<(ImagePrefix, ImagePrefix)>,
}

// === impl ImageRewrite ===

impl ImageRewrite {
    /// Reads the plugin's settings.
    pub(crate) fn new(settings: &Value) -> Self {
        let prefix = |text: &Value| {
            let text = text.as_str().expect("a rule has two prefixes");
            text.parse().expect("the settings have valid prefixes")
        };
        let rules = settings["rewrite"]
            .as_array()
            .expect("`rewrite` is there")
            .iter()
            .map(|rule| (prefix(&rule["from"]), prefix(&rule["to"])));
        Self {
            rules: rules.collect(),
        }
    }

    pub(crate) fn mutate(&self, object: &mut Json, changes: &mut Changes) {
        let mirror = object.at("/metadata/annotations/kubernetes.io~1config.mirror");
        if mirror.ok().flatten().is_some() {
            return;
        }
        for list in ["initContainers", "containers", "ephemeralContainers"] {
            let at = Pointer::from_tokens(["spec", list]);
            let containers = object.lookup(&at).and_then(Json::as_array);
            let rewritten: Vec<(usize, ImageReference)> = containers
                .unwrap_or_default()
                .iter()
                .enumerate()
                .filter_map(|(index, container)| Some((index, self.rewritten(container)?)))
                .collect();
            for (index, image) in rewritten {
                let at = at.child(&index.to_string()).child("image");
                changes.replace(object, at, Json::text(&image.to_string()));
            }
        }
    }

    fn rewritten(&self, container: &Json) -> Option<ImageReference> {
        let image = container.member("image").and_then(Json::as_text)?;
        let image: ImageReference = image.parse().ok()?;
        let (from, to) = self.rules.iter().find(|(from, _)| from.matches(&image))?;
        image.rebase(from, to)
    }
}
