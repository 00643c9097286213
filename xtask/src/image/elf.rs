//! Tells a static binary from one that needs a loader, and a stripped one from one with symbols.

/// Type of the program header that names the loader.
const PT_INTERP: u32 = 3;

/// Checks that a 64-bit ELF binary needs no loader. An image without other files cannot run one that does.
pub(crate) fn ensure_static(program: &[u8]) -> anyhow::Result<()> {
    let names_loader = has_loader(program);
    let names_loader = names_loader.ok_or_else(|| {
        anyhow::anyhow!("not a 64-bit little-endian ELF binary: the image needs one for Linux")
    })?;
    anyhow::ensure!(
        !names_loader,
        "the binary is linked dynamically, and the image has no loader: compile it for a musl target"
    );
    Ok(())
}

/// Type of the section that has the symbols.
const SHT_SYMTAB: u32 = 2;

/// Checks that a 64-bit ELF binary has no symbols.
pub(crate) fn ensure_stripped(program: &[u8]) -> anyhow::Result<()> {
    anyhow::ensure!(
        has_symbols(program) == Some(false),
        "the binary has symbols: compile it with the profile `release`, which strips it"
    );
    Ok(())
}

/// Whether the binary has a table of symbols; none if it is not such a binary.
fn has_symbols(program: &[u8]) -> Option<bool> {
    let table = usize::try_from(number(program, 40, 8)?).ok()?;
    let (size, count) = (number(program, 58, 2)?, number(program, 60, 2)?);
    for index in 0..count {
        let at = table.checked_add(usize::try_from(index * size).ok()?)?;
        if number(program, at.checked_add(4)?, 4)? == u64::from(SHT_SYMTAB) {
            return Some(true);
        }
    }
    Some(false)
}

/// Reads a little-endian number of up to eight bytes.
fn number(program: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = program.get(at..at.checked_add(length)?)?;
    let mut whole = [0; 8];
    whole.get_mut(..length)?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(whole))
}

/// Whether a program header names a loader; none if this is not such a binary.
fn has_loader(program: &[u8]) -> Option<bool> {
    if program.get(..6)? != [0x7f, b'E', b'L', b'F', 2, 1] {
        return None;
    }
    let number = |at: usize, length: usize| number(program, at, length);
    let table = usize::try_from(number(32, 8)?).ok()?;
    let (size, count) = (number(54, 2)?, number(56, 2)?);
    for index in 0..count {
        let at = table.checked_add(usize::try_from(index * size).ok()?)?;
        if number(at, 4)? == u64::from(PT_INTERP) {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF header, and one program header of a type.
    fn binary(kind: u32) -> Vec<u8> {
        let mut binary = vec![0; 64 + 56];
        binary[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        binary[32] = 64;
        binary[54] = 56;
        binary[56] = 1;
        binary[64..68].copy_from_slice(&kind.to_le_bytes());
        binary
    }

    #[test]
    fn refuses_binaries_with_a_loader() {
        assert!(ensure_static(&binary(1)).is_ok());
        assert!(ensure_static(&binary(PT_INTERP)).is_err());
        assert!(ensure_static(b"#!/bin/sh\n").is_err());
        assert!(ensure_static(&binary(1)[..80]).is_ok());
        assert!(ensure_static(&binary(1)[..60]).is_err());
    }

    #[test]
    fn refuses_binaries_with_symbols() {
        // One section header after the program header.
        let with_section = |kind: u8| {
            let mut binary = binary(1);
            binary[40] = 120;
            binary[58] = 64;
            binary[60] = 1;
            binary.resize(120 + 64, 0);
            binary[124] = kind;
            binary
        };
        assert!(ensure_stripped(&with_section(1)).is_ok());
        assert!(ensure_stripped(&with_section(2)).is_err());
        assert!(ensure_stripped(&with_section(2)[..122]).is_err());
    }
}
