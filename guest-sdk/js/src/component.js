/**
 * Turns a policy module into the exports of a component. Only the entry point that `tollgate-js build` writes calls
 * this file.
 */

import * as contract from './policy.js';
import { use } from './host.js';
import { finish, settle } from './promise.js';
import { SettingsErrors } from './settings.js';
import { know, place, words } from './words.js';

/** Returns the exports. `lines` maps each line of the bundle to its place in the author's files. */
export function component(policy, host, lines) {
  know(lines);
  settle();
  use({ ...host, abort: (error) => host.logging.abort(words(error), place(error, lines)) });
  const guarded = (what, run) => {
    try {
      const answer = run();
      finish(what);
      return answer;
    } catch (error) {
      host.logging.abort(words(error), place(error, lines));
      throw error;
    }
  };
  collectGarbage();
  let configured;
  return {
    lifecycle: {
      describe: () => guarded('the policy', () => contract.manifest(policy)),
      configure: (settings) =>
        guarded('configure', () => {
          try {
            configured = contract.configure(policy, settings);
            collectGarbage();
            return { tag: 'accepted' };
          } catch (error) {
            if (error instanceof SettingsErrors) return { tag: 'rejected', val: error.toContract() };
            throw error;
          }
        }),
    },
    mutating: { mutate: () => guarded('mutate', () => contract.mutate(policy, configured)) },
    validating: { validate: () => guarded('validate', () => contract.validate(policy, configured)) },
  };
}

/**
 * Makes the engine collect garbage, during the build and after `configure`. Every call begins with the memory that
 * `configure` leaves. The engine collects again when its memory has grown by half. Only a call that uses much memory gets
 * there. Without this, the distance to the next collection would be random, and a collection costs millions of units of
 * fuel.
 */
function collectGarbage() {
  const { getMemoryUsage } = globalThis.__cqjs;
  for (let used = 0, now = getMemoryUsage().mallocSize; now >= used; now = getMemoryUsage().mallocSize) {
    used = now;
    for (let count = 0; count < 1000; count++) {
      const cycle = {};
      cycle.itself = cycle;
    }
  }
}

/** Reads the table that `tollgate-js build` writes: for each line of the bundle, the file's number, the line and the calls. */
export function lineTable(files, table) {
  return {
    at(line) {
      const entry = table[line - 1];
      return entry ? { file: files[entry[0]], line: entry[1], column: 0 } : undefined;
    },
    /** Returns what is called at a place of the bundle. Undefined if that is unknown. */
    called(line, column) {
      const entry = table[line - 1];
      const found = entry && entry[2]?.split(' ').find((call) => call.startsWith(`${column}:`));
      return found?.slice(found.indexOf(':') + 1);
    },
  };
}
