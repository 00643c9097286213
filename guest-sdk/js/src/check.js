/** What goes to the host is of the type that the contract has: the toolchain ends the call without a word where it is not. */

/** What a value is, for a message: never its content, which may be secret. Never throws, whatever the value does. */
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

/** Text for people. Half a surrogate pair, as cutting text leaves it, becomes U+FFFD. */
export function text(value, what) {
  return string(value, what).toWellFormed();
}

/** Text that has to arrive as it is: a pointer, a value. */
export function exact(value, what) {
  if (!string(value, what).isWellFormed()) throw new TypeError(`${what} has half a surrogate pair, which is no text`);
  return value;
}

/** A list of what `of` checks, each under its index. */
export function list(value, what, of) {
  if (!Array.isArray(value)) throw new TypeError(`${what} is not a list but ${describe(value)}`);
  // Not `map`, because it skips elements that were never set.
  return Array.from(value, (element, index) => of(element, `${what}[${index}]`));
}

/** An object that is no list. */
export function object(value, what) {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new TypeError(`${what} is not an object but ${describe(value)}`);
  }
  return value;
}

/** What may be left out. */
export function optional(value, what, of) {
  return value === undefined || value === null ? undefined : of(value, what);
}

/** A whole number that the contract has room for. */
export function status(value, what) {
  if (Number.isInteger(value) && value >= 0 && value <= 0xffff) return value;
  throw new TypeError(`${what} is ${typeof value === 'number' ? value : describe(value)}; it has to be a whole number from 400 to 499`);
}

function string(value, what) {
  if (typeof value !== 'string') throw new TypeError(`${what} is not a string but ${describe(value)}`);
  return value;
}
