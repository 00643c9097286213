/** A reference taken apart as container runtimes do, Docker's abbreviations resolved. */
export interface Image {
  /** With the registry and without a tag. */
  name: string;
  tag: string;
  /** Whether there is a tag or a digest. */
  pinned: boolean;
}

export function parse(reference: string): Image {
  const [named = '', digest] = reference.split('@', 2);
  // A colon before the last slash is a port's.
  const colon = named.lastIndexOf(':');
  const hasTag = colon > named.lastIndexOf('/');
  const name = hasTag ? named.slice(0, colon) : named;
  const tag = hasTag ? named.slice(colon + 1) : '';
  const slash = name.indexOf('/');
  const head = name.slice(0, Math.max(slash, 0));
  const isHost = slash >= 0 && (looksLikeHost(head) || head.toLowerCase() !== head);
  let host = isHost ? head.toLowerCase() : 'docker.io';
  let path = isHost ? name.slice(slash + 1) : name;
  if (host === 'index.docker.io') host = 'docker.io';
  if (host === 'docker.io' && !path.includes('/')) path = `library/${path}`;
  return { name: `${host}/${path}`, tag, pinned: digest !== undefined || tag !== '' };
}

/** By component: registry.example.com is no prefix of registry.example.com.evil.io. */
export function isWithin(image: Image, prefix: string): boolean {
  return image.name === prefix || image.name.startsWith(`${prefix}/`);
}

export function looksLikeHost(component: string): boolean {
  return component === 'localhost' || /[.:]/.test(component);
}
