/** Describes thrown values. No function in here throws, because the operator would then read nothing at all. */

import { describe } from './check.js';
import { advised } from './missing.js';

let known;

/** Remembers the table of the bundle's lines, for the names in texts. */
export function know(lines) {
  known = lines;
}

/** Returns the text of a thrown value. */
export function words(error) {
  try {
    if (!(error instanceof Error)) return `thrown: ${String(error)}`.toWellFormed();
    const text = error.name === '' ? `${error.message}` : `${error.name}: ${error.message}`;
    return named(text, stack(error), known).toWellFormed();
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

/**
 * Adds the name of what was called to the engine's `not a function`, as far as it is known, and what to do to its
 * `is not defined`.
 */
export function named(text, stack, lines) {
  // The build is told `Error` for every kind of error.
  const [, problem] = text.match(/^(?:Type)?Error: (not a (?:function|constructor))$/) ?? [];
  if (problem === undefined) return advised(text);
  const [, inside, line, column] = stack.match(/^\s*at (?:(.*) \(native\)|.*?:(\d+):(\d+)\)?)\s*$/m) ?? [];
  const name = inside === undefined ? line && lines?.called?.(Number(line), Number(column)) : `an argument of ${inside}`;
  return name ? `TypeError: ${name} is ${problem}` : text;
}

/** Returns the first place of a stack in a file of the author. */
export function place(error, lines) {
  for (const [, line] of stack(error).matchAll(/:(\d+):\d+\)?$/gm)) {
    const found = lines.at(Number(line));
    if (found !== undefined) return found;
  }
  return undefined;
}
