// The page in a real Chromium: node browser.js URL [--pictures FOLDER] [--expect FILE] [--chromium FILE]
//
// URL is the page of a server. Without it, the stand-in of mock.js is started. `--expect` names a JSON file that says what
// the server has (see EXPECTED). Ends with `N passed, N failed`, and with exit code 1 if something failed.

import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { parseArgs } from "node:util";

import { chromium } from "playwright-core";

import { HOSTILE, start } from "./mock.js";

const SIZES = [
  { name: "wide", width: 1440, height: 900 },
  { name: "tablet", width: 768, height: 1024 },
  { name: "narrow", width: 360, height: 780 },
];
const LOOKS = [...SIZES.map((size) => ({ size, scheme: "light" })), { size: SIZES[0], scheme: "dark" }];
const VIEWS = ["overview", "plugins", "decisions", "shadows", "rollouts", "scan", "scan?by=namespace", "scan?by=plugin", "exceptions",
  "costs"];
// What the stand-in has: hostile texts that must show as they are, a search with its count, and a review with its plugin.
const EXPECTED = {
  texts: HOSTILE.slice(0, 3),
  user: { search: "team-77:", matches: /^2 of 1,200 kept decisions match/ },
  pages: true,
  replicas: 2,
};

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { pictures: { type: "string" }, expect: { type: "string" }, chromium: { type: "string", default: "/usr/bin/chromium" } },
});
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const mock = positionals.length ? undefined : await start();
const url = positionals[0] ?? mock.url;
const expected = values.expect ? revive(JSON.parse(await readFile(values.expect, "utf8"))) : EXPECTED;
if (values.pictures) await mkdir(values.pictures, { recursive: true });

function revive(read) {
  return { ...read, user: { ...read.user, matches: new RegExp(read.user.matches) } };
}

const browser = await chromium.launch({
  executablePath: values.chromium,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
});
// What the page must not do in any test.
const violations = [];
let passed = 0;
let failed = 0;

async function test(name, run) {
  const before = violations.length;
  try {
    await run();
    assert.deepEqual(violations.slice(before), [], "nothing else runs, loads or is reported");
    passed += 1;
    console.log(`ok      ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}\n${error.stack}`);
  }
}

// Opens a page and notes everything that it must not do.
async function open({ width = 1440, height = 900 } = {}, scheme = "light", at = url) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, ignoreHTTPSErrors: true });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  await page.addInitScript({ content: axe });
  const origin = new URL(at).origin;
  page.on("request", (request) => {
    if (!request.url().startsWith(`${origin}/`)) violations.push(`request to ${request.url()}`);
    if (request.method() !== "GET") violations.push(`${request.method()} ${request.url()}`);
  });
  page.on("dialog", (dialog) => {
    violations.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("pageerror", (error) => violations.push(`error: ${error.message}`));
  page.on("console", (message) => {
    // A replica that does not know a review answers 404, which the browser reports.
    const isMissing = message.text().includes("status of 404");
    if (["error", "warning"].includes(message.type()) && !isMissing) violations.push(`console: ${message.text()}`);
  });
  return { page, context };
}

async function go(page, view, at = url) {
  await page.goto(`${at}#${view}`);
  await shown(page);
}

// Waits until the view is there.
async function shown(page) {
  await page.waitForFunction(() =>
    document.querySelector("main").dataset.view === location.hash && !document.querySelector("[aria-busy]"));
}

async function accessible(page, where) {
  const { violations: found } = await page.evaluate(() => globalThis.axe.run(document, {
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
  }));
  const told = found.map((one) => `${one.id}: ${one.help}\n  ${one.nodes.slice(0, 3).map((node) => node.html).join("\n  ")}`);
  assert.deepEqual(told, [], where);
}

// Moves the focus with Tab until it is on an element. It must be visible on the way.
async function reach(page, selector) {
  for (let stops = 0; stops < 60; stops += 1) {
    if (await page.evaluate((wanted) => document.activeElement.matches(wanted), selector)) return;
    await page.keyboard.press("Tab");
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.equal(outline, "solid", "focus is visible");
  }
  assert.fail(`${selector} cannot be reached with Tab`);
}

// Hostile texts are texts: nothing ran, and they made no element.
async function harmless(page) {
  const state = await page.evaluate(() => ({
    pwned: globalThis.pwned,
    scripts: [...document.scripts].map((script) => script.getAttribute("src")),
    foreign: [...document.querySelectorAll("main img, main svg, main script, main iframe, main object, main [onerror], main [onload]")].length,
    links: [...document.querySelectorAll("a[href]")].map((link) => link.getAttribute("href")).filter((href) => !href.startsWith("#")),
  }));
  assert.deepEqual(state, { pwned: undefined, scripts: ["app.js"], foreign: 0, links: [] });
}

await test("answers carry the headers that keep other content out", async () => {
  const answer = await fetch(url);
  const policy = answer.headers.get("content-security-policy");
  for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'",
    "form-action 'none'", "require-trusted-types-for 'script'"]) assert.ok(policy.includes(part), policy);
  assert.ok(!policy.includes("unsafe"), policy);
  assert.equal(answer.headers.get("x-content-type-options"), "nosniff");
  assert.equal(answer.headers.get("referrer-policy"), "no-referrer");
});

for (const { size, scheme } of LOOKS) {
  await test(`every view is accessible, fits and is harmless (${size.name}, ${scheme})`, async () => {
    const { page, context } = await open(size, scheme);
    const look = async (name) => {
      if (values.pictures) await page.screenshot({ path: join(values.pictures, `${name}-${size.name}-${scheme}.png`) });
      const over = await page.evaluate(() => document.scrollingElement.scrollWidth - innerWidth);
      assert.ok(over <= 0, `${name} is ${over} px wider than the window`);
      await accessible(page, name);
      await harmless(page);
    };
    for (const view of VIEWS) {
      await go(page, view);
      await look(view.replace("?", "-"));
    }
    await go(page, "decisions");
    await page.click("td[data-label=UID] a >> nth=0");
    await page.waitForSelector("article.decision");
    await shown(page);
    await look("decision");
    await page.click("article.decision tbody th a >> nth=0");
    await page.waitForSelector("h2:has-text('Plugin ')");
    await shown(page);
    await look("plugin");
    await context.close();
  });
}

await test("hostile names are shown as texts", async () => {
  const { page, context } = await open();
  const seen = [];
  for (const view of ["plugins", "decisions", "exceptions", "shadows", "rollouts", "scan"]) {
    await go(page, view);
    seen.push(await page.textContent("main"));
    await harmless(page);
  }
  for (const text of expected.texts) assert.ok(seen.join("\n").includes(text), `${text} is not shown`);
  // A hostile address selects nothing and runs nothing.
  for (const text of HOSTILE) {
    for (const view of [`decision/${encodeURIComponent(text)}`, `plugin/${encodeURIComponent(text)}`, `decisions?user=${encodeURIComponent(text)}`,
      `scan?search=${encodeURIComponent(text)}&by=${encodeURIComponent(text)}`, text]) {
      await go(page, view);
      await harmless(page);
    }
  }
  await context.close();
});

await test("a search works with the keyboard alone, and its result is announced", async () => {
  const { page, context } = await open();
  await go(page, "overview");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.className), "skip", "the first stop skips the head");
  await reach(page, "a[href='#decisions']");
  await page.keyboard.press("Enter");
  await page.waitForSelector("h2:has-text('Decisions')");
  await shown(page);
  assert.equal(await page.evaluate(() => document.activeElement.id), "heading", "focus moves to the new view");
  await reach(page, "#filter-user");
  await page.keyboard.type(expected.user.search);
  await page.keyboard.press("Enter");
  await page.waitForFunction((user) => location.hash.includes("user=") && document.querySelector("#filter-user")?.value === user, expected.user.search);
  await shown(page);
  const summary = await page.textContent(".summary");
  assert.match(summary, expected.user.matches);
  assert.equal(await page.textContent("#announce"), `Decisions: ${summary}`);
  await page.goBack();
  await page.waitForFunction(() => document.querySelector("#filter-user")?.value === "");
  await context.close();
});

if (expected.pages) {
  await test("pages have other rows, and the first page comes back", async () => {
    const { page, context } = await open();
    for (const view of ["plugins", "decisions", "scan", "exceptions"]) {
      await go(page, view);
      // The last table is the list.
      const rows = () => page.$$eval(".results > .table:last-of-type tbody tr", (found) => found.map((row) => row.textContent));
      const first = await rows();
      assert.equal(first.length, 50, "the page is bounded");
      await page.click("text=Next page");
      await page.waitForSelector("text=Page 2");
      const second = await rows();
      assert.ok(second.every((row) => !first.includes(row)), view);
      await page.click("text=Previous page");
      await page.waitForSelector("text=Page 1");
      assert.deepEqual(await rows(), first);
    }
    await context.close();
  });
}

if (expected.replicas > 1) {
  await test("one replica can be chosen", async () => {
    const { page, context } = await open();
    await go(page, "plugins");
    const columns = () => page.$$eval("thead th", (found) => found.map((head) => head.textContent));
    assert.ok((await columns()).includes("Replica"));
    await page.selectOption("#replica", { index: 1 });
    await page.waitForFunction(() => ![...document.querySelectorAll("thead th")].some((head) => head.textContent === "Replica"));
    await go(page, "overview");
    assert.equal((await page.$$(".card")).length, 1, "the choice stays");
    await page.selectOption("#replica", "");
    await page.waitForFunction((count) => document.querySelectorAll(".card").length === count, expected.replicas);
    await context.close();
  });
}

if (mock) {
  await test("a section whose path no replica knows is hidden", async () => {
    const older = await start({ without: ["shadows"] });
    const { page, context } = await open({}, "light", older.url);
    await go(page, "overview", older.url);
    const titles = await page.$$eval("#sections a", (found) => found.map((link) => link.textContent));
    assert.deepEqual(titles, ["Overview", "Plugins", "Decisions", "Rollouts", "Scan", "Exceptions", "Cost"]);
    await context.close();
    older.stop();
  });

  await test("scan results of 1,000 namespaces are found with the keyboard alone", async () => {
    const { page, context } = await open();
    await go(page, "scan");
    const table = ".results > .table:last-of-type";
    const column = (label) => page.$$eval(`${table} td[data-label=${label}]`, (cells) => cells.map((cell) => Number(cell.textContent)));
    const [errors, fails] = [await column("Error"), await column("Fail")];
    const failures = errors.map((value, index) => value + fails[index]);
    assert.deepEqual(failures, [...failures].sort((one, other) => other - one), "the most failures are first");
    // What could not be read opens and closes.
    await reach(page, ".results details summary");
    await page.keyboard.press("Enter");
    assert.ok(await page.isVisible(`.results details >> text=${HOSTILE[3]}`), "names are shown as texts");
    await harmless(page);
    await accessible(page, "what could not be read");
    await page.keyboard.press("Enter");
    // Sums of the namespaces that have an error.
    await page.focus(".skip");
    await reach(page, "#filter-search");
    await page.keyboard.type("team-00");
    await reach(page, "#filter-result");
    await page.keyboard.type("error");
    await reach(page, "#filter-by");
    await page.keyboard.type("namespace");
    await reach(page, "button.primary");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => location.hash.includes("by=namespace") && document.querySelector("#filter-by")?.value === "namespace");
    await shown(page);
    assert.match(new URL(page.url()).hash, /search=team-00&result=error&by=namespace/);
    assert.match(await page.textContent(".summary"), /^2 of 1,002 counts match; in all 48 error, /);
    assert.ok((await column("Error")).every((value) => value > 0));
    // A namespace leads to its plugins.
    await reach(page, `${table} tbody th a`);
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelector("#filter-by")?.value === "" && location.hash.includes("search="));
    await shown(page);
    assert.equal((await page.$$(`${table} tbody tr`)).length, 5);
    // A plugin has results on both replicas, and they are added up.
    await go(page, "scan?by=plugin");
    const plugins = await page.$$eval(`${table} tbody th`, (cells) => cells.map((cell) => cell.textContent));
    assert.equal(new Set(plugins).size, plugins.length);
    assert.deepEqual(await page.$$eval(`${table} td[data-label=Replica]`, (cells) => [...new Set(cells.map((cell) => cell.textContent))]), ["2 replicas"]);
    await page.selectOption("#replica", { index: 1 });
    await page.waitForSelector("text=2 replicas share the namespaces, and 1 of them is shown here");
    await context.close();
  });

  await test("a server that goes away is reported", async () => {
    const gone = await start();
    const { page, context } = await open({}, "light", gone.url);
    await go(page, "plugins", gone.url);
    gone.stop();
    await context.setOffline(true);
    await page.click("#refresh");
    await page.waitForSelector(".notice.bad");
    assert.match(await page.textContent(".notice.bad"), /cannot connect/);
    await context.close();
    violations.splice(0, violations.length, ...violations.filter((one) => !one.includes("ERR_")));
  });
}

await browser.close();
mock?.stop();
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
