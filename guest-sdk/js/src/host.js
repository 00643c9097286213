/** What reviews are read through: the host's interfaces in a plugin, a review in memory in a test. */

let used;

/** Sets what reviews are read through, and gives back what it was before. */
export function use(host) {
  const before = used;
  used = host;
  return before;
}

/** The host of this moment; undefined while a policy is loaded. */
export function current() {
  return used;
}

/** The host of this moment. */
export function host() {
  if (used === undefined) throw new Error('there is no review outside of validate and mutate');
  return used;
}
