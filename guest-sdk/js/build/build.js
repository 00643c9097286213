/** Builds a component from a policy module: bundles it, finds its world, and passes both to QuickJS's toolchain. */

import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { isBuiltin } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { TraceMap, eachMapping, sourceContentFor } from '@jridgewell/trace-mapping';
import { componentize } from 'componentize-qjs';
import * as esbuild from 'esbuild';

import { lineTable } from '../src/component.js';
import { named } from '../src/words.js';
import { calls } from './calls.js';
import { defines, notes } from './globals.js';

const sdk = dirname(dirname(fileURLToPath(import.meta.url)));
const contract = 'tollgate:admission';
const version = '0.1.0';

/** The interfaces outside of the default worlds. A plugin imports one when its modules import the SDK's file for it. */
const capabilities = ['access', 'clock', 'cluster', 'images'];

/** The engine's name for the bundle in its stacks. */
const bundleName = 'tollgate-bundle.js';

/**
 * Builds a policy module, and returns its exports, its size, and notes about what it uses and does not have. The build
 * takes seconds. Loading the modules may take
 * up to `loadTimeout` milliseconds.
 */
export async function build(policy, output, { loadTimeout = 60_000 } = {}) {
  const { code, table, exports, used, noted } = await bundle(resolve(policy));
  const interfaces = {
    imports: ['review', 'logging', ...used],
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
    return { exports: interfaces.exports, size: component.length, notes: noted };
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
  const [text, ...stack] = own.split(new RegExp(String.raw`\n(?=\s+at .*(?:${bundleName}:|\(native\)))`));
  const message = named(text.trim(), stack.join('\n'), lineTable(files, table));
  const places = stack.flatMap((frame) => {
    const entry = table[Number(frame.match(/:(\d+):\d+\)?\s*$/)?.[1]) - 1];
    return entry ? [`\n    at ${files[entry[0]]}:${entry[1]}`] : [];
  });
  return `${policy} fails while it is loaded: ${message}${[...new Set(places)].join('')}`;
}

async function bundle(policy) {
  const inspected = await run(policy, `export * from ${JSON.stringify(policy)};`, defines.inspect);
  const text = (build, ending) => build.outputFiles.find((file) => file.path.endsWith(ending)).text;
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
  const inputs = Object.keys(inspected.metafile.inputs).map((input) => resolve(dirname(policy), input));
  const used = capabilities.filter((name) => inputs.includes(join(sdk, `src/${name}.js`)));
  const whole = await run(policy, entry(policy, exports, used), defines.build);
  const table = lines(text(whole, '.map'), dirname(policy), text(whole, '.js'));
  const code = text(whole, '.js').replace('__TOLLGATE_LINES__', () => JSON.stringify(table));
  const noted = missed(dirname(policy), text(inspected, '.js'), text(inspected, '.map'), inputs);
  return { code, table, exports, used, noted };
}

/** Returns notes about globals that a plugin does not have. */
function missed(folder, code, map, inputs) {
  const trace = new TraceMap(map);
  const [files, table] = lines(map, folder, code);
  const source = (file) => sourceContentFor(trace, trace.sources.find((name) => name !== null && relative(folder, resolve(folder, name)) === file) ?? '');
  return notes(code, inputs, source, (line) => lineTable(files, table).at(line));
}

async function run(policy, contents, define) {
  try {
    return await bundled(policy, contents, define);
  } catch (error) {
    const awaits = error.errors?.find(({ text }) => text.startsWith('Top-level await'));
    if (awaits !== undefined) {
      const { file, line } = awaits.location;
      throw new Error(`${file}:${line} awaits at the top level: nothing in a plugin can be awaited`);
    }
    const ofNode = error.errors?.flatMap(nodeImport) ?? [];
    throw ofNode.length === 0 ? error : new Error(ofNode.join('\n'));
  }
}

/** Describes an error of esbuild, if it is about a module of Node.js that no package replaces. */
function nodeImport({ text, location }) {
  const name = text.match(/^Could not resolve "([^"]+)"/)?.[1];
  if (name === undefined || location === null || !isBuiltin(name)) return [];
  const replaced = packages.includes(name) ? `npm install ${name}` : 'use another package, or leave that part of it out';
  return [`${location.file}:${location.line} imports ${name}, which only Node.js has: ${replaced}`];
}

/** Packages on npm that have the name of a module of Node.js, and what it does. */
const packages = ['assert', 'buffer', 'events', 'punycode', 'querystring', 'string_decoder', 'url', 'util'];

function bundled(policy, contents, define) {
  return esbuild.build({
    stdin: { contents, resolveDir: dirname(policy), sourcefile: 'tollgate-entry.js' },
    absWorkingDir: dirname(policy),
    bundle: true,
    define,
    inject: [join(sdk, 'src/web.js')],
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

function entry(policy, exports, used) {
  const use = (name) => `import * as ${name} from '${contract}/${name}@${version}';`;
  return [
    `import '@tollgate/sdk/globals';`,
    use('review'),
    use('logging'),
    ...used.map(use),
    `import { component, lineTable } from '@tollgate/sdk/component';`,
    `import * as policy from ${JSON.stringify(policy)};`,
    `const made = component(policy, { ${['review', 'logging', ...used].join(', ')} }, lineTable(...__TOLLGATE_LINES__));`,
    'export const lifecycle = made.lifecycle;',
    exports.includes('mutate') ? 'export const mutating = made.mutating;' : '',
    exports.includes('validate') ? 'export const validating = made.validating;' : '',
  ].join('\n');
}

/**
 * Maps each line of the bundle to the author's file and line, or to nothing for lines of this SDK. A line of the
 * policy's own files also has its calls, as text: each column, counted from 1, with what is called there.
 */
function lines(map, folder, code) {
  const files = [];
  const table = [];
  const trace = new TraceMap(map);
  const bundle = code.split('\n').map(calls);
  const sources = new Map();
  eachMapping(trace, ({ generatedLine, generatedColumn, source, originalLine, originalColumn }) => {
    const path = source === null ? undefined : resolve(folder, source);
    if (path === undefined || path.startsWith(join(sdk, 'src')) || source.endsWith('tollgate-entry.js')) return;
    const name = relative(folder, path);
    if (!files.includes(name)) files.push(name);
    const entry = (table[generatedLine - 1] ??= [files.indexOf(name), originalLine]);
    const call = bundle[generatedLine - 1].find(({ column }) => column === generatedColumn);
    if (call === undefined || name.includes('node_modules')) return;
    // The bundle may have renamed what the author wrote.
    if (!sources.has(source)) sources.set(source, (sourceContentFor(trace, source) ?? '').split('\n').map(calls));
    const written = sources.get(source)[originalLine - 1]?.find(({ column }) => column === originalColumn) ?? call;
    entry[2] = `${entry[2] ?? ''}${generatedColumn + 1}:${written.name.replaceAll(' ', '')} `;
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
