/** JSON Pointers, RFC 6901. */

import { current } from './host.js';

/** Returns a pointer from tokens, and escapes them. Tokens are member names and element indices. */
export function pointer(...tokens) {
  return tokens.map((token) => '/' + String(token).replaceAll('~', '~0').replaceAll('/', '~1')).join('');
}

/**
 * Returns a pointer unchanged. A malformed pointer ends the call at the author's line. The host also checks every
 * pointer, but cannot tell the line.
 */
export function checked(at) {
  if ((at !== '' && at[0] !== '/') || at.includes('~')) refuseMalformed(at);
  return at;
}

function refuseMalformed(at) {
  const problem = malformed(at);
  if (problem === undefined) return;
  const error = new TypeError(`\`${at}\` is no JSON Pointer: ${problem}`);
  // In a plugin, `catch` must not hide the problem: the place would read as absent.
  current()?.abort?.(error);
  throw error;
}

function malformed(at) {
  if (at !== '' && at[0] !== '/') return `it has no leading slash; write \`/${at}\``;
  if (!/~(?![01])/.test(at)) return undefined;
  return 'a `~` is followed by neither 0 nor 1; write `~0` for `~` and `~1` for `/`, or make it with pointer(…)';
}

/** Returns the container of a place. Undefined for the whole document. */
export function parent(place) {
  const end = place.lastIndexOf('/');
  return end < 0 ? undefined : place.slice(0, end);
}
