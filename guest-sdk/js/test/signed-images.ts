import { allow, deny } from '@tollgate/sdk';
import { verify } from '@tollgate/sdk/images';
import type { Manifest, Review, Verdict } from '@tollgate/sdk';
import type { Failure, Verified } from '@tollgate/sdk/images';

export const manifest: Manifest = {
  name: 'signed-images',
  version: '1.0.0',
  rules: [{ operations: ['CREATE'], apiGroups: [''], apiVersions: ['v1'], resources: ['pods'] }],
};

export function validate(review: Review): Verdict {
  const places = review.object.select('/spec/containers/*/image');
  const answers = verify(places.map(({ value }) => ({ image: String(value), policy: 'release' })));
  const denial = deny('images must be signed');
  answers.forEach((answer, index) => {
    if (answer.verified) review.annotate(`image-${index}`, answer.digest);
    else denial.at(places[index]!.pointer, answer.kind === 'unavailable' ? 'the registry is away' : answer.message);
  });
  return denial.ifBlamed();
}

// @ts-expect-error: only a verified image has signers.
export const signers = (answer: Verified | Failure): readonly string[] => answer.signers;

export const tested = allow;
