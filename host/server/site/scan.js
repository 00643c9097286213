// The results of the background scan: counts by namespace and plugin. Each replica has those of its own namespaces.

import { address, badge, count, el, list, number, pluginLink, table, time } from "./dom.js";
import { byText, total } from "./merge.js";
import { onReplicas } from "./section.js";

const RESULTS = ["error", "fail", "warn", "skip", "pass"];
const TONES = { error: "bad", fail: "bad", warn: "warn" };
// The largest number in a key. Keys sort as the counts do: the most failures first.
const MOST_IN_KEY = 999_999_999_999;

export const scan = {
  id: "scan",
  title: "Scan",
  about: "What the plugins say about the objects that exist, counted by the last background scan, the most failures first. "
    + "The policy reports of a namespace name the objects.",
  path: "scan",
  list: "results",
  noun: "count",
  empty: "No count matches. A namespace has counts if it has objects that a plugin matches.",
  filters: [
    { name: "search", label: "Search", hint: "namespace or plugin" },
    { name: "result", label: "Has", options: RESULTS },
    { name: "by", label: "Counts of", any: "plugin and namespace", options: ["namespace", "plugin"] },
  ],
  columns,
  compare: byText((row) => row.key),
  cursor: { parameter: "after", of: (row) => row.key },
  combine,
  summary,
  before: (answers) => [...notices(answers).map((text) => el("p", { class: "notice" }, text)), scans(answers)],
};

function columns({ by }) {
  const names = {
    namespace: { label: "Namespace", head: by !== "plugin", cell: (row) => namespace(row, by) },
    plugin: { label: "Plugin", head: by === "plugin", cell: (row) => (row.plugin === undefined ? "" : pluginLink(row.plugin)) },
    of: { label: by === "plugin" ? "Namespaces" : "Plugins", numeric: true, cell: (row) => number(row.namespaces ?? row.plugins) },
  };
  const shown = { namespace: ["namespace", "of"], plugin: ["plugin", "of"] }[by] ?? ["namespace", "plugin"];
  return [...shown.map((name) => names[name]), ...RESULTS.map((result) => ({
    label: result[0].toUpperCase() + result.slice(1), numeric: true,
    cell: (row) => (row[result] && TONES[result] ? badge(number(row[result]), TONES[result]) : number(row[result])),
  }))];
}

// The name of the namespace. A sum over its plugins leads to them.
function namespace(row, by) {
  if (row.namespace === null) return "(cluster-scoped)";
  return by === "namespace" ? el("a", { href: address("scan", { search: row.namespace }) }, row.namespace) : row.namespace;
}

// A namespace belongs to one replica, but a plugin has results on all of them. They are added up if no part is missing.
export function combine(answers, { by }) {
  const isWhole = answers.every(({ next, cursor }) => (next ?? null) === null && cursor === undefined);
  if (by !== "plugin" || answers.length < 2 || !isWhole) return answers;
  const plugins = new Map();
  for (const row of answers.flatMap(({ rows }) => rows)) {
    const sum = plugins.get(row.plugin) ?? { plugin: row.plugin, namespaces: 0, ...Object.fromEntries(RESULTS.map((result) => [result, 0])) };
    for (const name of ["namespaces", ...RESULTS]) sum[name] += row[name];
    plugins.set(row.plugin, sum);
  }
  const rows = [...plugins.values()].map((row) => ({ ...row, key: key(row) })).sort(scan.compare);
  return [{ replica: count(answers.length, "replica"), rows, next: null, cursor: undefined }];
}

function key(row) {
  const rank = (value) => String(MOST_IN_KEY - Math.min(value, MOST_IN_KEY)).padStart(12, "0");
  return `${rank(row.error + row.fail)} ${rank(row.warn)}  ${row.plugin}`;
}

function summary(answers) {
  const [matched, all] = [total(answers, "matched"), total(answers, "total")];
  const counts = RESULTS.map((result) => `${number(total(answers.map((answer) => answer.summary ?? {}), result))} ${result}`);
  const text = `${counts.join(", ")} in ${count(total(answers, "namespaces"), "namespace")}${onReplicas(answers)}`;
  return matched === all ? text : `${number(matched)} of ${count(all, "count")} match; in all ${text}`;
}

// What is missing in the counts, and why.
export function notices(answers) {
  const names = (found) => found.map((answer) => answer.replica).join(", ");
  const off = answers.filter((answer) => !answer.enabled);
  if (off.length === answers.length) {
    return ["The background scan is off (scan.enabled). “tollgate scan” judges the objects that exist from the command line."];
  }
  const on = answers.filter((answer) => answer.enabled);
  const told = [];
  if (off.length) told.push(`The background scan is off on ${names(off)}.`);
  const sharing = Math.max(0, ...on.map((answer) => answer.replicas ?? 0));
  if (sharing > on.length) {
    told.push(`${number(sharing)} replicas share the namespaces, and ${number(on.length)} of them ${on.length === 1 ? "is" : "are"} shown here. `
      + "The others have the rest: choose all replicas, or start “tollgate page --service”.");
  }
  const unknown = on.filter((answer) => !answer.countedIn);
  if (unknown.length) told.push(`No scan of ${names(unknown)} has counted anything yet, so its namespaces are missing.`);
  if (on.some((answer) => answer.changesHands)) {
    const handedOver = total(on, "handedOver");
    told.push(`Namespaces change hands, because replicas came or went. ${count(handedOver, "namespace")} of these replicas `
      + `${handedOver === 1 ? "is" : "are"} left out until the new owner has scanned.`);
  }
  const omitted = total(on, "omitted");
  if (omitted) told.push(`${count(omitted, "count")} without room ${omitted === 1 ? "is" : "are"} in the sum alone. Those with the most failures are kept.`);
  return told;
}

function scans(answers) {
  const columns = [
    { label: "Replica", head: true, cell: (row) => row.replica },
    { label: "Last scan", cell: (row) => end(row) },
    { label: "Began", cell: (row) => time(row.last?.began) },
    { label: "Took", numeric: true, cell: (row) => duration(row.last?.seconds) },
    { label: "Objects", numeric: true, cell: (row) => number(row.last?.objects) },
    { label: "Calls", numeric: true, cell: (row) => number(row.last?.calls) },
    { label: "Not read", cell: (row) => notRead(row.last) },
    { label: "Next scan", cell: (row) => (row.scanning ? ["under way since ", time(row.scanning)] : time(row.nextScan)) },
  ];
  const on = answers.filter((answer) => answer.enabled);
  if (!on.length) return "";
  return el("div", { class: "table" }, table("Scans of the replicas. The next one may begin earlier, when something changes.", columns, on));
}

const ENDS = { complete: "good", incomplete: "warn", failed: "bad" };

function end({ last }) {
  if (!last) return badge("none yet", "plain");
  const word = badge(last.end, ENDS[last.end]);
  return last.end === "failed" ? [word, " The log of the replica has the reason."] : word;
}

function duration(seconds) {
  if (typeof seconds !== "number") return "";
  return seconds < 120 ? `${number(seconds)} s` : `${number(Math.round(seconds / 60))} min`;
}

// Names of resources and plugins. The log of the replica has the reasons.
function notRead(last) {
  const [names, more] = [last?.notScanned ?? [], last?.moreNotScanned ?? 0];
  const shown = more ? [...names, `and ${number(more)} more`] : names;
  if (shown.length <= 3) return shown.length ? list(shown) : "";
  return el("details", {}, el("summary", {}, `${number(names.length + more)} not read`), list(shown));
}
