/** Reviews for unit tests. The documentation is in the types: testing.d.ts. */

import jsonPatch from 'fast-json-patch';

import { Denial } from './denial.js';
import { use } from './host.js';
import { imagesOf, listedImages } from './listed.js';
import { lookupOf, lookupsOf } from './lookups.js';
import * as contract from './policy.js';
import { rightsOf, rulesOf } from './rights.js';
import { at as placeIn, described, isObject, tokens, walk } from './tree.js';

const uid = '00000000-0000-4000-8000-000000000000';

export const create = (object) => new TestReview('CREATE', object, undefined);
export const update = (oldObject, object) => new TestReview('UPDATE', object, oldObject);
export const remove = (oldObject) => new TestReview('DELETE', undefined, oldObject);
export const connect = (object) => new TestReview('CONNECT', object, undefined);

class TestReview {
  #documents;
  #settings = {};
  #now;
  #lookups = {};
  #access;
  #images;

  constructor(operation, object, oldObject) {
    this.#documents = { object, 'old-object': oldObject, options: undefined, request: request(operation, object ?? oldObject) };
  }

  with(request) {
    Object.assign(this.#documents.request, request);
    return this;
  }

  user(username, ...groups) {
    return this.with({ userInfo: { username, groups } });
  }

  options(options) {
    this.#documents.options = options;
    return this;
  }

  namespaceObject(namespace) {
    this.#documents.namespace = namespace;
    this.#documents.request.namespace ??= namespace?.metadata?.name;
    return this;
  }

  settings(settings) {
    this.#settings = settings;
    return this;
  }

  at(now) {
    this.#now = now;
    return this;
  }

  lookup(lookup, objects) {
    this.#lookups[lookup.name] = lookupOf(lookup, objects);
    return this;
  }

  notSynchronised(lookup) {
    this.#lookups[lookup] = null;
    return this;
  }

  access(rules) {
    this.#access = rulesOf(rules);
    return this;
  }

  accessUnavailable() {
    this.#access = null;
    return this;
  }

  images(entries) {
    this.#images = imagesOf(entries);
    return this;
  }

  validate(policy) {
    const { answer, effects } = this.#evaluate((configured) => contract.validate(policy, configured), policy);
    return outcome(answer, effects, this.#documents.object, this.#documents.object);
  }

  mutate(policy) {
    const { answer, effects } = this.#evaluate((configured) => contract.mutate(policy, configured), policy);
    return outcome(answer, effects, this.#documents.object, changed(this.#documents.object, answer));
  }

  #evaluate(call, policy) {
    const effects = { warnings: [], annotations: {}, log: [] };
    const before = use(hostOf(this.#documents, effects, this.#now, this.#lookups, this.#access, this.#images));
    try {
      return { answer: call(contract.configure(policy, JSON.stringify(this.#settings))), effects };
    } finally {
      use(before);
    }
  }
}

function outcome({ tag, val }, effects, before, after) {
  const denial = tag === 'deny' ? Object.assign(new Denial(val.message), { causes: val.causes, contract: val }) : undefined;
  return {
    denial,
    causes: (denial?.causes ?? []).map(({ field, message }) => [field ?? '', message]),
    object: after,
    changed: text(before) !== text(after),
    ...effects,
  };
}

function changed(object, { tag, val }) {
  if (tag === 'unchanged' || tag === 'deny') return object;
  if (object === undefined) throw new Error('where there is no object, nothing can be changed');
  switch (tag) {
    case 'json-patch': {
      const operations = val.map(({ tag, val }) =>
        typeof val === 'string' ? { op: tag, path: val } : { op: tag, ...val, ...('value' in val && { value: value(val.value) }) },
      );
      try {
        return jsonPatch.applyPatch(structuredClone(object), operations, true).newDocument;
      } catch (error) {
        throw new Error(`the patch does not apply: ${error.name}`, { cause: error });
      }
    }
    case 'merge-patch':
      return merged(object, JSON.parse(val));
    default:
      return JSON.parse(val);
  }
}

function value({ tag, val }) {
  return tag === 'text' ? val : JSON.parse(val);
}

function merged(target, patch) {
  if (!isObject(patch)) return patch;
  const result = isObject(target) ? { ...target } : {};
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete result[name];
    else result[name] = merged(result[name], value);
  }
  return result;
}

function request(operation, object) {
  const [version, group = ''] = (object?.apiVersion ?? 'v1').split('/').reverse();
  const kind = { group, version, kind: object?.kind ?? '' };
  const resource = { group, version, resource: plural(kind.kind) };
  return {
    uid,
    operation,
    kind,
    requestKind: kind,
    resource,
    requestResource: resource,
    name: object?.metadata?.name ?? '',
    namespace: object?.metadata?.namespace,
    userInfo: { username: 'kubernetes-admin', groups: ['system:authenticated'] },
    dryRun: false,
  };
}

/** Forms the English plural like Kubernetes. */
function plural(kind) {
  const name = kind.toLowerCase();
  if (name === '' || name === 'endpoints') return name;
  if (/[^aeiou]y$/.test(name)) return `${name.slice(0, -1)}ies`;
  return /(s|x|ch|sh)$/.test(name) ? `${name}es` : `${name}s`;
}

/** Members of a Namespace's metadata that the host shows. */
const namespaceMetadata = [
  'name',
  'generateName',
  'uid',
  'labels',
  'annotations',
  'creationTimestamp',
  'deletionTimestamp',
  'deletionGracePeriodSeconds',
  'generation',
  'resourceVersion',
  'finalizers',
];

/**
 * The Namespace that a policy sees, by the host's rules. Throws if the object is in a namespace and the test does not
 * say which labels that has: the host would end the call.
 */
function namespaceOf({ request, object, 'old-object': oldObject, namespace: given }) {
  const isNamespace = request.resource.group === '' && request.resource.resource === 'namespaces';
  const isStoredLater = !request.subResource && ['CREATE', 'UPDATE'].includes(request.operation);
  const itself = isStoredLater ? object : oldObject;
  const namespace = (isNamespace ? itself : undefined) ?? given;
  if (namespace === undefined) {
    if (!isNamespace && !request.namespace) return undefined;
    throw new Error('a test of a policy that reads the namespace sets it: namespaceObject');
  }
  const names = namespaceMetadata.filter((name) => Object.hasOwn(namespace.metadata ?? {}, name));
  const metadata = Object.fromEntries(names.map((name) => [name, namespace.metadata[name]]));
  return { apiVersion: 'v1', kind: 'Namespace', metadata };
}

function hostOf(documents, effects, now, lookups, rules, images) {
  const document = (part) => (part === 'namespace' ? namespaceOf(documents) : documents[part]);
  const find = (part, at) => placeIn(document(part), tokens(at));
  return {
    review: {
      request: () => {
        const { operation, ...rest } = documents.request;
        return { ...rest, operation: operation.toLowerCase() };
      },
      get: (part, at) => described(find(part, at)),
      getJson: (part, at) => text(find(part, at)),
      getMany: (part, pointers) => pointers.map((at) => described(find(part, at))),
      keys: (part, at) => (isObject(find(part, at)) ? Object.keys(find(part, at)) : undefined),
      select: (part, pattern) => [...walk(tokens(pattern), document(part), '')],
      warn: (message) => effects.warnings.push(message),
      annotate: (key, value) => (effects.annotations[key] = value),
    },
    logging: { log: (level, message) => effects.log.push([level, message]) },
    clock: {
      now: () => {
        if (now === undefined) throw new Error('a test of a policy that reads the clock sets it: at(new Date(…))');
        return { seconds: Math.floor(now.getTime() / 1000), nanoseconds: (now.getTime() % 1000) * 1e6 };
      },
    },
    cluster: lookupsOf(lookups),
    access: rightsOf(rules, () => documents.request),
    images: listedImages(images),
  };
}

function text(value) {
  return typeof value === 'bigint' ? String(value) : JSON.stringify(value, (_, inner) => (typeof inner === 'bigint' ? Number(inner) : inner));
}
