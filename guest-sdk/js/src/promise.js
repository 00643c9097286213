/**
 * The SDK's own Promises, which replace the engine's. The engine has a queue of jobs that nothing in a plugin runs, and
 * does not report rejections. So work in that queue would never run, and its errors would get lost. These Promises know
 * the work that is left after the answer. The build turns `async` functions into generators, which use these Promises.
 */

import { stack, words } from './words.js';

const jobs = [];
const unhandled = new Map();
let left;

/** Work that a policy left behind. The operator reads only its message. */
class Unfinished extends Error {
  name = '';
}

/** Runs the work that the policy's modules left while loading. Throws an error that nobody handled. */
export function settle() {
  run();
  throwUnhandled();
  left = undefined;
}

/** Throws if `what` left work for after its answer, because that work had no part in the answer. */
export function finish(what) {
  run();
  throwUnhandled();
  if (left === undefined) return;
  left.message = `${what} left something to a Promise or to queueMicrotask, which is done only after its answer: nothing in a plugin can be awaited`;
  throw left;
}

function run() {
  for (let job = jobs.shift(); job !== undefined; job = jobs.shift()) job();
}

function throwUnhandled() {
  for (const [promise, reason] of unhandled) {
    unhandled.delete(promise);
    const error = new Unfinished(`a Promise was rejected and nothing handled it: ${words(reason)}`);
    error.stack = stack(reason) || error.stack;
    throw error;
  }
}

/** `queueMicrotask`. */
export function queueMicrotask(job) {
  if (typeof job !== 'function') throw new TypeError('queueMicrotask takes a function');
  enqueue(() => job());
}

function enqueue(job) {
  leave();
  jobs.push(job);
}

/** Remembers the first place that left work. */
function leave() {
  left ??= new Unfinished();
}

class OwnPromise {
  #state = 'pending';
  #value;
  #reactions = [];

  constructor(executor) {
    if (typeof executor !== 'function') throw new TypeError('a Promise is made of a function');
    const { resolve, reject } = this.#settlers();
    try {
      executor(resolve, reject);
    } catch (error) {
      reject(error);
    }
  }

  static get [Symbol.species]() {
    return this;
  }

  static resolve(value) {
    if (isPromise(value) && value.constructor === this) return value;
    const { promise, resolve } = capability(this);
    resolve(value);
    return promise;
  }

  static reject(reason) {
    const { promise, reject } = capability(this);
    reject(reason);
    return promise;
  }

  static withResolvers() {
    return capability(this);
  }

  static try(run, ...list) {
    return new this((resolve) => resolve(run(...list)));
  }

  static all(values) {
    return gather(this, values, ({ reject }, set) => [set, () => reject]);
  }

  static allSettled(values) {
    const outcome = (make) => (set) => (at) => (value) => set(at)(make(value));
    const fulfilled = outcome((value) => ({ status: 'fulfilled', value }));
    const rejected = outcome((reason) => ({ status: 'rejected', reason }));
    return gather(this, values, (_, set) => [fulfilled(set), rejected(set)]);
  }

  static any(values) {
    return gather(this, values, ({ resolve }, set) => [() => resolve, set], ({ reject }, errors) =>
      reject(new AggregateError(errors, 'all Promises were rejected')),
    );
  }

  static race(values) {
    return gather(this, values, ({ resolve, reject }) => [() => resolve, () => reject], () => {});
  }

  then(onFulfilled, onRejected) {
    const next = capability(this.constructor?.[Symbol.species] ?? OwnPromise);
    const react = (handler, otherwise) => (value) => {
      if (typeof handler !== 'function') return otherwise(value);
      let result;
      try {
        result = handler(value);
      } catch (error) {
        return next.reject(error);
      }
      next.resolve(result);
    };
    const reaction = { fulfilled: react(onFulfilled, next.resolve), rejected: react(onRejected, next.reject) };
    unhandled.delete(this);
    leave();
    if (this.#state === 'pending') this.#reactions.push(reaction);
    else this.#react(reaction);
    return next.promise;
  }

  catch(onRejected) {
    return this.then(undefined, onRejected);
  }

  finally(onFinally) {
    if (typeof onFinally !== 'function') return this.then(onFinally, onFinally);
    const C = this.constructor?.[Symbol.species] ?? OwnPromise;
    return this.then(
      (value) => C.resolve(onFinally()).then(() => value),
      (reason) =>
        C.resolve(onFinally()).then(() => {
          throw reason;
        }),
    );
  }

  static isPromise(value) {
    return typeof value === 'object' && value !== null && #state in value;
  }

  /** Returns a pair of functions. Only the first call counts. */
  #settlers() {
    let done = false;
    const once = (settle) => (value) => {
      if (done) return;
      done = true;
      settle(value);
    };
    return { resolve: once((value) => this.#resolve(value)), reject: once((reason) => this.#settle('rejected', reason)) };
  }

  #resolve(value) {
    if (value === this) return this.#settle('rejected', new TypeError('a Promise cannot be resolved with itself'));
    if ((typeof value !== 'object' && typeof value !== 'function') || value === null) return this.#settle('fulfilled', value);
    let then;
    try {
      then = value.then;
    } catch (error) {
      return this.#settle('rejected', error);
    }
    if (typeof then !== 'function') return this.#settle('fulfilled', value);
    enqueue(() => {
      const { resolve, reject } = this.#settlers();
      try {
        then.call(value, resolve, reject);
      } catch (error) {
        reject(error);
      }
    });
  }

  #settle(state, value) {
    const reactions = this.#reactions;
    this.#state = state;
    this.#value = value;
    this.#reactions = [];
    if (state === 'rejected' && reactions.length === 0) unhandled.set(this, value);
    for (const reaction of reactions) this.#react(reaction);
  }

  #react(reaction) {
    enqueue(() => reaction[this.#state](this.#value));
  }
}

const { isPromise } = OwnPromise;
delete OwnPromise.isPromise;
Object.defineProperty(OwnPromise, 'name', { value: 'Promise' });
Object.defineProperty(OwnPromise.prototype, Symbol.toStringTag, { value: 'Promise', configurable: true });

/** `Promise`. */
export { OwnPromise as Promise };

function capability(C) {
  const made = {};
  made.promise = new C((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}

/**
 * Combines many Promises into one. `react` returns the reactions to a fulfilled and to a rejected Promise, by its
 * index. `set` keeps a value for an index, and `complete` gets all values at the end.
 */
function gather(C, values, react, complete = ({ resolve }, results) => resolve(results)) {
  const whole = capability(C);
  const results = [];
  let missing = 1;
  const count = () => {
    missing -= 1;
    if (missing === 0) complete(whole, results);
  };
  const set = (at) => (value) => {
    results[at] = value;
    count();
  };
  try {
    const [fulfilled, rejected] = react(whole, set);
    let index = 0;
    for (const value of values) {
      missing += 1;
      C.resolve(value).then(fulfilled(index), rejected(index));
      index += 1;
    }
    count();
  } catch (error) {
    whole.reject(error);
  }
  return whole.promise;
}
