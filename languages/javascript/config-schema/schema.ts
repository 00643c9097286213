// QuickJS has no URL, but the schema library needs it to parse identifiers.
import 'core-js/web/url.js';

import { dereference, Validator } from '@cfworker/json-schema';
import type { OutputUnit, Schema } from '@cfworker/json-schema';

export type { Schema, Validator };

/** An error in a value, and its place: names and indices from the outermost on. */
export interface SchemaError {
  at: string[];
  message: string;
}

const drafts = { 'draft-04': '4', 'draft-07': '7', '2019-09': '2019-09', '2020-12': '2020-12' } as const;

/**
 * Creates a validator. Throws if the schema refers to something that it does not contain, because a plugin has no
 * network.
 */
export function validatorOf(schema: Schema): Validator {
  const known = dereference(schema);
  for (const part of Object.values(known)) {
    if (typeof part === 'boolean') continue;
    const reference = part.__absolute_ref__;
    if (reference !== undefined && known[reference] === undefined) throw new Error(`refers to ${part.$ref}, which it does not have`);
  }
  const named = Object.keys(drafts).find((draft) => schema.$schema?.includes(draft)) as keyof typeof drafts | undefined;
  return new Validator(schema, drafts[named ?? '2020-12'], false);
}

/** Returns the errors with a reason of their own, and not those that only point to inner errors. */
export function errorsOf(validator: Validator, value: unknown): SchemaError[] {
  const { errors } = validator.validate(value);
  const choices = errors.filter(({ keyword }) => keyword === 'anyOf' || keyword === 'oneOf');
  return errors
    .filter((error) => !choices.some((choice) => choice !== error && isWithin(error, choice)))
    .filter((error) => !wrappers.has(error.keyword))
    .map(({ instanceLocation, keyword, error }) => ({
      at: tokens(instanceLocation),
      message: keyword === 'false' ? 'The schema has nothing of that name' : error.replace(/\.$/, ''),
    }));
}

/** Keywords whose errors other errors explain. */
const wrappers = new Set([
  '$ref',
  'additionalProperties',
  'allOf',
  'dependentSchemas',
  'items',
  'patternProperties',
  'prefixItems',
  'properties',
  'unevaluatedProperties',
]);

/** Whether an error belongs to a choice. For a choice, only one error is reported: that nothing fits. */
function isWithin(error: OutputUnit, choice: OutputUnit): boolean {
  return error.keywordLocation.startsWith(`${choice.keywordLocation}/`);
}

function tokens(location: string): string[] {
  return location
    .split('/')
    .slice(1)
    .map((token) => decodeURIComponent(token).replaceAll('~1', '/').replaceAll('~0', '~'));
}
