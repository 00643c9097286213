/** A reference, split like in container runtimes, with Docker's abbreviations resolved. */
export interface Image {
  /** The name, including the registry and without the tag. */
  name: string;
  tag: string;
  /** Whether there is a tag or a digest. */
  pinned: boolean;
}

export function parse(reference: string): Image {
  const [named = '', digest] = reference.split('@', 2);
  // A colon before the last slash belongs to a port.
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

/** Compares components: registry.example.com is not a prefix of registry.example.com.evil.io. */
export function isWithin(image: Image, prefix: string): boolean {
  return image.name === prefix || image.name.startsWith(`${prefix}/`);
}

export function looksLikeHost(component: string): boolean {
  return component === 'localhost' || /[.:]/.test(component);
}
