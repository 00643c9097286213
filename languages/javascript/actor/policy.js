/** Follows instructions in the object under review, for the conformance suite. */

import { allow, Cause, CauseType, deny, log, merge, patch, pointer, unchanged } from '@tollgate/sdk';

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
      object.get('data');
      return allow;
    case 'log':
      log.info('hello');
      return allow;
    default:
      act(what, 0);
      return allow;
  }
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
