/** What a policy module exports, and what is made of its answers. A malformed answer is never an allow. */

import { allow, Denial, describe } from './denial.js';
import { Mutation } from './patch.js';
import { Review } from './review.js';
import { SettingsErrors } from './settings.js';

/** The manifest as the contract has it. */
export function manifest(policy) {
  const { name = '', version = '', description = '', settingsSchema, rules = [], labels = {} } = policy.manifest ?? {};
  return {
    name,
    version,
    description,
    settingsSchema: settingsSchema === undefined ? undefined : JSON.stringify(settingsSchema),
    rules: rules.map(({ operations, apiGroups, apiVersions, resources, scope }) => ({
      operations,
      apiGroups,
      apiVersions,
      resources,
      scope,
    })),
    labels: Object.entries(labels),
  };
}

/** What a policy makes of its settings. Throws SettingsErrors. */
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

/** The verdict as the contract has it. */
export function validate(policy, configured) {
  const answer = denialOr(() => synchronous('validate', policy.validate(new Review(), configured)));
  if (answer === allow) return { tag: 'allow' };
  if (answer instanceof Denial) return { tag: 'deny', val: answer.toContract() };
  throw new TypeError(`validate returned ${describe(answer)}; it has to return \`allow\` or a denial`);
}

/** The mutation as the contract has it. */
export function mutate(policy, configured) {
  const answer = denialOr(() => synchronous('mutate', policy.mutate(new Review(), configured)));
  if (answer instanceof Mutation) return answer.toContract();
  if (answer instanceof Denial) return { tag: 'deny', val: answer.toContract() };
  throw new TypeError(`mutate returned ${describe(answer)}; it has to return \`unchanged\`, a patch or a denial`);
}

function denialOr(judge) {
  try {
    return judge();
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
