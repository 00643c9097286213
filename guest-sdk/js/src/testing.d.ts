/**
 * Reviews for unit tests: policies run in Node, without WebAssembly and without a host.
 *
 * Pointers are read as strictly as the host reads them, and patches applied strictly. There are no budgets.
 */
import type { Denial, JSONPointer, PolicyModule } from './index.js';

/** What a policy did. */
export interface Outcome {
  /** Undefined when the policy allowed. */
  readonly denial: Denial | undefined;
  /** The causes of the denial as field and message. */
  readonly causes: [field: JSONPointer, message: string][];
  /** The object after the mutation. */
  readonly object: any;
  readonly changed: boolean;
  readonly warnings: string[];
  readonly annotations: Record<string, string>;
  readonly log: [level: string, message: string][];
}

/** An admission review. What kube-apiserver would say of the request is derived from the object. */
export interface TestReview {
  /** Something else that kube-apiserver says of the request, such as `with({ subResource: 'status' })`. */
  with(request: Record<string, unknown>): TestReview;
  user(username: string, ...groups: string[]): TestReview;
  options(options: unknown): TestReview;
  settings(settings: unknown): TestReview;
  /** What `now` of the clock says. */
  at(now: Date): TestReview;
  /** Throws when the policy refuses its settings, throws itself, or answers with something malformed. */
  validate(policy: PolicyModule): Outcome;
  /** Throws like `validate`, and when the patch does not apply. */
  mutate(policy: PolicyModule): Outcome;
}

export function create(object: unknown): TestReview;
export function update(oldObject: unknown, object: unknown): TestReview;
export function remove(oldObject: unknown): TestReview;
export function connect(object: unknown): TestReview;
