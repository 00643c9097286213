/**
 * The access capability: whether the user of the request may do something in the cluster. The host does not load a plugin
 * that imports this file unless the configuration grants `access`. The documentation is in the types: access.d.ts.
 */

import { exact, object, optional } from './check.js';
import { host } from './host.js';

export class Failure extends Error {
  constructor(kind, text) {
    super(`access ${kind}: ${text}`);
    this.name = 'Failure';
    this.kind = kind;
  }
}

export function check(action, serviceAccount) {
  const asked = actionOf(object(action, 'the action'));
  const account = optional(serviceAccount, 'the service account', accountOf);
  const { allowed, reason, error } = ask(() => host().access.check(asked, account));
  return { allowed, reason, error: error ?? undefined };
}

function actionOf(action) {
  const read = (keys) => Object.fromEntries(keys.map((key) => [key, exact(action[key] ?? '', `the ${key} of the action`)]));
  if (action.path !== undefined) return { tag: 'path', val: read(['verb', 'path']) };
  return { tag: 'resource', val: read(['verb', 'group', 'resource', 'subresource', 'namespace', 'name']) };
}

function accountOf(account, what) {
  const { namespace, name } = object(account, what);
  return { namespace: exact(namespace, `the namespace of ${what}`), name: exact(name, `the name of ${what}`) };
}

const kinds = { 'not-granted': 'not granted', unavailable: 'unavailable' };

/** Turns a failure of the contract into an error. */
function ask(call) {
  try {
    return call();
  } catch (thrown) {
    const { tag, val } = thrown?.payload ?? thrown ?? {};
    if (Object.hasOwn(kinds, tag)) throw new Failure(kinds[tag], val);
    throw thrown;
  }
}
