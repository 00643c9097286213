/**
 * The images capability: whether container images are signed as a policy of the configuration requires. The host does not
 * load a plugin that imports this file unless its configuration has `images`. The documentation is in the types:
 * images.d.ts.
 */

import { exact, list, object } from './check.js';
import { host } from './host.js';

/** The kinds of failures, by their names in the contract, each with the beginning of its message. */
const kinds = {
  malformed: ['malformed', 'no valid image'],
  'not-granted': ['not granted', 'not granted'],
  'not-found': ['not found', 'not found'],
  unsigned: ['unsigned', 'not signed'],
  untrusted: ['untrusted', 'not signed as required'],
  unavailable: ['unavailable', 'cannot be verified now'],
};

export class Failure extends Error {
  constructor({ tag, val }) {
    const [kind, beginning] = kinds[tag];
    const { reason, digest } = typeof val === 'string' ? { reason: val } : val;
    super(`${beginning}: ${reason}`);
    this.name = 'Failure';
    Object.assign(this, { verified: false, kind, reason, digest });
  }
}

export function verify(requests) {
  const asked = list(requests, 'the list of requests', requestOf);
  const answers = host().images.verify(asked);
  // A policy that goes over the answers would take an image without one for verified.
  if (answers.length !== asked.length) throw new Error(`the host has answered ${answers.length} of ${asked.length} requests about images`);
  return answers.map(answer);
}

function requestOf(request, what) {
  const { image, policy } = object(request, what);
  return { image: exact(image, `the image of ${what}`), policy: exact(policy, `the policy of ${what}`) };
}

function answer({ tag, val }) {
  if (tag !== 'ok') return new Failure(val);
  const { digest, pinned, signers, lastKnownGood } = val;
  return { verified: true, digest, pinned, signers, lastKnownGood };
}
