import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';

import * as own from '../src/promise.js';

const fails = (text) => {
  throw new Error(text);
};
/** Programs that report the order of their steps. Node's own Promises give the expected order. */
const programs = {
  'reactions run after the code, in order': ({ Promise, queueMicrotask }, say) => {
    Promise.resolve(1).then(say);
    queueMicrotask(() => say('job'));
    new Promise((resolve) => resolve(2)).then((value) => say(value), fails);
    say('code');
  },
  'a chain takes turns with another': ({ Promise }, say) => {
    for (const name of ['a', 'b']) {
      let chain = Promise.resolve(0);
      for (let step = 0; step < 4; step++) chain = chain.then((value) => (say(name + value), value + 1));
    }
  },
  'the first settlement counts': ({ Promise }, say) => {
    new Promise((resolve, reject) => (resolve(1), reject(2), resolve(3), fails('too late'))).then(say, fails);
  },
  'what a handler throws rejects, what it returns resolves': ({ Promise }, say) => {
    Promise.reject('a').catch((reason) => reason + 'b').then((value) => fails(value)).catch((error) => say(error.message));
    Promise.resolve(1).then(() => Promise.resolve(2)).then(say);
    Promise.resolve(1).then(() => Promise.reject(3)).then(fails, say);
  },
  'thenables are followed, and may misbehave': ({ Promise }, say) => {
    Promise.resolve({ then: (resolve) => (resolve(1), resolve(2), fails('too late')) }).then(say, fails);
    Promise.resolve({ then: () => fails('in then') }).catch((error) => say(error.message));
    const itself = new Promise((resolve) => Promise.resolve().then(() => resolve(itself)));
    itself.catch((error) => say(error.constructor.name));
  },
  'finally passes on': ({ Promise }, say) => {
    Promise.resolve(1).finally(() => say('done')).then(say);
    Promise.reject(2).finally(() => say('done')).catch(say);
    Promise.resolve(3).finally(() => fails('no')).catch((error) => say(error.message));
  },
  'many become one': ({ Promise }, say) => {
    const two = Promise.resolve(2);
    Promise.all([1, two, { then: (resolve) => resolve(3) }]).then((values) => say(values.join()));
    Promise.all([]).then((values) => say(values.length));
    Promise.all([two, Promise.reject('all')]).catch(say);
    Promise.allSettled([1, Promise.reject(2)]).then((all) => say(JSON.stringify(all)));
    Promise.any([Promise.reject(1), two]).then(say);
    Promise.any([Promise.reject(1), Promise.reject(2)]).catch((error) => say(error.constructor.name + error.errors.join()));
    Promise.race([two, Promise.reject(1)]).then(say);
    Promise.race([Promise.reject('race'), two]).catch(say);
    Promise.all(5).catch((error) => say(error.constructor.name));
  },
  'a resolver may be kept, and a class be derived': ({ Promise }, say) => {
    class Derived extends Promise {}
    say(Derived.resolve(1).then(() => {}) instanceof Derived);
    const { promise, resolve } = new (class {
      constructor() {
        this.promise = new Promise((resolve) => (this.resolve = resolve));
      }
    })();
    promise.then(say);
    resolve(Promise.resolve('late'));
    say(Object.prototype.toString.call(promise));
  },
  'async functions as the build makes them': ({ Promise }, say) => {
    // Generators stepped by Promises, as esbuild compiles `async`.
    const run = (generator) =>
      new Promise((resolve, reject) => {
        const step = (next) => (value) => {
          try {
            const { done, value: awaited } = next.call(generator, value);
            if (done) resolve(awaited);
            else Promise.resolve(awaited).then(step(generator.next), step(generator.throw));
          } catch (error) {
            reject(error);
          }
        };
        step(generator.next)();
      });
    run(
      (function* () {
        say(yield Promise.resolve('awaited'));
        try {
          yield Promise.reject('caught');
        } catch (reason) {
          say(reason);
        }
        fails('at the end');
      })(),
    ).catch((error) => say(error.message));
    say('code');
  },
};

for (const [name, program] of Object.entries(programs)) {
  test(`promises: ${name}`, async () => {
    const expected = [];
    program({ Promise, queueMicrotask }, (word) => expected.push(word));
    await turn();
    const said = [];
    program(own, (word) => said.push(word));
    own.settle();
    assert.deepEqual(said, expected);
    assert.ok(expected.length > 0);
  });
}

test('what nobody handles is thrown, with its own text and place', () => {
  const boom = new Error('boom');
  own.Promise.reject(boom);
  assert.throws(() => own.settle(), { message: 'a Promise was rejected and nothing handled it: Error: boom', stack: boom.stack });
});

test('a rejection that is handled in time is none', () => {
  const rejected = own.Promise.reject(new Error('boom'));
  own.Promise.resolve().then(() => rejected.catch(() => {}));
  own.settle();
});
