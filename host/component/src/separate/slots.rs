//! The places of images in compiled code.

/// Begins each placeholder. The number of the image and its size follow.
const MARK: [u8; 33] = *b"\x7ftollgate: an image belongs here\x80";
/// Ends each placeholder. The compiler cuts zeros off at the end of an image.
const END: u8 = 0x7f;
/// Alignment of images in compiled code, in bytes: the smallest page of a processor.
const ALIGNMENT: usize = 4096;

/// Error: the compiled code does not have exactly one place for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the compiled code has {found} places for image {image} of the plugin's memory; expected one"
)]
pub struct SlotError {
    image: usize,
    found: usize,
}

/// The content that stands for an image until the image is filled in. An image has at least one page.
pub(crate) fn placeholder(image: usize, bytes: usize) -> Vec<u8> {
    let mut content = MARK.to_vec();
    content.extend_from_slice(&(image as u64).to_le_bytes());
    content.extend_from_slice(&(bytes as u64).to_le_bytes());
    content.resize(bytes - 1, 0);
    content.push(END);
    content
}

/// Finds the place of each image in the code of a separated component. `images` are the sizes of the images.
///
/// # Errors
/// When the code does not have exactly one place for each image. A plugin could contain the same bytes on purpose.
pub fn slots(code: &[u8], images: &[u64]) -> Result<Vec<u64>, SlotError> {
    let sizes = images.iter().enumerate();
    sizes
        .map(|(image, bytes)| {
            let placeholder = usize::try_from(*bytes)
                .ok()
                .filter(|bytes| (ALIGNMENT..=code.len()).contains(bytes))
                .map(|bytes| placeholder(image, bytes))
                .ok_or(SlotError { image, found: 0 })?;
            let places = (0..code.len()).step_by(ALIGNMENT);
            let places: Vec<_> = places
                .filter(|place| code[*place..].starts_with(&placeholder))
                .collect();
            match places[..] {
                [place] => Ok(place as u64),
                _ => Err(SlotError {
                    image,
                    found: places.len(),
                }),
            }
        })
        .collect()
}
