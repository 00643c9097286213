/** Globals of browsers and Node.js that a plugin does not have, and what to do instead. */

const url = "npm install core-js, and import 'core-js/web/url.js' before it is used";
const noSystem = 'a plugin has no network, no files and no processes';
const noLater = 'nothing in a plugin can happen later';

/** What to do for each global. */
export const missing = {
  URL: url,
  URLSearchParams: url,
  AbortController: noLater,
  Buffer: 'use Uint8Array, TextEncoder, TextDecoder, atob and btoa',
  Intl: 'format by hand, or use toFixed and toISOString',
  WebAssembly: 'a plugin cannot compile code',
  XMLHttpRequest: noSystem,
  __dirname: noSystem,
  clearInterval: noLater,
  clearTimeout: noLater,
  crypto: 'a plugin has no randomness; for hashes, npm install @noble/hashes',
  fetch: noSystem,
  process: noSystem,
  require: 'use `import`',
  setImmediate: noLater,
  setInterval: noLater,
  setTimeout: noLater,
  window: 'use `globalThis`',
};

/** Adds what to do to the engine's `… is not defined`. */
export function advised(text) {
  const [, name] = text.match(/^(?:Reference)?Error: '?(\w+)'? is not defined$/) ?? [];
  return name !== undefined && Object.hasOwn(missing, name) ? `ReferenceError: ${name} is not defined: a plugin has none; ${missing[name]}` : text;
}
