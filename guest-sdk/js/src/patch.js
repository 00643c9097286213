/** The answers of a mutator: nothing, a JSON Patch, a merge patch or a whole object. */

import { describe, exact } from './check.js';
import { checked as checkedPointer, parent } from './pointer.js';
import { Container } from './review.js';

/** An answer of `mutate`. */
export class Mutation {
  #contract;

  constructor(contract) {
    this.#contract = contract;
  }

  /** Converts to the contract's type. */
  toContract() {
    return this.#contract;
  }
}

/** The object stays as it is. */
export const unchanged = new Mutation({ tag: 'unchanged' });

/** A merge patch, RFC 7386. Members are merged, null removes a member, and arrays are replaced as a whole. */
export function merge(value) {
  return new Mutation({ tag: 'merge-patch', val: json(value) });
}

/** The whole new object. Values that `JSON.parse` has rounded get lost, and the host detects that. Prefer a patch. */
export function wholeObject(value) {
  return new Mutation({ tag: 'object', val: json(value) });
}

/** A JSON Patch under construction. */
export function patch() {
  return new Patch();
}

/** A JSON Patch, RFC 6902. */
export class Patch extends Mutation {
  #operations = [];
  #created = new Set();

  add(path, value) {
    return this.#with('add', { path: place(path), value: newValue(value) });
  }

  replace(path, value) {
    return this.#with('replace', { path: place(path), value: newValue(value) });
  }

  remove(path) {
    return this.#with('remove', place(path));
  }

  move(from, path) {
    return this.#with('move', { from: place(from), path: place(path) });
  }

  copy(from, path) {
    return this.#with('copy', { from: place(from), path: place(path) });
  }

  test(path, value) {
    return this.#with('test', { path: place(path), value: newValue(value) });
  }

  set(document, path, value) {
    place(path);
    const missing = [];
    let inArray = false;
    for (let place = parent(path); place && !this.#created.has(place); place = parent(place)) {
      const found = document.get(place);
      if (found !== undefined && found !== null) {
        inArray = missing.length === 0 && found instanceof Container && found.kind === 'array';
        break;
      }
      missing.push(place);
    }
    for (const place of missing.reverse()) {
      this.add(place, {});
      this.#created.add(place);
    }
    return inArray ? this.replace(path, value) : this.add(path, value);
  }

  append(document, list, value) {
    if (!this.#created.has(list) && document.get(list) == null) {
      this.set(document, list, []);
      this.#created.add(list);
    }
    return this.add(`${list}/-`, value);
  }

  get length() {
    return this.#operations.length;
  }

  toContract() {
    return this.#operations.length === 0 ? { tag: 'unchanged' } : { tag: 'json-patch', val: this.#operations };
  }

  #with(tag, val) {
    this.#operations.push({ tag, val });
    return this;
  }
}

function place(path) {
  return checkedPointer(exact(path, 'the path of an operation'));
}

function newValue(value) {
  if (typeof value === 'string') return { tag: 'text', val: exact(value, 'a value') };
  return { tag: 'json', val: json(value) };
}

/** Returns JSON text. Integers beyond 2⁵³ are bigint. */
function json(value) {
  if (typeof value === 'bigint') return String(value);
  const text = JSON.stringify(value, checked);
  if (text === undefined) throw new TypeError(`a value has no JSON form: it is ${describe(value)}`);
  return text;
}

/**
 * Checks that a value has a JSON form. JSON.stringify would write null or leave it out. Undefined members may be left
 * out.
 */
function checked(name, value) {
  if (typeof value === 'number' && !Number.isFinite(value)) throw new TypeError(`a value has no JSON form: it is ${value}${within(name)}`);
  const isLeftOut = value === undefined && !Array.isArray(this) && name !== '';
  if (!isLeftOut && ['function', 'symbol', 'undefined'].includes(typeof value)) {
    throw new TypeError(`a value has no JSON form: it is ${describe(value)}${within(name)}`);
  }
  return value;
}

function within(name) {
  return name === '' ? '' : `, at ${JSON.stringify(name)}`;
}
