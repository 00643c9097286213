/** Checks the JSON and YAML in ConfigMaps against the JSON Schema that they name. */

import { deny, pointer, SettingsErrors } from '@tollgate/sdk';
import type { Denial, Manifest, Review, Verdict } from '@tollgate/sdk';

import { errorsOf, validatorOf } from './schema.js';
import type { Schema, Validator } from './schema.js';
import { read } from './text.js';

const settingsSchema: Schema = {
  type: 'object',
  required: ['schemas'],
  additionalProperties: false,
  properties: {
    annotation: { type: 'string', minLength: 1 },
    schemas: { type: 'object', minProperties: 1, additionalProperties: { type: 'object' } },
  },
};

export const manifest: Manifest = {
  name: 'config-schema',
  version: '0.1.0',
  description: 'Holds the JSON and YAML in ConfigMaps against the JSON Schema that they name',
  settingsSchema,
  rules: [{ operations: ['CREATE', 'UPDATE'], apiGroups: [''], apiVersions: ['v1'], resources: ['configmaps'] }],
};

interface Settings {
  annotation?: string;
  schemas: Record<string, Schema>;
}

interface Policy {
  annotation: string;
  schemas: Map<string, Schema>;
}

export function configure(settings: Settings): Policy {
  const errors = new SettingsErrors();
  for (const { at, message } of errorsOf(validatorOf(settingsSchema), settings)) errors.at(pointer(...at), message);
  errors.throwIfAny();
  for (const [name, schema] of Object.entries(settings.schemas)) {
    try {
      validatorOf(schema);
    } catch (error) {
      errors.at(pointer('schemas', name), (error as Error).message);
    }
  }
  errors.throwIfAny();
  return { annotation: settings.annotation ?? 'tollgate.dev/schema', schemas: new Map(Object.entries(settings.schemas)) };
}

export function validate(review: Review, { annotation, schemas }: Policy): Verdict {
  const at = pointer('metadata', 'annotations', annotation);
  const name = review.object.text(at);
  const denial = deny(`this does not satisfy the schema ${name}`);
  if (name === undefined) return denial.ifBlamed();
  const schema = schemas.get(name);
  if (schema === undefined) return denial.at(at, `there is no such schema; there are: ${[...schemas.keys()].join(', ')}`);
  const validator = validatorOf(schema);
  const files = (review.object.keys('/data') ?? []).filter((key) => /\.(json|ya?ml)$/.test(key));
  for (const key of files) {
    const field = pointer('data', key);
    judge(review.object.text(field) ?? '', field, validator, denial);
  }
  review.annotate('judged', String(files.length));
  return denial.ifBlamed();
}

function judge(text: string, field: string, validator: Validator, denial: Denial): void {
  const { value, problems, placeOf } = read(text);
  for (const problem of problems) denial.at(field, problem);
  if (problems.length > 0) return;
  for (const { at, message } of errorsOf(validator, value)) denial.at(field, `${placeOf(at)}: ${message}`);
}
