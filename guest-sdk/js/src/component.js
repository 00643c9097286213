/**
 * From a policy module to the exports of a component. What `tollgate-js build` makes the entry of a plugin calls this;
 * nobody else needs to.
 */

import * as contract from './policy.js';
import { use } from './host.js';
import { finish, settle } from './promise.js';
import { SettingsErrors } from './settings.js';
import { place, words } from './words.js';

/** The exports. `lines` says where in the author's files each line of the bundle comes from. */
export function component(policy, host, lines) {
  settle();
  use(host);
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
 * Has the engine collect garbage while the plugin is built. It does so again when half as much memory more is in use, which
 * no call comes to unless it uses much; how near it was before is a matter of luck, and collecting costs millions of fuel.
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

/** The table that `tollgate-js build` writes: for each line of the bundle the file's number, line and column. */
export function lineTable(files, table) {
  return {
    at(line) {
      const entry = table[line - 1];
      return entry ? { file: files[entry[0]], line: entry[1], column: 0 } : undefined;
    },
  };
}
