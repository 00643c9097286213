//! The contents of a module's memory, as its data segments write them.

use wasmparser::{
    BinaryReaderError, Data, DataKind, MemoryType, Operator, Parser, Payload, TypeRef,
};

/// Size of a page of WebAssembly, in bytes.
const PAGE: u64 = 1 << 16;
/// Large images end at coarser boundaries: at a sixteenth of their size, as a power of two.
const COARSE: u64 = 16;
/// Size up to which an image may consist of zeros for the greater part: wasmtime's `memory_guaranteed_dense_image_size`. The
/// heap of a plugin in Go is such an image.
const SPARSE_BYTES: u64 = 16 << 20;

/// The only memory of a module, with its data.
pub(crate) struct Memory<'m> {
    kind: MemoryType,
    initial_bytes: u64,
    segments: Vec<(u64, &'m [u8])>,
}

/// The contents of a memory from one page to another.
pub(crate) struct Image {
    /// Address of the first byte. The bits of an unsigned number.
    pub(crate) offset: i32,
    pub(crate) content: Vec<u8>,
}

// === impl Memory ===

impl<'m> Memory<'m> {
    /// Reads the memory of a module. Returns `None` unless the module has exactly one memory, of 32 bits and not shared. Data
    /// segments must initialise it at fixed addresses. Passive segments do not matter if no code refers to them. Snapshots
    /// leave such segments behind.
    pub(crate) fn read(module: &'m [u8]) -> Result<Option<Self>, BinaryReaderError> {
        let mut memories = Vec::new();
        let mut segments = Some(Vec::new());
        let mut counts_data = false;
        for payload in Parser::new(0).parse_all(module) {
            match payload? {
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        if let TypeRef::Memory(_) = import?.ty {
                            return Ok(None);
                        }
                    }
                }
                Payload::MemorySection(section) => {
                    memories = section.into_iter().collect::<Result<_, _>>()?;
                }
                Payload::DataCountSection { .. } => counts_data = true,
                Payload::CodeSectionEntry(body) if counts_data => {
                    // Without the count of data segments, code cannot refer to them.
                    for operator in body.get_operators_reader()? {
                        if let Operator::MemoryInit { .. }
                        | Operator::DataDrop { .. }
                        | Operator::ArrayNewData { .. }
                        | Operator::ArrayInitData { .. } = operator?
                        {
                            return Ok(None);
                        }
                    }
                }
                Payload::DataSection(section) => {
                    for data in section {
                        let data = data?;
                        if let DataKind::Passive = data.kind {
                            continue;
                        }
                        let segment = segment(data)?;
                        segments = segments.zip(segment).map(|(mut segments, segment)| {
                            segments.push(segment);
                            segments
                        });
                    }
                }
                _ => {}
            }
        }
        let [memory] = memories[..] else {
            return Ok(None);
        };
        Ok(segments.and_then(|segments| Self::new(memory, segments)))
    }

    fn new(memory: MemoryType, segments: Vec<(u64, &'m [u8])>) -> Option<Self> {
        let is_usual = !memory.memory64 && !memory.shared && memory.page_size_log2.is_none();
        let initial_bytes = memory.initial.checked_mul(PAGE)?;
        let fits = |(offset, data): &(u64, &[u8])| offset + data.len() as u64 <= initial_bytes;
        (is_usual && segments.iter().all(fits)).then_some(Self {
            kind: memory,
            initial_bytes,
            segments,
        })
    }

    /// The type of the memory.
    pub(crate) fn kind(&self) -> MemoryType {
        self.kind
    }

    /// Builds the image of the memory. Returns `None` if the memory is empty, or if it consists of zeros for the greater
    /// part: the host initialises such memories segment by segment.
    pub(crate) fn image(&self) -> Option<Image> {
        let written = || self.segments.iter().filter(|(_, data)| !data.is_empty());
        let first = written().map(|(offset, _)| *offset).min()?;
        let ends = written().map(|(offset, data)| offset + data.len() as u64);
        let end = ends.max()?;
        let data_bytes: u64 = written().map(|(_, data)| data.len() as u64).sum();
        if end - first >= SPARSE_BYTES && end - first >= data_bytes.saturating_mul(2) {
            return None;
        }
        let mut content = vec![0; usize::try_from(end - first).ok()?];
        for (offset, data) in written() {
            let at = usize::try_from(offset - first).ok()?;
            content[at..at + data.len()].copy_from_slice(data);
        }
        // Zeros at either end are no content. They vary with the tool that wrote the segments.
        let last = content.iter().rposition(|byte| *byte != 0)?;
        content.truncate(last + 1);
        let zeros = content.iter().position(|byte| *byte != 0)?;
        content.drain(..zeros);

        let first = first + zeros as u64;
        let begin = first / PAGE * PAGE;
        let end = first + content.len() as u64;
        let unit = ((end - begin).next_power_of_two() / COARSE).max(PAGE);
        let end = (end.div_ceil(unit) * unit).min(self.initial_bytes);
        content.splice(
            ..0,
            std::iter::repeat_n(0, usize::try_from(first - begin).ok()?),
        );
        content.resize(usize::try_from(end - begin).ok()?, 0);
        Some(Image {
            offset: u32::try_from(begin).ok()?.cast_signed(),
            content,
        })
    }
}

/// The address and the bytes of a segment. `None` if its address is computed, or in another memory.
fn segment(data: Data<'_>) -> Result<Option<(u64, &[u8])>, BinaryReaderError> {
    let DataKind::Active {
        memory_index: 0,
        offset_expr,
    } = data.kind
    else {
        return Ok(None);
    };
    let operators: Vec<_> = offset_expr
        .get_operators_reader()
        .into_iter()
        .collect::<Result<_, _>>()?;
    Ok(match operators[..] {
        [Operator::I32Const { value }, Operator::End] => {
            Some((value.cast_unsigned().into(), data.data))
        }
        _ => None,
    })
}
