/** The lookups of a test review: objects that the test gives, by the host's rules. */

import { tokens, walk } from './tree.js';

/** The most objects on one page, as in the host. */
const pageSize = 500;

/** The keys of a lookup in the configuration. */
const known = ['name', 'resource', 'namespaces', 'labelSelector', 'fields', 'indexes', 'secrets'];

/** Returns a lookup with its objects, ordered by namespace and name. */
export function lookupOf(lookup, objects) {
  const unknown = Object.keys(lookup).find((key) => !known.includes(key));
  if (unknown !== undefined) throw new Error(`the test's lookup is malformed: unknown key ${unknown}`);
  const patterns = (lookup.fields ?? []).map(tokens);
  const entries = objects.map((whole) => {
    const { namespace, name } = whole.metadata ?? {};
    if (typeof name !== 'string') throw new Error('an object of a lookup has a name');
    return { whole, found: { namespace, name, fields: JSON.stringify(keep(whole, patterns) ?? {}) } };
  });
  const order = (one, other) => (one < other ? -1 : Number(one > other));
  entries.sort(({ found: one }, { found: other }) => order(one.namespace ?? '', other.namespace ?? '') || order(one.name, other.name));
  return { namespaces: lookup.namespaces ?? 'all', indexes: lookup.indexes ?? {}, entries };
}

/** Returns the interface `cluster` for lookups by name. A lookup that is null is not synchronised. */
export function lookupsOf(lookups) {
  return {
    get(name, namespace, object) {
      // A lookup of some namespaces has no cluster-scoped objects.
      const { entries } = lookupNamed(lookups, name, namespace ?? '');
      return entries.find(({ found }) => found.namespace === namespace && found.name === object)?.found;
    },
    find(name, index, key, after) {
      const { indexes, entries } = lookupNamed(lookups, name);
      if (!Object.hasOwn(indexes, index)) throw notGranted(`the lookup ${name} has no index ${index}`);
      const pattern = tokens(indexes[index]);
      const has = ({ whole }) => [...walk(pattern, whole, '')].some(({ value }) => keyOf(value) === key);
      return page(entries.filter(has), after);
    },
    list(name, namespace, after) {
      const { entries } = lookupNamed(lookups, name, namespace);
      return page(entries.filter(({ found }) => namespace === undefined || found.namespace === namespace), after);
    },
  };
}

function lookupNamed(lookups, name, namespace) {
  if (!Object.hasOwn(lookups, name)) throw notGranted(`there is no lookup ${name}; a test adds it: lookup({ … }, [ … ])`);
  const lookup = lookups[name];
  if (lookup === null) throw { tag: 'not-synchronised', val: `the lookup ${name}` };
  if (namespace !== undefined && lookup.namespaces !== 'all' && !lookup.namespaces.includes(namespace)) {
    throw notGranted(`the lookup ${name} does not cover the namespace ${namespace}`);
  }
  return lookup;
}

function notGranted(val) {
  return { tag: 'not-granted', val };
}

/** Returns the page after a position. */
function page(entries, after = '0') {
  const begin = Number(after);
  const end = begin + pageSize;
  return { objects: entries.slice(begin, end).map(({ found }) => found), next: end < entries.length ? String(end) : undefined };
}

/** Returns the key of a value in an index. */
function keyOf({ tag, val }) {
  return ['text', 'integer', 'number', 'boolean'].includes(tag) ? String(val) : undefined;
}

/**
 * Returns the part of a value that the patterns keep. Undefined if they keep nothing of it. The elements of a list keep
 * their places: an element of which nothing is kept becomes {}, [] or null.
 */
function keep(value, patterns) {
  if (patterns.some((pattern) => pattern.length === 0)) return value;
  if (patterns.length === 0 || typeof value !== 'object' || value === null) return undefined;
  const below = (name) => patterns.filter(([first]) => first === '*' || first === name).map(([, ...rest]) => rest);
  if (Array.isArray(value)) {
    const kept = value.map((element) => keep(element, below('*')));
    return kept.some((element) => element !== undefined) ? kept.map((element, index) => element ?? nothingOf(value[index])) : undefined;
  }
  const kept = Object.entries(value)
    .map(([name, member]) => [name, keep(member, below(name))])
    .filter(([, member]) => member !== undefined);
  return kept.length === 0 ? undefined : Object.fromEntries(kept);
}

/** Returns what holds the place of an element of which nothing is kept. */
function nothingOf(element) {
  if (typeof element !== 'object' || element === null) return null;
  return Array.isArray(element) ? [] : {};
}
