/** Compares the globals of src/web.js with those of Node.js. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as web from '../src/web.js';

const texts = ['', 'a', 'é', '\u0800', '🚧', 'a\ud800b', '\udc00', '\u0000', '\ufeffa', 'ü🚧"\n'.repeat(100)];

test('texts become the same bytes', () => {
  for (const text of texts) {
    assert.deepEqual(new web.TextEncoder().encode(text), new TextEncoder().encode(text), JSON.stringify(text));
    for (const size of [0, 1, 3, 1000]) {
      const [own, other] = [new Uint8Array(size), new Uint8Array(size)];
      assert.deepEqual(new web.TextEncoder().encodeInto(text, own), new TextEncoder().encodeInto(text, other));
      assert.deepEqual(own, other);
    }
  }
  assert.deepEqual(new web.TextEncoder().encode(), new Uint8Array());
});

test('bytes become the same texts, also wrong ones', () => {
  // Deterministic: a multiplicative generator.
  let seed = 1;
  const random = (below) => (seed = (seed * 48271) % 2147483647) % below;
  const edges = [0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc2, 0xdf, 0xe0, 0xed, 0xef, 0xf0, 0xf4, 0xf5, 0xff, 0xbb, 0xbf];
  const inputs = texts.map((text) => new TextEncoder().encode(text));
  for (let count = 0; count < 20000; count++) {
    inputs.push(Uint8Array.from({ length: random(6) }, () => edges[random(edges.length)]));
  }
  inputs.push(Uint8Array.of(0xef, 0xbb, 0xbf, 0x61));
  for (const input of inputs) {
    for (const options of [{}, { ignoreBOM: true }]) {
      assert.equal(new web.TextDecoder('utf-8', options).decode(input), new TextDecoder('utf-8', options).decode(input), String(input));
    }
    const fatal = (decoder) => {
      try {
        return decoder.decode(input);
      } catch (error) {
        return error.name;
      }
    };
    assert.equal(fatal(new web.TextDecoder('UTF8', { fatal: true })), fatal(new TextDecoder('UTF8', { fatal: true })), String(input));
  }
  const bytes = Uint8Array.of(97, 98, 99, 100);
  assert.equal(new web.TextDecoder().decode(bytes.subarray(1, 3)), 'bc');
  assert.equal(new web.TextDecoder().decode(bytes.buffer), 'abcd');
  assert.equal(new web.TextDecoder().decode(), '');
  assert.throws(() => new web.TextDecoder('latin1'), RangeError);
  assert.throws(() => new web.TextDecoder().decode('text'), TypeError);
});

test('values are copied in the same way', () => {
  const shared = { x: 1 };
  const circle = { list: [shared, shared] };
  circle.itself = circle;
  const sparse = [1, , 3];
  const values = [
    1, 'a', null, undefined, 10n, true, circle, sparse, new Date(5), /a/gi, new Map([[shared, new Set([shared])]]),
    new Uint8Array([1, 2, 3]).subarray(1), new DataView(new ArrayBuffer(4), 1, 2), Object(1), new TypeError('wrong', { cause: 1 }),
    Object.create({ inherited: 1 }, { own: { value: 2, enumerable: true }, hidden: { value: 3 } }),
  ];
  for (const value of values) assert.deepEqual(web.structuredClone(value), structuredClone(value));
  const copy = web.structuredClone(circle);
  assert.equal(copy.itself, copy);
  assert.equal(copy.list[0], copy.list[1]);
  assert.notEqual(copy.list[0], shared);
  for (const value of [() => 1, Symbol('a'), { a: () => 1 }, new WeakMap(), Promise.resolve()]) {
    assert.throws(() => web.structuredClone(value), { name: 'DataCloneError' });
    assert.throws(() => structuredClone(value), { name: 'DataCloneError' });
  }
});
