/** Uses packages from npm, each on request of the object, to show that they work in a plugin and what they cost. */

import Ajv from 'ajv';
import * as ipaddr from 'ipaddr.js';
import { addDays, differenceInDays, parseISO } from 'date-fns';
import dayjs from 'dayjs';
import * as jsYaml from 'js-yaml';
import { minimatch } from 'minimatch';
import { sha256 } from '@noble/hashes/sha2.js';
import picomatch from 'picomatch';
import semver from 'semver';
import * as valibot from 'valibot';
import { parse } from 'yaml';
import { z } from 'zod';

import { allow, settings as setting, SettingsErrors } from '@tollgate/sdk';

export const manifest = {
  name: 'npm-packages',
  version: '0.1.0',
  rules: [{ operations: ['*'], apiGroups: [''], apiVersions: ['v1'], resources: ['configmaps'] }],
};

const schema = { type: 'object', required: ['port'], properties: { port: { type: 'integer', minimum: 1024 } } };
const wrong = { port: 80 };
const text = 'port: 80\nlist: [a, b]\n';

// The top level of a module runs during the build. What is prepared here costs nothing in a call.
const check = new Ajv().compile(schema);
const withZod = z.object({ port: z.number().int().min(1024) });
const withValibot = valibot.object({ port: valibot.pipe(valibot.number(), valibot.minValue(1024)) });
const isWeb = picomatch('web-*');

export const settings = setting.object({ schema: setting.json().optional() });

/** Compiles the schema of the settings. The host keeps the memory, so that this costs nothing in a call. */
export function configure({ schema = true }) {
  try {
    return new Ajv().compile(schema);
  } catch (error) {
    throw new SettingsErrors().at('/schema', error.message);
  }
}

const uses = {
  nothing: () => 'ok',
  configured: (ofSettings) => `${ofSettings(wrong)} ${ofSettings.errors[0].message}`,
  ajv: () => `${check(wrong)} ${check.errors[0].message}`,
  zod: () => withZod.safeParse(wrong).error.issues[0].code,
  valibot: () => valibot.safeParse(withValibot, wrong).issues[0].type,
  semver: () => `${semver.satisfies('1.2.3', '^1.2')} ${semver.compare('1.10.0', '1.9.0')}`,
  yaml: () => JSON.stringify(parse(text)),
  'js-yaml': () => JSON.stringify(jsYaml.load(text)),
  'date-fns': () => String(differenceInDays(addDays(parseISO('2026-01-30T00:00:00Z'), 3), parseISO('2026-01-30T00:00:00Z'))),
  dayjs: () => dayjs('2026-01-30T00:00:00Z').add(1, 'month').toISOString(),
  picomatch: () => `${isWeb('web-1')} ${isWeb('db')}`,
  minimatch: () => String(minimatch('registry.example.com/team/app', 'registry.example.com/*/app')),
  'ipaddr.js': () => String(ipaddr.parse('10.1.2.3').match(ipaddr.parseCIDR('10.0.0.0/8'))),
  '@noble/hashes': () => Array.from(sha256(new TextEncoder().encode('abc')).slice(0, 4)).join(' '),
};

export function validate(review, ofSettings) {
  review.warn(uses[review.object.text('/data/use')](ofSettings));
  return allow;
}
