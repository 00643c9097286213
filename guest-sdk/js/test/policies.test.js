import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';

import { allow, deny, merge, patch, pointer, SettingsErrors, settings as setting, unchanged, wholeObject } from '../src/index.js';
import { check, Failure as AccessFailure } from '../src/access.js';
import { now } from '../src/clock.js';
import { Failure, find, get, list } from '../src/cluster.js';
import { lineTable } from '../src/component.js';
import { use } from '../src/host.js';
import { Failure as ImageFailure, verify } from '../src/images.js';
import * as contract from '../src/policy.js';
import { create, remove, update } from '../src/testing.js';
import { know, place, words } from '../src/words.js';

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

test('a malformed pointer ends every read and patch with the pointer and what to write', () => {
  const message = '`spec/replicas` is no JSON Pointer: it has no leading slash; write `/spec/replicas`';
  for (const use of [
    (object) => object.get('spec/replicas'),
    (object) => object.getMany(['/spec', 'spec/replicas']),
    (object) => object.text('spec/replicas'),
    (object) => object.integer('spec/replicas'),
    (object) => object.keys('spec/replicas'),
    (object) => object.select('spec/replicas'),
    (object) => object.json('spec/replicas'),
    (object) => object.read('spec/replicas'),
    (_, review) => review.changes('spec/replicas'),
    () => patch().add('spec/replicas', 1),
    () => patch().remove('spec/replicas'),
    () => patch().move('/a', 'spec/replicas'),
    () => patch().copy('spec/replicas', '/a'),
    (object) => patch().set(object, 'spec/replicas', 1),
    (object) => patch().append(object, 'spec/replicas', 1),
  ]) {
    assert.throws(() => read(use), { name: 'TypeError', message });
  }
  for (const malformed of ['/a~', '/a~2', '/~0~b']) {
    const message = `\`${malformed}\` is no JSON Pointer: a \`~\` is followed by neither 0 nor 1; write \`~0\` for \`~\` and \`~1\` for \`/\`, or make it with pointer(…)`;
    assert.throws(() => read((object) => object.get(malformed)), { message });
  }
  for (const good of ['', '/', '/~0~1', pointer('~2', 'a/b')]) read((object) => object.get(good));
});

test('a malformed pointer ends the call of a plugin before anything can catch it', () => {
  const ended = [];
  const before = use({ abort: (error) => ended.push(error.message) });
  try {
    assert.throws(() => patch().remove('spec'));
  } finally {
    use(before);
  }
  assert.deepEqual(ended, ['`spec` is no JSON Pointer: it has no leading slash; write `/spec`']);
});

test('what is called and is not a function is named', () => {
  const lines = lineTable(['policy.js'], [0, ['0', 7, '12:review.object.string 20:other ']]);
  const stack = (frame) => Object.assign(new TypeError('not a function'), { stack: `    at ${frame}\n    at x (/tollgate-bundle.js:1:1)` });
  know(lines);
  try {
    assert.equal(words(stack('validate (/tollgate-bundle.js:2:12)')), 'TypeError: review.object.string is not a function');
    assert.equal(words(stack('validate (/tollgate-bundle.js:2:2)')), 'TypeError: not a function');
    assert.equal(words(stack('map (native)')), 'TypeError: an argument of map is not a function');
    assert.equal(words(new TypeError('other')), 'TypeError: other');
  } finally {
    know(undefined);
  }
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

test('what the contract has no form for is named, at the line that makes it', () => {
  const validates = (validate) => () => create(pod).validate({ manifest, validate });
  for (const [validate, said] of [
    [() => deny(5), /the message of a denial is not a string but a number/],
    [() => deny('no').at(5, 'm'), /the field of a cause is not a string but a number/],
    [() => deny('no').at('/a', 'm', 7), /the reason of a cause is not a string/],
    [() => deny('no').code('abc'), /the code of a denial is a string; it has to be a whole number from 400 to 499/],
    [() => deny('no').code(70000), /is 70000/],
    [() => deny('no').code(422.5), /is 422.5/],
    [() => deny('no').reason(5), /the reason of a denial is not a string/],
    [() => Object.assign(deny('no'), { causes: 5 }), /the list of causes is not a list but a number/],
    [() => Object.assign(deny('no'), { causes: [null] }), /is not a Cause but null/],
    [({ object }) => object.get(), /a pointer into the review is not a string but undefined/],
    [({ object }) => object.select(null), /not a string but null/],
    [(review) => review.annotate(5, 5), /the key of an annotation is not a string/],
  ]) {
    assert.throws(validates(validate), said);
  }
  for (const [make, said] of [
    [() => patch().remove(), /the path of an operation is not a string but undefined/],
    [() => patch().move('/x'), /the path of an operation/],
    [() => patch().add('/x', '\ud800'), /half a surrogate pair/],
    [() => patch().add('/x', undefined), /no JSON form: it is undefined/],
    [() => patch().add('/x', NaN), /no JSON form: it is NaN/],
    [() => patch().add('/x', { y: [1, Infinity] }), /it is Infinity, at "1"/],
    [() => patch().add('/x', { y: () => 1 }), /it is a function, at "y"/],
    [() => merge([undefined]), /it is undefined, at "0"/],
  ]) {
    assert.throws(() => create(pod).mutate({ manifest, mutate: make }), said);
  }
  assert.deepEqual(create(pod).mutate({ manifest, mutate: () => merge({ data: { a: 1, b: undefined } }) }).object.data, { a: 1 });
  assert.equal(create(pod).validate({ manifest, validate: () => deny('cut \ud83d') }).denial.message, 'cut \ufffd');
});

test('what is wrong with a manifest is named', () => {
  const rule = { operations: ['CREATE'], apiGroups: [''], apiVersions: ['v1'], resources: ['pods'] };
  for (const [members, said] of [
    [{ name: 5 }, 'manifest.name is not a string but a number'],
    [{ rules: rule }, 'manifest.rules is not a list but an object of type Object'],
    [{ rules: [rule, { operations: ['CREATE'] }] }, 'manifest.rules[1].apiGroups is not a list but undefined'],
    [{ rules: [{ ...rule, operations: 'CREATE' }] }, 'manifest.rules[0].operations is not a list but a string'],
    [{ rules: [{ ...rule, resources: [5] }] }, 'manifest.rules[0].resources[0] is not a string but a number'],
    [{ rules: [{ ...rule, scope: 1 }] }, 'manifest.rules[0].scope is not a string but a number'],
    [{ labels: { a: 5 } }, 'manifest.labels.a is not a string but a number'],
    [{ settingsSchema: () => 1 }, 'manifest.settingsSchema is a function, which has no JSON form'],
  ]) {
    assert.throws(() => contract.manifest({ manifest: { ...manifest, ...members } }), { message: said });
  }
  assert.throws(() => contract.manifest({ manifest: undefined }), { message: 'manifest is not an object but undefined' });
  assert.deepEqual(contract.manifest({ manifest: { ...manifest, rules: [rule], labels: { a: 'b' } } }).labels, [['a', 'b']]);
});

test('the schema of the settings comes from their shape', () => {
  const shape = setting.object({
    allowed: setting.list(setting.string({ pattern: /^[a-z]+$/ })),
    labels: setting.table(setting.integer({ minimum: 1 })).default({ a: 1 }),
    mode: setting.oneOf('deny', 'warn').default('deny'),
    ratio: setting.number({ maximum: 1 }).optional(),
    schema: setting.json().optional(),
    strict: setting.boolean().default(false),
    word: setting.string({ pattern: /^x$/i }),
  });
  const described = (members) =>
    contract.manifest({ manifest: { ...manifest, ...members }, settings: shape }).settingsSchema;
  assert.deepEqual(JSON.parse(described({})), {
    type: 'object',
    properties: {
      allowed: { type: 'array', items: { type: 'string', pattern: '^[a-z]+$' } },
      labels: { type: 'object', additionalProperties: { type: 'integer', minimum: 1 }, default: { a: 1 } },
      mode: { enum: ['deny', 'warn'], default: 'deny' },
      ratio: { type: 'number', maximum: 1 },
      schema: {},
      strict: { type: 'boolean', default: false },
      word: { type: 'string' },
    },
    required: ['allowed', 'word'],
    additionalProperties: false,
  });
  assert.equal(described({ settingsSchema: { type: 'object' } }), '{"type":"object"}');
  assert.equal(contract.manifest({ manifest }).settingsSchema, undefined);
});

test('whatever is thrown is told', () => {
  const unreadable = new Error('x');
  Object.defineProperty(unreadable, 'stack', { get: () => assert.fail('stack') });
  for (const [thrown, said] of [
    [new TypeError('x'), 'TypeError: x'],
    ['x', 'thrown: x'],
    [undefined, 'thrown: undefined'],
    [Symbol('x'), 'thrown: Symbol(x)'],
    [Object.create(null), 'thrown: an object of type Object, which cannot be made text'],
    [new Proxy({}, { getPrototypeOf: () => assert.fail('prototype') }), 'thrown: an object that cannot be looked at, which cannot be made text'],
    [unreadable, 'Error: x'],
    [new Error('\ud800'), 'Error: \ufffd'],
  ]) {
    assert.equal(words(thrown), said);
    assert.equal(place(thrown, { at: () => undefined }), undefined);
  }
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

const shop = {
  apiVersion: 'v1',
  kind: 'Namespace',
  spec: { finalizers: [] },
  metadata: { name: 'shop', labels: { team: 'a' }, managedFields: [] },
};

function seenOf(testReview) {
  let seen;
  testReview.validate({
    manifest,
    validate(review) {
      seen = review.namespace.read('');
      return allow;
    },
  });
  return seen;
}

test('the namespace is that of the object, with its metadata alone', () => {
  const shown = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'shop', labels: { team: 'a' } } };
  assert.deepEqual(seenOf(create(pod).namespaceObject(shop)), shown);
  assert.deepEqual(seenOf(create(shop)), shown);
  assert.deepEqual(seenOf(remove(shop)), shown);
  assert.equal(seenOf(create({ apiVersion: 'v1', kind: 'Node', metadata: { name: 'a' } })), undefined);
});

test('a namespace that the test leaves out is not absent', () => {
  assert.throws(() => seenOf(create(pod).with({ namespace: 'shop' })), /namespaceObject/);
});

test('several values are read at once', () => {
  const pointers = ['/spec/big', '/spec/nothing', '/metadata/annotations', '/spec/containers/0/image'];
  assert.deepEqual(read((object) => object.getMany(pointers)), [9007199254740993n, undefined, null, 'x']);
  assert.throws(() => read((object) => object.getMany(['/spec', 'spec'])), /no leading slash/);
});

const ingress = (namespace, name, ...hosts) => ({
  metadata: { namespace, name, labels: { team: 'a' } },
  spec: { priority: 1, rules: [...hosts.map((host) => ({ host, http: {} })), {}] },
});
const ingresses = {
  name: 'ingresses',
  resource: { group: 'networking.k8s.io', version: 'v1', resource: 'ingresses' },
  namespaces: ['blog', 'shop'],
  fields: ['/spec/rules/*/host', '/spec/priority'],
  indexes: { host: '/spec/rules/*/host', team: '/metadata/labels/team', priority: '/spec/priority' },
};

/** Runs a function where lookups are. */
function inCluster(review, run) {
  let result;
  review.validate({ manifest, validate: () => ((result = run()), allow) });
  return result;
}

test('lookups find objects', () => {
  const review = create(pod).lookup(ingresses, [ingress('shop', 'web', 'b.example', 'c.example'), ingress('blog', 'web', 'b.example'), ingress('blog', 'api')]);
  const names = (objects) => [...objects].map(({ namespace, name }) => `${namespace}/${name}`);
  assert.deepEqual(inCluster(review, () => names(find('ingresses', 'host', 'b.example'))), ['blog/web', 'shop/web']);
  assert.deepEqual(inCluster(review, () => names(find('ingresses', 'host', 'd.example'))), []);
  assert.equal(inCluster(review, () => names(find('ingresses', 'team', 'a')).length), 3);
  assert.equal(inCluster(review, () => names(find('ingresses', 'priority', '1')).length), 3);
  assert.deepEqual(inCluster(review, () => names(list('ingresses', 'blog'))), ['blog/api', 'blog/web']);
  assert.equal(inCluster(review, () => get('ingresses', 'shop', 'api')), undefined);
  const { fields } = inCluster(review, () => get('ingresses', 'shop', 'web'));
  assert.equal(fields.json(''), '{"spec":{"priority":1,"rules":[{"host":"b.example"},{"host":"c.example"},{}]}}');
  assert.equal(fields.text('/spec/rules/1/host'), 'c.example');
  assert.equal(fields.integer('/spec/priority'), 1);
  assert.equal(fields.get('/metadata'), undefined);
  assert.equal(fields.length('/spec/rules'), 3);
  assert.deepEqual(fields.keys('/spec'), ['priority', 'rules']);
  assert.deepEqual(fields.getMany(['/spec/priority', '/none']), [1, undefined]);
  assert.deepEqual(fields.select('/spec/rules/*/host')[1], { pointer: '/spec/rules/1/host', value: 'c.example' });
  assert.deepEqual(fields.read('/spec/rules/0'), { host: 'b.example' });
  assert.throws(() => fields.get('spec'), /no leading slash/);
});

test('a loop gets all pages', () => {
  const objects = Array.from({ length: 1201 }, (_, number) => ingress('shop', `web-${String(number).padStart(4, '0')}`));
  const found = inCluster(create(pod).lookup(ingresses, objects), () => [...list('ingresses')]);
  assert.equal(found.length, 1201);
  assert.equal(found[1200].name, 'web-1200');
});

test('failures of lookups are typed, and faults unless they are caught', () => {
  const review = create(pod).lookup(ingresses, []).notSynchronised('pods');
  const failure = (run) => inCluster(review, () => {
    try {
      run();
    } catch (error) {
      assert.ok(error instanceof Failure);
      return error;
    }
  });
  const late = failure(() => get('pods', 'shop', 'a'));
  assert.deepEqual([late.kind, late.message], ['not synchronised', 'not synchronised: the lookup pods']);
  assert.equal(failure(() => get('ingress', 'shop', 'a')).kind, 'not granted');
  assert.equal(failure(() => get('ingresses', 'other', 'a')).kind, 'not granted');
  assert.equal(failure(() => get('ingresses', undefined, 'a')).kind, 'not granted');
  assert.equal(failure(() => [...find('ingresses', 'hosts', 'a')]).kind, 'not granted');
  assert.throws(() => review.validate({ manifest, validate: () => (get('pods', 'shop', 'a'), allow) }), Failure);
  assert.throws(() => create(pod).lookup({ name: 'a', field: [] }, []), /unknown key field/);
});

test('rules say what the user may do', () => {
  const review = create(pod).user('anna', 'dev').access([
    { user: 'anna', verb: 'delete', apiGroup: 'apps', resource: 'deployments/scale', namespace: 'shop' },
    { group: 'dev', verb: '*', path: '/metrics*' },
    { user: 'system:serviceaccount:shop:robot', verb: 'get', resource: '*' },
  ]);
  const scale = { verb: 'delete', group: 'apps', resource: 'deployments', subresource: 'scale', namespace: 'shop' };
  const pods = { verb: 'get', resource: 'pods' };
  const robot = { namespace: 'shop', name: 'robot' };
  for (const [action, account, allowed] of [
    [scale, undefined, true],
    [{ ...scale, namespace: 'blog' }, undefined, false],
    [{ ...scale, subresource: undefined }, undefined, false],
    [{ verb: 'get', path: '/metrics/slis' }, undefined, true],
    [{ verb: 'get', path: '/healthz' }, undefined, false],
    [pods, undefined, false],
    [pods, robot, true],
    [scale, robot, false],
  ]) {
    const decision = inCluster(review, () => check(action, account));
    assert.equal(decision.allowed, allowed, JSON.stringify([action, account]));
    assert.ok(decision.reason);
  }
});

test('failures of access are typed, and faults unless they are caught', () => {
  const kind = (review) => inCluster(review, () => {
    try {
      check({ verb: 'get', resource: 'pods' });
    } catch (error) {
      assert.ok(error instanceof AccessFailure);
      return error.kind;
    }
  });
  assert.equal(kind(create(pod)), 'not granted');
  assert.equal(kind(create(pod).accessUnavailable()), 'unavailable');
  assert.throws(() => create(pod).accessUnavailable().validate({ manifest, validate: () => (check({ verb: 'get', path: '/' }), allow) }), AccessFailure);
  assert.throws(() => create(pod).access([{ user: 'a', verb: 'get', resources: 'b' }]), /unknown key resources/);
});

test('images are answered from the list', () => {
  const digest = `sha256:${'a'.repeat(64)}`;
  const review = create(pod).images([
    { image: 'nginx', result: 'verified', digest, signers: ['release'] },
    { image: 'nginx:2', policy: 'other', result: 'last-known-good' },
    { image: 'nginx:2', result: 'unsigned', reason: 'none at all' },
  ]);
  const asked = (review, image, policy = 'release') => inCluster(review, () => verify([{ image, policy }])[0]);
  const verified = { verified: true, digest, pinned: false, signers: ['release'], lastKnownGood: false };
  assert.deepEqual(asked(review, 'nginx'), verified);
  assert.deepEqual(asked(review, 'docker.io/library/nginx:latest'), verified);
  assert.deepEqual(asked(review, `nginx@${digest}`), { ...verified, pinned: true });
  assert.equal(asked(review, 'nginx:2', 'other').lastKnownGood, true);
  for (const [image, kind, message] of [
    ['nginx:2', 'unsigned', 'not signed: none at all'],
    ['nginx:3', 'not found', 'not found: no entry of images is about docker.io/library/nginx:3'],
    [`nginx@sha256:${'b'.repeat(64)}`, 'not found', undefined],
    ['Nginx', 'malformed', 'no valid image: expected an image'],
    ['nginx:', 'malformed', undefined],
  ]) {
    const failure = asked(review, image);
    assert.ok(failure instanceof ImageFailure && !failure.verified);
    assert.deepEqual([failure.kind, failure.message], [kind, message ?? failure.message]);
    assert.equal(failure.digest !== undefined, kind === 'unsigned');
  }
  assert.equal(asked(create(pod), 'nginx').kind, 'not granted');
  assert.throws(() => inCluster(review, () => verify([{ image: 5, policy: 'a' }])), /the image of the list of requests\[0\] is not a string/);
  assert.throws(() => create(pod).images([{ image: 'nginx', result: 'signed' }]), /the result signed, which is none/);
});

test('every image has an answer', () => {
  const before = use({ images: { verify: (requests) => requests.slice(1) } });
  const requests = ['a', 'b'].map((image) => ({ image, policy: 'release' }));
  try {
    assert.throws(() => verify(requests), /the host has answered 1 of 2 requests about images/);
  } finally {
    use(before);
  }
});

test('a tag without a digest has one of its own', () => {
  const review = create(pod).images(['nginx:1', 'nginx:2'].map((image) => ({ image, result: 'verified' })));
  const digest = (image) => inCluster(review, () => verify([{ image, policy: 'release' }])[0]).digest;
  // That of the text docker.io/library/nginx:1, as the host and the other SDKs have it.
  assert.equal(digest('nginx:1'), `sha256:${createHash('sha256').update('docker.io/library/nginx:1').digest('hex')}`);
  assert.notEqual(digest('nginx:1'), digest('nginx:2'));
  assert.equal(digest(`nginx@${digest('nginx:2')}`), digest('nginx:2'));
});

test('a setting of any JSON is read as it is', () => {
  const settings = setting.object({ schema: setting.json(), more: setting.json().optional() });
  const policy = { manifest, settings, validate: (review, { schema, more }) => (review.warn(JSON.stringify([schema, more])), allow) };
  const schema = { type: 'object', anyOf: [1, null, { x: 0.5 }] };
  assert.deepEqual(create(pod).settings({ schema }).validate(policy).warnings, [JSON.stringify([schema, null])]);
  assert.throws(() => create(pod).settings({}).validate(policy), /\/schema: is missing/);
});

test('a global that a plugin does not have is told with what to do', () => {
  assert.match(words(new ReferenceError('URL is not defined')), /^ReferenceError: URL is not defined: a plugin has none; npm install core-js/);
  assert.equal(words(new ReferenceError('mine is not defined')), 'ReferenceError: mine is not defined');
  assert.equal(words(new ReferenceError('toString is not defined')), 'ReferenceError: toString is not defined');
});
