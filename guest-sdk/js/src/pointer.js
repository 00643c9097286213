/** JSON Pointers, RFC 6901. */

/** Returns a pointer from tokens, and escapes them. Tokens are member names and element indices. */
export function pointer(...tokens) {
  return tokens.map((token) => '/' + String(token).replaceAll('~', '~0').replaceAll('/', '~1')).join('');
}

/** Returns the container of a place. Undefined for the whole document. */
export function parent(place) {
  const end = place.lastIndexOf('/');
  return end < 0 ? undefined : place.slice(0, end);
}
