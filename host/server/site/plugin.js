// One plugin on all replicas: its configuration, its state and its rules.

import { askAll } from "./api.js";
import { address, announce, badge, digest, el, facts, list, table } from "./dom.js";
import { trouble } from "./sections.js";

const MOST = 200;

export async function showPlugin(name, { replicas }) {
  const { answers, failures } = await askAll(replicas, "plugins", () => ({ search: name, limit: MOST }));
  const found = answers.flatMap((answer) =>
    answer.plugins.filter((plugin) => plugin.name === name).map((plugin) => ({ ...plugin, replica: answer.replica })));
  announce(found.length ? `plugin ${name}: ${found.map((plugin) => plugin.state).join(", ")}` : `no replica has a plugin ${name}`);
  return el("section", { "aria-labelledby": "heading", class: "section" },
    el("h2", { id: "heading", tabindex: "-1" }, `Plugin ${name}`),
    failures.map(({ replica, reason }) => el("p", { class: "notice bad" }, `${replica} did not answer: ${reason}`)),
    found.length
      ? [el("div", { class: "table" }, table(`State of ${name} on each replica asked`, STATES, found)),
        el("p", { class: "links" },
          el("a", { href: address("decisions", { plugin: name }) }, "Decisions of this plugin"),
          el("a", { href: address("scan", { search: name }) }, "Scan"),
          el("a", { href: address("exceptions", { search: name }) }, "Exceptions"),
          el("a", { href: address("costs", { search: name }) }, "Cost")),
        about(found[0])]
      : el("p", { class: "empty" }, "No replica has a plugin of this name."));
}

const STATES = [
  { label: "Replica", head: true, cell: (row) => row.replica },
  { label: "State", cell: (row) => badge(row.state) },
  { label: "Version", cell: (row) => row.manifest?.version },
  { label: "Digest", cell: (row) => digest(row.digest) },
  { label: "Trouble", cell: (row) => trouble(row).join("; ") },
  { label: "What to do", cell: (row) => row.held?.whatToDo },
];

const ENTRIES = [
  { label: "Replica", head: true, cell: (row) => row.name },
  { label: "State", cell: (row) => badge(row.reason, row.ready ? "good" : "warn") },
  { label: "Configuration", cell: (row) => (row.current ? "current" : "earlier one") },
  { label: "Digest", cell: (row) => digest(row.digest) },
  { label: "Message", cell: (row) => row.message },
];

function about(plugin) {
  return el("div", {},
    plugin.replicas?.length
      ? el("div", { class: "table" }, table("What the replicas say in the status of the custom resource", ENTRIES, plugin.replicas))
      : null,
    el("div", { class: "card" }, facts([
      ["Description", plugin.manifest?.description],
      ["Source", el("code", {}, plugin.source)],
      ["Mode", plugin.mode],
      ["Failure policy", plugin.failurePolicy],
      ["Order", plugin.position],
      ["Called for", plugin.exports?.join(", ")],
      ["Rules", plugin.rules?.length ? list(plugin.rules.map((rule) => el("code", {}, rule))) : undefined],
      ["Rules from", plugin.rulesFrom],
      ["Narrowed by", narrowed(plugin.match)],
      ["Existing violations", plugin.existingViolations],
      ["Configured", plugin.configured && (plugin.configured.once ? "once" : `in each call: ${plugin.configured.reason}`)],
      ["Limits", plugin.limits && list(Object.entries(plugin.limits).map(([key, value]) => `${key}: ${value}`))],
    ])));
}

function narrowed(match) {
  const parts = Object.entries(match ?? {}).map(([key, value]) => {
    if (key !== "matchConditions") return `${key}: ${Array.isArray(value) ? value.join(", ") : value}`;
    return `conditions: ${value.map((condition) => condition.name).join(", ")}`;
  });
  return parts.length ? list(parts) : undefined;
}
