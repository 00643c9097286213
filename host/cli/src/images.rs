//! Which images are signed, from files and suites, for reviews without registries.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use tollgate_admission::images::{FixedImage, FixedImages, FixedResult, ImageVerifier, NoImages};
use tollgate_config::problem::Collector;
use tollgate_config::read::{Fields, Node};
use tollgate_config::{Reference, yaml};

/// The key of the images, in a suite and in a file.
pub(crate) const KEY: &str = "images";

const IMAGES_EXPECTED: &str =
    "images such as {image: registry.example.com/app:1, result: verified}";
const IMAGE_EXPECTED: &str = "an image, such as nginx:1.29 or registry.example.com/app@sha256:…";
const DIGEST_EXPECTED: &str = "a digest of `sha256:` and 64 hexadecimal digits";
const TEXT_EXPECTED: &str = "a text";
const NO_FILE: &str = "this host verifies no images: give it a file with `--images FILE`";
const RESULTS: &[(&str, FixedResult)] = &[
    ("verified", FixedResult::Verified),
    ("last-known-good", FixedResult::LastKnownGood),
    ("unsigned", FixedResult::Unsigned),
    ("untrusted", FixedResult::Untrusted),
    ("not-found", FixedResult::NotFound),
    ("unavailable", FixedResult::Unavailable),
];

/// Reads the images of a file, which has them under the key `images` as a suite does. Without a file, nobody verifies
/// images. Registries are never asked.
pub(crate) fn of_file(path: Option<&Path>) -> anyhow::Result<Arc<dyn ImageVerifier>> {
    let Some(path) = path else {
        return Ok(Arc::new(NoImages::because(NO_FILE)));
    };
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let problems = Collector::default();
    let images = yaml::read(&text, &problems).and_then(|document| {
        let mut fields = Node::root(&document, &problems).object()?;
        let images = fields
            .required(KEY, IMAGES_EXPECTED)
            .and_then(|node| read_images(&node));
        fields.finish();
        images
    });
    let images = problems.finish(images);
    let images = images.map_err(|problems| anyhow!("{}: {problems}", path.display()))?;
    Ok(of_list(images))
}

/// Makes a verifier of a list.
pub(crate) fn of_list(images: impl IntoIterator<Item = FixedImage>) -> Arc<dyn ImageVerifier> {
    Arc::new(FixedImages::new(images))
}

/// Reads a list of images. Every problem is reported.
pub(crate) fn read_images(node: &Node<'_>) -> Option<Vec<FixedImage>> {
    let images = node.elements("images")?;
    let images: Vec<Option<FixedImage>> = images.iter().map(read_image).collect();
    images.into_iter().collect()
}

fn read_image(node: &Node<'_>) -> Option<FixedImage> {
    let mut fields = node.object()?;
    let image = fields
        .required("image", IMAGE_EXPECTED)
        .and_then(|node| read_name(&node));
    let policy = text(&mut fields, "policy");
    let result = fields
        .required("result", "what is true of the image, such as verified")
        .and_then(|node| node.word(RESULTS));
    let digest = fields.optional("digest").map(|node| read_digest(&node));
    let signers = fields.optional("signers").map(|node| {
        let nodes = node.elements("names")?;
        let names = nodes.iter().map(|node| {
            let name = node.quotable_text(TEXT_EXPECTED)?;
            Some(name.to_owned())
        });
        names.collect::<Option<Vec<String>>>()
    });
    let reason = text(&mut fields, "reason");
    fields.finish();
    Some(FixedImage {
        image: image?,
        policy,
        result: result?,
        digest: digest.map_or(Some(None), |digest| digest.map(Some))?,
        signers: signers.unwrap_or_else(|| Some(Vec::new()))?,
        reason,
    })
}

fn read_name(node: &Node<'_>) -> Option<String> {
    let image = Reference::of_image(node.quotable_text(IMAGE_EXPECTED)?).ok();
    if image.is_none() {
        node.reject(IMAGE_EXPECTED);
    }
    image.map(|image| image.to_string())
}

fn read_digest(node: &Node<'_>) -> Option<String> {
    let digest = node.quotable_text(DIGEST_EXPECTED)?;
    if Reference::of_image(&format!("a.example/a@{digest}")).is_err() {
        node.reject(DIGEST_EXPECTED);
        return None;
    }
    Some(digest.to_owned())
}

fn text(fields: &mut Fields<'_>, key: &'static str) -> Option<String> {
    let node = fields.optional(key)?;
    node.quotable_text(TEXT_EXPECTED).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images(text: &str) -> Result<Vec<FixedImage>, String> {
        let problems = Collector::default();
        let read = yaml::read(text, &problems)
            .and_then(|value| read_images(&Node::at(KEY, &value, &problems)));
        problems
            .finish(read)
            .map_err(|problems| problems.to_string())
    }

    #[test]
    fn reads_images_with_abbreviations() {
        let read = images("[{ image: nginx, policy: a, result: verified, signers: [release] }]");
        let expected = FixedImage {
            image: "docker.io/library/nginx:latest".to_owned(),
            policy: Some("a".to_owned()),
            result: FixedResult::Verified,
            digest: None,
            signers: vec!["release".to_owned()],
            reason: None,
        };
        assert_eq!(read.unwrap(), [expected]);
    }

    #[test]
    fn refuses_images_that_could_mean_something_else() {
        for (image, problem) in [
            ("{ result: verified }", "images[0].image: missing"),
            ("{ image: nginx }", "images[0].result: missing"),
            ("{ image: Nginx, result: verified }", "images[0].image"),
            ("{ image: nginx, result: signed }", "images[0].result"),
            (
                "{ image: nginx, result: verified, digest: 'sha256:ab' }",
                "images[0].digest",
            ),
            (
                "{ image: nginx, result: verified, signer: a }",
                "images[0].signer",
            ),
        ] {
            let problems = images(&format!("[{image}]")).unwrap_err();
            assert!(problems.contains(problem), "{image}: {problems}");
        }
    }
}
