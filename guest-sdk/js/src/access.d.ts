/**
 * The access capability: whether the user of the request may do something in the cluster.
 *
 * kube-apiserver answers, and the host remembers an answer for at most ten seconds. A question that the host has to pass
 * on starts the call anew, so a plugin asks late and seldom.
 */

/** An action on a resource. A key that is left out is "not set". */
export interface ResourceAction {
  /** In lower case, such as `delete`. */
  verb: string;
  /** The API group. Left out for the core group. */
  group?: string;
  /** In lower-case plural, such as `pods`. */
  resource: string;
  /** Such as `exec`. */
  subresource?: string;
  /** Left out for a cluster-scoped resource, and for "in all namespaces". */
  namespace?: string;
  /** Left out for "all objects". */
  name?: string;
}

/** An action on a path that is no resource, such as `get` on `/metrics`. */
export interface PathAction {
  verb: string;
  path: string;
}

/** A service account, which counts with its groups. The configuration has to grant `serviceAccounts`. */
export interface ServiceAccount {
  namespace: string;
  name: string;
}

/** The answer of kube-apiserver. */
export interface Decision {
  readonly allowed: boolean;
  /** May be empty, and may name roles and bindings. */
  readonly reason: string;
  /** What an authorizer of kube-apiserver failed at. `allowed` counts all the same. */
  readonly error: string | undefined;
}

/**
 * The reason why there is no answer. The text is for the operator, and names no user. A plugin that enforces does not
 * catch it: the call then ends as a fault, and its failure policy decides.
 */
export class Failure extends Error {
  /**
   * `not granted`: the configuration does not let the plugin ask this. `unavailable`: kube-apiserver has not answered, or
   * the host has no authorizer. That must not count as "allowed".
   */
  readonly kind: 'not granted' | 'unavailable';
}

/** Whether the user of the request may do something, or a service account if there is one. Throws a Failure. */
export function check(action: ResourceAction | PathAction, serviceAccount?: ServiceAccount): Decision;
