/** The clock capability: a plugin that imports this is refused unless its configuration grants `clock`. */

import { host } from './host.js';

/** The host's wall clock. It may step backwards when the host's clock is set. */
export function now() {
  const { seconds, nanoseconds } = host().clock.now();
  return new Date(Number(seconds) * 1000 + Math.floor(nanoseconds / 1e6));
}
