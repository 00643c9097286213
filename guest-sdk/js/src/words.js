/** What is told of whatever was thrown. Nothing in here throws: the operator would read nothing at all. */

import { describe } from './check.js';

/** The text of what was thrown. */
export function words(error) {
  try {
    if (!(error instanceof Error)) return `thrown: ${String(error)}`.toWellFormed();
    return (error.name === '' ? `${error.message}` : `${error.name}: ${error.message}`).toWellFormed();
  } catch {
    return `thrown: ${describe(error)}, which cannot be made text`;
  }
}

/** Where it was thrown, as the engine tells it. */
export function stack(error) {
  try {
    return String(error?.stack ?? '');
  } catch {
    return '';
  }
}

/** The first place of a stack that lies in a file of the author's. */
export function place(error, lines) {
  for (const [, line] of stack(error).matchAll(/:(\d+):\d+\)?$/gm)) {
    const found = lines.at(Number(line));
    if (found !== undefined) return found;
  }
  return undefined;
}
