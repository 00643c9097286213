/** Allows only images from certain registries in Pods, and adds a tag to images without one. */

import { deny, patch, pointer, settings as setting, SettingsErrors } from '@tollgate/sdk';
import type { Document, Manifest, Mutation, Node, Review, Verdict } from '@tollgate/sdk';

import { isWithin, looksLikeHost, parse } from './image.js';

export const manifest: Manifest = {
  name: 'trusted-registries',
  version: '0.1.0',
  description: 'Lets Pods have images of trusted registries only',
  rules: [
    {
      operations: ['CREATE', 'UPDATE'],
      apiGroups: [''],
      apiVersions: ['v1'],
      resources: ['pods', 'pods/ephemeralcontainers'],
    },
  ],
};

export const settings = setting.object({
  allowed: setting.list(setting.string()).default([]),
  defaultTag: setting.string().default(''),
  message: setting.string().default('images must come from trusted registries'),
});

type Settings = setting.Of<typeof settings>;

export function configure({ allowed, defaultTag, message }: Settings): Settings {
  const errors = new SettingsErrors();
  if (allowed.length === 0) errors.at('/allowed', 'name at least one registry, such as registry.example.com');
  const prefixes = allowed.map((text, index) => {
    const [host = '', ...path] = text.replace(/\/$/, '').split('/');
    if (!looksLikeHost(host) || (path.length > 0 && path[0] === '')) {
      errors.at(pointer('allowed', index), 'begins with no registry, such as registry.example.com or localhost:5000');
    }
    return [host.toLowerCase(), ...path].join('/');
  });
  if (defaultTag !== '' && !/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$/.test(defaultTag)) errors.at('/defaultTag', 'is no tag');
  errors.throwIfAny();
  return { allowed: prefixes, defaultTag, message };
}

export function validate(review: Review, { allowed, defaultTag, message }: Settings): Verdict {
  const denial = deny(message);
  const nodes = images(review.object);
  for (const { pointer, value } of nodes) {
    if (typeof value !== 'string') {
      denial.at(pointer, 'must be a string');
      continue;
    }
    const image = parse(value);
    if (!allowed.some((prefix) => isWithin(image, prefix))) {
      denial.at(pointer, `must be from one of: ${allowed.join(', ')}`);
    } else if (defaultTag !== '' && !image.pinned) {
      denial.at(pointer, 'must have a tag or a digest');
    } else if (image.tag === 'latest') {
      review.warn(`${pointer}: the tag latest may stand for another image tomorrow`);
    }
  }
  review.annotate('images', String(nodes.length));
  return denial.ifBlamed();
}

export function mutate(review: Review, { defaultTag }: Settings): Mutation {
  const changes = patch();
  if (defaultTag === '') return changes;
  for (const { pointer, value } of images(review.object)) {
    if (typeof value === 'string' && value !== '' && !parse(value).pinned) {
      changes.replace(pointer, `${value}:${defaultTag}`);
    }
  }
  if (changes.length > 0) review.annotate('pinned', String(changes.length));
  return changes;
}

function images(pod: Document): Node[] {
  return [
    '/spec/initContainers/*/image',
    '/spec/containers/*/image',
    '/spec/ephemeralContainers/*/image',
    '/spec/volumes/*/image/reference',
  ].flatMap((pattern) => pod.select(pattern));
}
