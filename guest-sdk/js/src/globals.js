/**
 * Replaces the engine's globals for time, randomness, output and Promises. The engine's own ones end the call without a
 * text, contain the time of the build, or lose errors. The replacements work, or throw an error with a text. The entry
 * point of a plugin imports this file before the policy, so that it also applies while the policy's modules load.
 */

import { current } from './host.js';
import { Promise, queueMicrotask } from './promise.js';

const { Date } = globalThis;

function noClock() {
  throw new Error('a plugin has no clock: import { now } from "@tollgate/sdk/clock", and grant the capability clock');
}

globalThis.Date = new Proxy(Date, {
  apply: noClock,
  construct: (target, list, newTarget) => (list.length === 0 ? noClock() : Reflect.construct(target, list, newTarget)),
  get: (target, name) => (name === 'now' ? noClock : Reflect.get(target, name)),
});
Date.prototype.constructor = globalThis.Date;
globalThis.performance = { now: noClock };

// Mulberry32: returns the same numbers in every build and in every call.
let seed = 0;
Math.random = () => {
  seed = (seed + 0x6d2b79f5) | 0;
  let mixed = Math.imul(seed ^ (seed >>> 15), seed | 1);
  mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
};

globalThis.Promise = Promise;
globalThis.queueMicrotask = queueMicrotask;
// These functions create Promises of the engine.
delete Array.fromAsync;
delete globalThis.AsyncDisposableStack;

// Code that is compiled at run time has not been through the build, so its async functions would be those of the
// engine.
const { eval: evaluate } = globalThis;
globalThis.eval = (code) => evaluate(withoutAsync(code));
for (const { prototype } of [Function, Object.getPrototypeOf(function* () {}).constructor]) {
  const compile = { apply: (target, _, list) => target(...list.map(withoutAsync)), construct: (target, list) => target(...list.map(withoutAsync)) };
  Object.defineProperty(prototype, 'constructor', { value: new Proxy(prototype.constructor, compile) });
}
globalThis.Function = Function.prototype.constructor;

function withoutAsync(code) {
  if (/\basync\b/.test(String(code))) throw new SyntaxError('code that is compiled in a plugin must not be async: nothing in a plugin can be awaited');
  return code;
}

// While the policy is loading, there is no log to write to.
const write = (level) => (...parts) => current()?.logging.log(level, parts.map(told).join(' ').toWellFormed());
globalThis.console = {
  debug: write('debug'),
  error: write('error'),
  info: write('info'),
  log: write('info'),
  trace: write('trace'),
  warn: write('warn'),
};

function told(part) {
  try {
    return String(part);
  } catch {
    return typeof part;
  }
}
