import assert from 'node:assert/strict';
import { test } from 'node:test';

import { allow, deny, merge, patch, pointer, SettingsErrors, settings as setting, unchanged, wholeObject } from '../src/index.js';
import { now } from '../src/clock.js';
import { create, remove, update } from '../src/testing.js';

const pod = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'a', labels: { 'a/b': '', 'c~d': '' }, annotations: null },
  spec: { big: 9007199254740993n, half: 0.5, off: false, containers: [{ image: 'x' }, {}, { image: 'y' }] },
};

const manifest = { name: 'test', version: '1.0.0' };

function read(look) {
  let seen;
  create(pod).validate({
    manifest,
    validate(review) {
      seen = look(review.object, review);
      return allow;
    },
  });
  return seen;
}

test('a value is read as what it is and as nothing else', () => {
  assert.equal(read((object) => object.get('/spec/big')), 9007199254740993n);
  assert.equal(read((object) => object.integer('/spec/half')), undefined);
  assert.equal(read((object) => object.number('/spec/half')), 0.5);
  assert.equal(read((object) => object.boolean('/spec/off')), false);
  assert.equal(read((object) => object.text('/spec/off')), undefined);
  assert.equal(read((object) => object.get('/metadata/annotations')), null);
  assert.equal(read((object) => object.get('/metadata/nothing')), undefined);
  assert.equal(read((object) => object.length('/spec/containers')), 3);
  assert.equal(read((object) => object.get('/spec/containers/00')), undefined);
  assert.deepEqual(read((object) => object.keys('/metadata/labels')), ['a/b', 'c~d']);
  assert.equal(read((_, review) => review.request.resource.resource), 'pods');
});

test('a pattern selects every place that is there', () => {
  const places = (pattern) => read((object) => object.select(pattern).map((node) => node.pointer));
  assert.deepEqual(places('/spec/containers/*/image'), ['/spec/containers/0/image', '/spec/containers/2/image']);
  assert.deepEqual(places('/metadata/labels/*'), ['/metadata/labels/a~1b', '/metadata/labels/c~0d']);
});

test('a malformed pointer ends the call', () => {
  assert.throws(() => read((object) => object.get('spec')), /no leading slash/);
  assert.throws(() => read((object) => object.get('/a~b')), /neither 0 nor 1/);
});

test('a denial is returned or thrown, and blames its fields', () => {
  const returned = { manifest, validate: () => deny('no').at(pointer('spec', 'a/b'), 'because').code(422) };
  assert.deepEqual(create(pod).validate(returned).causes, [['/spec/a~1b', 'because']]);
  const thrown = {
    manifest,
    validate() {
      throw deny('no');
    },
  };
  assert.equal(create(pod).validate(thrown).denial.message, 'no');
  assert.equal(create(pod).validate({ manifest, validate: () => deny('no').ifBlamed() }).denial, undefined);
});

test('what is no verdict is a fault and never an allow', () => {
  for (const [answer, said] of [
    [undefined, /validate returned undefined; it has to return `allow` or a denial/],
    [null, /returned null/],
    [true, /returned a boolean/],
    [{}, /returned an object of type Object/],
    [{ tag: 'allow' }, /returned an object of type Object/],
    [Promise.resolve(allow), /returned a Promise: it must not be async/],
    [unchanged, /returned an object of type Mutation/],
  ]) {
    assert.throws(() => create(pod).validate({ manifest, validate: () => answer }), said);
  }
  assert.throws(() => create(pod).mutate({ manifest, mutate: () => [] }), /mutate returned an object of type Array/);
  assert.throws(() => create(pod).validate({ manifest, configure: async () => 1, validate: () => allow }), /configure returned a Promise/);
  assert.throws(() => create(pod).validate({ manifest, validate: () => deny({}).at('/a', 1) }), /is not a string/);
});

test('setting makes each missing parent once', () => {
  const outcome = create(pod).mutate({
    manifest,
    mutate: ({ object }) =>
      patch()
        .set(object, '/metadata/annotations/a', 'ü')
        .set(object, '/metadata/annotations/b~1c', 2)
        .set(object, '/spec/containers/1', null)
        .append(object, '/spec/list', 1)
        .append(object, '/spec/list', 'x'),
  });
  assert.ok(outcome.changed);
  assert.deepEqual(outcome.object.metadata.annotations, { a: 'ü', 'b/c': 2 });
  assert.deepEqual(outcome.object.spec.containers[1], null);
  assert.deepEqual(outcome.object.spec.list, [1, 'x']);
});

test('merge patches and whole objects are applied, and an empty patch changes nothing', () => {
  const mutate = (answer) => create(pod).mutate({ manifest, mutate: () => answer });
  assert.equal(mutate(merge({ spec: null })).object.spec, undefined);
  assert.deepEqual(mutate(wholeObject({ a: 1 })).object, { a: 1 });
  assert.equal(mutate(patch()).changed, false);
  assert.throws(() => mutate(patch().remove('/nothing')), /the patch does not apply/);
  assert.throws(() => remove(pod).mutate({ manifest, mutate: () => merge({}) }), /there is no object/);
});

test('each setting that is wrong is named', () => {
  const settings = setting.object({
    limit: setting.integer({ minimum: 1 }).default(10),
    teams: setting.list(setting.string({ pattern: /^[a-z]+$/ })).optional(),
    mode: setting.oneOf('a', 'b'),
    more: setting.table(setting.boolean()).default({}),
  });
  const policy = { manifest, settings, validate: (review, { limit }) => (review.warn(String(limit)), allow) };
  const wrong = (settings) => {
    try {
      create(pod).settings(settings).validate(policy);
    } catch (error) {
      assert.ok(error instanceof SettingsErrors);
      return error.toString();
    }
  };
  assert.equal(wrong({ limit: 0, teams: ['a', 'B'], mode: 'a' }), '/limit: must be a whole number from 1; /teams/1: must be a string that matches ^[a-z]+$');
  assert.equal(wrong({ limits: 1, mode: 'a' }), '/limits: unknown setting; there are: limit, mode, more, teams');
  assert.equal(wrong({ more: { 'a/b': 1 } }), '/mode: is missing; /more/a~1b: must be true or false');
  assert.equal(wrong({ mode: null }), '/mode: must be one of "a", "b"');
  assert.equal(wrong([]), 'must be an object');
  assert.deepEqual(create(pod).settings({ mode: 'b' }).validate(policy).warnings, ['10']);
});

test('a change is told from what stays', () => {
  const changes = (review) => review.validate({ manifest, validate: (r) => (r.annotate('changes', r.changes('/spec')), allow) }).annotations.changes;
  assert.equal(changes(update(pod, { ...pod, kind: 'X' })), 'false');
  assert.equal(changes(update(pod, { ...pod, spec: {} })), 'true');
});

test('the clock stands where the test put it', () => {
  const policy = { manifest, validate: (review) => (review.warn(now().toISOString()), allow) };
  assert.deepEqual(create(pod).at(new Date('2026-01-02T03:04:05.678Z')).validate(policy).warnings, ['2026-01-02T03:04:05.678Z']);
  assert.throws(() => create(pod).validate(policy), /sets it/);
});
