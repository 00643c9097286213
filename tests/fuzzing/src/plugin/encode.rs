//! Encodes a shape and its code as a module.

use std::borrow::Cow;
use std::path::Path;
use std::sync::LazyLock;

use wasm_encoder::{
    CodeSection, ConstExpr, CustomSection, DataCountSection, DataSection, ElementMode,
    ElementSection, ElementSegment, Elements, EntityType, ExportKind, ExportSection, Function,
    FunctionSection, GlobalSection, GlobalType, HeapType, ImportSection, MemorySection, MemoryType,
    Module, NameMap, NameSection, RefType, StartSection, TableSection, TableType, TagKind,
    TagSection, TagType, TypeSection, ValType,
};
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::{Resolve, WorldId};

use super::body::{Body, TEXTS, WORDS};
use super::entry::{PATH, is_reference};
use super::shape::{Own, Shape};
use crate::choices::Choices;

/// The contract's package, as it precedes the names of interfaces, and its version.
const PACKAGE: &str = "tollgate:admission/";
const VERSION: &str = "@0.1.0";
/// Address at which the allocator starts.
const HEAP: i32 = 0x8000;

/// The contract, parsed once.
static CONTRACT: LazyLock<Resolve> = LazyLock::new(|| {
    let mut resolve = Resolve::default();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
    resolve
        .push_dir(folder)
        .expect("wit/ holds the contract and parses");
    resolve
});

pub(super) fn encode(shape: &Shape, bodies: &[Body], choices: &mut Choices<'_>) -> Vec<u8> {
    let mut shape_types = shape.types.clone();
    let mut kind = |function: u32| {
        let signature = shape.signature(function);
        let place = shape_types.iter().position(|known| *known == signature);
        place.unwrap_or_else(|| {
            shape_types.push(signature);
            shape_types.len() - 1
        }) as u32
    };
    let mut imports = ImportSection::new();
    for (number, import) in (0..).zip(&shape.imports) {
        let module = format!("{PACKAGE}{}{VERSION}", import.interface);
        imports.import(&module, import.name, EntityType::Function(kind(number)));
    }
    let mut functions = FunctionSection::new();
    for number in shape.imports.len() as u32..shape.functions() {
        functions.function(kind(number));
    }
    let mut tags = TagSection::new();
    for tag in &shape.tags {
        let place = shape_types.iter().position(|known| known == tag);
        let func_type_idx = place.unwrap_or_else(|| {
            shape_types.push(tag.clone());
            shape_types.len() - 1
        }) as u32;
        tags.tag(TagType {
            kind: TagKind::Exception,
            func_type_idx,
        });
    }
    let mut types = TypeSection::new();
    for signature in &shape_types {
        types.ty().function(
            signature.parameters.iter().copied(),
            signature.results.iter().copied(),
        );
    }

    let mut module = Module::new();
    module.section(&types);
    if !imports.is_empty() {
        module.section(&imports);
    }
    module.section(&functions);
    if !shape.tables.is_empty() {
        module.section(&tables(shape));
    }
    module.section(&memories(shape, choices));
    if !tags.is_empty() {
        module.section(&tags);
    }
    module.section(&globals(shape, choices));
    module.section(&exports(shape, choices));
    if shape.start == Some(false) {
        module.section(&StartSection {
            function_index: shape.number(Own::Start),
        });
    }
    let elements = elements(shape, choices);
    if !elements.is_empty() {
        module.section(&elements);
    }
    let data = data(shape, choices);
    module.section(&DataCountSection { count: data.len() });
    let mut code = CodeSection::new();
    for body in bodies {
        let mut function = Function::new_with_locals_types(body.locals.iter().copied());
        for instruction in &body.code {
            function.instruction(instruction);
        }
        function.instruction(&wasm_encoder::Instruction::End);
        code.function(&function);
    }
    module.section(&code);
    module.section(&data);
    if choices.chance(40) {
        module.section(&names(shape));
    }
    if choices.chance(20) {
        module.section(&CustomSection {
            name: "somebody's own".into(),
            data: Cow::Borrowed(b"content"),
        });
    }
    let mut bytes = module.finish();
    embed_component_metadata(&mut bytes, &CONTRACT, world(shape), StringEncoding::UTF8)
        .expect("the world can be embedded");
    bytes
}

fn world(shape: &Shape) -> WorldId {
    let name = match (shape.mutates, shape.validates) {
        (true, true) => "plugin",
        (true, false) => "mutator",
        _ => "validator",
    };
    let packages = CONTRACT.packages.iter();
    let mut worlds = packages.filter_map(|(_, package)| package.worlds.get(name));
    *worlds.next().expect("the contract has it")
}

fn tables(shape: &Shape) -> TableSection {
    let mut tables = TableSection::new();
    for table in &shape.tables {
        let kind = |element_type| TableType {
            element_type,
            minimum: table.size.into(),
            maximum: None,
            table64: false,
            shared: false,
        };
        match table.filled_with {
            None => tables.table(kind(RefType::FUNCREF)),
            Some(function) => {
                let never_null = RefType {
                    nullable: false,
                    heap_type: HeapType::FUNC,
                };
                tables.table_with_init(kind(never_null), &ConstExpr::ref_func(function))
            }
        };
    }
    tables
}

fn memories(shape: &Shape, choices: &mut Choices<'_>) -> MemorySection {
    let mut memories = MemorySection::new();
    for pages in &shape.memories {
        memories.memory(MemoryType {
            minimum: (*pages).into(),
            maximum: choices.chance(20).then_some(u64::from(*pages) + 20),
            memory64: false,
            shared: false,
            page_size_log2: None,
        });
    }
    memories
}

fn globals(shape: &Shape, choices: &mut Choices<'_>) -> GlobalSection {
    let mut globals = GlobalSection::new();
    for (number, global) in shape.globals.iter().enumerate() {
        let kind = GlobalType {
            val_type: global.kind,
            mutable: global.is_mutable,
            shared: false,
        };
        let any = choices.long();
        let initial = match global.kind {
            ValType::I32 if number == 0 => ConstExpr::i32_const(HEAP),
            ValType::I32 => ConstExpr::i32_const(any as i32),
            ValType::I64 => ConstExpr::i64_const(any.cast_signed()),
            // Any bits: a snapshot must preserve every NaN exactly.
            ValType::F32 => ConstExpr::f32_const(f32::from_bits(any as u32).into()),
            ValType::F64 => ConstExpr::f64_const(f64::from_bits(any).into()),
            ValType::V128 => ConstExpr::v128_const(i128::from(any)),
            kind if is_reference(kind) && choices.chance(30) => ConstExpr::ref_null(HeapType::FUNC),
            _ => ConstExpr::ref_func(choices.below(shape.functions() as usize) as u32),
        };
        globals.global(kind, &initial);
    }
    globals
}

fn exports(shape: &Shape, choices: &mut Choices<'_>) -> ExportSection {
    let mut exports = ExportSection::new();
    exports.export("memory", ExportKind::Memory, 0);
    exports.export("cabi_realloc", ExportKind::Func, shape.number(Own::Realloc));
    let mut function = |interface: &str, name: &str, own: Own| {
        let named = format!("{PACKAGE}{interface}{VERSION}#{name}");
        exports.export(&named, ExportKind::Func, shape.number(own));
        if shape.post_returns.contains(&name) {
            let named = format!("cabi_post_{named}");
            exports.export(&named, ExportKind::Func, shape.number(Own::PostReturn));
        }
    };
    // One function may serve as two exports.
    let describe = if shape.validates && choices.chance(1) {
        Own::Validate
    } else {
        Own::Describe
    };
    function("lifecycle", "describe", describe);
    function("lifecycle", "configure", Own::Configure);
    if shape.mutates {
        let own = if shape.validates && choices.chance(2) {
            Own::Validate
        } else {
            Own::Mutate
        };
        function("mutating", "mutate", own);
    }
    if shape.validates {
        function("validating", "validate", Own::Validate);
    }
    if shape.start == Some(true) {
        exports.export("_initialize", ExportKind::Func, shape.number(Own::Start));
    }
    exports
}

fn elements(shape: &Shape, choices: &mut Choices<'_>) -> ElementSection {
    let mut segments = ElementSection::new();
    // The passive segment comes first, because the code refers to index 0.
    if !shape.passive.is_empty() {
        segments.passive(Elements::Functions(Cow::Borrowed(&shape.passive)));
    }
    for (number, table) in (0..).zip(&shape.tables) {
        for run in runs(&table.elements) {
            let first = run.first().map_or(0, |(place, _)| *place);
            let numbers: Vec<u32> = run.iter().map(|(_, function)| *function).collect();
            let offset = ConstExpr::i32_const(first as i32);
            let expressions: Vec<ConstExpr> =
                numbers.iter().copied().map(ConstExpr::ref_func).collect();
            let is_nullable = table.filled_with.is_none();
            let kind = RefType {
                nullable: is_nullable,
                heap_type: HeapType::FUNC,
            };
            let as_expressions = choices.chance(25);
            segments.segment(ElementSegment {
                mode: ElementMode::Active {
                    table: (number > 0 || choices.chance(20) || !is_nullable).then_some(number),
                    offset: &offset,
                },
                elements: if as_expressions || !is_nullable {
                    Elements::Expressions(kind, Cow::Owned(expressions))
                } else {
                    Elements::Functions(Cow::Owned(numbers))
                },
            });
        }
    }
    if !shape.referred.is_empty() {
        let referred: Vec<u32> = shape.referred.iter().copied().collect();
        segments.declared(Elements::Functions(Cow::Owned(referred)));
    }
    segments
}

/// Groups elements at consecutive places.
fn runs(elements: &[(u32, u32)]) -> impl Iterator<Item = &[(u32, u32)]> {
    elements.chunk_by(|(place, _), (next, _)| place + 1 == *next)
}

fn data(shape: &Shape, choices: &mut Choices<'_>) -> DataSection {
    let mut data = DataSection::new();
    // The segment that code copies from.
    data.passive(*b"sixteen letters!");
    let at = |address: i32| ConstExpr::i32_const(address);
    data.active(0, &at(16), *b"generated**/*");
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
    // Lists of one text each: `*` and `*/*`.
    data.active(0, &at(40), words(&[25, 1, 26, 3]));
    // One rule: operations, groups and versions are `*`, resources are `*/*`, no scope.
    data.active(0, &at(64), words(&[40, 1, 40, 1, 40, 1, 48, 1]));
    // The manifest: a name, no version, no description, no schema, that rule, no labels.
    data.active(0, &at(128), words(&[16, 9]));
    data.active(0, &at(164), words(&[64, 1]));
    data.active(0, &at(PATH), *b"/spec/x");
    data.active(0, &at(TEXTS as i32), WORDS.concat().into_bytes());
    for _ in 0..choices.below(4) {
        let memory = choices.below(shape.memories.len());
        if shape.memories[memory] > 0 {
            let bytes: Vec<u8> = (0..choices.below(40)).map(|_| choices.byte()).collect();
            let address = 0x1000 + choices.below(0x1000) as i32;
            data.active(memory as u32, &at(address), bytes);
        }
    }
    data
}

fn names(shape: &Shape) -> NameSection {
    let mut functions = NameMap::new();
    for number in 0..shape.functions() {
        functions.append(number, &format!("function {number}"));
    }
    let mut names = NameSection::new();
    names.functions(&functions);
    names
}
