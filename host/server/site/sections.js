// The sections of the page, in the order of the navigation. A section appears when a replica knows its path. To add one,
// write a definition as section.js describes it, and add it to the list at the end.

import { address, badge, count, digest, el, list, milliseconds, number, percent, pluginLink, table, time } from "./dom.js";
import { byNumber, byText, total } from "./merge.js";
import { scan } from "./scan.js";
import { matches, onReplicas } from "./section.js";

export const decisionLink = (uid, text = uid) => el("a", { href: address(`decision/${encodeURIComponent(uid)}`) }, text);

// Why a plugin is not as configured, in the words of the replica.
export function trouble(plugin) {
  return [
    plugin.reason,
    plugin.desired?.reason,
    plugin.desired?.state && `${plugin.desired.state} ${plugin.desired.source ?? plugin.source}`,
    plugin.held && `held at its previous configuration because of ${plugin.held.becauseOf?.join(", ")}`,
  ].filter(Boolean);
}

function replicasOf(plugin) {
  const entries = plugin.replicas ?? [];
  if (!entries.length) return "";
  const ready = entries.filter((entry) => entry.ready && entry.current);
  return badge(`${ready.length} of ${entries.length} ready`, ready.length === entries.length ? "good" : "warn");
}

const plugins = {
  id: "plugins",
  title: "Plugins",
  about: "The configured plugins in the order of their names. “Ready” counts the replicas whose entries in the status of the custom resource say so.",
  path: "plugins",
  list: "plugins",
  noun: "plugin",
  empty: "No plugin matches.",
  filters: [
    { name: "search", label: "Search", hint: "name, source, digest or reason" },
    { name: "state", label: "State", options: ["loaded", "degraded", "failed", "loading", "pending", "disabled"] },
  ],
  columns: [
    { label: "Plugin", head: true, cell: (row) => pluginLink(row.name) },
    { label: "State", cell: (row) => badge(row.state) },
    { label: "Mode", cell: (row) => row.mode },
    { label: "On failure", cell: (row) => row.failurePolicy },
    { label: "Version", cell: (row) => row.manifest?.version },
    { label: "Digest", cell: (row) => digest(row.digest) },
    { label: "Ready", cell: replicasOf },
    { label: "Trouble", cell: (row) => trouble(row).join("; ") },
  ],
  compare: byText((row) => row.name),
  cursor: { parameter: "after", of: (row) => row.key },
  summary: (answers) => matches(answers, "plugin"),
};

const decisions = {
  id: "decisions",
  title: "Decisions",
  about: "The last reviews, newest first. A replica keeps the decisions that it made itself, until its process ends.",
  path: "decisions",
  list: "decisions",
  noun: "decision",
  empty: "No decision matches. Replicas keep the most recent ones alone (admin.decisions).",
  filters: [
    { name: "uid", label: "UID", hint: "first characters" },
    { name: "user", label: "User", hint: "part of the name" },
    { name: "object", label: "Object", hint: "Pod shop/web" },
    { name: "namespace", label: "Namespace", hint: "whole name" },
    { name: "plugin", label: "Plugin", hint: "that was called" },
    { name: "verdict", label: "Verdict", options: ["allowed", "denied", "error", "overloaded"] },
  ],
  columns: [
    { label: "Time", cell: (row) => time(row.time) },
    { label: "Verdict", cell: (row) => badge(row.verdict) },
    { label: "Request", head: true, cell: (row) => [`${row.operation} ${row.kind} `, el("strong", {}, objectName(row))] },
    { label: "User", cell: (row) => row.user },
    { label: "Endpoint", cell: (row) => row.endpoint + (row.dryRun ? ", dry run" : "") },
    { label: "Plugins", cell: (row) => called(row) },
    { label: "Time taken", numeric: true, cell: (row) => milliseconds(row.milliseconds) },
    { label: "UID", cell: (row) => el("span", { class: "nowrap" }, decisionLink(row.uid, shortUid(row.uid))) },
  ],
  compare: (one, other) => (one.time === other.time ? 0 : one.time < other.time ? 1 : -1),
  cursor: { parameter: "before", of: (row) => row.number },
  summary: (answers) => {
    const [matched, kept] = [total(answers, "matched"), total(answers, "kept")];
    const text = matched === kept ? `${count(kept, "decision")} kept` : `${number(matched)} of ${count(kept, "kept decision")} match`;
    return text + onReplicas(answers);
  },
};

// The beginning that `tollgate explain` takes, of a uid as kube-apiserver makes it.
function shortUid(uid) {
  return uid.length > 13 ? `${uid.slice(0, 8)}…` : uid || "(no uid)";
}

export function objectName(row) {
  const name = row.name || "(no name yet)";
  return row.namespace ? `${row.namespace}/${name}` : name;
}

// Plugins that had an effect, and the number of the others.
function called(row) {
  const effects = row.plugins.filter((plugin) => !["allowed", "unchanged"].includes(plugin.ended));
  const others = row.plugins.length - effects.length;
  const shown = effects.slice(0, 4).map((plugin) => `${plugin.name}: ${plugin.ended}`);
  if (effects.length > shown.length) shown.push(`${effects.length - shown.length} more`);
  if (others) shown.push(`${others} without effect`);
  return shown.join(", ");
}

const shadows = {
  id: "shadows",
  title: "Shadow versions",
  about: "Versions that run beside the serving ones and are only compared. They decide nothing.",
  path: "shadows",
  list: "shadows",
  noun: "shadow version",
  empty: "No plugin has a shadow version.",
  filters: [{ name: "search", label: "Search", hint: "plugin" }],
  columns: [
    { label: "Plugin", head: true, cell: (row) => pluginLink(row.plugin) },
    { label: "Serving", cell: (row) => row.live?.version || digest(row.live?.digest) },
    { label: "Shadow", cell: (row) => row.shadow?.version || digest(row.shadow?.digest) },
    { label: "Since", cell: (row) => time(row.since) },
    { label: "Compared", numeric: true, cell: (row) => number(row.compared) },
    { label: "Different", numeric: true, cell: (row) => (row.differed ? badge(number(row.differed), "warn") : "0") },
    { label: "Faults", cell: (row) => Object.entries(row.faults ?? {}).map(([kind, times]) => `${kind}: ${number(times)}`).join(", ") || "none" },
    { label: "Not compared", numeric: true, cell: (row) => number(row.dropped + row.unfinished) },
    { label: "Mean fuel", numeric: true, cell: (row) => `${number(row.fuel?.meanOfLive)} → ${number(row.fuel?.mean)}` },
  ],
  compare: byText((row) => row.plugin),
  cursor: { parameter: "after", of: (row) => row.key },
  summary: (answers) => matches(answers, "shadow version"),
  after: differences,
};

function differences(rows, all) {
  const columns = [
    { label: "Time", cell: (row) => time(row.time) },
    { label: "Review", head: true, cell: (row) => decisionLink(row.uid) },
    { label: "Phase", cell: (row) => row.phase },
    { label: "Serving", cell: (row) => row.live },
    { label: "Shadow", cell: (row) => row.fault ? `${row.shadow} (${row.fault})` : row.shadow },
    { label: "Places", cell: (row) => places(row.pointers, row.morePointers) },
  ];
  const different = rows.filter((row) => row.differences?.length);
  return el("div", {}, different.map((row) => {
    const name = all ? `${row.plugin} on ${row.replica}` : row.plugin;
    return el("details", { class: "block" },
      el("summary", {}, `Last differences of ${name}`),
      el("div", { class: "table" }, table(`Last differences of ${name}, newest first`, columns, row.differences)));
  }));
}

const rollouts = {
  id: "rollouts",
  title: "Rollouts",
  about: "New versions and modes that take effect in steps. “tollgate rollout” promotes a rollout or rolls it back.",
  path: "rollouts",
  list: "rollouts",
  noun: "rollout",
  empty: "No plugin has a rollout.",
  filters: [{ name: "search", label: "Search", hint: "plugin" }],
  columns: [
    { label: "Plugin", head: true, cell: (row) => pluginLink(row.plugin) },
    { label: "Phase", cell: (row) => badge(row.phase) },
    { label: "Step", cell: (row) => (row.step ? `${row.step} of ${row.steps?.length}: ${row.steps?.[row.step - 1] ?? "done"}` : "") },
    { label: "Old", cell: (row) => digest(row.old?.digest) },
    { label: "New", cell: (row) => digest(row.new?.digest) },
    { label: "Reviews", numeric: true, cell: (row) => number(row.observed?.reviews ?? 0) },
    { label: "New denials", numeric: true, cell: (row) => number(row.observed?.newDenials ?? 0) },
    { label: "Faults", numeric: true, cell: (row) => (row.observed?.faults ? badge(number(row.observed.faults), "bad") : "0") },
    { label: "Waits for", cell: (row) => row.blocked ?? row.waits },
  ],
  compare: byText((row) => row.plugin),
  cursor: { parameter: "after", of: (row) => row.key },
  summary: (answers) => matches(answers, "rollout"),
  after: history,
};

function history(rows, all) {
  const columns = [
    { label: "Time", cell: (row) => time(row.time) },
    { label: "Phase", head: true, cell: (row) => badge(row.phase) },
    { label: "Step", numeric: true, cell: (row) => number(row.step) },
    { label: "By", cell: (row) => row.by },
    { label: "Reason", cell: (row) => row.reason },
  ];
  const changed = rows.filter((row) => row.history?.length);
  return el("div", {}, changed.map((row) => {
    const name = all ? `${row.plugin} on ${row.replica}` : row.plugin;
    return el("details", { class: "block" },
      el("summary", {}, `History of ${name}`),
      el("div", { class: "table" }, table(`History of ${name}`, columns, row.history)));
  }));
}

export function places(pointers = [], more = 0) {
  const shown = pointers.map((pointer) => el("code", {}, pointer || "(the whole object)"));
  if (more) shown.push(`and ${number(more)} more`);
  return shown.length ? list(shown) : "";
}

const exceptions = {
  id: "exceptions",
  title: "Exceptions",
  about: "Requests that a plugin is not called for on purpose, from the configuration and from PluginExceptions. "
    + "Each replica knows its own uses, and what its part of the background scan says: an exception is needed if one of them needs it.",
  path: "exceptions",
  list: "exceptions",
  noun: "exception",
  empty: "No exception matches.",
  filters: [
    { name: "search", label: "Search", hint: "plugin, reason, namespace or user" },
    { name: "state", label: "State", options: ["active", "expired"] },
  ],
  columns: [
    { label: "Plugin", head: true, cell: (row) => pluginLink(row.plugin) },
    { label: "Name", cell: (row) => row.name },
    { label: "State", cell: (row) => badge(row.state) },
    { label: "Until", cell: (row) => el("span", { class: "nowrap" }, row.until) },
    { label: "Uses", numeric: true, cell: uses },
    { label: "Last use", cell: (row) => (row.uses ? time(row.uses.last) || "none" : "") },
    { label: "In the scan", cell: needed },
    { label: "For", cell: scope },
    { label: "Reason", cell: (row) => row.reason },
  ],
  compare: byText((row) => row.key),
  cursor: { parameter: "after", of: (row) => row.key },
  summary: (answers) => matches(answers, "exception"),
};

// How often this replica used the exception, and in a day. The first day has no mean.
function uses({ uses: counted }) {
  if (!counted) return "";
  const often = counted.perDay === undefined ? "" : `, ${number(counted.perDay)} a day`;
  return el("span", {}, `${number(counted.count)}${often}`, el("span", { class: "since" }, `since ${String(counted.since).slice(0, 10)}`));
}

const NEEDED = { needed: "good", "not-needed": "warn", unused: "warn" };

// Whether objects that exist still need the exception, in the words of `tollgate scan`.
function needed({ scan: found }) {
  if (!found) return "";
  const without = [found.refused && `${number(found.refused)} refused`, found.warned && `${number(found.warned)} warned about`].filter(Boolean);
  const objects = `${count(found.objects, "object")}${without.length ? `, without it ${without.join(" and ")}` : ""}`;
  return [badge(found.state, NEEDED[found.state]), ` ${objects}`];
}

const MOST_NAMES = 8;

function scope(row) {
  const parts = ["namespaces", "names", "users", "groups"].filter((key) => row[key]?.length);
  return parts.map((key) => {
    const more = row[key].length - MOST_NAMES;
    const names = row[key].slice(0, MOST_NAMES).join(", ");
    return `${key}: ${names}${more > 0 ? ` and ${more} more` : ""}`;
  }).join("; ") || "all requests";
}

const costs = {
  id: "costs",
  title: "Cost",
  about: "What the calls of each plugin took in the kept decisions: mean, 95th percentile and most. Calls of shadow versions are not among them.",
  path: "costs",
  list: "costs",
  noun: "plugin",
  empty: "No plugin was called in the kept decisions.",
  filters: [{ name: "search", label: "Search", hint: "plugin" }],
  columns: [
    { label: "Plugin", head: true, cell: (row) => pluginLink(row.plugin) },
    { label: "Share of CPU", cell: (row) => share(row.shareOfCpuTime) },
    { label: "Calls", numeric: true, cell: (row) => number(row.calls) },
    { label: "Denials", numeric: true, cell: (row) => number(row.denials) },
    { label: "Faults", numeric: true, cell: (row) => (row.faults ? badge(number(row.faults), "bad") : "0") },
    { label: "Fuel", numeric: true, cell: (row) => spread(row.fuel, number) },
    { label: "CPU time", numeric: true, cell: (row) => spread(row.cpuMilliseconds, milliseconds) },
    { label: "Time with waiting", numeric: true, cell: (row) => spread(row.milliseconds, milliseconds) },
  ],
  compare: byNumber((row) => -row.shareOfCpuTime),
  summary: (answers) => {
    const since = answers.map((answer) => answer.since).filter(Boolean).sort()[0];
    const text = `${matches(answers, "plugin")}, in ${count(total(answers, "decisions"), "decision")}`;
    return since ? `${text} since ${since.slice(0, 19).replace("T", " ")}` : text;
  },
};

function share(value) {
  const text = percent(value);
  return el("span", { class: "share" }, el("meter", { min: 0, max: 1, value, "aria-label": `${text} of the CPU time` }), text);
}

function spread(values, show) {
  return el("span", { class: "spread" },
    ["mean", "p95", "most"].map((name) => el("span", {}, el("abbr", {}, name), " ", show(values[name]))));
}

export const sections = [plugins, decisions, shadows, rollouts, scan, exceptions, costs];
