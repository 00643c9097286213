// A section of the page: a search, a table of what the replicas answer, and its pages.
//
// A section is { id, title, about, path, list, filters, columns, compare, cursor, caption, before, combine, after }:
//   path       where the replicas answer, such as `plugins`. A section whose path no replica knows is hidden.
//   list       the key of the rows in an answer
//   filters    the fields of the search: { name, label, hint, options, any }. `any` names the empty option.
//   columns    the columns of the table: { label, cell, numeric, head }, or a function from the search to them
//   compare    the order of rows of several replicas
//   cursor     { parameter, of }: how to ask for the rows after a row. None if there is only one page.
//   noun       what a row is, in the singular
//   before     more to show above the table, from the answers
//   combine    adds up answers of several replicas, or returns them as they are
//   after      more to show below the table, from the rows

import { address, announce, count, el, number, table } from "./dom.js";
import { merge, total } from "./merge.js";
import { askAll } from "./api.js";

const ROWS = 50;

// Builds a section and returns its element. `parameters` is the search, from the address.
export async function show(section, { replicas, parameters: asked, all }) {
  const parameters = known(section, asked);
  const results = el("div", { class: "results" });
  const element = el("section", { "aria-labelledby": "heading", class: "section" },
    el("h2", { id: "heading", tabindex: "-1" }, section.title),
    el("p", { class: "about" }, section.about),
    searchForm(section, parameters),
    results);
  const state = { section, replicas, parameters, all, results, trail: [] };
  await turnTo(state, {});
  return element;
}

// The search without values that are no option. Somebody else may have written the address.
function known(section, parameters) {
  const isKnown = ([name, value]) => {
    const filter = section.filters.find((filter) => filter.name === name);
    return !filter?.options || filter.options.includes(value);
  };
  return Object.fromEntries(Object.entries(parameters).filter(isKnown));
}

function searchForm(section, parameters) {
  const fields = section.filters.map((filter) => field(filter, parameters[filter.name] ?? ""));
  const submit = (event) => {
    event.preventDefault();
    const wanted = Object.fromEntries(new FormData(event.currentTarget));
    const next = address(section.id, trimmed(wanted));
    // The same search again is a refresh.
    if (location.hash === next) dispatchEvent(new HashChangeEvent("hashchange"));
    else location.hash = next;
  };
  return el("form", { role: "search", "aria-label": section.title, class: "search", submit },
    fields,
    el("div", { class: "buttons" },
      el("button", { type: "submit", class: "primary" }, "Search"),
      el("a", { href: address(section.id), class: "button" }, "Clear")));
}

function trimmed(wanted) {
  const pairs = Object.entries(wanted).map(([name, value]) => [name, value.trim()]);
  return Object.fromEntries(pairs.filter(([, value]) => value));
}

function field({ name, label, hint, options, any = "any" }, value) {
  const id = `filter-${name}`;
  const input = options
    ? el("select", { id, name }, ["", ...options].map((option) =>
      el("option", { value: option, selected: option === value }, option || any)))
    : el("input", { id, name, value, type: "search", autocomplete: "off", spellcheck: "false", maxlength: "120",
      placeholder: hint });
  return el("div", { class: "field" }, el("label", { for: id }, label), input);
}

// Shows the rows after the cursors, which are one for each replica.
async function turnTo(state, cursors) {
  const { section, replicas, parameters, results } = state;
  results.setAttribute("aria-busy", "true");
  const cursor = section.cursor;
  const asked = await askAll(replicas, section.path, (replica) => ({
    ...parameters,
    limit: ROWS,
    ...(cursor && cursors[replica.name] !== undefined ? { [cursor.parameter]: cursors[replica.name] } : {}),
  }));
  const answers = asked.answers.map((answer) => ({
    ...answer, rows: answer[section.list] ?? [], cursor: cursors[answer.replica],
  }));
  const combined = section.combine?.(answers, parameters) ?? answers;
  const merged = merge(combined, { compare: section.compare, cursorOf: cursor?.of ?? (() => undefined), limit: ROWS });
  const page = { ...merged, cursors: { ...cursors, ...merged.cursors } };
  const said = section.summary(answers, total);
  results.replaceChildren(
    ...asked.failures.map(({ replica, reason }) => el("p", { class: "notice bad" }, `${replica} did not answer: ${reason}`)),
    ...(answers.length && section.before ? [section.before(answers)].flat().filter(Boolean) : []),
    ...(answers.length ? content(state, page, cursors, said) : []));
  results.removeAttribute("aria-busy");
  announce(answers.length ? `${section.title}: ${said}` : `${section.title}: no replica answered`);
}

function content(state, page, cursors, said) {
  const { section, all, parameters } = state;
  if (!page.rows.length) {
    return [el("p", { class: "summary" }, said), el("p", { class: "empty" }, section.empty), pager(state, page, cursors)];
  }
  const replica = { label: "Replica", cell: (row) => row.replica };
  const own = typeof section.columns === "function" ? section.columns(parameters) : section.columns;
  const columns = all ? [...own, replica] : own;
  const from = state.trail.length * ROWS + 1;
  const caption = `${section.title}, ${number(from)} to ${number(from + page.rows.length - 1)}`;
  return [
    el("p", { class: "summary" }, said),
    el("div", { class: "table" }, table(caption, columns, page.rows)),
    ...(section.after ? [section.after(page.rows, all)] : []),
    pager(state, page, cursors),
  ];
}

function pager(state, page, cursors) {
  const { trail, section } = state;
  if (!section.cursor || (!trail.length && !page.more)) return el("span", {});
  const turn = (change, to) => async () => {
    change();
    await turnTo(state, to);
    const heading = document.getElementById("heading");
    heading.focus();
    heading.scrollIntoView({ block: "start" });
  };
  const back = trail[trail.length - 1];
  return el("nav", { class: "pager", "aria-label": `Pages of ${section.title.toLowerCase()}` },
    el("button", { type: "button", disabled: !trail.length, click: turn(() => trail.pop(), back) }, "Previous page"),
    el("span", {}, `Page ${trail.length + 1}`),
    el("button", { type: "button", disabled: !page.more, click: turn(() => trail.push(cursors), page.cursors) },
      "Next page"));
}

// `12 of 40 plugins match`, or `40 plugins on 2 replicas`. A plugin of two replicas counts twice, as it is two rows.
export function matches(answers, noun) {
  const [matched, all] = [total(answers, "matched"), total(answers, "total")];
  const text = matched === all ? count(all, noun) : `${number(matched)} of ${count(all, noun)} match`;
  return text + onReplicas(answers);
}

export function onReplicas(answers) {
  return answers.length > 1 ? ` on ${count(answers.length, "replica")}` : "";
}
