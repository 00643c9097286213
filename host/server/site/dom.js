// Elements from text. Nothing here turns text into markup: names come from users and plugins.

// Creates an element. `properties` are attributes; `class` and `on…` listeners among them. Children are nodes or texts.
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === undefined || child === null || child === "") continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

// A word with a colour. The colour repeats what the word says.
export function badge(word, tone = TONES[word] ?? "plain") {
  return el("span", { class: `badge ${tone}` }, word);
}

const TONES = {
  loaded: "good", ok: "good", allowed: "good", ready: "good", active: "good", Serving: "good", patched: "good",
  denied: "bad", failed: "bad", fault: "bad", error: "bad",
  degraded: "warn", loading: "warn", starting: "warn", pending: "warn", overloaded: "warn", held: "warn",
};

export function time(text) {
  if (!text) return "";
  const short = String(text).replace("T", " ").replace(/(\.\d+)?Z$/, "");
  return el("time", { datetime: text, class: "nowrap" }, short);
}

const NUMBERS = new Intl.NumberFormat("en");

export function number(value) {
  return typeof value === "number" ? NUMBERS.format(value) : "";
}

export function milliseconds(value) {
  if (typeof value !== "number") return "";
  const digits = value < 10 ? 2 : value < 100 ? 1 : 0;
  return `${value.toFixed(digits)} ms`;
}

export function percent(share) {
  return `${(share * 100).toFixed(1)} %`;
}

// A digest short enough for a table; the whole one is in the title.
export function digest(text) {
  if (!text) return "";
  return el("code", { title: text }, text.slice(0, 19));
}

// `1 decision`, `2 decisions`
export function count(value, noun) {
  return `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
}

// Pairs of a term and its description. Pairs without a description are left out.
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "" && value.length !== 0);
  return el("dl", { class: "facts" }, known.map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, value))));
}

export function list(items) {
  return el("ul", { class: "plain-list" }, items.map((item) => el("li", {}, item)));
}

// A table with a caption. Columns are { label, cell, numeric, head }. Columns in which no row has anything are left out. On
// narrow screens each row becomes a card, whose lines are named by `data-label`. The roles keep the table a table there.
export function table(caption, columns, rows) {
  const filled = rows.map((row) => columns.map((column) => cell(column, row)));
  const used = columns.map((column, index) => column.head || filled.some((cells) => cells[index].hasChildNodes()));
  const shown = (cells) => cells.filter((_, index) => used[index]);
  const head = shown(columns).map((column) =>
    el("th", { scope: "col", role: "columnheader", class: column.numeric ? "numeric" : undefined }, column.label));
  return el("table", { role: "table" },
    el("caption", {}, caption),
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, head)),
    el("tbody", { role: "rowgroup" }, filled.map((cells) => el("tr", { role: "row" }, shown(cells)))));
}

function cell(column, row) {
  const properties = { "data-label": column.label, class: column.numeric ? "numeric" : undefined };
  const shown = column.cell(row);
  // One element beside the label of a card.
  const content = Array.isArray(shown) ? el("span", {}, shown) : shown;
  return column.head
    ? el("th", { scope: "row", role: "rowheader", ...properties }, content)
    : el("td", { role: "cell", ...properties }, content);
}

// The address of a view: `#decisions?user=anna`.
export function address(view, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value)).toString();
  return query ? `#${view}?${query}` : `#${view}`;
}

export const pluginLink = (name) => el("a", { href: address(`plugin/${encodeURIComponent(name)}`) }, name);

export function announce(text) {
  document.getElementById("announce").textContent = text;
}
