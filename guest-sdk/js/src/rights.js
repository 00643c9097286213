/** The rights of a test review: rules that the test gives, by the host's rules. */

/** The keys of a rule in a suite. */
const known = ['user', 'group', 'verb', 'apiGroup', 'resource', 'namespace', 'name', 'path'];

/** Checks the rules of a test. */
export function rulesOf(rules) {
  for (const rule of rules) {
    const unknown = Object.keys(rule).find((key) => !known.includes(key));
    if (unknown !== undefined) throw new Error(`the test's rule is malformed: unknown key ${unknown}`);
    for (const [one, other] of [['user', 'group'], ['resource', 'path']]) {
      if ((rule[one] === undefined) === (rule[other] === undefined)) throw new Error(`a rule of the test has one of ${one} and ${other}`);
    }
    if (typeof rule.verb !== 'string') throw new Error('a rule of the test has a verb');
  }
  return [...rules];
}

/** Returns the interface `access` for rules. Without rules, the capability is not granted, and null does not answer. */
export function rightsOf(rules, request) {
  return {
    check({ tag, val }, account) {
      if (rules === undefined) throw { tag: 'not-granted', val: 'the capability is not granted; a test grants it: access([ … ])' };
      if (rules === null) throw { tag: 'unavailable', val: 'kube-apiserver does not answer' };
      const { name, groups } = account === undefined ? ofRequest(request()) : ofAccount(account);
      const index = rules.findIndex((rule) => isFor(rule, name, groups) && covers(rule, tag, val));
      return { allowed: index >= 0, reason: index >= 0 ? `access[${index}] allows it` : 'no rule of access allows it' };
    },
  };
}

function ofRequest({ userInfo }) {
  return { name: userInfo?.username ?? '', groups: userInfo?.groups ?? [] };
}

function ofAccount({ namespace, name }) {
  const groups = ['system:serviceaccounts', `system:serviceaccounts:${namespace}`];
  return { name: `system:serviceaccount:${namespace}:${name}`, groups };
}

function isFor({ user, group }, name, groups) {
  return user === undefined ? groups.includes(group) : is(user, name);
}

function covers(rule, tag, asked) {
  if (!is(rule.verb, asked.verb)) return false;
  if (tag === 'path') {
    if (rule.path === undefined) return false;
    return rule.path.endsWith('*') ? asked.path.startsWith(rule.path.slice(0, -1)) : rule.path === asked.path;
  }
  if (rule.resource === undefined) return false;
  const [resource, subresource = ''] = rule.resource.split('/');
  const isResource = rule.resource === '*' || (is(resource, asked.resource) && subresource === asked.subresource);
  const isSame = (own, other) => own === undefined || own === other;
  return is(rule.apiGroup ?? '', asked.group) && isResource && isSame(rule.namespace, asked.namespace) && isSame(rule.name, asked.name);
}

function is(pattern, text) {
  return pattern === '*' || pattern === text;
}
