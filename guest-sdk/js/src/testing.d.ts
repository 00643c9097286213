/**
 * Reviews for unit tests. Policies run in Node, without WebAssembly and without a host.
 *
 * Pointers are read as strictly as in the host, and patches are applied strictly. There are no budgets.
 */
import type { Denial, JSONPointer, PolicyModule } from './index.js';

/** The result of a policy. */
export interface Outcome {
  /** Undefined if the policy allowed the request. */
  readonly denial: Denial | undefined;
  /** The causes of the denial, as field and message. */
  readonly causes: [field: JSONPointer, message: string][];
  /** The object after the mutation. */
  readonly object: any;
  readonly changed: boolean;
  readonly warnings: string[];
  readonly annotations: Record<string, string>;
  readonly log: [level: string, message: string][];
}

/** Something that somebody may do, as in a suite. `*` matches everything. */
export type Right = { readonly verb: string } & ({ readonly user: string } | { readonly group: string }) &
  (
    | { readonly path: string }
    | {
        /** The core group by default. */
        readonly apiGroup?: string;
        /** Such as `pods` or `pods/exec`. */
        readonly resource: string;
        /** Every one by default. */
        readonly namespace?: string;
        /** Every one by default. */
        readonly name?: string;
      }
  );

/** An image that a registry has, as in a suite. */
export interface Image {
  /** An entry of a tag is also about its digest. */
  readonly image: string;
  readonly result: 'verified' | 'last-known-good' | 'unsigned' | 'untrusted' | 'not-found' | 'not-granted' | 'unavailable';
  /** Every one by default. */
  readonly policy?: string;
  readonly digest?: string;
  /** The signers of a verified image. */
  readonly signers?: readonly string[];
  /** The reason of a failure. */
  readonly reason?: string;
}

/** A lookup, as the configuration has it. */
export interface Lookup {
  readonly name: string;
  readonly resource?: unknown;
  readonly namespaces?: 'all' | readonly string[];
  readonly labelSelector?: unknown;
  readonly fields?: readonly JSONPointer[];
  readonly indexes?: Readonly<Record<string, JSONPointer>>;
  readonly secrets?: boolean;
}

/** An admission review. The fields of the request are derived from the object. */
export interface TestReview {
  /** Sets a field of the request, such as `with({ subResource: 'status' })`. */
  with(request: Record<string, unknown>): TestReview;
  user(username: string, ...groups: string[]): TestReview;
  options(options: unknown): TestReview;
  /**
   * Sets the Namespace of the object, and the request's namespace if the object names none. A policy sees only
   * apiVersion, kind and metadata of it. A review of a Namespace does not need it, because a Namespace is in itself.
   */
  namespaceObject(namespace: unknown): TestReview;
  settings(settings: unknown): TestReview;
  /** Sets the time that `now` of the clock returns. */
  at(now: Date): TestReview;
  /**
   * Adds a lookup, as the configuration has it under `lookups`, with the objects that it holds. The policy sees only the
   * objects' `fields`, and finds them by `indexes`. `resource`, `labelSelector` and `secrets` have no effect here: give
   * the objects that they select.
   */
  lookup(lookup: Lookup, objects: readonly object[]): TestReview;
  /** Adds a lookup that the host has not read yet. All functions of `@tollgate/sdk/cluster` throw for it. */
  notSynchronised(lookup: string): TestReview;
  /** Grants the capability `access`. Everything that no rule allows is denied. */
  access(rules: readonly Right[]): TestReview;
  /** Grants the capability `access`. Every question is unavailable. */
  accessUnavailable(): TestReview;
  /** Grants the capability `images`, with the images that registries have. Every other image is `not found`. */
  images(entries: readonly Image[]): TestReview;
  /** Throws if the policy rejects its settings, throws itself, or returns a malformed answer. */
  validate(policy: PolicyModule): Outcome;
  /** Throws like `validate`, and if the patch does not apply. */
  mutate(policy: PolicyModule): Outcome;
}

export function create(object: unknown): TestReview;
export function update(oldObject: unknown, object: unknown): TestReview;
export function remove(oldObject: unknown): TestReview;
export function connect(object: unknown): TestReview;
