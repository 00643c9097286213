/** What reviews are read through: the host's interfaces in a plugin, a review in memory in a test. */

let current;

/** Sets what reviews are read through, and gives back what it was before. */
export function use(host) {
  const before = current;
  current = host;
  return before;
}

/** The host of this moment. */
export function host() {
  if (current === undefined) throw new Error('there is no review outside of validate and mutate');
  return current;
}
