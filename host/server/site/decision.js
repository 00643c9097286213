// One review in whole: what `tollgate explain UID` prints.

import { askAll } from "./api.js";
import { announce, badge, count, digest, el, facts, list, milliseconds, number, pluginLink, table, time } from "./dom.js";
import { objectName, places } from "./sections.js";

export async function showDecision(uid, { replicas, all }) {
  const { answers, failures } = await askAll(replicas, `decisions/${encodeURIComponent(uid)}`);
  const found = answers.flatMap((answer) => answer.decisions.map((decision) => ({ ...decision, replica: answer.replica })));
  const silent = failures.filter((failure) => failure.status !== 404);
  announce(found.length ? `${count(found.length, "decision")} of review ${uid}` : `no decision of review ${uid} is kept`);
  return el("section", { "aria-labelledby": "heading", class: "section" },
    el("h2", { id: "heading", tabindex: "-1" }, "Review ", el("code", {}, uid)),
    silent.map(({ replica, reason }) => el("p", { class: "notice bad" }, `${replica} did not answer: ${reason}`)),
    found.length ? found.map((decision) => article(decision, all)) : el("p", { class: "empty" },
      "No decision of this review is kept. Replicas keep the most recent ones until their processes end (admin.decisions)."));
}

function article(decision, all) {
  const resource = decision.subResource ? `${decision.resource}/${decision.subResource}` : decision.resource;
  return el("article", { class: "decision" },
    el("h3", {}, badge(decision.verdict), ` ${decision.operation} ${decision.kind} ${objectName(decision)}`),
    el("div", { class: "card" }, facts([
      ["Time", time(decision.time)],
      ["User", decision.user],
      ["Resource", `${resource} (${decision.group || "core"}, ${decision.version})`],
      ["Endpoint", decision.endpoint + (decision.only ? `, ${decision.only} alone` : "") + (decision.dryRun ? ", dry run" : "")],
      ["HTTP status", decision.code],
      ["Patch", count(decision.patchOperations, "operation")],
      ["Time taken", milliseconds(decision.milliseconds)],
      ["Message", decision.message && fingerprint(decision.message)],
      ["Replica", all ? decision.replica : undefined],
      ["UID", el("code", {}, decision.uid)],
    ])),
    decision.plugins.length
      ? el("div", { class: "table" }, table("Plugins that were called, in order", COLUMNS, decision.plugins))
      : el("p", { class: "empty" }, "No plugin was called."),
    decision.notCalled?.length
      ? el("details", { class: "block" },
        el("summary", {}, `${count(decision.notCalled.length, "plugin")} not called`),
        el("div", { class: "table" }, table("Plugins that were not called", NOT_CALLED, decision.notCalled)))
      : null);
}

const NOT_CALLED = [
  { label: "Plugin", head: true, cell: (row) => pluginLink(row.name) },
  { label: "Why", cell: (row) => row.why },
];

const COLUMNS = [
  { label: "Plugin", head: true, cell: (row) => pluginLink(row.name) },
  { label: "Result", cell: (row) => badge(row.ended) },
  { label: "Mode", cell: (row) => row.mode },
  { label: "On failure", cell: (row) => row.failurePolicy },
  { label: "Details", cell: details },
  { label: "Fuel", numeric: true, cell: (row) => number(row.fuel) },
  { label: "CPU time", numeric: true, cell: (row) => milliseconds(row.cpuMilliseconds) },
  { label: "Time", numeric: true, cell: (row) => milliseconds(row.milliseconds) },
  { label: "Digest", cell: (row) => digest(row.digest) },
];

// Texts of plugins are kept as lengths and hashes only.
function fingerprint(text) {
  return `${count(text.bytes, "byte")}, SHA-256 ${text.sha256}…`;
}

function details(row) {
  const said = [];
  const of = (title, content) => said.push(el("span", {}, `${title} `, content));
  if (row.fault) of(`fault ${row.fault.kind}:`, row.fault.message ?? (row.fault.text ? fingerprint(row.fault.text) : ""));
  for (const [title, denial] of [["denied because of", row.denial], ["not counted, because it existed before:", row.existing]]) {
    if (!denial) continue;
    const fields = places(denial.fields?.pointers, denial.fields?.more);
    of(title, fields || `its message (${fingerprint(denial.message)})`);
  }
  if (row.excepted) of("exception:", row.excepted);
  if (row.reinvoked) of("called again:", row.reinvoked);
  if (row.changed) of("changed", places(row.changed.pointers, row.changed.more));
  for (const conflict of row.conflicts ?? []) of("changed again", `${conflict.pointer} of ${conflict.with}`);
  if (row.warnings?.length) said.push(count(row.warnings.length, "warning"));
  if (row.annotations) said.push(count(row.annotations, "audit annotation"));
  return said.length ? list(said) : "";
}
