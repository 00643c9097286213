/** Tests the errors of `tollgate-js build` for policies that cannot be loaded. */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import { build } from '../build/build.js';

const head = 'export const manifest = { name: "a", version: "1" };\nexport function validate() {}\n';

async function failure(helper) {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-test-'));
  try {
    await writeFile(join(folder, 'policy.js'), head + 'import "./helper.js";');
    await writeFile(join(folder, 'helper.js'), helper);
    await build(join(folder, 'policy.js'), join(folder, 'plugin.wasm'));
  } catch (error) {
    return error.message.replaceAll(`${folder}/`, '');
  } finally {
    await rm(folder, { recursive: true });
  }
}

test('an error while it is loaded is told with the places of the source', async () => {
  assert.equal(
    await failure('\nfunction fails() {\n  throw new Error("boom");\n}\nfails();\n'),
    'policy.js fails while it is loaded: Error: boom\n    at helper.js:3\n    at helper.js:5',
  );
  assert.match(await failure('(async () => {\n  throw new Error("boom");\n})();'), /a Promise was rejected and nothing handled it: Error: boom\n    at helper.js:/);
});

test('what is called and is not a function is named as the author wrote it', async () => {
  const loading = (call) => failure(`const list = [1], object = { text: {} };\n// The bundle renames this, because policy.js has a manifest.\nconst manifest = object;\n${call}\n`);
  for (const [call, said] of [
    ['manifest.text.of(1);', 'manifest.text.of is not a function'],
    ['new manifest.text(1);', 'manifest.text is not a constructor'],
    ['list.map(object);', 'an argument of map is not a function'],
  ]) {
    assert.equal(await loading(call), `policy.js fails while it is loaded: TypeError: ${said}\n    at helper.js:4`);
  }
});

test('the moment of the build does not get into a plugin', async () => {
  for (const reading of ['new Date()', 'Date.now()', 'Date()', 'performance.now()', 'new (new Date(0).constructor)()']) {
    assert.match(await failure(`\nglobalThis.started = ${reading};`), /a plugin has no clock: .*\n    at helper.js:2\b/, reading);
  }
  assert.equal(await failure('globalThis.some = [new Date(0), Math.random()]; console.log("hello");'), undefined);
});

test('nothing is awaited at the top level', async () => {
  assert.equal(await failure('\nawait 5;'), 'helper.js:2 awaits at the top level: nothing in a plugin can be awaited');
});

test('a module of Node.js is named with the place', async () => {
  assert.equal(
    await failure('\nimport { readFileSync } from "node:fs";\nimport { Buffer } from "buffer";\nreadFileSync(Buffer);'),
    'helper.js:2 imports node:fs, which only Node.js has: use another package, or leave that part of it out\n' +
      'helper.js:3 imports buffer, which only Node.js has: npm install buffer',
  );
  assert.match(await failure('import "no-such-package";'), /Could not resolve "no-such-package"/);
});

test('a loop while it is loaded does not hang the build', () => {
  // Runs in its own process, because the engine keeps running in it.
  const script = `
    import { build } from ${JSON.stringify(new URL('../build/build.js', import.meta.url).href)};
    import { writeFileSync } from 'node:fs';
    writeFileSync('policy.js', ${JSON.stringify(`${head}for (;;);`)});
    build('policy.js', 'plugin.wasm', { loadTimeout: 1000 }).catch((error) => (console.log(error.message), process.exit(1)));`;
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
  const { status, stdout } = spawnSync(process.execPath, ['--input-type=module', '--eval', script], { cwd: folder, encoding: 'utf8', timeout: 60_000 });
  rmSync(folder, { recursive: true });
  assert.match(stdout, /^policy.js fails while it is loaded: it was not done after 1 seconds; look for a loop at the top level/);
  assert.equal(status, 1);
});

/** Builds a policy with a helper, and returns the notes of the build. */
async function notes(helper) {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-test-'));
  try {
    await writeFile(join(folder, 'policy.js'), head + 'import "./helper.js";');
    await writeFile(join(folder, 'helper.js'), helper);
    return (await build(join(folder, 'policy.js'), join(folder, 'plugin.wasm'))).notes;
  } finally {
    await rm(folder, { recursive: true });
  }
}

test('globals of the web that need no system are there', async () => {
  const texts = 'new TextDecoder().decode(new TextEncoder().encode("ü🚧")) + new globalThis.TextEncoder().encoding';
  const checks = `if (${texts} !== "ü🚧utf-8") throw new Error("texts");
const from = { list: [1, { a: new Date(0) }] };
from.itself = from;
const to = structuredClone(from);
if (to === from || to.itself !== to || to.list[1].a.getTime() !== 0) throw new Error("clone");
let name;
try { structuredClone(() => 1); } catch (error) { name = error.name; }
if (name !== "DataCloneError") throw new Error("function");`;
  assert.deepEqual(await notes(checks), []);
});

test('a global that a plugin does not have is noted with its place, and told when it is used', async () => {
  const [note, ...others] = await notes('export const later = () => new URL("https://a");\nglobalThis.later = later;');
  assert.match(note, /^helper\.js:1 uses URL, which a plugin does not have: npm install core-js/);
  assert.deepEqual(others, []);
  assert.deepEqual(await notes('globalThis.is = typeof process !== "undefined" && process.env.A;'), []);
  assert.match(await failure('\nsetTimeout(() => 1, 1);'), /ReferenceError: setTimeout is not defined: a plugin has none; nothing in a plugin can happen later\n    at helper\.js:2/);
});
