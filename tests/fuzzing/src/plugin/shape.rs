//! The parts of a generated module, chosen before any code is written.

use std::collections::BTreeSet;

use wasm_encoder::{RefType, ValType};

use crate::choices::Choices;

/// The parameters and results of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Signature {
    /// Types of the parameters.
    pub(super) parameters: Vec<ValType>,
    /// Types of the results.
    pub(super) results: Vec<ValType>,
}

/// A function that a plugin imports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Import {
    /// The interface's name in the contract.
    pub(super) interface: &'static str,
    /// The function's name.
    pub(super) name: &'static str,
    /// Number of parameters, all of them `i32`, as the canonical ABI lowers it.
    pub(super) parameters: usize,
}

/// A function that the module defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// `cabi_realloc`.
    Realloc,
    /// Hashes all state.
    Checksum,
    /// Writes a hash as text.
    Write,
    /// The contract's `describe`.
    Describe,
    /// The contract's `configure`.
    Configure,
    /// The contract's `mutate`.
    Mutate,
    /// The contract's `validate`.
    Validate,
    /// Called after the host has read the answer of one of these four.
    PostReturn,
    /// Runs at instantiation.
    Start,
    /// A random function, by its index in the list of random functions.
    Random(usize),
}

/// A global variable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Global {
    /// The type of the variable.
    pub(super) kind: ValType,
    /// Whether code may set it.
    pub(super) is_mutable: bool,
}

/// A table of functions.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// Initial number of elements.
    pub(super) size: u32,
    /// Elements from active segments: the place and the number of the function.
    pub(super) elements: Vec<(u32, u32)>,
    /// The function that fills all places from the start, if any. Such a table never has an empty place.
    pub(super) filled_with: Option<u32>,
}

/// A module without its code.
#[derive(Debug)]
pub(super) struct Shape {
    /// Whether it exports `mutating`.
    pub(super) mutates: bool,
    /// Whether it exports `validating`.
    pub(super) validates: bool,
    /// The imported functions, in index order.
    pub(super) imports: Vec<Import>,
    /// Initial pages of each memory.
    pub(super) memories: Vec<u32>,
    /// The module's globals.
    pub(super) globals: Vec<Global>,
    /// The module's tables, which hold functions.
    pub(super) tables: Vec<Table>,
    /// The parameters of each exception.
    pub(super) tags: Vec<Signature>,
    /// Signatures of the random functions.
    pub(super) signatures: Vec<Signature>,
    /// The own functions, in their order in the module.
    pub(super) order: Vec<Own>,
    /// Whether a function runs at instantiation, and whether it is an export instead of a start section.
    pub(super) start: Option<bool>,
    /// Those of describe, configure, mutate and validate that have a `post-return`.
    pub(super) post_returns: Vec<&'static str>,
    /// The types in use, without duplicates.
    pub(super) types: Vec<Signature>,
    /// Functions that code takes references to. The module must declare them.
    pub(super) referred: BTreeSet<u32>,
    /// Whether code may do things that no snapshot can represent: change tables, drop segments, keep references in
    /// globals.
    pub(super) is_beyond_snapshots: bool,
    /// Functions of the only passive element segment.
    pub(super) passive: Vec<u32>,
}

/// A reference to any function, or a null reference.
pub(super) const FUNCTION: ValType = ValType::Ref(RefType::FUNCREF);

/// All functions of the contract that a plugin can import.
const IMPORTS: [Import; 10] = [
    import("review", "request", 1),
    import("review", "get", 4),
    import("review", "get-json", 4),
    import("review", "get-many", 4),
    import("review", "keys", 4),
    import("review", "select", 4),
    import("review", "warn", 2),
    import("review", "annotate", 4),
    import("logging", "log", 3),
    import("logging", "abort", 7),
];

const NUMBERS: [ValType; 4] = [ValType::I32, ValType::I64, ValType::F32, ValType::F64];

const fn import(interface: &'static str, name: &'static str, parameters: usize) -> Import {
    Import {
        interface,
        name,
        parameters,
    }
}

// === impl Shape ===

impl Shape {
    /// Chooses everything except the code.
    pub(super) fn choose(choices: &mut Choices<'_>) -> Self {
        let world = choices.below(3);
        let imports: Vec<Import> = IMPORTS
            .into_iter()
            .filter(|import| choices.chance(if import.name == "abort" { 10 } else { 55 }))
            .collect();
        let mut memories = vec![2 + choices.below(2) as u32];
        while memories.len() < 3 && choices.chance(12) {
            memories.push(choices.below(3) as u32);
        }
        let signatures: Vec<Signature> = (0..2 + choices.below(8))
            .map(|_| signature(choices))
            .collect();
        let is_beyond_snapshots = choices.chance(3);
        let mut shape = Self {
            mutates: world != 0,
            validates: world != 1,
            imports,
            memories,
            globals: Vec::new(),
            tables: Vec::new(),
            tags: Vec::new(),
            order: Vec::new(),
            signatures,
            start: choices.chance(20).then(|| choices.chance(30)),
            post_returns: Vec::new(),
            types: Vec::new(),
            referred: BTreeSet::new(),
            is_beyond_snapshots,
            passive: Vec::new(),
        };
        shape.order(choices);
        shape.globals(choices);
        shape.tables(choices);
        for _ in 0..choices.below(3) {
            let parameters = (0..choices.below(3)).map(|_| number(choices)).collect();
            let results = Vec::new();
            shape.tags.push(Signature {
                parameters,
                results,
            });
        }
        shape
    }

    fn order(&mut self, choices: &mut Choices<'_>) {
        let mut own = vec![
            Own::Realloc,
            Own::Checksum,
            Own::Write,
            Own::Describe,
            Own::Configure,
        ];
        let mut exports = vec!["describe", "configure"];
        if self.mutates {
            own.push(Own::Mutate);
            exports.push("mutate");
        }
        if self.validates {
            own.push(Own::Validate);
            exports.push("validate");
        }
        self.post_returns = exports.into_iter().filter(|_| choices.chance(35)).collect();
        if !self.post_returns.is_empty() {
            own.push(Own::PostReturn);
        }
        if self.start.is_some() {
            own.push(Own::Start);
        }
        own.extend((0..self.signatures.len()).map(Own::Random));
        // Shuffled, so that functions that rewriting removes or moves lie between functions that stay.
        for place in (1..own.len()).rev() {
            own.swap(place, choices.below(place + 1));
        }
        self.order = own;
    }

    fn globals(&mut self, choices: &mut Choices<'_>) {
        // The allocator's global comes first.
        self.globals.push(Global {
            kind: ValType::I32,
            is_mutable: true,
        });
        for _ in 0..choices.below(6) {
            let kind = match choices.below(20) {
                0 => ValType::V128,
                1 | 2 => FUNCTION,
                _ => number(choices),
            };
            let is_mutable = match kind {
                FUNCTION => self.is_beyond_snapshots,
                ValType::V128 => choices.chance(5),
                _ => choices.chance(85),
            };
            self.globals.push(Global { kind, is_mutable });
        }
    }

    fn tables(&mut self, choices: &mut Choices<'_>) {
        let count = match choices.below(20) {
            0..2 => 0,
            2..16 => 1,
            _ => 2 + choices.below(2),
        };
        for _ in 0..count {
            let size = 1 + choices.below(24) as u32;
            let filled_with = choices.chance(6).then(|| self.any_function(choices));
            let mut elements = Vec::new();
            for place in 0..size {
                if choices.chance(50) {
                    elements.push((place, self.any_function(choices)));
                }
            }
            self.tables.push(Table {
                size,
                elements,
                filled_with,
            });
        }
        if choices.chance(20) {
            self.passive = (0..1 + choices.below(4))
                .map(|_| self.any_function(choices))
                .collect();
        }
    }

    /// Picks a function for a table: mostly a random function, sometimes an import or an export.
    fn any_function(&self, choices: &mut Choices<'_>) -> u32 {
        match choices.below(20) {
            0 if !self.imports.is_empty() => choices.below(self.imports.len()) as u32,
            1 => (self.imports.len() + choices.below(self.order.len())) as u32,
            _ => self.number(Own::Random(choices.below(self.signatures.len()))),
        }
    }

    /// Returns the index of an own function.
    pub(super) fn number(&self, own: Own) -> u32 {
        let place = self.order.iter().position(|other| *other == own);
        (self.imports.len() + place.unwrap_or_else(|| panic!("there is no {own:?}"))) as u32
    }

    /// Returns the signature of a function.
    pub(super) fn signature(&self, function: u32) -> Signature {
        let i32s = |count| vec![ValType::I32; count];
        let simple = |parameters, results| Signature {
            parameters: i32s(parameters),
            results: i32s(results),
        };
        let function = function as usize;
        if let Some(import) = self.imports.get(function) {
            return simple(import.parameters, 0);
        }
        match self.order[function - self.imports.len()] {
            Own::Realloc => simple(4, 1),
            Own::Checksum => Signature {
                parameters: Vec::new(),
                results: vec![ValType::I64],
            },
            Own::Write => Signature {
                parameters: vec![ValType::I64, ValType::I32],
                results: Vec::new(),
            },
            Own::Describe | Own::Mutate | Own::Validate => simple(0, 1),
            Own::Configure => simple(2, 1),
            Own::PostReturn => simple(1, 0),
            Own::Start => simple(0, 0),
            Own::Random(place) => self.signatures[place].clone(),
        }
    }

    /// Returns the number of functions.
    pub(super) fn functions(&self) -> u32 {
        (self.imports.len() + self.order.len()) as u32
    }

    /// Returns the index of a type, and adds the type if it is new.
    pub(super) fn kind(&mut self, signature: &Signature) -> u32 {
        let place = self.types.iter().position(|known| known == signature);
        let place = place.unwrap_or_else(|| {
            self.types.push(signature.clone());
            self.types.len() - 1
        });
        place as u32
    }
}

/// Picks a numeric type.
pub(super) fn number(choices: &mut Choices<'_>) -> ValType {
    match choices.below(8) {
        0..4 => ValType::I32,
        other => *[ValType::I64, ValType::I64, ValType::F32, ValType::F64]
            .get(other - 4)
            .unwrap_or(&NUMBERS[0]),
    }
}

fn signature(choices: &mut Choices<'_>) -> Signature {
    let results = match choices.below(10) {
        0..2 => 0,
        2..8 => 1,
        _ => 2,
    };
    let value = |choices: &mut Choices<'_>| match choices.below(24) {
        0 => ValType::V128,
        1 => FUNCTION,
        _ => number(choices),
    };
    Signature {
        parameters: (0..choices.below(4)).map(|_| value(choices)).collect(),
        results: (0..results).map(|_| value(choices)).collect(),
    }
}
