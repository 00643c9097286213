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

/// The place of an image in compiled code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The number of the part of the code.
    pub part: usize,
    /// The first byte of the image in that part.
    pub offset: u64,
}

/// Finds the place of each image in the parts of the code of a separated component. `images` are the sizes of the images.
///
/// # Errors
/// When the code does not have exactly one place for each image. A plugin could contain the same bytes on purpose.
pub fn slots<P: AsRef<[u8]>>(parts: &[P], images: &[u64]) -> Result<Vec<Slot>, SlotError> {
    let sizes = images.iter().enumerate();
    let longest = parts.iter().map(|part| part.as_ref().len()).max();
    sizes
        .map(|(image, bytes)| {
            let placeholder = usize::try_from(*bytes)
                .ok()
                .filter(|bytes| (ALIGNMENT..=longest.unwrap_or(0)).contains(bytes))
                .map(|bytes| placeholder(image, bytes))
                .ok_or(SlotError { image, found: 0 })?;
            let mut places = Vec::new();
            for (part, code) in parts.iter().map(AsRef::as_ref).enumerate() {
                let offsets = (0..code.len()).step_by(ALIGNMENT);
                let found = offsets.filter(|offset| code[*offset..].starts_with(&placeholder));
                places.extend(found.map(|offset| Slot {
                    part,
                    offset: offset as u64,
                }));
            }
            match places[..] {
                [place] => Ok(place),
                _ => Err(SlotError {
                    image,
                    found: places.len(),
                }),
            }
        })
        .collect()
}
