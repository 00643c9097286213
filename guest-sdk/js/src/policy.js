/** Calls the functions of a policy module, and checks their answers. A malformed answer is never an allow. */

import { describe, exact, list, object, optional, text } from './check.js';
import { allow, Denial } from './denial.js';
import { Mutation } from './patch.js';
import { Review } from './review.js';
import { SettingsErrors } from './settings.js';

/** Returns the manifest in the contract's type. */
export function manifest(policy) {
  const own = object(policy.manifest, 'manifest');
  const words = (value, what) => list(value, what, exact);
  return {
    name: exact(own.name ?? '', 'manifest.name'),
    version: exact(own.version ?? '', 'manifest.version'),
    description: text(own.description ?? '', 'manifest.description'),
    settingsSchema: optional(own.settingsSchema ?? policy.settings?.schema, 'manifest.settingsSchema', schema),
    rules: list(own.rules ?? [], 'manifest.rules', (rule, what) => {
      object(rule, what);
      return {
        operations: words(rule.operations, `${what}.operations`),
        apiGroups: words(rule.apiGroups, `${what}.apiGroups`),
        apiVersions: words(rule.apiVersions, `${what}.apiVersions`),
        resources: words(rule.resources, `${what}.resources`),
        scope: optional(rule.scope, `${what}.scope`, exact),
      };
    }),
    labels: Object.entries(object(own.labels ?? {}, 'manifest.labels')).map(([key, value]) => [
      exact(key, 'a key of manifest.labels'),
      exact(value, `manifest.labels.${key}`),
    ]),
  };
}

function schema(value, what) {
  const json = JSON.stringify(value);
  if (json === undefined) throw new TypeError(`${what} is ${describe(value)}, which has no JSON form`);
  return json;
}

/** Configures the policy. Throws SettingsErrors. */
export function configure(policy, json) {
  let settings;
  try {
    settings = JSON.parse(json);
  } catch {
    throw new SettingsErrors('the settings are not JSON');
  }
  if (policy.settings !== undefined) {
    const errors = new SettingsErrors();
    settings = policy.settings.read(settings, '', (field, message) => errors.at(field, message));
    errors.throwIfAny();
  }
  if (policy.configure === undefined) return settings;
  return synchronous('configure', policy.configure(settings));
}

/** Returns the verdict in the contract's type. */
export function validate(policy, configured) {
  const answer = denialOr(() => synchronous('validate', policy.validate(new Review(), configured)));
  if (answer === allow) return { tag: 'allow' };
  if (answer instanceof Denial) return { tag: 'deny', val: answer.toContract() };
  throw new TypeError(`validate returned ${describe(answer)}; it has to return \`allow\` or a denial`);
}

/** Returns the mutation in the contract's type. */
export function mutate(policy, configured) {
  const answer = denialOr(() => synchronous('mutate', policy.mutate(new Review(), configured)));
  if (answer instanceof Mutation) return mutation(answer.toContract());
  if (answer instanceof Denial) return { tag: 'deny', val: answer.toContract() };
  throw new TypeError(`mutate returned ${describe(answer)}; it has to return \`unchanged\`, a patch or a denial`);
}

/** Rejects a mutation that does not come from this SDK's functions. The toolchain would fail without a text. */
function mutation(contract) {
  if (['unchanged', 'json-patch', 'merge-patch', 'object'].includes(contract?.tag)) return contract;
  throw new TypeError('mutate returned a Mutation of its own making; use `unchanged`, `patch()`, `merge()` or `wholeObject()`');
}

function denialOr(evaluate) {
  try {
    return evaluate();
  } catch (error) {
    if (error instanceof Denial) return error;
    throw error;
  }
}

function synchronous(what, answer) {
  if (typeof answer?.then === 'function') {
    throw new TypeError(`${what} returned a Promise: it must not be async, and nothing in a plugin can be awaited`);
  }
  return answer;
}
