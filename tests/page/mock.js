// A stand-in for two replicas, to work on the page without building the host: `node tests/page/mock.js [PORT]`.
//
// It answers as the admin listener does, with the same headers, for 1,000 namespaces and with hostile names.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

export const HOSTILE = [
  "<img src=x onerror=globalThis.pwned=1>",
  "<script>globalThis.pwned=2</script>",
  "javascript:globalThis.pwned=3",
  "\"><svg onload=globalThis.pwned=4>",
  "{{constructor.constructor('globalThis.pwned=5')()}}",
  "‮evil‬\u0000",
];

const SITE = new URL("../../host/server/site/", import.meta.url);
const TYPES = { html: "text/html; charset=utf-8", css: "text/css; charset=utf-8", js: "text/javascript; charset=utf-8",
  svg: "image/svg+xml" };
const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
  + "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const sha = (seed) => `sha256:${(seed * 2654435761 % 4294967296).toString(16).padStart(8, "0").repeat(8)}`;
const at = (second) => new Date(Date.UTC(2026, 10, 23, 9) + second * 1000).toISOString().replace(".000", ".123");

const NAMES = ["required-labels", "image-rewrite", "trusted-registries", "no-latest-tag", "resource-limits", "host-ports",
  "ingress-hosts", "run-as-non-root", "cel-policy", "rego"];

function plugin(name, index, replica) {
  const failed = name === "ingress-hosts" && replica === "tollgate-7d9c-b";
  const degraded = name === "trusted-registries";
  return {
    name, source: `oci://registry.example.com/policies/${name}:1.${index % 7}`, digest: sha(index + 1),
    mode: ["enforce", "enforce", "warn", "audit"][index % 4], failurePolicy: index % 5 ? "Fail" : "Ignore",
    existingViolations: "deny", state: failed ? "failed" : degraded ? "degraded" : "loaded",
    ...(failed ? { reason: `registry.example.com answered 401: ${HOSTILE[0]}` } : {}),
    ...(degraded ? { desired: { source: `oci://registry.example.com/policies/${name}:2.0`,
      reason: "no signature of the configured keys", since: at(10), attempts: 4, nextAttempt: at(400) } } : {}),
    manifest: { name, version: `1.${index % 7}.0`, description: `Checks ${name}. ${HOSTILE[1]}`, labels: {} },
    exports: ["validate"], rules: ["CREATE, UPDATE of pods in core/v1", "CREATE of deployments in apps/v1"], rulesFrom: "plugin",
    configured: { once: true }, match: { excludeNamespaces: ["kube-system", "monitoring"] },
    limits: { fuel: "10M", cpuTime: "200ms", timeout: "2s", memory: "64Mi" },
    exceptions: Array.from({ length: index < 4 ? 40 : 1 }, (_, number) => ({
      state: number % 3 ? "active" : "expired", until: `2026-12-${String(1 + number % 28).padStart(2, "0")}`,
      reason: number === 1 ? HOSTILE[3] : "moves to the new registry", name: `exception-${number}`,
      uses: { count: number * 17, since: at(0), ...(number % 4 ? { last: at(number * 60), perDay: number * 1.25 } : {}) },
      ...(number % 5 ? { scan: { state: ["needed", "not-needed", "unused", "expired", "not-known"][number % 5], objects: number, refused: number % 3, warned: number % 2 } } : {}),
      namespaces: [`team-${String(number * 7).padStart(4, "0")}`], users: number === 1 ? [HOSTILE[4]] : undefined })),
    replicas: ["tollgate-7d9c-a", "tollgate-7d9c-b"].map((entry) => {
      const ready = !(degraded || (name === "ingress-hosts" && entry.endsWith("b")));
      return { name: entry, ready, reason: ready ? "Serving" : "LoadFailed", current: true, digest: sha(index + 1),
        message: ready ? "the plugin serves as configured" : `no signature of the configured keys; ${HOSTILE[0]}` };
    }),
  };
}

function decision(index, replica) {
  const hostile = index % 9 === 0 ? HOSTILE[index / 9 % HOSTILE.length] : undefined;
  const verdict = index % 23 === 0 ? "error" : index % 5 === 0 ? "denied" : "allowed";
  const ended = verdict === "denied" ? "denied" : verdict === "error" ? "fault" : "allowed";
  const called = (name, result, order) => ({
    name, digest: sha(order + 1), mode: "enforce", failurePolicy: "Fail", rule: 0, ended: result, annotations: 0, fuel: 91_000 + index * 37,
    cpuMilliseconds: 0.21 + index % 7 / 10, milliseconds: 0.4 + index % 11 / 5,
    ...(result === "denied" ? { denial: { code: 403, message: { bytes: 41, sha256: "8d0f6b2a11c34e55" }, causes: 1,
      fields: { pointers: ["/metadata/labels/team", hostile ?? "/spec/containers/0/image"], more: 0 } } } : {}),
    ...(result === "fault" ? { fault: { kind: "out-of-fuel", message: "out of fuel: the plugin used all 10000000 units (limits.fuel)" } } : {}),
    ...(result === "patched" ? { changed: { pointers: ["/spec/containers/0/image", "/metadata/annotations"], more: 0 } } : {}),
  });
  return {
    uid: `${(index * 7919 + (replica.endsWith("a") ? 1 : 2)).toString(16).padStart(8, "0")}-6393-11e8-b7cc-42010a800002`,
    time: at(index * 3 + (replica.endsWith("a") ? 0 : 1)), endpoint: index % 2 ? "validate" : "mutate", operation: index % 3 ? "CREATE" : "UPDATE",
    kind: "Pod", group: "", version: "v1", resource: "pods", namespace: `team-${String(index % 1000).padStart(4, "0")}`,
    name: hostile ?? `web-${index}`, user: index % 9 === 1 ? HOSTILE[index % 5] : `system:serviceaccount:team-${index % 1000}:deployer`,
    dryRun: index % 31 === 0, verdict, patchOperations: index % 2 ? 0 : 2, milliseconds: 1.2 + index % 13,
    ...(verdict === "allowed" ? {} : { code: verdict === "denied" ? 403 : 500, message: { bytes: 120, sha256: "11aa22bb33cc44dd" } }),
    plugins: [called("image-rewrite", index % 2 ? "unchanged" : "patched", 1), called("required-labels", ended, 0)],
    notCalled: [{ name: "ingress-hosts", why: "no rule matches" }, { name: "host-ports", why: `${HOSTILE[1]} excludes it` }],
    number: index + 1,
  };
}

function replica(name, count) {
  const plugins = NAMES.map((one, index) => plugin(one, index, name));
  for (let index = 0; index < 60; index += 1) {
    plugins.push(plugin(`tenant-policy-${String(index).padStart(3, "0")}`, index + NAMES.length, name));
  }
  return { name, plugins, counts: counts(name), decisions: Array.from({ length: count }, (_, index) => decision(index, name)).reverse() };
}

const has = (value, part) => [value].flat().some((text) => String(text ?? "").toLowerCase().includes(part.toLowerCase()));

function list(name, entries, query, more = {}) {
  const states = {};
  for (const { value: { state } } of entries) if (state) states[state] = (states[state] ?? 0) + 1;
  const [limit, after, search, state] = ["limit", "after", "search", "state"].map((key) => query.get(key) ?? "");
  const found = entries.sort((one, other) => (one.key < other.key ? -1 : 1)).filter(({ value }) => (!state || value.state === state)
    && (!search || ["name", "plugin", "source", "digest", "mode", "state", "reason", "namespaces", "users"].some((key) => has(value[key], search))));
  const rest = found.filter(({ key }) => key > after);
  const page = rest.slice(0, Number(limit || 50)).map(({ key, value }) => ({ ...value, key }));
  return { ...more, total: entries.length, states, matched: found.length, next: rest.length > page.length ? page.at(-1).key : null, [name]: page };
}

function search(decisions, query) {
  const of = (key) => query.get(key) ?? "";
  const found = decisions.filter((one) => one.uid.startsWith(of("uid")) && has(one.user, of("user"))
    && has(`${one.kind} ${one.namespace}/${one.name}`, of("object")) && (!of("namespace") || one.namespace === of("namespace"))
    && (!of("plugin") || one.plugins.some((called) => has(called.name, of("plugin")))) && (!of("verdict") || one.verdict === of("verdict")));
  const rest = found.filter((one) => !of("before") || one.number < Number(of("before")));
  const page = rest.slice(0, Number(of("limit") || 50)).map((one) => ({
    ...one, plugins: one.plugins.map(({ name, ended }) => ({ name, ended })) }));
  return { decisions: page, matched: found.length, kept: decisions.length, since: decisions.at(-1)?.time,
    next: rest.length > page.length ? page.at(-1).number : null };
}

const RESULTS = ["error", "fail", "warn", "skip", "pass"];
const rank = (value) => String(999_999_999_999 - value).padStart(12, "0");

// The counts of this replica's half of 1,000 namespaces, and of objects without a namespace.
function counts(replica) {
  const own = Array.from({ length: 1000 }, (_, index) => index).filter((index) => (index % 2 === 0) === replica.endsWith("a"));
  const names = [...(replica.endsWith("a") ? [null, HOSTILE[0]] : []), ...own.map((index) => `team-${String(index).padStart(4, "0")}`)];
  return names.flatMap((namespace, index) => [...NAMES.slice(0, 5), ...(index === 1 ? [HOSTILE[1]] : [])].map((plugin, order) => ({
    namespace, plugin, error: index % 97 === 3 && order === 2 ? 4 : 0, fail: (index * 7 + order) % 5 ? 0 : index % 11 + (index === 1 ? 90 : 0),
    warn: (index + order) % 3 ? 0 : 2, skip: index % 50 ? 0 : 1, pass: 40 + index % 13 })));
}

function scan(one, query) {
  const [by, part, result, after] = ["by", "search", "result", "after"].map((key) => query.get(key) ?? "");
  const rows = new Map();
  for (const row of one.counts) {
    const key = JSON.stringify([by === "plugin" || row.namespace, by === "namespace" || row.plugin]);
    const sum = rows.get(key) ?? { ...(by === "plugin" ? { namespaces: 0 } : { namespace: row.namespace }),
      ...(by === "namespace" ? { plugins: 0 } : { plugin: row.plugin }), error: 0, fail: 0, warn: 0, skip: 0, pass: 0 };
    for (const word of RESULTS) sum[word] += row[word];
    if (by === "plugin" && row.namespace !== null) sum.namespaces += 1;
    if (by === "namespace") sum.plugins += 1;
    rows.set(key, sum);
  }
  const all = [...rows.values()].map((row) => ({ ...row, key: `${rank(row.error + row.fail)} ${rank(row.warn)} ${row.namespace ?? ""} ${row.plugin ?? ""}` }));
  const found = all.sort((a, b) => (a.key < b.key ? -1 : 1)).filter((row) => (!part || has([row.namespace, row.plugin], part)) && (!result || row[result]));
  const rest = found.filter(({ key }) => key > after);
  const page = rest.slice(0, Number(query.get("limit") || 50));
  const second = one.name.endsWith("b");
  return { enabled: true, intervalSeconds: 1800, replicas: 2, scanning: second ? at(1_900) : null, nextScan: second ? null : at(1_800), countedIn: at(0),
    changesHands: false, handedOver: 0, omitted: 0, namespaces: new Set(one.counts.map((row) => row.namespace).filter(Boolean)).size,
    summary: Object.fromEntries(RESULTS.map((word) => [word, one.counts.reduce((sum, row) => sum + row[word], 0)])),
    last: { began: at(0), seconds: second ? 71.3 : 68, end: second ? "incomplete" : "complete", objects: 24_000, calls: 310, reportsWritten: 12, notInReports: 0,
      notScanned: second ? ["services", HOSTILE[3], "ingresses.v1.networking.k8s.io", "the plugin ingress-hosts is not loaded and has no `match`, so its objects are not known"] : [],
      moreNotScanned: second ? 7 : 0 },
    total: all.length, matched: found.length, next: rest.length > page.length ? page.at(-1).key : null, results: page };
}

function answer(one, path, query) {
  const { name, plugins, decisions } = one;
  const uid = path.startsWith("decisions/") && decodeURIComponent(path.slice("decisions/".length));
  if (uid) {
    const found = decisions.filter((decided) => decided.uid.startsWith(uid));
    return found.length ? { decisions: found } : undefined;
  }
  const entries = (values, key) => values.map((value) => ({ key: value[key], value }));
  switch (path) {
    case "replica":
      return { name, version: "0.1.0", ready: true, complete: name.endsWith("a"), detail: plugins.slice(0, 6).map((each) => `plugin ${each.name}: ${each.state}`) };
    case "plugins":
      return list("plugins", entries(plugins.map((value, index) => ({ ...value, position: index + 1 })), "name"), query, {
        state: "degraded", configuration: { source: "/etc/tollgate/tollgate.yaml", read: at(0), needsRestart: name.endsWith("b") ? ["requests.maxBody"] : [] } });
    case "decisions":
      return search(decisions, query);
    case "exceptions":
      return list("exceptions", plugins.flatMap((each) => each.exceptions.map((value, index) => ({
        key: `${each.name}/${String(index).padStart(5, "0")}`, value: { ...value, plugin: each.name } }))), query);
    case "shadows":
      return list("shadows", entries(["image-rewrite", "rego"].map((name, index) => ({
        plugin: name, since: at(5), compared: 12_345, differed: index ? 0 : 37, dropped: 3, unfinished: 1, faults: index ? { trap: 2 } : {},
        live: { version: "1.1.0", digest: sha(1) }, shadow: { version: "2.0.0", digest: sha(99) },
        fuel: { limit: "10M", mean: 120_456, meanOfLive: 98_123, most: 400_000, above80Percent: 0 },
        differences: index ? [] : Array.from({ length: 20 }, (_, number) => ({ uid: decisions[number * 3].uid, time: decisions[number * 3].time,
          phase: "validate", live: "allows", shadow: "denies", pointers: ["/spec/containers/0/image", HOSTILE[0]] })) })), "plugin"), query);
    case "rollouts":
      return list("rollouts", entries([{
        plugin: "image-rewrite", steps: ["shadow for 1h", "warn for 10% of the namespaces for 1h", "enforce for 10% of the namespaces for 1d"],
        gates: "at most 0 new denials, 0 faults", onFailure: "rollback", phase: "running", step: 2, run: 1, startedAt: at(60), stepSince: at(5),
        old: { source: "oci://registry.example.com/image-rewrite:1", digest: sha(1), mode: "enforce" },
        new: { source: "oci://registry.example.com/image-rewrite:2", digest: sha(99), mode: "enforce" },
        observed: { reviews: 4_321, newDenials: 0, faults: 0, meanMicrosecondsOfNew: 310, meanMicrosecondsOfOld: 290 }, waits: "55 min of step 2",
        history: [{ time: at(60), phase: "running", step: 1, by: "configuration", reason: HOSTILE[0] },
          { time: at(5), phase: "running", step: 2, by: "gates", reason: "1,200 reviews without a new denial" }] }], "plugin"), query);
    case "scan":
      return scan(one, query);
    case "costs": {
      const costs = plugins.slice(0, 10).map((each, index) => ({
        plugin: each.name, calls: 900 - index * 61, denials: index * 3, faults: index === 2 ? 4 : 0, shareOfCpuTime: [0.41, 0.22, 0.14, 0.09, 0.05, 0.04, 0.02, 0.02, 0.01, 0][index],
        fuel: { mean: 98_123, p95: 151_000, most: 1_204_567 }, cpuMilliseconds: { mean: 0.31, p95: 0.9, most: 12.4 }, milliseconds: { mean: 0.52, p95: 1.4, most: 31.9 } }));
      const found = costs.filter((cost) => has(cost.plugin, query.get("search") ?? ""));
      return { costs: found, total: costs.length, matched: found.length, decisions: decisions.length, since: decisions.at(-1)?.time };
    }
    default:
      return undefined;
  }
}

// Starts the stand-in and returns its URL. `without` are paths that it does not know.
export async function start({ port = 0, without = [], decisions = 600 } = {}) {
  const replicas = ["tollgate-7d9c-a", "tollgate-7d9c-b"].map((name) => replica(name, decisions));
  const server = createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url, "http://localhost");
    const send = (status, type, body) => {
      response.writeHead(status, { "content-type": type, "x-content-type-options": "nosniff", "content-security-policy": POLICY,
        "cache-control": "no-store", "referrer-policy": "no-referrer", "x-frame-options": "DENY",
        "cross-origin-opener-policy": "same-origin", "cross-origin-resource-policy": "same-origin" });
      response.end(body);
    };
    const json = (value) => (value ? send(200, "application/json", JSON.stringify(value)) : send(404, "text/plain", "no such path\n"));
    if (pathname === "/page/replicas") return json({ replicas: replicas.map(({ name }) => ({ name, path: `../replica/${name}/` })) });
    const [, name, path] = pathname.match(/^\/replica\/([^/]+)\/(.*)$/) ?? [];
    if (name) return json(without.includes(path) ? undefined : answer(replicas.find((one) => one.name === name), path, searchParams));
    const file = pathname.replace(/^\/page\//, "") || "index.html";
    try {
      return send(200, TYPES[file.split(".").pop()], await readFile(new URL(file, SITE)));
    } catch {
      return json();
    }
  });
  await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}/page/`, stop: () => server.close() };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const { url } = await start({ port: Number(process.argv[2] ?? 0) });
  console.log(url);
}
