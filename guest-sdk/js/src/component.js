/**
 * From a policy module to the exports of a component. What `tollgate-js build` makes the entry of a plugin calls this;
 * nobody else needs to.
 */

import * as contract from './policy.js';
import { use } from './host.js';
import { SettingsErrors } from './settings.js';

/** The exports. `lines` says where in the author's files each line of the bundle comes from. */
export function component(policy, host, lines) {
  use(host);
  withoutClock(globalThis, host);
  const guarded = (run) => {
    try {
      return run();
    } catch (error) {
      host.logging.abort(words(error), place(error, lines));
      throw error;
    }
  };
  let configured;
  return {
    lifecycle: {
      describe: () => guarded(() => contract.manifest(policy)),
      configure: (settings) =>
        guarded(() => {
          try {
            configured = contract.configure(policy, settings);
            return { tag: 'accepted' };
          } catch (error) {
            if (error instanceof SettingsErrors) return { tag: 'rejected', val: error.errors };
            throw error;
          }
        }),
    },
    mutating: { mutate: () => guarded(() => contract.mutate(policy, configured)) },
    validating: { validate: () => guarded(() => contract.validate(policy, configured)) },
  };
}

/** What the engine has for the time and for output ends the call without a word: here it says one. */
function withoutClock(globals, host) {
  const { Date: Original } = globals;
  const none = () => {
    throw new Error('a plugin has no clock: import { now } from "@tollgate/sdk/clock", and grant the capability clock');
  };
  globals.Date = new Proxy(Original, {
    apply: none,
    construct: (target, list, newTarget) => (list.length === 0 ? none() : Reflect.construct(target, list, newTarget)),
    get: (target, name) => (name === 'now' ? none : Reflect.get(target, name)),
  });
  const write = (level) => (...parts) => host.logging.log(level, parts.map(String).join(' '));
  globals.console = {
    ...globals.console,
    debug: write('debug'),
    error: write('error'),
    info: write('info'),
    log: write('info'),
    trace: write('trace'),
    warn: write('warn'),
  };
}

function words(error) {
  return error instanceof Error ? `${error.name}: ${error.message}` : `thrown: ${String(error)}`;
}

/** The first place of a stack that lies in a file of the author's. */
function place(error, lines) {
  for (const [, line, column] of String(error?.stack ?? '').matchAll(/:(\d+):(\d+)\)?$/gm)) {
    const found = lines.at(Number(line), Number(column));
    if (found !== undefined) return found;
  }
  return undefined;
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
