/** The images of a test review: a list that the test gives, by the host's rules. */

import { createHash } from 'node:crypto';

/** The keys of an image in a suite. */
const known = ['image', 'policy', 'result', 'digest', 'signers', 'reason'];

/** The results, with the general reason of those that are failures. */
const results = {
  verified: undefined,
  'last-known-good': undefined,
  unsigned: 'it has no signature',
  untrusted: 'its signatures are by others',
  'not-found': 'the registry has no such tag',
  'not-granted': 'the registry is not listed',
  unavailable: 'the registry does not answer',
};

/** The results that are about a digest. */
const refusals = ['unsigned', 'untrusted'];

/** Checks the images of a test. */
export function imagesOf(entries) {
  return entries.map((entry) => {
    const unknown = Object.keys(entry).find((key) => !known.includes(key));
    if (unknown !== undefined) throw new Error(`the test's image is malformed: unknown key ${unknown}`);
    const name = nameOf(entry.image);
    if (name === undefined) throw new Error(`the test's image ${entry.image} is no image`);
    if (!Object.hasOwn(results, entry.result)) throw new Error(`the test's image ${entry.image} has the result ${entry.result}, which is none`);
    return { ...entry, name, digest: entry.digest ?? name.digest ?? digestOf(name.full) };
  });
}

/** The digest of a tag whose entry has none: one for each tag. */
function digestOf(tag) {
  return `sha256:${createHash('sha256').update(tag).digest('hex')}`;
}

/** Returns the interface `images` for a list. Without a list, the capability is not granted. */
export function listedImages(entries) {
  return { verify: (requests) => requests.map((request) => answer(entries, request)) };
}

function answer(entries, { image, policy }) {
  const failure = (tag, val) => ({ tag: 'err', val: { tag, val } });
  if (entries === undefined) return failure('not-granted', 'the capability is not granted; a test grants it: images([ … ])');
  const asked = nameOf(image);
  if (asked === undefined) return failure('malformed', 'expected an image');
  const entry = entries.find((entry) => isAbout(entry, asked) && (entry.policy ?? policy) === policy);
  if (entry === undefined) return failure('not-found', `no entry of images is about ${asked.full}`);
  const { result, digest, signers = [], reason = results[result] } = entry;
  if (results[result] !== undefined) return failure(result, refusals.includes(result) ? { digest, reason } : reason);
  return { tag: 'ok', val: { digest, pinned: asked.digest !== undefined, signers, lastKnownGood: result === 'last-known-good' } };
}

/** Whether an entry is about an image. That of a tag is also about the digest that it gives to the tag. */
function isAbout({ name, digest }, asked) {
  if (asked.digest !== undefined) return digest === asked.digest && name.repository === asked.repository;
  return name.digest === undefined && name.full === asked.full;
}

const forms = {
  digest: /^sha256:[0-9a-f]{64}$/,
  registry: /^([a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*|\[[0-9a-f:]+\])(:[0-9]+)?$/,
  path: /^[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*(\/[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*)*$/,
  tag: /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/,
};

/** Reads an image like the host and container runtimes, with Docker's abbreviations. Undefined if it is none. */
function nameOf(image) {
  const [rest, digest] = cut(image, '@');
  const [first, others] = cut(rest, '/');
  const isHost = others !== undefined && (first === 'localhost' || /[.:A-Z]/.test(first));
  const host = isHost ? first.toLowerCase() : 'docker.io';
  const registry = host === 'index.docker.io' ? 'docker.io' : host;
  const [short, tag = 'latest'] = cut(isHost ? others : rest, ':');
  const path = registry === 'docker.io' && !short.includes('/') ? `library/${short}` : short;
  const is = (what, text) => forms[what].test(text);
  if (!is('registry', registry) || !is('path', path) || !is('tag', tag) || (digest !== undefined && !is('digest', digest))) return undefined;
  return { full: `${registry}/${path}:${tag}`, repository: `${registry}/${path}`, digest };
}

/** The text before the first separator, and the text after it if there is one. */
function cut(text, separator) {
  const at = text.indexOf(separator);
  return at < 0 ? [text, undefined] : [text.slice(0, at), text.slice(at + 1)];
}
