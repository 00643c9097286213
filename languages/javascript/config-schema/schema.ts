// QuickJS has no URL, which the schemas' identifiers are taken apart with.
import 'core-js/web/url.js';

import { dereference, Validator } from '@cfworker/json-schema';
import type { OutputUnit, Schema } from '@cfworker/json-schema';

export type { Schema, Validator };

/** What is wrong with a value, and where in it: names and indices from the outermost on. */
export interface SchemaError {
  at: string[];
  message: string;
}

const drafts = { 'draft-04': '4', 'draft-07': '7', '2019-09': '2019-09', '2020-12': '2020-12' } as const;

/** Throws an error when the schema refers to something that it does not have: there is no network to fetch it from. */
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

/** The errors that name a reason of their own, and not those that only say that there are such errors further in. */
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

/** Keywords whose errors are explained by others. */
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

/** Of a choice it is told that nothing fits, and not why each does not. */
function isWithin(error: OutputUnit, choice: OutputUnit): boolean {
  return error.keywordLocation.startsWith(`${choice.keywordLocation}/`);
}

function tokens(location: string): string[] {
  return location
    .split('/')
    .slice(1)
    .map((token) => decodeURIComponent(token).replaceAll('~1', '/').replaceAll('~0', '~'));
}
