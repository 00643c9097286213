//! Automata for the expressions that have a small one. They answer as `regex-lite` does.

use regex_automata::Anchored;
use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{
    AssertionKind, Ast, ClassBracketed, ClassPerl, ClassPerlKind, ClassSet, ClassSetItem,
    ClassSetRange, ClassSetUnion, Flag, Flags, FlagsItemKind, Literal, LiteralKind, Span,
};
use regex_syntax::hir::translate::TranslatorBuilder;
use regex_syntax::hir::{Hir, Look};

use super::Extent;

/// The largest automaton, in bytes. Every review starts with this memory.
const MAX_SIZE: usize = 32 * 1024;
/// The most memory that making an automaton may take, in bytes.
const MAX_WORK: usize = 512 * 1024;

/// A deterministic automaton, and the state in which it starts.
#[derive(Clone)]
pub(super) struct Automaton {
    states: dense::DFA<Vec<u32>>,
    start: StateID,
}

// === impl Automaton ===

impl Automaton {
    /// Returns none if the expression has no small automaton, or may mean something else than to `regex-lite`.
    pub(super) fn new(text: &str, extent: Extent) -> Option<Self> {
        let states = states(&syntax(text, extent)?, extent)?;
        let mode = match extent {
            Extent::Whole => Anchored::Yes,
            Extent::Within => Anchored::No,
        };
        let start = states
            .start_state(&start::Config::new().anchored(mode))
            .ok()?;
        Some(Self { states, start })
    }

    pub(super) fn matches(&self, value: &str) -> bool {
        let mut state = self.start;
        for &byte in value.as_bytes() {
            state = self.states.next_state(state, byte);
            // Most states are neither, and one comparison finds that out.
            if self.states.is_special_state(state) {
                if self.states.is_match_state(state) {
                    return true;
                }
                if self.states.is_dead_state(state) {
                    return false;
                }
            }
        }
        self.states
            .is_match_state(self.states.next_eoi_state(state))
    }
}

fn syntax(text: &str, extent: Extent) -> Option<Hir> {
    let mut ast = ParserBuilder::new().build().parse(text).ok()?;
    restrict(&mut ast)?;
    let mut translator = TranslatorBuilder::new().build();
    let hir = translator.translate(text, &ast).ok()?;
    Some(match extent {
        Extent::Whole => Hir::concat(vec![Hir::look(Look::Start), hir, Hir::look(Look::End)]),
        Extent::Within => hir,
    })
}

fn states(hir: &Hir, extent: Extent) -> Option<dense::DFA<Vec<u32>>> {
    let kind = match extent {
        Extent::Whole => StartKind::Anchored,
        Extent::Within => StartKind::Unanchored,
    };
    let nfa = thompson::Compiler::new()
        .configure(
            thompson::Config::new()
                .nfa_size_limit(Some(MAX_WORK))
                .which_captures(WhichCaptures::None),
        )
        .build_from_hir(hir)
        .ok()?;
    dense::Builder::new()
        .configure(
            dense::Config::new()
                .start_kind(kind)
                .accelerate(false)
                .dfa_size_limit(Some(MAX_SIZE))
                .determinize_size_limit(Some(MAX_WORK)),
        )
        .build_from_nfa(&nfa)
        .ok()
}

/// Keeps to what means the same in both crates, and limits the classes `\d`, `\s` and `\w` to ASCII. None if the
/// expression has more.
fn restrict(ast: &mut Ast) -> Option<()> {
    match ast {
        Ast::Empty(_) | Ast::Dot(_) => Some(()),
        Ast::Flags(set) => are_shared(&set.flags).then_some(()),
        Ast::Literal(literal) => is_shared(literal).then_some(()),
        Ast::Assertion(assertion) => matches!(
            assertion.kind,
            AssertionKind::StartLine
                | AssertionKind::EndLine
                | AssertionKind::StartText
                | AssertionKind::EndText
        )
        .then_some(()),
        Ast::ClassUnicode(_) => None,
        Ast::ClassPerl(class) => {
            *ast = Ast::class_bracketed(in_ascii(class));
            Some(())
        }
        Ast::ClassBracketed(class) => restrict_set(&mut class.kind),
        Ast::Repetition(repetition) => restrict(&mut repetition.ast),
        Ast::Group(group) => {
            if group.flags().is_some_and(|flags| !are_shared(flags)) {
                return None;
            }
            restrict(&mut group.ast)
        }
        Ast::Alternation(alternation) => alternation.asts.iter_mut().try_for_each(restrict),
        Ast::Concat(concat) => concat.asts.iter_mut().try_for_each(restrict),
    }
}

fn restrict_set(set: &mut ClassSet) -> Option<()> {
    match set {
        ClassSet::Item(item) => restrict_item(item),
        // An intersection or difference.
        ClassSet::BinaryOp(_) => None,
    }
}

fn restrict_item(item: &mut ClassSetItem) -> Option<()> {
    match item {
        ClassSetItem::Empty(_) | ClassSetItem::Ascii(_) => Some(()),
        ClassSetItem::Literal(literal) => is_shared(literal).then_some(()),
        ClassSetItem::Range(range) => {
            (is_shared(&range.start) && is_shared(&range.end)).then_some(())
        }
        ClassSetItem::Unicode(_) => None,
        ClassSetItem::Perl(class) => {
            *item = ClassSetItem::Bracketed(Box::new(in_ascii(class)));
            Some(())
        }
        ClassSetItem::Bracketed(class) => restrict_set(&mut class.kind),
        ClassSetItem::Union(union) => union.items.iter_mut().try_for_each(restrict_item),
    }
}

/// Whether the flags are `m`, `s` and `U` only. The others depend on tables of Unicode or read the text differently.
fn are_shared(flags: &Flags) -> bool {
    flags.items.iter().all(|item| {
        matches!(
            item.kind,
            FlagsItemKind::Negation
                | FlagsItemKind::Flag(Flag::MultiLine | Flag::DotMatchesNewLine | Flag::SwapGreed)
        )
    })
}

/// Whether a literal is a character, and not a byte.
fn is_shared(literal: &Literal) -> bool {
    !matches!(literal.kind, LiteralKind::Octal)
}

/// The class of ASCII characters with the name `\d`, `\s` or `\w`, or all other characters.
fn in_ascii(class: &ClassPerl) -> ClassBracketed {
    let ranges: &[(char, char)] = match class.kind {
        ClassPerlKind::Digit => &[('0', '9')],
        ClassPerlKind::Space => &[('\t', '\r'), (' ', ' ')],
        ClassPerlKind::Word => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
    };
    let items = ranges.iter().map(|&(start, end)| {
        ClassSetItem::Range(ClassSetRange {
            span: class.span,
            start: literal(start, class.span),
            end: literal(end, class.span),
        })
    });
    ClassBracketed {
        span: class.span,
        negated: class.negated,
        kind: ClassSet::Item(ClassSetItem::Union(ClassSetUnion {
            span: class.span,
            items: items.collect(),
        })),
    }
}

fn literal(character: char, span: Span) -> Literal {
    Literal {
        span,
        kind: LiteralKind::Verbatim,
        c: character,
    }
}
