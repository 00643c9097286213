/** A policy in TypeScript, for the types of the cluster capability. */

import { allow, deny, type Manifest, type Review, type Verdict } from '@tollgate/sdk';
import { Failure, find, get, list, type ClusterObject } from '@tollgate/sdk/cluster';

export const manifest: Manifest = { name: 'unique-host', version: '1.0.0' };

export function validate(review: Review): Verdict {
  const host = review.object.text('/spec/host') ?? '';
  const own: ClusterObject | undefined = get('hosts', review.request.namespace, review.request.name);
  for (const other of find('hosts', 'host', host)) {
    if (other.name !== own?.name) return deny(`the host belongs to ${other.namespace}/${other.name}`);
  }
  try {
    for (const other of list('hosts')) if (other.fields.integer('/spec/weight') === 0) return deny('a host has no weight');
  } catch (error) {
    if (error instanceof Failure && error.kind === 'not granted') return allow;
    throw error;
  }
  return allow;
}
