/**
 * The images capability: whether container images are signed as a policy of the configuration requires.
 *
 * The host asks registries, and remembers the answers for as long as the configuration says. A question that it has to
 * pass on starts the call anew, so a plugin asks about all images in one call.
 */

/** An image, and the policy that it must meet. */
export interface Request {
  /** The image as the object names it, such as `nginx:1.29`. */
  image: string;
  /** The name of a policy of the configuration. */
  policy: string;
}

/** An image that meets its policy. */
export interface Verified {
  readonly verified: true;
  /** The digest that was verified. */
  readonly digest: string;
  /**
   * Whether the image names the digest itself. If not, its tag can lead to another digest by the time that a node pulls it.
   */
  readonly pinned: boolean;
  /** The names of the signers who have signed. */
  readonly signers: readonly string[];
  /** Whether a registry has not answered, and an earlier verification of this digest counts. */
  readonly lastKnownGood: boolean;
}

/**
 * Why an image does not count as verified:
 *
 * - `malformed`: no node could pull the image, or its digest is not SHA-256.
 * - `not granted`: the configuration has no such policy, the policy does not cover the repository, or the registry is not
 *   listed.
 * - `not found`: the registry has no such tag.
 * - `unsigned`: the image has no signature.
 * - `untrusted`: the image has signatures or attestations, and they do not meet the policy.
 * - `unavailable`: a registry has not answered, and no earlier answer counts. It must not count as "verified".
 */
export type Kind = 'malformed' | 'not granted' | 'not found' | 'unsigned' | 'untrusted' | 'unavailable';

/**
 * An image that does not count as verified. A plugin that enforces denies the request. The message is for the user, and
 * names no user and no credentials.
 */
export class Failure extends Error {
  readonly verified: false;
  readonly kind: Kind;
  /** The rules that are not met, and what was found. */
  readonly reason: string;
  /** The digest whose signatures were examined. Only `unsigned` and `untrusted` have it. */
  readonly digest: string | undefined;
}

/**
 * Verifies images, all at the same time. Returns an answer for each request, in the same order, and throws none of them.
 * A call may ask about at most 128 different images; further ones are `not granted`.
 */
export function verify(requests: readonly Request[]): (Verified | Failure)[];
