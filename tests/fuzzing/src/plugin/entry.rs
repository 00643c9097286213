//! Writes the functions that the contract requires, around random code.

use wasm_encoder::{BlockType, Instruction, MemArg, ValType};

use super::body::{Body, Writer};
use super::shape::{FUNCTION, Own, Shape};
use crate::choices::Choices;

use Instruction as I;

/// Address of an answer.
const ANSWER: i32 = 0x200;
/// Address of the checksum as text, which is the message of a denial.
const MESSAGE: i32 = 0x300;
/// Address of `{"x":"…"}`, which contains another copy of the checksum.
const MERGE_PATCH: i32 = 0x320;
/// Address of the path of the only operation.
pub(super) const PATH: i32 = 0x340;
/// Address of the only operation.
const OPERATION: i32 = 0x360;
/// Address of the result of `configure`.
const CONFIGURED: i32 = 0x3a0;
/// Address of the result of `describe`, which is in the module's initial data.
const MANIFEST: i32 = 128;
/// Bytes of the first memory that the checksum covers.
const HASHED_BYTES: i32 = 0x9000;
/// Bytes of each other memory that the checksum covers.
const HASHED_BYTES_OF_OTHERS: i32 = 0x400;
/// Length of the checksum as text.
const MESSAGE_BYTES: i32 = 16;

/// Writes the code of all own functions, in their order in the module.
pub(super) fn bodies(shape: &mut Shape, choices: &mut Choices<'_>) -> Vec<Body> {
    let order = shape.order.clone();
    order
        .into_iter()
        .map(|own| body(own, shape, choices))
        .collect()
}

fn body(own: Own, shape: &mut Shape, choices: &mut Choices<'_>) -> Body {
    let signature = shape.signature(shape.number(own));
    let count = shape.signatures.len();
    // The second half of the random functions does not ask about a review, because there is none before the first call.
    let callable_from = match own {
        Own::Random(_) if choices.chance(2) => 0,
        Own::Random(place) => place + 1,
        Own::Mutate | Own::Validate => 0,
        Own::Realloc | Own::Checksum | Own::Write => count,
        _ => count / 2,
    };
    let asks = match own {
        Own::Random(place) => place < count / 2,
        Own::Mutate | Own::Validate => true,
        _ => choices.chance(2),
    };
    let is_plain = own == Own::Describe && choices.chance(70);
    let mut writer = Writer::new(shape, choices, &signature, callable_from);
    writer.asks(asks);
    match own {
        Own::Random(_) | Own::PostReturn | Own::Start => return writer.whole(),
        Own::Realloc => realloc(&mut writer),
        Own::Checksum => checksum(&mut writer),
        Own::Write => write(&mut writer),
        Own::Describe => {
            if !is_plain {
                writer.statements();
            }
            writer.put([I::I32Const(MANIFEST)]);
        }
        Own::Configure => configure(&mut writer),
        Own::Mutate => {
            writer.statements();
            answer(&mut writer, true);
        }
        Own::Validate => {
            writer.statements();
            answer(&mut writer, false);
        }
    }
    writer.finish()
}

fn at(offset: i32) -> MemArg {
    MemArg {
        offset: offset as u64,
        align: 0,
        memory_index: 0,
    }
}

/// Stores a word.
fn keep(writer: &mut Writer<'_, '_, '_>, address: i32, word: i32) {
    writer.put([I::I32Const(address), I::I32Const(word), I::I32Store(at(0))]);
}

/// Writes a bump allocator: it grows the memory as needed and frees nothing.
fn realloc(writer: &mut Writer<'_, '_, '_>) {
    let (block, end) = (writer.local(ValType::I32), writer.local(ValType::I32));
    writer.put([
        // block = (heap + align - 1) & -align
        I::GlobalGet(0),
        I::LocalGet(2),
        I::I32Add,
        I::I32Const(1),
        I::I32Sub,
        I::I32Const(0),
        I::LocalGet(2),
        I::I32Sub,
        I::I32And,
        I::LocalTee(block),
        // end = block + size
        I::LocalGet(3),
        I::I32Add,
        I::LocalTee(end),
        // Grow by the missing bytes.
        I::MemorySize(0),
        I::I32Const(16),
        I::I32Shl,
        I::I32GtU,
        I::If(BlockType::Empty),
        I::LocalGet(end),
        I::MemorySize(0),
        I::I32Const(16),
        I::I32Shl,
        I::I32Sub,
        I::I32Const(16),
        I::I32ShrU,
        I::I32Const(1),
        I::I32Add,
        I::MemoryGrow(0),
        I::Drop,
        I::End,
        I::LocalGet(block),
        I::LocalGet(0),
        I::LocalGet(1),
        I::MemoryCopy {
            src_mem: 0,
            dst_mem: 0,
        },
        I::LocalGet(end),
        I::GlobalSet(0),
        I::LocalGet(block),
    ]);
}

/// Mixes the `i64` on top of the stack into the hash.
fn mix(writer: &mut Writer<'_, '_, '_>, hash: u32) {
    writer.put([
        I::LocalGet(hash),
        I::I64Xor,
        I::I64Const(0x0000_0100_0000_01b3),
        I::I64Mul,
        I::I64Const(23),
        I::I64Rotl,
        I::LocalSet(hash),
    ]);
}

fn checksum(writer: &mut Writer<'_, '_, '_>) {
    let (hash, address) = (writer.local(ValType::I64), writer.local(ValType::I32));
    let memories: Vec<u32> = writer.shape.memories.clone();
    for (memory, pages) in (0..).zip(memories) {
        writer.put([I::MemorySize(memory), I::I64ExtendI32U]);
        mix(writer, hash);
        if pages == 0 {
            continue;
        }
        let bytes = if memory == 0 {
            HASHED_BYTES
        } else {
            HASHED_BYTES_OF_OTHERS
        };
        let place = MemArg {
            offset: 0,
            align: 3,
            memory_index: memory,
        };
        writer.put([
            I::I32Const(0),
            I::LocalSet(address),
            I::Loop(BlockType::Empty),
            I::LocalGet(address),
            I::I64Load(place),
        ]);
        mix(writer, hash);
        writer.put([
            I::LocalGet(address),
            I::I32Const(8),
            I::I32Add,
            I::LocalTee(address),
            I::I32Const(bytes),
            I::I32LtU,
            I::BrIf(0),
            I::End,
        ]);
    }
    let globals = writer.shape.globals.clone();
    for (number, global) in (0..).zip(globals) {
        let to_bits: &[I<'static>] = match global.kind {
            ValType::I32 => &[I::I64ExtendI32U],
            ValType::I64 => &[],
            ValType::F32 => &[I::I32ReinterpretF32, I::I64ExtendI32U],
            ValType::F64 => &[I::I64ReinterpretF64],
            ValType::V128 => &[I::I64x2ExtractLane(1)],
            _ => &[I::RefIsNull, I::I64ExtendI32U],
        };
        writer.put([I::GlobalGet(number)]);
        writer.put(to_bits.iter().cloned());
        mix(writer, hash);
    }
    let tables = writer.shape.tables.len() as u32;
    for table in 0..tables {
        writer.put([
            I::TableSize(table),
            I::I32Const(1),
            I::I32Shl,
            I::I32Const(0),
            I::TableGet(table),
            I::RefIsNull,
            I::I32Or,
            I::I64ExtendI32U,
        ]);
        mix(writer, hash);
    }
    writer.put([I::LocalGet(hash)]);
}

/// Writes the hash as sixteen letters at an address.
fn write(writer: &mut Writer<'_, '_, '_>) {
    let count = writer.local(ValType::I32);
    writer.put([
        I::I32Const(MESSAGE_BYTES),
        I::LocalSet(count),
        I::Loop(BlockType::Empty),
        I::LocalGet(1),
        I::LocalGet(0),
        I::I32WrapI64,
        I::I32Const(15),
        I::I32And,
        I::I32Const(i32::from(b'a')),
        I::I32Add,
        I::I32Store8(at(0)),
        I::LocalGet(0),
        I::I64Const(4),
        I::I64ShrU,
        I::LocalSet(0),
        I::LocalGet(1),
        I::I32Const(1),
        I::I32Add,
        I::LocalSet(1),
        I::LocalGet(count),
        I::I32Const(1),
        I::I32Sub,
        I::LocalTee(count),
        I::BrIf(0),
        I::End,
    ]);
}

fn configure(writer: &mut Writer<'_, '_, '_>) {
    writer.statements();
    // The settings affect the state.
    if writer.choices.chance(70) {
        writer.put([
            I::I32Const(0x2000),
            I::LocalGet(0),
            I::I32Load(at(0)),
            I::LocalGet(1),
            I::I32Xor,
            I::I32Store(at(0)),
        ]);
    }
    // Three in a hundred plugins reject their settings.
    let rejects = i32::from(writer.choices.chance(3));
    keep(writer, CONFIGURED, rejects);
    keep(writer, CONFIGURED + 4, 0);
    keep(writer, CONFIGURED + 8, 0);
    writer.put([I::I32Const(CONFIGURED)]);
}

/// Writes the checksum at an address.
fn write_checksum(writer: &mut Writer<'_, '_, '_>, address: i32) {
    let checksum = writer.shape.number(Own::Checksum);
    let write = writer.shape.number(Own::Write);
    writer.put([I::Call(checksum), I::I32Const(address), I::Call(write)]);
}

/// Writes a denial at an address: its message, no code, no reason, no causes.
fn denial(writer: &mut Writer<'_, '_, '_>, address: i32) {
    write_checksum(writer, MESSAGE);
    keep(writer, address, MESSAGE);
    keep(writer, address + 4, MESSAGE_BYTES);
    for word in 2..8 {
        keep(writer, address + 4 * word, 0);
    }
    if writer.choices.chance(30) {
        // Code 422, without a reason.
        keep(writer, address + 8, 1 | 422 << 16);
    }
}

fn answer(writer: &mut Writer<'_, '_, '_>, mutates: bool) {
    let texts = |writer: &mut Writer<'_, '_, '_>| {
        keep(writer, MERGE_PATCH, i32::from_le_bytes(*b" {\"x"));
        keep(writer, MERGE_PATCH + 4, i32::from_le_bytes(*b"\":  "));
        keep(writer, MERGE_PATCH + 7, i32::from_le_bytes(*b"\"   "));
        write_checksum(writer, MERGE_PATCH + 8);
        keep(
            writer,
            MERGE_PATCH + 8 + MESSAGE_BYTES,
            i32::from_le_bytes(*b"\"}  "),
        );
        keep(writer, ANSWER + 4, MERGE_PATCH);
        keep(writer, ANSWER + 8, MESSAGE_BYTES + 12);
    };
    match (writer.choices.below(20), mutates) {
        // There is no such case, so this is a fault.
        (0, _) => keep(writer, ANSWER, 9),
        (1 | 2, _) => keep(writer, ANSWER, 0),
        (3..9, true) => {
            write_checksum(writer, MESSAGE);
            keep(writer, ANSWER, 1);
            keep(writer, ANSWER + 4, OPERATION);
            keep(writer, ANSWER + 8, 1);
            keep(writer, OPERATION, 0);
            keep(writer, OPERATION + 4, PATH);
            keep(writer, OPERATION + 8, 7);
            keep(writer, OPERATION + 12, 1);
            keep(writer, OPERATION + 16, MESSAGE);
            keep(writer, OPERATION + 20, MESSAGE_BYTES);
        }
        (9..13, true) => {
            keep(writer, ANSWER, 2);
            texts(writer);
        }
        (13..15, true) => {
            keep(writer, ANSWER, 3);
            texts(writer);
        }
        (_, true) => {
            keep(writer, ANSWER, 4);
            denial(writer, ANSWER + 4);
        }
        (_, false) => {
            keep(writer, ANSWER, 1);
            denial(writer, ANSWER + 4);
        }
    }
    writer.put([I::I32Const(ANSWER)]);
}

/// Whether a global's type is a reference.
pub(super) fn is_reference(kind: ValType) -> bool {
    kind == FUNCTION
}
