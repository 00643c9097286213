/** Checks the types of values for the host. Without these checks, the toolchain would end the call without a text. */

/** Describes a value for a message. Never uses its content, which may be secret, and never throws. */
export function describe(value) {
  try {
    if (value === null) return 'null';
    if (value instanceof Promise) return 'a Promise';
    if (typeof value === 'object') return `an object of type ${String(value.constructor?.name ?? 'Object')}`;
    return value === undefined ? 'undefined' : `a ${typeof value}`;
  } catch {
    return 'an object that cannot be looked at';
  }
}

/** Checks text for people. Half a surrogate pair, left by cutting text, becomes U+FFFD. */
export function text(value, what) {
  return string(value, what).toWellFormed();
}

/** Checks text that must not change: a pointer, a value. */
export function exact(value, what) {
  if (!string(value, what).isWellFormed()) throw new TypeError(`${what} has half a surrogate pair, which is no text`);
  return value;
}

/** Checks a list with `of`, each element under its index. */
export function list(value, what, of) {
  if (!Array.isArray(value)) throw new TypeError(`${what} is not a list but ${describe(value)}`);
  // Not `map`, because it skips elements that were never set.
  return Array.from(value, (element, index) => of(element, `${what}[${index}]`));
}

/** Checks an object that is not a list. */
export function object(value, what) {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new TypeError(`${what} is not an object but ${describe(value)}`);
  }
  return value;
}

/** Checks a value that may be absent. */
export function optional(value, what, of) {
  return value === undefined || value === null ? undefined : of(value, what);
}

/** Checks a whole number that fits into the contract's type. */
export function status(value, what) {
  if (Number.isInteger(value) && value >= 0 && value <= 0xffff) return value;
  throw new TypeError(`${what} is ${typeof value === 'number' ? value : describe(value)}; it has to be a whole number from 400 to 499`);
}

function string(value, what) {
  if (typeof value !== 'string') throw new TypeError(`${what} is not a string but ${describe(value)}`);
  return value;
}
