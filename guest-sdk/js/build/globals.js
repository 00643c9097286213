/** Provides and finds globals that the engine lacks, while a policy is bundled. */

import { missing } from '../src/missing.js';

/** What src/web.js has. A name that is a member of `globalThis` counts, too. */
const provided = ['TextDecoder', 'TextEncoder', 'structuredClone'];
/** Packages that provide a global, by the paths of their files. */
const providers = [
  { names: ['URL', 'URLSearchParams'], path: /\/core-js(-pure)?\/.*\burl\b/ },
  { names: ['Buffer'], path: /\/(buffer|feross-buffer)\// },
];
const mark = '__tollgate_missing_';

/** esbuild itself gives this to packages in CommonJS. */
const bundled = ['require'];

/** Options of esbuild: uses of a missing global get a mark in the first of two builds. */
export const defines = {
  inspect: Object.fromEntries(Object.keys(missing).filter((name) => !bundled.includes(name)).map((name) => [name, mark + name])),
  build: Object.fromEntries(provided.map((name) => [`globalThis.${name}`, name])),
};

/**
 * Returns a note for each missing global that a file uses, with the first place. A file that asks `typeof NAME` can do
 * without, and so can a policy with a package that provides it.
 */
export function notes(code, inputs, written, at) {
  const notes = new Map();
  code.split('\n').forEach((line, index) => {
    for (const [, name] of line.matchAll(new RegExp(`(?<!typeof )\\b${mark}(\\w+)`, 'g'))) {
      const place = at(index + 1);
      if (place === undefined || providers.some(({ names, path }) => names.includes(name) && inputs.some((input) => path.test(input)))) continue;
      const source = written(place.file) ?? '';
      const isGuarded = new RegExp(`typeof (globalThis\\.)?${name}\\b|globalThis\\.${name} =`).test(source);
      const key = `${place.file} ${name}`;
      if (!isGuarded && !notes.has(key)) notes.set(key, `${place.file}:${place.line} uses ${name}, which a plugin does not have: ${missing[name]}`);
    }
  });
  return [...notes.values()];
}
