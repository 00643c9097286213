// Starts the page: which replicas there are, which sections they have, and which view the address names.

import { ask, replicas as listReplicas } from "./api.js";
import { showDecision } from "./decision.js";
import { address, el } from "./dom.js";
import { showOverview } from "./overview.js";
import { showPlugin } from "./plugin.js";
import { show } from "./section.js";
import { sections } from "./sections.js";

const ALL = "";
const content = document.getElementById("content");
const chooser = document.getElementById("replica");
const state = { replicas: [], sections: [] };
// A later view must not be replaced by an earlier one that took longer.
let turn = 0;

async function start() {
  try {
    state.replicas = await listReplicas();
  } catch (error) {
    fail(error);
    return;
  }
  chooseReplicas();
  state.sections = await available();
  await showView(false);
}

function chooseReplicas() {
  const before = chooser.value;
  const options = state.replicas.map(({ name }) => el("option", { value: name }, name));
  if (options.length > 1) options.unshift(el("option", { value: ALL }, "all replicas"));
  chooser.replaceChildren(...options);
  if (state.replicas.some(({ name }) => name === before)) chooser.value = before;
  chooser.disabled = options.length < 2;
}

// The replicas that are chosen.
function chosen() {
  return state.replicas.filter(({ name }) => chooser.value === ALL || name === chooser.value);
}

// The sections that some replica knows. Replicas of an older version may lack some.
async function available() {
  const knows = async (section, { path }) => {
    try {
      await ask(path + section.path, { limit: 1 });
      return true;
    } catch (error) {
      return error.status !== 404;
    }
  };
  const known = await Promise.all(sections.map(async (section) => {
    const answers = await Promise.all(state.replicas.map((replica) => knows(section, replica)));
    return answers.includes(true) || answers.length === 0;
  }));
  return sections.filter((_, index) => known[index]);
}

// Reads `#decisions?user=anna` and `#decision/UID`.
function view() {
  const [path, query] = location.hash.slice(1).split("?");
  const [name, ...rest] = path.split("/");
  let detail = rest.join("/");
  try {
    detail = decodeURIComponent(detail);
  } catch {
    // A broken address names nothing that exists.
  }
  return { name: name || "overview", detail, parameters: Object.fromEntries(new URLSearchParams(query)) };
}

async function showView(focus = true) {
  turn += 1;
  const own = turn;
  const { name, detail, parameters } = view();
  navigate(name);
  content.setAttribute("aria-busy", "true");
  const context = { replicas: chosen(), parameters, all: chosen().length > 1 };
  let element;
  try {
    element = await elementOf(name, detail, context);
  } catch (error) {
    element = failure(error);
  }
  if (own !== turn) return;
  content.replaceChildren(element);
  content.dataset.view = location.hash;
  content.removeAttribute("aria-busy");
  const heading = document.getElementById("heading");
  document.title = `${heading?.textContent ?? "Tollgate"} – Tollgate`;
  if (focus) heading?.focus();
}

function elementOf(name, detail, context) {
  if (name === "decision") return showDecision(detail, context);
  if (name === "plugin") return showPlugin(detail, context);
  const section = state.sections.find(({ id }) => id === name);
  if (!section) return showOverview(context);
  const known = section.filters.map((filter) => filter.name);
  const parameters = Object.fromEntries(Object.entries(context.parameters).filter(([key]) => known.includes(key)));
  return show(section, { ...context, parameters });
}

// Marks the section of a view. A decision belongs to the decisions, a plugin to the plugins.
function navigate(name) {
  const current = { decision: "decisions", plugin: "plugins" }[name] ?? name;
  const views = [{ id: "overview", title: "Overview" }, ...state.sections];
  document.getElementById("sections").replaceChildren(...views.map(({ id, title }) =>
    el("li", {}, el("a", { href: address(id), "aria-current": id === current ? "page" : undefined }, title))));
}

function failure(error) {
  return el("section", { class: "section" },
    el("h2", { id: "heading", tabindex: "-1" }, "Nothing to show"),
    el("p", { class: "notice bad" }, error.message));
}

function fail(error) {
  content.removeAttribute("aria-busy");
  content.replaceChildren(failure(error));
}

addEventListener("hashchange", () => showView());
chooser.addEventListener("change", () => showView(false));
document.getElementById("refresh").addEventListener("click", () => start());
await start();
