// The types of pointers: a malformed literal is an error, and any other string is accepted.

import { patch, pointer } from '@tollgate/sdk';
import type { Document, JSONPointer, Node } from '@tollgate/sdk';

export function accepted(object: Document, name: string, index: number, given: JSONPointer, node: Node) {
  object.get('');
  object.get('/spec/replicas');
  object.get('/metadata/labels/a~1b~0c');
  object.select('/spec/containers/*/image');
  object.get(`/spec/containers/${index}/image`);
  object.get(`/metadata/labels/${name}`);
  object.get(`/metadata/labels/~${name}`);
  object.get(`${node.pointer}/image`);
  object.get(pointer('metadata', 'labels', name));
  object.get(given);
  object.get(node.pointer);
  const both: '/a' | '/b' = index > 0 ? '/a' : '/b';
  object.get(both);
  object.getMany(['/a', '/b']);
  object.getMany([given, node.pointer]);
  for (const place of ['/a', '/b']) object.get(place);
  ['/a/*'].flatMap((pattern) => object.select(pattern));
  patch().set(object, '/metadata/annotations/a', 1).append(object, `${given}/list`, 1).move('/a', '/b').remove(node.pointer);
}

export function refused(object: Document, index: number) {
  // @ts-expect-error: no leading slash.
  object.get('spec/replicas');
  // @ts-expect-error: ~ without 0 or 1.
  object.text('/metadata/annotations/a~b');
  // @ts-expect-error: ~ at the end.
  object.json('/a~0~');
  // @ts-expect-error: one of the two is malformed.
  object.keys(index > 0 ? '/a' : 'b');
  // @ts-expect-error: no leading slash.
  object.getMany(['/a', 'b']);
  // @ts-expect-error: no leading slash.
  object.select('spec/containers/*/image');
  // @ts-expect-error: no leading slash.
  patch().set(object, 'metadata/annotations/a', 1);
  // @ts-expect-error: no leading slash.
  patch().copy('/a', 'b');
}
