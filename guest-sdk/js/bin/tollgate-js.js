#!/usr/bin/env node
/** `tollgate-js build policy.ts --output policy.wasm` */

import { parseArgs } from 'node:util';

import { build } from '../build/build.js';

const usage = 'usage: tollgate-js build POLICY.js|POLICY.ts --output PLUGIN.wasm';

try {
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: { output: { type: 'string', short: 'o' } },
  });
  const [command, policy] = positionals;
  if (command !== 'build' || positionals.length !== 2 || values.output === undefined) throw new Error(usage);
  const { exports, size, notes } = await build(policy, values.output);
  for (const note of notes) console.error(`note: ${note}`);
  console.log(`${values.output}: ${size} bytes, exports ${exports.join(', ')}`);
} catch (error) {
  console.error(`error: ${error.message}`);
  // Not `exitCode`, because the engine may still be running.
  process.exit(1);
}
