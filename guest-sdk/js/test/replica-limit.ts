import { allow, deny, patch, pointer, settings as setting } from '@tollgate/sdk';
import type { Denial, Manifest, Mutation, Review, Verdict } from '@tollgate/sdk';

export const manifest: Manifest = {
  name: 'replica-limit',
  version: '1.0.0',
  rules: [{ operations: ['CREATE', 'UPDATE'], apiGroups: ['apps'], apiVersions: ['v1'], resources: ['deployments'] }],
};

export const settings = setting.object({
  maxReplicas: setting.integer({ minimum: 1 }).default(10),
  teams: setting.list(setting.string()).default([]),
});

type Settings = setting.Of<typeof settings>;

export function validate(review: Review, { maxReplicas }: Settings): Verdict {
  const replicas = review.object.integer('/spec/replicas');
  for (const node of review.object.select('/metadata/labels/*')) review.warn(node.pointer);
  if (replicas !== undefined && replicas > maxReplicas) {
    return deny('too many replicas').at('/spec/replicas', `must be at most ${maxReplicas}`);
  }
  return allow;
}

export function mutate(review: Review, { teams }: Settings): Mutation | Denial {
  const changes = patch();
  if (!review.object.exists) return changes;
  for (const team of teams) {
    changes.set(review.object, pointer('metadata', 'annotations', team), 'yes').append(review.object, '/spec/list', 1);
  }
  return changes;
}

// @ts-expect-error: a verdict is returned, never promised.
export const promised = { manifest, validate: async (): Promise<Verdict> => allow } satisfies import('@tollgate/sdk').PolicyModule;

// @ts-expect-error: to return nothing is no verdict.
export const forgotten = { manifest, validate: () => {} } satisfies import('@tollgate/sdk').PolicyModule;
