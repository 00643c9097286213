//! Finds which element of one array becomes which element of the other.
//!
//! 1. The common beginning and the common end are set aside.
//! 2. If the rest has the same things in the same order, each changes where it is. Otherwise, the longest common
//!    subsequence of the rest is kept. Two elements count as equal if they are equal, or if they have the same identity
//!    and it is unique in both arrays. A changed container is recognised by its identity. If the search would cost too
//!    much, there is no alignment.
//! 3. In the remaining gaps, similar elements are paired, and then scalars by position.
//! 4. All other elements are removed or added. Where elements repeat, additions and removals slide right, so that
//!    none of them writes a value that already stands at its index.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use foldhash::fast::RandomState;
use similar::algorithms::Algorithm;
use similar::{DiffOp, capture_diff_slices};

use super::Fingerprints;
use super::fingerprint::own_bytes;
use super::identity::{Identity, identity};
use crate::document::{Json, Number};

/// Up to this many elements in both arrays, the shortest edit is searched for without shortcuts. This takes some
/// million comparisons of integers at worst. For larger arrays, `similar` limits its search as git does.
const EXACT_SEARCH: usize = 1024;

/// Most integer comparisons for a search among more elements, which take some 30 ms. If a search needs more, the
/// arrays have too little in common for an alignment to be worth it.
const SEARCH_STEPS: usize = 10_000_000;

/// This many comparisons of integers cost as much as looking at one value.
const COMPARISONS_PER_VALUE: usize = 100;

/// Reading this many digits of a number costs as much as looking at one value.
const DIGITS_PER_VALUE: usize = 32;

/// Up to this many pairs of elements in a gap, each old element is compared with each new one.
const SIMILARITY_PAIRS: usize = 1024;

/// A step through both arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The next elements of both arrays are equal.
    Keep,
    /// The next element of the old array becomes the next element of the new one.
    Change,
    /// The next element of the old array is removed.
    Remove,
    /// The next element of the new array is added.
    Add,
}

/// Returns the steps that lead from `old` to `new`. None if finding them would cost too much, or the budget of
/// `fingerprints` is spent.
pub(super) fn align(
    old: &[Json],
    new: &[Json],
    fingerprints: &mut Fingerprints,
) -> Option<Vec<Step>> {
    let head = old
        .iter()
        .zip(new)
        .take_while(|(old, new)| old.is_same(new))
        .count();
    let (old, new) = (&old[head..], &new[head..]);
    let tail = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take_while(|(old, new)| old.is_same(new))
        .count();

    let (old_middle, new_middle) = (&old[..old.len() - tail], &new[..new.len() - tail]);
    let mut steps = vec![Step::Keep; head];
    if are_same_things(old_middle, new_middle, fingerprints) {
        steps.resize(head + old_middle.len(), Step::Change);
        steps.resize(head + old.len(), Step::Keep);
        return Some(steps);
    }
    let mut alignment = Alignment::new(old_middle, new_middle, fingerprints)?;
    alignment.append_tail(tail);
    alignment.walk(old, new, fingerprints, &mut steps);
    Some(steps)
}

/// Whether the elements at the same index are the same thing in both arrays, by an identity that no other element has.
///
/// Then there is nothing to search for, and no element has to be read as a whole.
fn are_same_things(old: &[Json], new: &[Json], fingerprints: &mut Fingerprints) -> bool {
    let mut seen: HashSet<Identity<'_>, RandomState> = HashSet::default();
    old.len() == new.len()
        && old.iter().zip(new).all(|(old, new)| {
            // Looking for an identity builds the element's members.
            fingerprints.spend(width(old) + width(new))
                && identity(old)
                    .is_some_and(|thing| identity(new) == Some(thing) && seen.insert(thing))
        })
}

fn width(element: &Json) -> usize {
    match element {
        Json::Object(members) => members.width(),
        _ => 0,
    }
}

struct Alignment {
    /// Numbers that are equal where the elements are equal. The common end has none.
    old_exact: Vec<u32>,
    new_exact: Vec<u32>,
    old_partner: Vec<Option<usize>>,
    new_partner: Vec<Option<usize>>,
}

/// Gives equal elements equal numbers.
#[derive(Default)]
struct Numbering<'d> {
    buckets: HashMap<u64, Vec<(u32, &'d Json)>, RandomState>,
    next: u32,
}

/// Whether the shortest edit can be found within [`SEARCH_STEPS`]. This is Myers' greedy search for the length of the
/// edit only. Elements that occur in only one of the arrays are left out, as in `similar`: they leave the search no
/// choice.
fn is_searchable(old: &[u32], new: &[u32]) -> bool {
    let occurring = |tokens: &[u32]| {
        tokens
            .iter()
            .copied()
            .collect::<HashSet<u32, RandomState>>()
    };
    let (in_old, in_new) = (occurring(old), occurring(new));
    let old: Vec<u32> = old
        .iter()
        .copied()
        .filter(|token| in_new.contains(token))
        .collect();
    let new: Vec<u32> = new
        .iter()
        .copied()
        .filter(|token| in_old.contains(token))
        .collect();
    let mut steps = 0;
    // For each diagonal, the furthest place in `old` that an edit of the current length reaches. `center` is the main
    // diagonal. The steps run out before an edit gets this long.
    let center = (2 * SEARCH_STEPS).isqrt() + 1;
    let mut furthest = vec![0_usize; 2 * center + 2];
    for length in 0..center {
        for diagonal in (center - length..=center + length).step_by(2) {
            let from_above = diagonal == center - length
                || (diagonal != center + length && furthest[diagonal - 1] < furthest[diagonal + 1]);
            let mut x = if from_above {
                furthest[diagonal + 1]
            } else {
                furthest[diagonal - 1] + 1
            };
            // On diagonal `center + k` the place in `new` is `x - k`. A place before the start of `new` does not
            // exist.
            let Some(mut y) = (x + center).checked_sub(diagonal) else {
                continue;
            };
            while x < old.len() && y < new.len() && old[x] == new[y] {
                (x, y) = (x + 1, y + 1);
                steps += 1;
            }
            furthest[diagonal] = x;
            if x >= old.len() && y >= new.len() {
                return true;
            }
            steps += 1;
        }
        if steps > SEARCH_STEPS {
            return false;
        }
    }
    false
}

// === impl Alignment ===

impl Alignment {
    /// Returns nothing if the budget is spent, or if the search would take too long.
    fn new<'d>(old: &'d [Json], new: &'d [Json], fingerprints: &mut Fingerprints) -> Option<Self> {
        let mean = usize::midpoint(old.len(), new.len());
        if !fingerprints.spend(mean.saturating_mul(mean) / COMPARISONS_PER_VALUE) {
            return None;
        }
        let mut numbering = Numbering::default();
        let mut numbers = |elements: &'d [Json]| -> Option<Vec<u32>> {
            let elements = elements.iter();
            elements
                .map(|element| numbering.number(element, fingerprints))
                .collect()
        };
        let (old_exact, new_exact) = (numbers(old)?, numbers(new)?);
        let (old_tokens, new_tokens) = tokens(old, new, (&old_exact, &new_exact), numbering.next);
        let mut alignment = Self {
            old_exact,
            new_exact,
            old_partner: vec![None; old.len()],
            new_partner: vec![None; new.len()],
        };
        let algorithm = if old.len() + new.len() <= EXACT_SEARCH {
            Algorithm::RawMyers
        } else if is_searchable(&old_tokens, &new_tokens) {
            Algorithm::Myers
        } else {
            return None;
        };
        let (mut old_gap, mut new_gap) = (0, 0);
        for operation in capture_diff_slices(algorithm, &old_tokens, &new_tokens) {
            if let DiffOp::Equal {
                old_index,
                new_index,
                len,
            } = operation
            {
                alignment.pair_gap(
                    old,
                    new,
                    old_gap..old_index,
                    new_gap..new_index,
                    fingerprints,
                );
                for offset in 0..len {
                    alignment.pair(old_index + offset, new_index + offset);
                }
                (old_gap, new_gap) = (old_index + len, new_index + len);
            }
        }
        alignment.pair_gap(
            old,
            new,
            old_gap..old.len(),
            new_gap..new.len(),
            fingerprints,
        );
        Some(alignment)
    }

    fn pair(&mut self, old: usize, new: usize) {
        self.old_partner[old] = Some(new);
        self.new_partner[new] = Some(old);
    }

    /// Pairs the elements of a gap between equal elements.
    fn pair_gap(
        &mut self,
        old: &[Json],
        new: &[Json],
        old_gap: Range<usize>,
        new_gap: Range<usize>,
        fingerprints: &mut Fingerprints,
    ) {
        let all_pairs = old_gap.len().saturating_mul(new_gap.len()) <= SIMILARITY_PAIRS;
        let (mut old_rest, mut new_rest) = (old_gap.start, new_gap.start);
        for new_index in new_gap.clone() {
            let candidates = if all_pairs {
                old_rest..old_gap.end
            } else {
                let same_offset = (old_gap.start + (new_index - new_gap.start)).min(old_gap.end);
                same_offset.max(old_rest)..(same_offset + 1).min(old_gap.end)
            };
            let found = candidates
                .into_iter()
                .find(|&old_index| similar(&old[old_index], &new[new_index], fingerprints));
            if let Some(old_index) = found {
                self.pair_by_position(old, new, old_rest..old_index, new_rest..new_index);
                self.pair(old_index, new_index);
                (old_rest, new_rest) = (old_index + 1, new_index + 1);
            }
        }
        self.pair_by_position(old, new, old_rest..old_gap.end, new_rest..new_gap.end);
    }

    /// Pairs elements of which one becomes the other by a single `replace`. Two dissimilar objects or arrays are not
    /// paired: they are different things, so one is removed and the other added. Besides, most of what a `replace`
    /// writes might stand there already.
    fn pair_by_position(
        &mut self,
        old: &[Json],
        new: &[Json],
        old_gap: Range<usize>,
        new_gap: Range<usize>,
    ) {
        for (old_index, new_index) in old_gap.zip(new_gap) {
            let containers = matches!(
                (&old[old_index], &new[new_index]),
                (Json::Object(_), Json::Object(_)) | (Json::Array(_), Json::Array(_))
            );
            if !containers {
                self.pair(old_index, new_index);
            }
        }
    }

    /// Pairs the elements of the common end. The walk includes them, because additions may slide into them.
    fn append_tail(&mut self, tail: usize) {
        let (old_middle, new_middle) = (self.old_partner.len(), self.new_partner.len());
        self.old_partner
            .extend((new_middle..new_middle + tail).map(Some));
        self.new_partner
            .extend((old_middle..old_middle + tail).map(Some));
    }

    fn walk(
        mut self,
        old_elements: &[Json],
        new_elements: &[Json],
        fingerprints: &mut Fingerprints,
        steps: &mut Vec<Step>,
    ) {
        let (old_end, new_end) = (self.old_partner.len(), self.new_partner.len());
        let (mut old, mut new) = (0, 0);
        let (old_exact, new_exact) = (
            std::mem::take(&mut self.old_exact),
            std::mem::take(&mut self.new_exact),
        );
        let mut equal = |old: usize, new: usize| match (old_exact.get(old), new_exact.get(new)) {
            (Some(old), Some(new)) => old == new,
            _ => {
                let (old, new) = (&old_elements[old], &new_elements[new]);
                fingerprints.spend_whole(old) && old == new
            }
        };
        while old < old_end || new < new_end {
            if old < old_end && new < new_end && equal(old, new) {
                // Keeping equal elements as they come loses at most one other pair, so no edit gets longer.
                if let Some(other) = self.old_partner[old].filter(|other| *other != new) {
                    self.new_partner[other] = None;
                }
                if let Some(other) = self.new_partner[new].filter(|other| *other != old) {
                    self.old_partner[other] = None;
                }
                steps.push(Step::Keep);
                (old, new) = (old + 1, new + 1);
            } else if old < old_end && self.old_partner[old].is_none() {
                steps.push(Step::Remove);
                old += 1;
            } else if new < new_end && self.new_partner[new].is_none() {
                steps.push(Step::Add);
                new += 1;
            } else {
                // Pairs do not cross, and no partner lies behind, so these two elements are a pair.
                steps.push(Step::Change);
                (old, new) = (old + 1, new + 1);
            }
        }
    }
}

// === impl Numbering ===

impl<'d> Numbering<'d> {
    /// Returns nothing if the budget is spent.
    fn number(&mut self, element: &'d Json, fingerprints: &mut Fingerprints) -> Option<u32> {
        let hash = fingerprints.of(element);
        if fingerprints.are_spent() {
            return None;
        }
        let bucket = self.buckets.entry(hash).or_default();
        if let Some((number, _)) = bucket.iter().find(|(_, known)| *known == element) {
            return Some(*number);
        }
        let number = self.next;
        self.next += 1;
        bucket.push((number, element));
        Some(number)
    }
}

/// Returns the sequences to align. An element's token is its identity if that is unique in both arrays, otherwise its
/// exact number.
fn tokens(
    old: &[Json],
    new: &[Json],
    exact: (&[u32], &[u32]),
    first_free: u32,
) -> (Vec<u32>, Vec<u32>) {
    let mut known: HashMap<Identity<'_>, Occurrence, RandomState> = HashMap::default();
    for identity in old.iter().filter_map(identity) {
        known.entry(identity).or_default().old += 1;
    }
    for identity in new.iter().filter_map(identity) {
        known.entry(identity).or_default().new += 1;
    }
    for (token, occurrence) in (first_free..).zip(known.values_mut()) {
        occurrence.token = token;
    }
    let sequence = |elements: &[Json], exact: &[u32]| -> Vec<u32> {
        elements
            .iter()
            .zip(exact)
            .map(|(element, exact)| {
                let occurrence = identity(element).and_then(|identity| known.get(&identity));
                occurrence
                    .filter(|found| found.old <= 1 && found.new <= 1)
                    .map_or(*exact, |found| found.token)
            })
            .collect()
    };
    (sequence(old, exact.0), sequence(new, exact.1))
}

/// How often an identity occurs in each array.
#[derive(Default)]
struct Occurrence {
    old: u32,
    new: u32,
    token: u32,
}

/// Whether the new element is more likely the changed old one than another thing: half of it is equal. Numbers that
/// round to the same double count as the same number, with lost digits.
fn similar(old: &Json, new: &Json, fingerprints: &mut Fingerprints) -> bool {
    if !fingerprints.spend(1 + width(old).min(width(new))) {
        return false;
    }
    match (old, new) {
        (Json::Object(old), Json::Object(new)) => {
            let (small, large) = if old.len() <= new.len() {
                (old, new)
            } else {
                (new, old)
            };
            let mut common = 0;
            let mut equal = 0;
            for (name, value) in small.iter() {
                if let Some(other) = large.get(name) {
                    common += 1;
                    equal += usize::from(alike(value, other, fingerprints));
                }
            }
            equal > 0 && equal * 2 >= small.len() + large.len() - common
        }
        (Json::Array(old), Json::Array(new)) => {
            let (shorter, longer) = (old.len().min(new.len()), old.len().max(new.len()));
            if shorter * 2 < longer {
                return false;
            }
            let head = old
                .iter()
                .zip(new.iter())
                .take_while(|(old, new)| alike(old, new, fingerprints))
                .count();
            let tail = old.iter().rev().zip(new.iter().rev());
            let tail = tail
                .take(shorter - head)
                .take_while(|(old, new)| alike(old, new, fingerprints))
                .count();
            head + tail > 0 && (head + tail) * 2 >= longer
        }
        (Json::Number(_), Json::Number(_)) => alike(old, new, fingerprints),
        _ => false,
    }
}

fn alike(old: &Json, new: &Json, fingerprints: &mut Fingerprints) -> bool {
    match (old, new) {
        (Json::Number(old_number), Json::Number(new_number)) => {
            // Each digit of a long number is read.
            fingerprints.spend(1 + (own_bytes(old) + own_bytes(new)) / DIGITS_PER_VALUE)
                && rounds_alike(old_number, new_number)
        }
        _ => old.is_same(new) || fingerprints.of(old) == fingerprints.of(new),
    }
}

fn rounds_alike(old: &Number, new: &Number) -> bool {
    old == new || old.as_f64().to_bits() == new.as_f64().to_bits()
}
