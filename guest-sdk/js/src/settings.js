/** Reads and checks settings. Every error has the pointer of its setting. */

import { list as checked, exact, optional, text } from './check.js';
import { pointer } from './pointer.js';

/** All errors in the settings. `configure` throws it. */
export class SettingsErrors extends Error {
  name = 'SettingsErrors';
  errors = [];

  constructor(message) {
    super(message ?? 'the settings are wrong');
    if (message !== undefined) this.errors.push({ field: undefined, message });
  }

  at(field, message) {
    this.errors.push({ field: field === '' ? undefined : field, message });
    return this;
  }

  throwIfAny() {
    if (this.errors.length > 0) throw this;
  }

  /** Converts to the contract's type. */
  toContract() {
    return checked(this.errors, 'the list of errors', ({ field, message }) => ({
      field: optional(field, 'the field of an error', exact),
      message: text(message, 'the message of an error'),
    }));
  }

  toString() {
    return this.errors.map(({ field, message }) => (field === undefined ? message : `${field}: ${message}`)).join('; ');
  }
}

class Shape {
  #read;
  #fallback;
  #schema;

  /** `schema` is the JSON Schema of a value. It is for people: `read` decides. */
  constructor(read, schema) {
    this.#read = read;
    this.#schema = schema;
  }

  /** The JSON Schema of the setting, with its default. */
  get schema() {
    const value = this.#fallback?.value;
    return isJSON(value) ? { ...this.#schema, default: value } : this.#schema;
  }

  get isRequired() {
    return this.#fallback === undefined;
  }

  /** Sets the value for a missing setting. Without a default, the setting is required. */
  default(value) {
    const shape = new Shape(this.#read, this.#schema);
    shape.#fallback = { value };
    return shape;
  }

  optional() {
    return this.default(undefined);
  }

  /** Returns the value, or returns undefined and reports the error. */
  read(value, at, report) {
    if (value === undefined) {
      if (this.#fallback === undefined) report(at, 'is missing');
      return this.#fallback?.value;
    }
    return this.#read(value, at, report);
  }
}

const shape = (is, what, schema) =>
  new Shape((value, at, report) => (is(value) ? value : void report(at, `must be ${what}`)), schema);

export const boolean = () => shape((value) => typeof value === 'boolean', 'true or false', { type: 'boolean' });

export const number = ({ minimum = -Infinity, maximum = Infinity } = {}) =>
  shape(
    (value) => typeof value === 'number' && value >= minimum && value <= maximum,
    `a number${range(minimum, maximum)}`,
    { type: 'number', ...bounds(minimum, maximum) },
  );

export const integer = ({ minimum = Number.MIN_SAFE_INTEGER, maximum = Number.MAX_SAFE_INTEGER } = {}) =>
  shape(
    (value) => Number.isSafeInteger(value) && value >= minimum && value <= maximum,
    `a whole number${range(minimum, maximum)}`,
    { type: 'integer', ...bounds(minimum, maximum) },
  );

export const string = ({ pattern } = {}) =>
  shape(
    (value) => typeof value === 'string' && (pattern === undefined || pattern.test(value)),
    pattern === undefined ? 'a string' : `a string that matches ${pattern.source}`,
    // A JSON Schema has no flags.
    { type: 'string', ...(pattern?.flags === '' && { pattern: pattern.source }) },
  );

/** Any JSON, such as a JSON Schema. The policy checks it itself. */
export const json = () => new Shape((value) => value, {});

export const oneOf = (...values) =>
  shape((value) => values.includes(value), `one of ${values.map((value) => JSON.stringify(value)).join(', ')}`, {
    enum: values,
  });

export const list = (of) =>
  new Shape(
    (value, at, report) =>
      Array.isArray(value)
        ? value.map((element, index) => of.read(element, at + pointer(index), report))
        : void report(at, 'must be a list'),
    { type: 'array', items: of.schema },
  );

export const table = (of) =>
  new Shape(
    (value, at, report) =>
      isObject(value)
        ? Object.fromEntries(Object.keys(value).map((name) => [name, of.read(value[name], at + pointer(name), report)]))
        : void report(at, 'must be an object'),
    { type: 'object', additionalProperties: of.schema },
  );

export const object = (members) =>
  new Shape((value, at, report) => {
    if (!isObject(value)) return void report(at, 'must be an object');
    for (const name of Object.keys(value)) {
      if (!Object.hasOwn(members, name)) {
        report(at + pointer(name), `unknown setting; there are: ${Object.keys(members).sort().join(', ')}`);
      }
    }
    return Object.fromEntries(
      Object.keys(members).map((name) => [name, members[name].read(value[name], at + pointer(name), report)]),
    );
  }, schemaOf(members));

function schemaOf(members) {
  const required = Object.keys(members).filter((name) => members[name].isRequired);
  return {
    type: 'object',
    properties: Object.fromEntries(Object.entries(members).map(([name, { schema }]) => [name, schema])),
    ...(required.length > 0 && { required }),
    additionalProperties: false,
  };
}

function bounds(minimum, maximum) {
  return {
    ...(minimum > Number.MIN_SAFE_INTEGER && { minimum }),
    ...(maximum < Number.MAX_SAFE_INTEGER && { maximum }),
  };
}

/** Whether a default can be shown. `JSON.stringify` also drops functions, and fails on a bigint. */
function isJSON(value) {
  try {
    return JSON.stringify(value) !== undefined;
  } catch {
    return false;
  }
}

function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function range(minimum, maximum) {
  const from = minimum > Number.MIN_SAFE_INTEGER ? ` from ${minimum}` : '';
  return maximum < Number.MAX_SAFE_INTEGER ? `${from} to ${maximum}` : from;
}
