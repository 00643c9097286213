/** JSON Pointers, RFC 6901. */

/** The pointer of its tokens, which are member names and element indices, not escaped. */
export function pointer(...tokens) {
  return tokens.map((token) => '/' + String(token).replaceAll('~', '~0').replaceAll('/', '~1')).join('');
}

/** The container of a place; undefined for the whole document. */
export function parent(place) {
  const end = place.lastIndexOf('/');
  return end < 0 ? undefined : place.slice(0, end);
}
