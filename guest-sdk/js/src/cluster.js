/**
 * The cluster capability: objects of the cluster, from the lookups of the plugin's configuration. The host does not load
 * a plugin that imports this file unless its configuration has `lookups`. The documentation is in the types:
 * cluster.d.ts.
 */

import { exact, optional } from './check.js';
import { host } from './host.js';
import { Document } from './review.js';
import { at, described, isObject, tokens, walk } from './tree.js';

export class Failure extends Error {
  constructor(kind, text) {
    super(`${kind}: ${text}`);
    this.name = 'Failure';
    this.kind = kind;
  }
}

export class ClusterObject {
  constructor({ namespace, name, fields }) {
    this.namespace = namespace ?? undefined;
    this.name = name;
    this.fields = new Document('object', source(fields));
  }
}

export function get(lookup, namespace, name) {
  const found = ask(() => host().cluster.get(text(lookup, 'lookup'), where(namespace), text(name, 'object')));
  return found == null ? undefined : new ClusterObject(found);
}

export function find(lookup, index, key) {
  const [inLookup, byIndex, wanted] = [text(lookup, 'lookup'), text(index, 'index'), text(key, 'key')];
  return pages((after) => host().cluster.find(inLookup, byIndex, wanted, after));
}

export function list(lookup, namespace) {
  const [inLookup, inNamespace] = [text(lookup, 'lookup'), where(namespace)];
  return pages((after) => host().cluster.list(inLookup, inNamespace, after));
}

function* pages(page) {
  let after;
  do {
    const { objects, next } = ask(() => page(after));
    for (const found of objects) yield new ClusterObject(found);
    after = next ?? undefined;
  } while (after !== undefined);
}

const kinds = { 'not-granted': 'not granted', 'not-synchronised': 'not synchronised' };

/** Turns a failure of the contract into an error. */
function ask(call) {
  try {
    return call();
  } catch (thrown) {
    const { tag, val } = thrown?.payload ?? thrown ?? {};
    if (Object.hasOwn(kinds, tag)) throw new Failure(kinds[tag], val);
    throw thrown;
  }
}

/** Parses the fields when one is read for the first time. */
function source(json) {
  let parsed;
  const find = (pointer) => at((parsed ??= JSON.parse(json)), tokens(pointer));
  const text = (pointer) => (pointer === '' ? json : JSON.stringify(find(pointer)));
  const fields = {
    get: (_, pointer) => described(find(pointer)),
    getJson: (_, pointer) => text(pointer),
    getMany: (_, pointers) => pointers.map((pointer) => described(find(pointer))),
    keys: (_, pointer) => (isObject(find(pointer)) ? Object.keys(find(pointer)) : undefined),
    select: (_, pattern) => [...walk(tokens(pattern), (parsed ??= JSON.parse(json)), '')],
  };
  return () => fields;
}

function text(value, what) {
  return exact(value, `the name of the ${what}`);
}

function where(namespace) {
  return optional(namespace, 'the namespace', exact);
}
