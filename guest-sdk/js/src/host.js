/** Access to reviews: the host's interfaces in a plugin, and a review in memory in a test. */

let used;

/** Replaces the host for reviews, and returns the previous one. */
export function use(host) {
  const before = used;
  used = host;
  return before;
}

/** The current host. Undefined while a policy is loading. */
export function current() {
  return used;
}

/** Returns the current host. */
export function host() {
  if (used === undefined) throw new Error('there is no review outside of validate and mutate');
  return used;
}
