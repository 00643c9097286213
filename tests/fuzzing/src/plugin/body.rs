//! Generates random code that is valid by construction.

use std::borrow::Cow;

use wasm_encoder::{BlockType, Catch, HeapType, Instruction, MemArg, ValType};

use super::shape::{FUNCTION, Import, Own, Shape, Signature, number};
use crate::choices::Choices;

/// The code of one function.
#[derive(Debug)]
pub(super) struct Body {
    /// Types of its locals, without parameters.
    pub(super) locals: Vec<ValType>,
    /// The instructions, without the final `end`.
    pub(super) code: Vec<Instruction<'static>>,
}

/// Writes the body of a function.
pub(super) struct Writer<'s, 'c, 'd> {
    pub(super) shape: &'s mut Shape,
    pub(super) choices: &'c mut Choices<'d>,
    pub(super) code: Vec<Instruction<'static>>,
    /// Types of parameters and locals.
    locals: Vec<ValType>,
    parameters: usize,
    results: Vec<ValType>,
    /// Result types of the enclosing labels, innermost last.
    labels: Vec<Vec<ValType>>,
    /// Remaining budget for code to write.
    budget: i32,
    /// Random functions at this index and above may be called, so there is hardly any recursion.
    callable_from: usize,
    /// Number of enclosing loops.
    loops: u32,
    /// Whether the function may ask about the review, which traps while a plugin is being loaded.
    asks: bool,
}

/// Where random code stores: above the data of the contract's functions, below the start of the heap.
pub(super) const PLAYGROUND: u32 = 0x4000;
/// Address of the texts that are passed to host functions.
pub(super) const TEXTS: u32 = 0x400;
/// Address for the results of host functions.
const RETURNED: i32 = 0x3000;

/// Pointers, patterns and names that are passed to host functions.
pub(super) const WORDS: [&str; 12] = [
    "",
    "/metadata/name",
    "/metadata/labels",
    "/metadata",
    "/spec/containers/*/image",
    "/spec/containers/0/image",
    "/spec/replicas",
    "/spec/*",
    "/absent/place",
    "note",
    "a warning",
    "/metadata/annotations/a~1b",
];

use Instruction as I;

const I32: ValType = ValType::I32;
const I64: ValType = ValType::I64;
const F32: ValType = ValType::F32;
const F64: ValType = ValType::F64;
const V128: ValType = ValType::V128;

// === impl Writer ===

impl<'s, 'c, 'd> Writer<'s, 'c, 'd> {
    /// Creates a writer for a function with this signature.
    pub(super) fn new(
        shape: &'s mut Shape,
        choices: &'c mut Choices<'d>,
        signature: &Signature,
        callable_from: usize,
    ) -> Self {
        let mut locals = signature.parameters.clone();
        for _ in 0..choices.below(5) {
            let kind = match choices.below(16) {
                0 => V128,
                1 => FUNCTION,
                _ => number(choices),
            };
            locals.push(kind);
        }
        let budget = match choices.below(8) {
            0 => 4,
            1..6 => 15 + choices.below(30) as i32,
            _ => 40 + choices.below(80) as i32,
        };
        Self {
            shape,
            choices,
            code: Vec::new(),
            parameters: signature.parameters.len(),
            results: signature.results.clone(),
            locals,
            labels: vec![signature.results.clone()],
            budget,
            callable_from,
            loops: 0,
            asks: true,
        }
    }

    /// Sets whether the function may ask about the review.
    pub(super) fn asks(&mut self, asks: bool) {
        self.asks = asks;
    }

    /// Writes random statements, then the results.
    pub(super) fn whole(mut self) -> Body {
        self.statements();
        for result in self.results.clone() {
            self.value(result, 0);
        }
        self.finish()
    }

    /// Returns the code written so far.
    pub(super) fn finish(self) -> Body {
        Body {
            locals: self.locals[self.parameters..].to_vec(),
            code: self.code,
        }
    }

    /// Adds a local.
    pub(super) fn local(&mut self, kind: ValType) -> u32 {
        self.locals.push(kind);
        self.locals.len() as u32 - 1
    }

    /// Writes the given instructions.
    pub(super) fn put(&mut self, code: impl IntoIterator<Item = Instruction<'static>>) {
        self.code.extend(code);
    }

    /// Writes some statements.
    pub(super) fn statements(&mut self) {
        for _ in 0..1 + self.choices.below(5) {
            self.statement(0);
        }
    }

    fn statement(&mut self, depth: u32) {
        self.budget -= 1;
        if self.budget <= 0 || depth > 5 {
            self.set(depth);
            return;
        }
        match self.choices.below(40) {
            0..7 => self.set(depth),
            7..14 => self.store(depth),
            14..18 => self.host_call(depth),
            18..22 => self.call(depth),
            22..24 => self.indirect_call(depth),
            24..27 => {
                self.value(I32, depth + 1);
                self.nested(I::If(BlockType::Empty), depth, Vec::new());
                if self.choices.chance(50) {
                    self.code.pop();
                    self.code.push(I::Else);
                    self.labels.push(Vec::new());
                    self.statement(depth + 1);
                    self.labels.pop();
                    self.code.push(I::End);
                }
            }
            27..29 => self.nested(I::Block(BlockType::Empty), depth, Vec::new()),
            29..32 => self.repeat(depth),
            32..34 => self.jump(depth),
            34 => self.bulk(depth),
            35 | 36 => self.exceptions(depth),
            37 => self.tail(depth),
            38 if self.shape.is_beyond_snapshots => self.table_change(depth),
            _ => {
                let kind = self.any();
                self.value(kind, depth + 1);
                self.code.push(I::Drop);
            }
        }
    }

    /// Writes statements within a block or a loop.
    fn nested(&mut self, begin: Instruction<'static>, depth: u32, label: Vec<ValType>) {
        self.code.push(begin);
        self.labels.push(label);
        for _ in 0..1 + self.choices.below(3) {
            self.statement(depth + 1);
        }
        self.labels.pop();
        self.code.push(I::End);
    }

    fn any(&mut self) -> ValType {
        match self.choices.below(16) {
            0 => V128,
            1 => FUNCTION,
            _ => number(self.choices),
        }
    }

    /// Sets a local or a global.
    fn set(&mut self, depth: u32) {
        let globals = self.shape.globals.iter().enumerate().skip(1);
        let globals: Vec<(u32, ValType)> = globals
            .filter(|(_, global)| global.is_mutable)
            .map(|(place, global)| (place as u32, global.kind))
            .collect();
        if !globals.is_empty() && (self.locals.is_empty() || self.choices.chance(50)) {
            let (global, kind) = *self.choices.pick(&globals);
            self.value(kind, depth + 1);
            self.code.push(I::GlobalSet(global));
        } else if !self.locals.is_empty() {
            let local = self.choices.below(self.locals.len());
            self.value(self.locals[local], depth + 1);
            self.code.push(I::LocalSet(local as u32));
        } else {
            self.value(I32, depth + 1);
            self.code.push(I::Drop);
        }
    }

    /// Writes an address. Stores at most of these addresses do no harm.
    fn address(&mut self, depth: u32) {
        self.value(I32, depth + 1);
        if self.choices.chance(97) {
            self.put([
                I::I32Const(0x3fff),
                I::I32And,
                I::I32Const(PLAYGROUND as i32),
                I::I32Add,
            ]);
        }
    }

    fn memory(&mut self) -> u32 {
        let others = self.shape.memories.len() - 1;
        if others > 0 && self.choices.chance(25) && self.shape.memories[1] > 0 {
            return 1;
        }
        0
    }

    fn place(&mut self, size: u32) -> MemArg {
        MemArg {
            offset: self.choices.below(64) as u64,
            align: self.choices.below(size as usize + 1) as u32,
            memory_index: self.memory(),
        }
    }

    fn store(&mut self, depth: u32) {
        self.address(depth);
        let (kind, size, store): (_, _, fn(MemArg) -> I<'static>) = match self.choices.below(10) {
            0 => (I32, 0, I::I32Store8),
            1 => (I32, 1, I::I32Store16),
            2..5 => (I32, 2, I::I32Store),
            5 => (I64, 2, I::I64Store32),
            6 => (I64, 3, I::I64Store),
            7 => (F32, 2, I::F32Store),
            8 => (F64, 3, I::F64Store),
            _ => (V128, 4, I::V128Store),
        };
        self.value(kind, depth + 1);
        let place = self.place(size);
        self.code.push(store(place));
    }

    /// Writes a pointer to a text and its length.
    fn text(&mut self, depth: u32) {
        if self.choices.chance(2) {
            self.value(I32, depth + 1);
            self.value(I32, depth + 1);
            self.put([I::I32Const(0xff), I::I32And]);
            return;
        }
        let word = self.choices.below(WORDS.len());
        let before: usize = WORDS[..word].iter().map(|word| word.len()).sum();
        self.put([
            I::I32Const((TEXTS as usize + before) as i32),
            I::I32Const(WORDS[word].len() as i32),
        ]);
    }

    fn host_call(&mut self, depth: u32) {
        let imports = self.shape.imports.clone();
        let may = |import: &Import| import.interface == "logging" || self.asks;
        let may: Vec<usize> = (0..imports.len())
            .filter(|place| may(&imports[*place]))
            .collect();
        if may.is_empty() {
            return self.set(depth);
        }
        let function = *self.choices.pick(&may);
        match imports[function].name {
            "request" => self.code.push(I::I32Const(RETURNED)),
            "warn" => self.text(depth),
            "annotate" => {
                self.text(depth);
                self.text(depth);
            }
            "log" => {
                let level = self.choices.below(5) as i32;
                self.code.push(I::I32Const(level));
                self.text(depth);
            }
            "abort" => {
                // This ends the call, so it stands behind a condition that is rarely true and never true for zero.
                self.value(I32, depth + 1);
                self.put([
                    I::I32Const(0xff),
                    I::I32And,
                    I::I32Const(0x5a),
                    I::I32Eq,
                    I::If(BlockType::Empty),
                ]);
                self.text(depth);
                self.put(std::iter::repeat_n(I::I32Const(0), 5));
                self.put([I::Call(function as u32), I::End]);
                return;
            }
            _ => {
                let part = match self.choices.below(20) {
                    0 => 1,
                    1 => 2,
                    2 => 3,
                    // There is no such part, so the call traps.
                    3 if self.choices.chance(20) => 9,
                    _ => 0,
                };
                self.code.push(I::I32Const(part));
                self.text(depth);
                self.code.push(I::I32Const(RETURNED));
            }
        }
        self.code.push(I::Call(function as u32));
    }

    /// Returns the indices of the functions that may be called.
    fn callable(&self) -> Vec<u32> {
        let random = self.callable_from..self.shape.signatures.len();
        random
            .map(|place| self.shape.number(Own::Random(place)))
            .collect()
    }

    fn arguments(&mut self, signature: &Signature, depth: u32) {
        for parameter in signature.parameters.clone() {
            self.value(parameter, depth + 1);
        }
    }

    fn call(&mut self, depth: u32) {
        let mut callable = self.callable();
        if callable.is_empty() || self.choices.chance(3) {
            callable = vec![self.shape.number(Own::Checksum)];
        }
        // Calls in nested loops would multiply.
        if self.loops > 1 {
            return self.set(depth);
        }
        let function = *self.choices.pick(&callable);
        let signature = self.shape.signature(function);
        self.arguments(&signature, depth);
        if self.choices.chance(15) {
            self.shape.referred.insert(function);
            let kind = self.shape.kind(&signature);
            self.put([I::RefFunc(function), I::CallRef(kind)]);
        } else {
            self.code.push(I::Call(function));
        }
        self.put(signature.results.iter().map(|_| I::Drop));
    }

    /// Calls a function through a table, mostly one that has the right type.
    fn indirect_call(&mut self, depth: u32) {
        let Some((table, place, signature)) = self.place_in_table() else {
            return self.set(depth);
        };
        if self.loops > 1 {
            return self.set(depth);
        }
        self.arguments(&signature, depth);
        match place {
            Some(place) => self.code.push(I::I32Const(place as i32)),
            None => {
                let size = self.shape.tables[table as usize].size;
                self.value(I32, depth + 1);
                self.put([I::I32Const(size as i32), I::I32RemU]);
            }
        }
        let type_index = self.shape.kind(&signature);
        self.code.push(I::CallIndirect {
            type_index,
            table_index: table,
        });
        self.put(signature.results.iter().map(|_| I::Drop));
    }

    fn place_in_table(&mut self) -> Option<(u32, Option<u32>, Signature)> {
        if self.shape.tables.is_empty() {
            return None;
        }
        let table = self.choices.below(self.shape.tables.len());
        let callable = self.callable();
        let of = &self.shape.tables[table];
        let known = of.elements.iter().copied();
        let mut known: Vec<(u32, u32)> = known
            .filter(|(_, function)| callable.contains(function))
            .collect();
        if known.is_empty() && of.filled_with.is_none() {
            return None;
        }
        if known.is_empty() {
            known = of.elements.clone();
        }
        let (place, function) = *known.get(self.choices.below(known.len()))?;
        let signature = self.shape.signature(function);
        let place = (!self.choices.chance(4)).then_some(place);
        Some((table as u32, place, signature))
    }

    /// Writes a loop with a counter, or rarely an endless one.
    fn repeat(&mut self, depth: u32) {
        if self.loops > 1 {
            return self.set(depth);
        }
        let counter = self.local(I32);
        let endless = self.choices.chance(1);
        let turns = 1 + self.choices.below(6) as i32;
        self.put([
            I::I32Const(turns),
            I::LocalSet(counter),
            I::Loop(BlockType::Empty),
        ]);
        self.labels.push(Vec::new());
        self.loops += 1;
        for _ in 0..1 + self.choices.below(2) {
            self.statement(depth + 1);
        }
        self.loops -= 1;
        self.labels.pop();
        if endless {
            self.code.push(I::Br(0));
        } else {
            self.put([
                I::LocalGet(counter),
                I::I32Const(1),
                I::I32Sub,
                I::LocalTee(counter),
                I::I32Const(0),
                I::I32GtS,
                I::BrIf(0),
            ]);
        }
        self.code.push(I::End);
    }

    /// Writes a jump out of enclosing blocks. It never jumps to a loop, because loops count their own turns.
    fn jump(&mut self, depth: u32) {
        let label = self.choices.below(self.labels.len());
        let target = self.labels[self.labels.len() - 1 - label].clone();
        if self.loops > 0 {
            return self.set(depth);
        }
        for kind in &target {
            self.value(*kind, depth + 1);
        }
        match self.choices.below(8) {
            0..5 => {
                self.value(I32, depth + 1);
                self.code.push(I::BrIf(label as u32));
                self.put(target.iter().map(|_| I::Drop));
            }
            5 | 6 => {
                // Collect all labels that take the same types.
                let alike = self.labels.iter().rev().enumerate();
                let alike: Vec<u32> = alike
                    .filter(|(_, takes)| **takes == target)
                    .map(|(label, _)| label as u32)
                    .collect();
                let labels = (0..self.choices.below(5)).map(|_| *self.choices.pick(&alike));
                let labels: Vec<u32> = labels.collect();
                self.value(I32, depth + 1);
                self.put([I::I32Const(7), I::I32And]);
                self.code.push(I::BrTable(Cow::Owned(labels), label as u32));
            }
            _ => {
                self.put(target.iter().map(|_| I::Drop));
                for kind in self.results.clone() {
                    self.value(kind, depth + 1);
                }
                self.code.push(I::Return);
            }
        }
    }

    fn bulk(&mut self, depth: u32) {
        let memory = self.memory();
        self.address(depth);
        match self.choices.below(3) {
            0 => {
                self.value(I32, depth + 1);
                self.put([I::I32Const(100), I::MemoryFill(memory)]);
            }
            1 => {
                self.address(depth);
                self.put([
                    I::I32Const(77),
                    I::MemoryCopy {
                        src_mem: memory,
                        dst_mem: memory,
                    },
                ]);
            }
            _ => {
                // The only passive segment has 16 bytes.
                self.put([
                    I::I32Const(3),
                    I::I32Const(9),
                    I::MemoryInit {
                        mem: memory,
                        data_index: 0,
                    },
                ]);
            }
        }
    }

    /// Throws an exception, mostly into an enclosing handler.
    fn exceptions(&mut self, depth: u32) {
        if self.shape.tags.is_empty() {
            return self.set(depth);
        }
        let tag = self.choices.below(self.shape.tags.len());
        let thrown = self.shape.tags[tag].clone();
        let is_caught = self.choices.chance(97);
        let catches_all = self.choices.chance(30);
        let caught = if catches_all {
            Vec::new()
        } else {
            thrown.parameters.clone()
        };
        if is_caught {
            let kind = self.shape.kind(&Signature {
                parameters: Vec::new(),
                results: caught.clone(),
            });
            self.code.push(I::Block(BlockType::FunctionType(kind)));
            self.labels.push(caught.clone());
            let catch = if catches_all {
                Catch::All { label: 0 }
            } else {
                Catch::One {
                    tag: tag as u32,
                    label: 0,
                }
            };
            let catches = Cow::Owned(vec![catch]);
            self.code.push(I::TryTable(BlockType::Empty, catches));
            self.labels.push(Vec::new());
            self.statement(depth + 1);
        }
        self.value(I32, depth + 1);
        self.put([I::I32Const(3), I::I32And, I::If(BlockType::Empty)]);
        self.labels.push(Vec::new());
        if is_caught || self.choices.chance(30) {
            for parameter in &thrown.parameters {
                self.value(*parameter, depth + 1);
            }
            self.code.push(I::Throw(tag as u32));
        }
        self.labels.pop();
        self.code.push(I::End);
        if is_caught {
            self.labels.pop();
            self.code.push(I::End);
            for kind in &caught {
                self.value(*kind, depth + 1);
            }
            self.labels.pop();
            self.code.push(I::End);
            self.put(caught.iter().map(|_| I::Drop));
        }
    }

    /// Ends the function with a tail call to a function that has the same results.
    fn tail(&mut self, depth: u32) {
        let results = self.results.clone();
        let mut alike = self.callable();
        alike.retain(|function| self.shape.signature(*function).results == results);
        if alike.is_empty() || self.loops > 0 {
            return self.set(depth);
        }
        let function = *self.choices.pick(&alike);
        let signature = self.shape.signature(function);
        self.value(I32, depth + 1);
        self.put([I::I32Const(1), I::I32And, I::If(BlockType::Empty)]);
        self.labels.push(Vec::new());
        self.arguments(&signature, depth);
        match self.choices.below(4) {
            0 => {
                self.shape.referred.insert(function);
                let kind = self.shape.kind(&signature);
                self.put([I::RefFunc(function), I::ReturnCallRef(kind)]);
            }
            _ => self.code.push(I::ReturnCall(function)),
        }
        self.labels.pop();
        self.code.push(I::End);
    }

    /// Changes a table in a way that no snapshot can represent.
    fn table_change(&mut self, depth: u32) {
        if self.shape.tables.is_empty() {
            return self.set(depth);
        }
        let table = self.choices.below(self.shape.tables.len());
        let of = &self.shape.tables[table];
        if of.filled_with.is_some() {
            return self.set(depth);
        }
        let place = self.choices.below(of.size as usize) as i32;
        let table = table as u32;
        match self.choices.below(4) {
            0 => {
                self.code.push(I::I32Const(place));
                self.value(FUNCTION, depth + 1);
                self.code.push(I::TableSet(table));
            }
            1 => {
                self.value(FUNCTION, depth + 1);
                self.put([I::I32Const(1), I::TableGrow(table), I::Drop]);
            }
            2 if !self.shape.passive.is_empty() => self.put([
                I::I32Const(place),
                I::I32Const(0),
                I::I32Const(1),
                I::TableInit {
                    elem_index: 0,
                    table,
                },
            ]),
            _ => self.put([
                I::I32Const(place),
                I::I32Const(0),
                I::I32Const(1),
                I::TableCopy {
                    src_table: table,
                    dst_table: table,
                },
            ]),
        }
    }

    /// Leaves one value on the stack.
    pub(super) fn value(&mut self, kind: ValType, depth: u32) {
        self.budget -= 1;
        if self.budget <= 0 || depth > 6 || self.choices.chance(35) {
            return self.leaf(kind);
        }
        if self.choices.chance(12) && self.control_value(kind, depth) {
            return;
        }
        match kind {
            I32 => self.i32(depth),
            I64 => self.i64(depth),
            F32 => self.f32(depth),
            F64 => self.f64(depth),
            V128 => self.v128(depth),
            _ => self.leaf(kind),
        }
    }

    /// Leaves the result of a function or a block on the stack.
    fn control_value(&mut self, kind: ValType, depth: u32) -> bool {
        match self.choices.below(5) {
            0 => {
                let mut callable = self.callable();
                callable.retain(|function| self.shape.signature(*function).results == [kind]);
                if callable.is_empty() || self.loops > 1 {
                    return false;
                }
                let function = *self.choices.pick(&callable);
                let signature = self.shape.signature(function);
                self.arguments(&signature, depth);
                self.code.push(I::Call(function));
            }
            1 => {
                self.value(I32, depth + 1);
                self.code.push(I::If(BlockType::Result(kind)));
                self.labels.push(vec![kind]);
                self.value(kind, depth + 1);
                self.code.push(I::Else);
                self.value(kind, depth + 1);
                self.labels.pop();
                self.code.push(I::End);
            }
            2 => {
                self.code.push(I::Block(BlockType::Result(kind)));
                self.labels.push(vec![kind]);
                self.statement(depth + 1);
                self.value(kind, depth + 1);
                self.labels.pop();
                self.code.push(I::End);
            }
            3 if kind != FUNCTION => {
                self.value(kind, depth + 1);
                self.value(kind, depth + 1);
                self.value(I32, depth + 1);
                self.code.push(I::Select);
            }
            _ => {
                let locals = self.locals.iter().enumerate();
                let alike: Vec<usize> = locals
                    .filter(|(_, local)| **local == kind)
                    .map(|(place, _)| place)
                    .collect();
                if alike.is_empty() {
                    return false;
                }
                let local = *self.choices.pick(&alike);
                self.value(kind, depth + 1);
                self.code.push(I::LocalTee(local as u32));
            }
        }
        true
    }

    fn leaf(&mut self, kind: ValType) {
        let locals = self.locals.iter().enumerate();
        let mut leaves: Vec<I<'static>> = locals
            .filter(|(_, local)| **local == kind)
            .map(|(place, _)| I::LocalGet(place as u32))
            .collect();
        let globals = self.shape.globals.iter().enumerate();
        leaves.extend(
            globals
                .filter(|(_, global)| global.kind == kind)
                .map(|(place, _)| I::GlobalGet(place as u32)),
        );
        if !leaves.is_empty() && self.choices.chance(65) {
            let leaf = self.choices.pick(&leaves).clone();
            self.code.push(leaf);
            return;
        }
        let number = self.choices.long();
        let leaf = match kind {
            I32 => I::I32Const(number as i32),
            I64 => I::I64Const(number.cast_signed()),
            F32 => I::F32Const((number as i32 as f32 / 8.0).into()),
            F64 => I::F64Const((number.cast_signed() as f64 / 8.0).into()),
            V128 => I::V128Const(i128::from(number).wrapping_mul(0x0001_0000_0001_0000_0000_0003)),
            _ if self.choices.chance(30) => I::RefNull(HeapType::FUNC),
            _ => {
                let function = self.choices.below(self.shape.functions() as usize) as u32;
                self.shape.referred.insert(function);
                I::RefFunc(function)
            }
        };
        self.code.push(leaf);
    }

    fn unary(&mut self, kind: ValType, depth: u32, operator: I<'static>) {
        self.value(kind, depth + 1);
        self.code.push(operator);
    }

    fn binary(&mut self, kind: ValType, depth: u32, operators: &[I<'static>]) {
        self.value(kind, depth + 1);
        self.value(kind, depth + 1);
        let operator = self.choices.pick(operators).clone();
        self.code.push(operator);
    }

    fn load(&mut self, depth: u32, size: u32, load: fn(MemArg) -> I<'static>) {
        self.value(I32, depth + 1);
        if self.choices.chance(97) {
            self.put([I::I32Const(0x7fff), I::I32And]);
        }
        let place = self.place(size);
        self.code.push(load(place));
    }

    fn i32(&mut self, depth: u32) {
        match self.choices.below(32) {
            0..9 => self.binary(
                I32,
                depth,
                &[
                    I::I32Add,
                    I::I32Sub,
                    I::I32Mul,
                    I::I32And,
                    I::I32Or,
                    I::I32Xor,
                    I::I32Shl,
                    I::I32ShrS,
                    I::I32ShrU,
                    I::I32Rotl,
                    I::I32Rotr,
                ],
            ),
            9..12 => self.binary(
                I32,
                depth,
                &[
                    I::I32Eq,
                    I::I32Ne,
                    I::I32LtS,
                    I::I32LtU,
                    I::I32GeS,
                    I::I32GtU,
                ],
            ),
            12 => {
                self.value(I32, depth + 1);
                self.value(I32, depth + 1);
                if self.choices.chance(90) {
                    self.put([I::I32Const(1), I::I32Or]);
                }
                let division = [I::I32DivS, I::I32DivU, I::I32RemS, I::I32RemU];
                let division = self.choices.pick(&division).clone();
                self.code.push(division);
            }
            13 => {
                let operators = [
                    I::I32Clz,
                    I::I32Ctz,
                    I::I32Popcnt,
                    I::I32Extend8S,
                    I::I32Extend16S,
                ];
                let operator = self.choices.pick(&operators).clone();
                self.unary(I32, depth, operator);
            }
            14 => self.unary(I32, depth, I::I32Eqz),
            15 => self.unary(I64, depth, I::I32WrapI64),
            16 => self.unary(F64, depth, I::I32TruncSatF64S),
            17 if self.choices.chance(10) => self.unary(F32, depth, I::I32TruncF32U),
            17 => self.unary(F32, depth, I::I32ReinterpretF32),
            18 => self.binary(I64, depth, &[I::I64Eq, I::I64LtS, I::I64GtU]),
            19 => self.binary(F64, depth, &[I::F64Eq, I::F64Lt, I::F64Ge]),
            20..23 => self.load(depth, 2, I::I32Load),
            23 => self.load(depth, 0, I::I32Load8S),
            24 => self.load(depth, 1, I::I32Load16U),
            25 => {
                let memory = self.choices.below(self.shape.memories.len()) as u32;
                self.code.push(I::MemorySize(memory));
            }
            26 => {
                let memory = self.choices.below(self.shape.memories.len()) as u32;
                let pages = if self.choices.chance(3) { 5000 } else { 1 };
                self.put([I::I32Const(pages), I::MemoryGrow(memory)]);
            }
            27 => match self.shape.tables.len() {
                0 => self.leaf(I32),
                tables => {
                    let table = self.choices.below(tables) as u32;
                    let size = self.shape.tables[table as usize].size;
                    let place = self.choices.below(size as usize) as i32;
                    if self.choices.chance(50) {
                        self.code.push(I::TableSize(table));
                    } else {
                        self.put([I::I32Const(place), I::TableGet(table), I::RefIsNull]);
                    }
                }
            },
            28 => self.unary(FUNCTION, depth, I::RefIsNull),
            29 => self.unary(V128, depth, I::I32x4ExtractLane(2)),
            30 => self.unary(V128, depth, I::V128AnyTrue),
            _ if self.choices.chance(2) => self.code.push(I::Unreachable),
            _ => self.leaf(I32),
        }
    }

    fn i64(&mut self, depth: u32) {
        match self.choices.below(16) {
            0..7 => self.binary(
                I64,
                depth,
                &[
                    I::I64Add,
                    I::I64Sub,
                    I::I64Mul,
                    I::I64And,
                    I::I64Or,
                    I::I64Xor,
                    I::I64Shl,
                    I::I64ShrS,
                    I::I64ShrU,
                    I::I64Rotl,
                ],
            ),
            7 => self.unary(I32, depth, I::I64ExtendI32S),
            8 => self.unary(I32, depth, I::I64ExtendI32U),
            9 => self.unary(F64, depth, I::I64TruncSatF64U),
            10 => self.unary(F64, depth, I::I64ReinterpretF64),
            11 => self.unary(I64, depth, I::I64Popcnt),
            12 => {
                let checksum = self.shape.number(Own::Checksum);
                match self.loops {
                    0 if self.choices.chance(20) => self.code.push(I::Call(checksum)),
                    _ => self.leaf(I64),
                }
            }
            13 => self.unary(V128, depth, I::I64x2ExtractLane(1)),
            14 => self.load(depth, 2, I::I64Load32U),
            _ => self.load(depth, 3, I::I64Load),
        }
    }

    fn f32(&mut self, depth: u32) {
        match self.choices.below(8) {
            0..3 => self.binary(F32, depth, &[I::F32Add, I::F32Sub, I::F32Mul, I::F32Div]),
            3 => self.binary(F32, depth, &[I::F32Min, I::F32Max, I::F32Copysign]),
            4 => self.unary(F32, depth, I::F32Nearest),
            5 => self.unary(I32, depth, I::F32ConvertI32S),
            6 => self.unary(F64, depth, I::F32DemoteF64),
            _ => self.load(depth, 2, I::F32Load),
        }
    }

    fn f64(&mut self, depth: u32) {
        match self.choices.below(8) {
            0..3 => self.binary(F64, depth, &[I::F64Add, I::F64Sub, I::F64Mul, I::F64Div]),
            3 => self.binary(F64, depth, &[I::F64Min, I::F64Max, I::F64Copysign]),
            4 => self.unary(F64, depth, I::F64Sqrt),
            5 => self.unary(I64, depth, I::F64ConvertI64U),
            6 => self.unary(F32, depth, I::F64PromoteF32),
            _ => self.load(depth, 3, I::F64Load),
        }
    }

    fn v128(&mut self, depth: u32) {
        match self.choices.below(8) {
            0..3 => self.binary(
                V128,
                depth,
                &[
                    I::I32x4Add,
                    I::I16x8Mul,
                    I::I8x16Sub,
                    I::V128Xor,
                    I::I64x2Add,
                    I::I8x16Swizzle,
                ],
            ),
            3 => self.unary(I32, depth, I::I32x4Splat),
            4 => self.unary(F32, depth, I::F32x4Splat),
            5 => self.unary(V128, depth, I::V128Not),
            6 => {
                self.value(V128, depth + 1);
                self.value(I64, depth + 1);
                self.code.push(I::I64x2ReplaceLane(0));
            }
            _ => self.load(depth, 4, I::V128Load),
        }
    }
}
