/** The review as typed access to five JSON documents. The host has parsed them. A read costs the size of its result. */

import { exact, text } from './check.js';
import { host } from './host.js';
import { checked } from './pointer.js';

/** An array or object of a document, as its length. */
export class Container {
  constructor(kind, length) {
    this.kind = kind;
    this.length = length;
  }
}

/** A document of the review, or of another source with the same functions. */
export class Document {
  #part;
  #source;

  constructor(part, source = () => host().review) {
    this.#part = part;
    this.#source = source;
  }

  get exists() {
    return this.get('') !== undefined;
  }

  get(at) {
    const found = this.#source().get(this.#part, place(at));
    return found == null ? undefined : this.#value(at, found);
  }

  getMany(at) {
    const pointers = [...at].map(place);
    const found = this.#source().getMany(this.#part, pointers);
    return [...found].map((value, index) => (value == null ? undefined : this.#value(pointers[index], value)));
  }

  text(at) {
    return only('string', this.get(at));
  }

  boolean(at) {
    return only('boolean', this.get(at));
  }

  number(at) {
    const found = this.get(at);
    return typeof found === 'bigint' ? Number(found) : only('number', found);
  }

  integer(at) {
    const found = this.#source().get(this.#part, place(at));
    return found?.tag === 'integer' ? this.#value(at, found) : undefined;
  }

  length(at) {
    const found = this.get(at);
    return found instanceof Container ? found.length : undefined;
  }

  keys(at) {
    return this.#source().keys(this.#part, place(at)) ?? undefined;
  }

  select(pattern) {
    const nodes = this.#source().select(this.#part, place(pattern));
    return nodes.map(({ pointer, value }) => ({ pointer, value: this.#value(pointer, value) }));
  }

  json(at) {
    return this.#source().getJson(this.#part, place(at)) ?? undefined;
  }

  read(at) {
    const json = this.json(at);
    return json === undefined ? undefined : JSON.parse(json);
  }

  #value(at, { tag, val }) {
    switch (tag) {
      case 'null':
        return null;
      case 'array':
      case 'object':
        return new Container(tag, val);
      case 'integer':
        // The toolchain passes integers as doubles. Beyond 2⁵³, only the text is exact.
        return Number.isSafeInteger(Number(val)) ? Number(val) : BigInt(this.json(at));
      default:
        return val;
    }
  }
}

function place(at) {
  return checked(exact(at, 'a pointer into the review'));
}

function only(type, value) {
  return typeof value === type ? value : undefined;
}

/** The review for which the host called the plugin. */
export class Review {
  object = new Document('object');
  oldObject = new Document('old-object');
  options = new Document('options');
  requestDocument = new Document('request');
  namespace = new Document('namespace');

  get request() {
    const { subResource, namespace, operation, ...rest } = host().review.request();
    return {
      ...rest,
      operation: operation.toUpperCase(),
      subResource: subResource ?? undefined,
      namespace: namespace ?? undefined,
    };
  }

  get operation() {
    return this.requestDocument.text('/operation');
  }

  changes(at) {
    return this.object.json(at) !== this.oldObject.json(at);
  }

  warn(message) {
    host().review.warn(text(String(message), 'a warning'));
  }

  annotate(key, value) {
    host().review.annotate(exact(key, 'the key of an annotation'), text(String(value), 'the value of an annotation'));
  }
}
