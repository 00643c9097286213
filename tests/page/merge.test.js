// The merge of several replicas' lists, without a browser: `node --test tests/page`.

import assert from "node:assert/strict";
import { test } from "node:test";

import { byText, merge, total } from "../../host/server/site/merge.js";

const newestFirst = {
  compare: (one, other) => other.time - one.time,
  cursorOf: (row) => row.number,
  limit: 3,
};

// A replica that answers as the server does: newest first, `limit` rows before a number.
const replica = (name, times) => ({
  name,
  ask(cursor) {
    const all = times.map((time, index) => ({ time, number: index + 1 })).reverse();
    const rest = all.filter((row) => cursor === undefined || row.number < cursor);
    const rows = rest.slice(0, 3);
    return { replica: name, rows, next: rest.length > rows.length ? rows.at(-1).number : null, cursor };
  },
});

test("pages of several replicas have every row once, in order", () => {
  const replicas = [replica("a", [1, 4, 5, 9, 10]), replica("b", [2, 3, 6]), replica("c", []), replica("d", [7, 8])];
  const seen = [];
  let cursors = {};
  for (let page = 0; page < 20; page += 1) {
    const merged = merge(replicas.map((one) => one.ask(cursors[one.name])), newestFirst);
    assert.ok(merged.rows.length <= 3);
    seen.push(...merged.rows.map((row) => row.time));
    cursors = { ...cursors, ...merged.cursors };
    if (!merged.more) break;
  }
  assert.deepEqual(seen, [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
});

test("one replica is its own page", () => {
  const merged = merge([replica("a", [1, 2, 3, 4]).ask(undefined)], newestFirst);
  assert.deepEqual(merged.rows.map((row) => row.time), [4, 3, 2]);
  assert.deepEqual([merged.more, merged.cursors.a], [true, 2]);
  assert.equal(merged.rows[0].replica, "a");
});

test("equal rows stay in the order of the replicas", () => {
  const answers = ["a", "b"].map((name) => ({ replica: name, rows: [{ key: "labels" }], next: null }));
  const merged = merge(answers, { compare: byText((row) => row.key), cursorOf: (row) => row.key, limit: 5 });
  assert.deepEqual(merged.rows.map((row) => row.replica), ["a", "b"]);
  assert.equal(merged.more, false);
});

test("totals leave out what a replica does not say", () => {
  assert.equal(total([{ kept: 2 }, {}, { kept: 3 }], "kept"), 5);
});
