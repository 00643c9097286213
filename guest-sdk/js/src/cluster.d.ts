/**
 * The cluster capability: objects of the cluster, from the lookups of the plugin's configuration.
 *
 * The host follows the cluster with a watch. Its answers can lag behind by moments, and two requests that are reviewed at
 * the same time do not see each other's objects.
 */
import type { Document } from './index.js';

/** An object of the cluster, with the fields that the lookup keeps. */
export interface ClusterObject {
  /** Undefined for a cluster-scoped object. */
  readonly namespace: string | undefined;
  readonly name: string;
  /**
   * The kept fields at their places in the object, such as `/spec/rules/0/host`. Numbers beyond 2⁵³ are rounded; the
   * text of `fields.json('')` has all digits.
   */
  readonly fields: Document;
}

/**
 * The reason why a lookup has no answer. The text is for the operator, and names the lookup. A plugin that enforces does
 * not catch it: the call then ends as a fault, and its failure policy decides.
 */
export class Failure extends Error {
  /**
   * `not granted`: the configuration has no lookup of this name, no index of this name in it, or it does not cover this
   * namespace. `not synchronised`: the host has not read the objects yet, or has lost its connection for too long. That
   * must not count as "there is none".
   */
  readonly kind: 'not granted' | 'not synchronised';
}

/** Returns one object by its name. Undefined if there is no such object. Throws a Failure. */
export function get(lookup: string, namespace: string | undefined, name: string): ClusterObject | undefined;

/**
 * The objects that have a key in an index of the lookup, ordered by namespace and name. The keys are the texts, numbers
 * and booleans at the places of the index's pattern, as text. The loop asks the host for one page at a time. It throws a
 * Failure.
 */
export function find(lookup: string, index: string, key: string): Generator<ClusterObject, void, undefined>;

/** All objects of a lookup, or those of one namespace, like `find`. */
export function list(lookup: string, namespace?: string): Generator<ClusterObject, void, undefined>;
