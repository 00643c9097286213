/** Follows instructions in the object under review, for the conformance suite. */

import { allow, Cause, CauseType, deny, log, merge, patch, pointer, unchanged } from '@tollgate/sdk';
import * as access from '@tollgate/sdk/access';
import { Failure, find, get, list } from '@tollgate/sdk/cluster';
import * as images from '@tollgate/sdk/images';

export const manifest = {
  name: 'actor',
  version: '0.1.0',
  rules: [{ operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*'] }],
};

export function configure(settings) {
  if (settings.do !== undefined) act(settings.do, 0);
}

export function validate(review) {
  const { object } = review;
  const what = object.text('/data/do');
  switch (what) {
    case 'deny':
      return deny('no').code(422).reason('Invalid').because(new Cause(pointer('data', 'a/b'), 'wrong', CauseType.valueInvalid));
    case 'wrong answer':
      return { allowed: true };
    case 'no answer':
      return;
    case 'promise':
      return Promise.resolve(allow);
    case 'rejected promise':
      return Promise.reject(new Error('boom'));
    case 'forgotten':
      forgotten();
      return allow;
    case 'left over':
      Promise.resolve().then(() => undefined);
      return allow;
    case 'microtask':
      queueMicrotask(() => act('throw', 0));
      return allow;
    case 'wrong text':
      return deny('no').at('/data', 5);
    case 'wrong pointer':
      object.get(5);
      return allow;
    case 'read':
      review.warn(
        [
          object.integer('/data/big'),
          object.text('/data/text'),
          object.get('/data/null') === null,
          object.get('/data/absent') !== undefined,
          `[${object.keys('/data/members').join(' ')}]`,
          object.json('/data/exact'),
        ].join(' '),
      );
      review.annotate('operation', review.operation);
      return allow;
    case 'read many': {
      const [big, absent, text] = object.getMany(['/data/big', '/data/absent', '/data/text']);
      review.warn(`${big} ${absent !== undefined} ${text}`);
      return allow;
    }
    case 'namespace':
      review.namespace.text('/metadata/labels/team');
      return allow;
    case 'whole':
      review.warn(String(object.json('').length > 1 << 20));
      return allow;
    case 'pointer':
      // A malformed pointer is a fault even for a policy that catches errors.
      try {
        object.get('data');
      } catch {}
      return allow;
    case 'escape':
      object.get('/data/a~b');
      return allow;
    case 'not a function':
      review.object.string('/data/text');
      return allow;
    case 'log':
      log.info('hello');
      return allow;
    case 'get':
    case 'find':
    case 'list':
    case 'lookup':
      lookUp(what, review);
      return allow;
    case 'may':
    case 'rights':
      ask(what, review);
      return allow;
    case 'verify':
      verify(review);
      return allow;
    default:
      act(what, 0);
      return allow;
  }
}

/** Reads the lookup that the object names, and warns with what it finds. */
function lookUp(what, review) {
  const text = (member) => review.object.text(pointer('data', member));
  const [lookup, namespace] = [text('lookup'), text('namespace')];
  if (what === 'get') {
    const found = get(lookup, namespace, text('name'));
    review.warn(found === undefined ? 'none' : shown(found));
    return;
  }
  try {
    for (const object of what === 'find' ? find(lookup, text('index'), text('key')) : list(lookup, namespace)) review.warn(shown(object));
  } catch (error) {
    if (what !== 'lookup' || !(error instanceof Failure)) throw error;
    review.warn(error.kind);
  }
}

/** Asks about the right that the object names, and warns with the answer. `rights` warns with the kind of a failure. */
function ask(what, review) {
  const text = (member) => review.object.text(pointer('data', member));
  const [verb, path, account] = [text('verb'), text('path'), text('account')];
  const action =
    path === undefined
      ? {
          verb,
          group: text('group'),
          resource: text('resource'),
          subresource: text('subresource'),
          namespace: text('namespace'),
          name: text('name'),
        }
      : { verb, path };
  try {
    const { allowed, reason } = access.check(
      action,
      account === undefined ? undefined : { namespace: text('accountNamespace'), name: account },
    );
    review.warn(`${allowed} ${reason}`);
  } catch (error) {
    if (what !== 'rights' || !(error instanceof access.Failure)) throw error;
    review.warn(error.kind);
  }
}

/** Asks about the images that the object names, and warns with each answer. */
function verify(review) {
  const policy = review.object.text('/data/policy') ?? '';
  for (const answer of images.verify(review.object.select('/data/images/*').map(({ value: image }) => ({ image, policy })))) {
    if (answer.verified) review.warn(['verified', answer.pinned, answer.lastKnownGood, ...answer.signers, answer.digest].join(' '));
    else review.warn(`${answer.kind} ${answer.digest ?? '-'} ${answer.reason}`);
  }
}

function shown({ namespace, name, fields }) {
  const hosts = fields.select('/spec/rules/*/host').map(({ value }) => value);
  return `${namespace ?? '-'}/${name} [${hosts.join(' ')}] ${fields.text('/metadata/labels/a~1b') ?? '-'} ${fields.get('/metadata/uid') !== undefined}`;
}

async function forgotten() {
  await undefined;
  throw new Error('boom');
}

function act(what, depth) {
  switch (what) {
    case 'throw':
      throw new Error('boom');
    case 'crash':
      return undefined.depth;
    case 'other error':
      throw 'boom';
    case 'unprintable':
      throw Object.create(null);
    case 'loop':
      for (;;) depth++;
    case 'memory':
      for (const all = []; ; ) all.push(new Uint8Array(1 << 20));
    case 'recurse':
      return act(what, depth + 1) + 1;
    case 'clock':
      return Date.now();
  }
  return depth;
}

export function mutate({ object }) {
  const what = object.text('/data/do');
  switch (what) {
    case 'patch':
      return patch().set(object, '/metadata/annotations/a~1b', 'ü"\n').set(object, '/data/done', true).remove('/data/text');
    case 'pointer':
      return patch().remove('data/text');
    case 'merge':
      return merge({ data: { text: null, done: true } });
    case 'wrong value':
      return patch().add('/data/none', NaN);
    case 'throw':
    case 'loop':
      act(what, 0);
  }
  return unchanged;
}
