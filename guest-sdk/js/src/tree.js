/** JSON Pointers and patterns in a parsed document, by the host's rules. */

import { pointer } from './pointer.js';

/** Splits a pointer, and throws on a malformed one. Otherwise a typo would read as absent. */
export function tokens(at) {
  if (at === '') return [];
  if (typeof at !== 'string' || !at.startsWith('/')) throw new Error(`${JSON.stringify(at)} is no JSON Pointer: no leading slash`);
  if (/~(?![01])/.test(at)) throw new Error(`${JSON.stringify(at)} is no JSON Pointer: ~ is followed by neither 0 nor 1`);
  return at.slice(1).split('/').map((token) => token.replaceAll('~1', '/').replaceAll('~0', '~'));
}

/** Returns the value at the tokens of a pointer. */
export function at(document, path) {
  return path.reduce((here, token) => (here === undefined ? undefined : child(here, token)), document);
}

function child(here, token) {
  if (Array.isArray(here)) return /^(0|[1-9]\d*)$/.test(token) ? here[Number(token)] : undefined;
  return isObject(here) && Object.hasOwn(here, token) ? here[token] : undefined;
}

/** Yields every place that matches the tokens of a pattern. */
export function* walk([token, ...rest], here, at) {
  if (here === undefined) return;
  if (token === undefined) yield { pointer: at, value: described(here) };
  else if (token !== '*') yield* walk(rest, child(here, token), at + pointer(token));
  else if (typeof here === 'object' && here !== null) {
    for (const name of Object.keys(here)) yield* walk(rest, here[name], at + pointer(name));
  }
}

/** Returns a value as the contract has it: arrays and objects as their length. */
export function described(value) {
  switch (typeof value) {
    case 'undefined':
      return undefined;
    case 'boolean':
      return { tag: 'boolean', val: value };
    case 'bigint':
      return { tag: 'integer', val: value };
    case 'number':
      return { tag: Number.isInteger(value) && Math.abs(value) < 2 ** 63 ? 'integer' : 'number', val: value };
    case 'string':
      return { tag: 'text', val: value };
    default:
      if (value === null) return { tag: 'null' };
      return Array.isArray(value) ? { tag: 'array', val: value.length } : { tag: 'object', val: Object.keys(value).length };
  }
}

/** Whether a value is an object, and neither null nor an array. */
export function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
