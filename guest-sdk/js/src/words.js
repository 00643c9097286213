/** Describes thrown values. No function in here throws, because the operator would then read nothing at all. */

import { describe } from './check.js';

/** Returns the text of a thrown value. */
export function words(error) {
  try {
    if (!(error instanceof Error)) return `thrown: ${String(error)}`.toWellFormed();
    return (error.name === '' ? `${error.message}` : `${error.name}: ${error.message}`).toWellFormed();
  } catch {
    return `thrown: ${describe(error)}, which cannot be made text`;
  }
}

/** Returns the place of a throw, as the engine reports it. */
export function stack(error) {
  try {
    return String(error?.stack ?? '');
  } catch {
    return '';
  }
}

/** Returns the first place of a stack in a file of the author. */
export function place(error, lines) {
  for (const [, line] of stack(error).matchAll(/:(\d+):\d+\)?$/gm)) {
    const found = lines.at(Number(line));
    if (found !== undefined) return found;
  }
  return undefined;
}
