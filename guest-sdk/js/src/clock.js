/**
 * The clock capability. The host does not load a plugin that imports this file unless the configuration grants `clock`.
 */

import { host } from './host.js';

/** Returns the time of the host's wall clock. It may step backwards when somebody sets the host's clock. */
export function now() {
  const { seconds, nanoseconds } = host().clock.now();
  return new Date(Number(seconds) * 1000 + Math.floor(nanoseconds / 1e6));
}
