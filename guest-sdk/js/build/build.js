/** Builds a component from a policy module: bundles it, finds its world, and passes both to QuickJS's toolchain. */

import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { TraceMap, eachMapping } from '@jridgewell/trace-mapping';
import { componentize } from 'componentize-qjs';
import * as esbuild from 'esbuild';

const sdk = dirname(dirname(fileURLToPath(import.meta.url)));
const contract = 'tollgate:admission';
const version = '0.1.0';

/** The engine's name for the bundle in its stacks. */
const bundleName = 'tollgate-bundle.js';

/**
 * Builds a policy module, and returns its exports and its size. The build takes seconds. Loading the modules may take
 * up to `loadTimeout` milliseconds.
 */
export async function build(policy, output, { loadTimeout = 60_000 } = {}) {
  const { code, table, exports, usesClock } = await bundle(resolve(policy));
  const interfaces = {
    imports: ['review', 'logging', ...(usesClock ? ['clock'] : [])],
    exports: ['lifecycle', ...(exports.includes('mutate') ? ['mutating'] : []), ...(exports.includes('validate') ? ['validating'] : [])],
  };
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-js-'));
  try {
    const witPath = await writeWorld(folder, interfaces);
    await writeFile(join(folder, bundleName), code);
    const loaded = componentize({
      jsSource: code,
      jsPath: join(folder, bundleName),
      moduleRoot: folder,
      witPath,
      world: 'plugin',
      stubWasi: true,
      sync: true,
    });
    const { component } = await inTime(policy, loaded, loadTimeout).catch((error) => {
      throw new Error(failure(policy, error.message, table));
    });
    await mkdir(dirname(resolve(output)), { recursive: true });
    await writeFile(output, component);
    return { exports: interfaces.exports, size: component.length };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The engine runs on a thread that cannot be stopped, so the caller has to end the process. */
function inTime(policy, loaded, loadTimeout) {
  let timer;
  const late = new Promise((_, reject) => {
    const message = `it was not done after ${loadTimeout / 1000} seconds; look for a loop at the top level of ${policy} and of what it imports`;
    timer = setTimeout(() => reject(new Error(message)), loadTimeout);
  });
  return Promise.race([loaded, late]).finally(() => clearTimeout(timer));
}

/** Returns the engine's error, with the places in the author's files instead of those in the bundle. */
function failure(policy, said, [files, table]) {
  const own = said.replace(/^(: )?(Failed to [^:]*: )*/, '');
  const [message, ...stack] = own.split(new RegExp(String.raw`\n(?=\s+at .*${bundleName}:)`));
  const places = stack.flatMap((frame) => {
    const entry = table[Number(frame.match(/:(\d+):\d+\)?\s*$/)?.[1]) - 1];
    return entry ? [`\n    at ${files[entry[0]]}:${entry[1]}`] : [];
  });
  return `${policy} fails while it is loaded: ${message.trim()}${[...new Set(places)].join('')}`;
}

async function bundle(policy) {
  const inspected = await run(policy, `export * from ${JSON.stringify(policy)};`);
  const { exports } = Object.values(inspected.metafile.outputs).find((output) => output.entryPoint !== undefined);
  for (const name of ['manifest', 'validate', 'mutate']) {
    if (name === 'manifest' ? !exports.includes(name) : !exports.includes('validate') && !exports.includes('mutate')) {
      throw new Error(
        name === 'manifest'
          ? `${policy} does not export \`manifest\``
          : `${policy} exports neither \`validate\` nor \`mutate\``,
      );
    }
  }
  const usesClock = Object.keys(inspected.metafile.inputs).some((input) => resolve(input) === join(sdk, 'src/clock.js'));
  const whole = await run(policy, entry(policy, exports, usesClock));
  const text = (ending) => whole.outputFiles.find((file) => file.path.endsWith(ending)).text;
  const table = lines(text('.map'), dirname(policy));
  const code = text('.js').replace('__TOLLGATE_LINES__', () => JSON.stringify(table));
  return { code, table, exports, usesClock };
}

async function run(policy, contents) {
  try {
    return await bundled(policy, contents);
  } catch (error) {
    const awaits = error.errors?.find(({ text }) => text.startsWith('Top-level await'));
    if (awaits === undefined) throw error;
    const { file, line } = awaits.location;
    throw new Error(`${file}:${line} awaits at the top level: nothing in a plugin can be awaited`);
  }
}

function bundled(policy, contents) {
  return esbuild.build({
    stdin: { contents, resolveDir: dirname(policy), sourcefile: 'tollgate-entry.js' },
    absWorkingDir: dirname(policy),
    bundle: true,
    external: ['tollgate:*'],
    alias: { '@tollgate/sdk': join(sdk, 'src'), '@tollgate/sdk/component': join(sdk, 'src/component.js'), '@tollgate/sdk/globals': join(sdk, 'src/globals.js') },
    format: 'esm',
    logLevel: 'silent',
    metafile: true,
    outfile: join(dirname(policy), bundleName),
    platform: 'neutral',
    mainFields: ['module', 'main'],
    sourcemap: 'external',
    target: 'es2023',
    supported: { 'dynamic-import': false, 'top-level-await': false },
    plugins: [withoutAsync],
    write: false,
  });
}

/**
 * The engine's async functions create Promises of the engine, which src/promise.js would not see. So the build changes
 * files with async functions. It leaves other files alone, because the change also makes generators slower, and parsers
 * consist of generators.
 */
const withoutAsync = {
  name: 'without async',
  setup({ onLoad }) {
    onLoad({ filter: /\.[cm]?[jt]s$/ }, async ({ path }) => {
      const contents = await readFile(path, 'utf8');
      if (!/\basync\b/.test(contents)) return undefined;
      const { code } = await esbuild.transform(contents, {
        loader: path.endsWith('ts') ? 'ts' : 'js',
        sourcefile: path,
        sourcemap: 'inline',
        supported: { 'async-await': false, 'async-generator': false, 'for-await': false, 'top-level-await': true },
        target: 'es2023',
      });
      return { contents: code, loader: 'js' };
    });
  },
};

function entry(policy, exports, usesClock) {
  const use = (name) => `import * as ${name} from '${contract}/${name}@${version}';`;
  return [
    `import '@tollgate/sdk/globals';`,
    use('review'),
    use('logging'),
    usesClock ? use('clock') : 'const clock = undefined;',
    `import { component, lineTable } from '@tollgate/sdk/component';`,
    `import * as policy from ${JSON.stringify(policy)};`,
    `const made = component(policy, { review, logging, clock }, lineTable(...__TOLLGATE_LINES__));`,
    'export const lifecycle = made.lifecycle;',
    exports.includes('mutate') ? 'export const mutating = made.mutating;' : '',
    exports.includes('validate') ? 'export const validating = made.validating;' : '',
  ].join('\n');
}

/** Maps each line of the bundle to the author's file and line, or to nothing for lines of this SDK. */
function lines(map, folder) {
  const files = [];
  const table = [];
  eachMapping(new TraceMap(map), ({ generatedLine, source, originalLine }) => {
    const path = source === null ? undefined : resolve(folder, source);
    if (path === undefined || path.startsWith(join(sdk, 'src')) || source.endsWith('tollgate-entry.js')) return;
    const name = relative(folder, path);
    if (!files.includes(name)) files.push(name);
    table[generatedLine - 1] ??= [files.indexOf(name), originalLine];
  });
  return [files, Array.from(table, (entry) => entry ?? 0)];
}

async function writeWorld(folder, { imports, exports }) {
  const root = join(folder, 'wit');
  await mkdir(join(root, 'deps'), { recursive: true });
  await cp(join(sdk, 'wit'), join(root, 'deps/tollgate-admission'), { recursive: true, dereference: true });
  const line = (word) => (name) => `  ${word} ${contract}/${name}@${version};\n`;
  const body = [...imports.map(line('import')), ...exports.map(line('export'))].join('');
  await writeFile(join(root, 'world.wit'), `package tollgate:javascript;\n\nworld plugin {\n${body}}\n`);
  return root;
}
