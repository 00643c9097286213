/** From a policy module to a component: bundle, find out which world it is for, hand both to QuickJS's toolchain. */

import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { TraceMap, eachMapping } from '@jridgewell/trace-mapping';
import { componentize } from 'componentize-qjs';
import * as esbuild from 'esbuild';

const sdk = dirname(dirname(fileURLToPath(import.meta.url)));
const contract = 'tollgate:admission';
const version = '0.1.0';

/** Builds a policy module, and says what it exports and how large it is. */
export async function build(policy, output) {
  const { code, exports, usesClock } = await bundle(resolve(policy));
  const interfaces = {
    imports: ['review', 'logging', ...(usesClock ? ['clock'] : [])],
    exports: ['lifecycle', ...(exports.includes('mutate') ? ['mutating'] : []), ...(exports.includes('validate') ? ['validating'] : [])],
  };
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-js-'));
  try {
    const witPath = await writeWorld(folder, interfaces);
    await writeFile(join(folder, 'policy.js'), code);
    const { component } = await componentize({
      jsSource: code,
      jsPath: join(folder, 'policy.js'),
      moduleRoot: folder,
      witPath,
      world: 'plugin',
      stubWasi: true,
      sync: true,
    });
    await mkdir(dirname(resolve(output)), { recursive: true });
    await writeFile(output, component);
    return { exports: interfaces.exports, size: component.length };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
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
  const bundled = await run(policy, entry(policy, exports, usesClock));
  const text = (ending) => bundled.outputFiles.find((file) => file.path.endsWith(ending)).text;
  const code = text('.js').replace('__TOLLGATE_LINES__', JSON.stringify(lines(text('.map'), dirname(policy))));
  return { code, exports, usesClock };
}

function run(policy, contents) {
  return esbuild.build({
    stdin: { contents, resolveDir: dirname(policy), sourcefile: 'tollgate-entry.js' },
    absWorkingDir: dirname(policy),
    bundle: true,
    external: ['tollgate:*'],
    alias: { '@tollgate/sdk': join(sdk, 'src'), '@tollgate/sdk/component': join(sdk, 'src/component.js') },
    format: 'esm',
    logLevel: 'error',
    metafile: true,
    outfile: join(dirname(policy), 'tollgate-bundle.js'),
    platform: 'neutral',
    mainFields: ['module', 'main'],
    sourcemap: 'external',
    target: 'es2023',
    write: false,
  });
}

function entry(policy, exports, usesClock) {
  const use = (name) => `import * as ${name} from '${contract}/${name}@${version}';`;
  return [
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

/** For each line of the bundle the author's file and line; nothing for lines of this SDK. */
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
