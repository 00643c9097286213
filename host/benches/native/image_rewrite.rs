//! `image-rewrite` as a webhook without plugins would have it: over the host's own document, with the image references
//! of the SDK. It makes no annotations of what was there before.

use serde_json::Value;
use tollgate::document::{Json, Pointer};
use tollgate::patch::Operation;
use tollgate_sdk::image::{ImagePrefix, ImageReference};

/// What is rewritten to what.
pub(crate) struct ImageRewrite {
    rules: Vec<(ImagePrefix, ImagePrefix)>,
}

// === impl ImageRewrite ===

impl ImageRewrite {
    /// From the plugin's own settings.
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

    pub(crate) fn mutate(&self, object: &Json) -> Vec<Operation> {
        let mirror = object.at("/metadata/annotations/kubernetes.io~1config.mirror");
        if mirror.ok().flatten().is_some() {
            return Vec::new();
        }
        let mut operations = Vec::new();
        for list in ["initContainers", "containers", "ephemeralContainers"] {
            let at = Pointer::from_tokens(["spec", list]);
            let containers = object.lookup(&at).and_then(Json::as_array);
            for (index, container) in containers.unwrap_or_default().iter().enumerate() {
                let image = container.member("image").and_then(Json::as_text);
                let Some(Ok(image)) = image.map(str::parse::<ImageReference>) else {
                    continue;
                };
                let rule = self.rules.iter().find(|(from, _)| from.matches(&image));
                if let Some(rewritten) = rule.and_then(|(from, to)| image.rebase(from, to)) {
                    operations.push(Operation::Replace {
                        path: at.child(&index.to_string()).child("image"),
                        value: Json::text(&rewritten.to_string()),
                    });
                }
            }
        }
        operations
    }
}
