// The state of each replica, and the plugins that need a look.

import { ask } from "./api.js";
import { address, announce, badge, count, el, facts, list, number, time } from "./dom.js";

export async function showOverview({ replicas }) {
  const states = await Promise.all(replicas.map(state));
  announce(`Overview of ${count(states.length, "replica")}`);
  return el("section", { "aria-labelledby": "heading", class: "section" },
    el("h2", { id: "heading", tabindex: "-1" }, "Overview"),
    el("p", { class: "about" }, "What each replica says about itself now."),
    el("div", { class: "cards" }, states.map(card)));
}

async function state({ name, path }) {
  try {
    const [replica, plugins, decisions] = await Promise.all([
      ask(`${path}replica`), ask(`${path}plugins`, { limit: 1 }), ask(`${path}decisions`, { limit: 1 }).catch(() => null),
    ]);
    return { name, replica, plugins, decisions };
  } catch (error) {
    return { name, failure: error.message };
  }
}

function card({ name, failure, replica, plugins, decisions }) {
  if (failure) {
    return el("article", { class: "card" }, el("h3", {}, name), el("p", { class: "notice bad" }, `no answer: ${failure}`));
  }
  const configuration = plugins.configuration ?? {};
  return el("article", { class: "card" },
    el("h3", {}, name),
    el("p", { class: "badges" },
      badge(replica.ready ? "ready" : "not ready", replica.ready ? "good" : "bad"),
      badge(plugins.state ?? "unknown"),
      replica.complete ? null : badge("plugins missing", "bad"),
      configuration.lastKnownGood ? badge("last known good", "warn") : null),
    counts(plugins),
    configuration.invalid
      ? el("p", { class: "notice bad" }, `The configuration is not valid, and the previous one stays in effect: ${configuration.invalid}`)
      : null,
    configuration.needsRestart?.length
      ? el("p", { class: "notice" }, `These changed settings require a restart: ${configuration.needsRestart.join(", ")}`)
      : null,
    facts([
      ["Version", replica.version],
      ["Configuration", configuration.source && el("code", {}, configuration.source)],
      ["Read", time(configuration.read)],
      ["Decisions kept", decisions ? number(decisions.kept) : undefined],
    ]),
    replica.detail.length
      ? el("details", { class: "block" }, el("summary", {}, "What readiness says"), list(replica.detail))
      : null);
}

// The number of plugins in each state, with links to them.
function counts(plugins) {
  const states = Object.entries(plugins.states ?? {});
  return el("ul", { class: "counts" },
    el("li", {}, el("a", { href: address("plugins") }, el("strong", {}, number(plugins.total)), " plugins")),
    states.map(([state, times]) =>
      el("li", {}, el("a", { href: address("plugins", { state }) }, el("strong", {}, number(times)), ` ${state}`))));
}
