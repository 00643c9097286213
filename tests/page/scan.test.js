// The sums and the notices of the section of scan results, without a browser: `node --test tests/page`.

import assert from "node:assert/strict";
import { test } from "node:test";

import { combine, notices } from "../../host/server/site/scan.js";

const row = (plugin, fail, warn = 0) => ({ plugin, namespaces: 2, error: 0, fail, warn, skip: 0, pass: 10, key: `not used ${plugin}` });
const answer = (replica, rows, more = {}) => ({ replica, rows, next: null, cursor: undefined, enabled: true, replicas: 2, countedIn: "now", ...more });

test("results of a plugin on all replicas are added up and sorted again", () => {
  const [sum, ...others] = combine([
    answer("a", [row("labels", 5), row("images", 4)]),
    answer("b", [row("images", 3), row("quota", 2, 1), row("labels", 0)]),
  ], { by: "plugin" });
  assert.deepEqual(others, []);
  assert.deepEqual(sum.rows.map(({ plugin, fail, namespaces }) => [plugin, fail, namespaces]), [["images", 7, 4], ["labels", 5, 4], ["quota", 2, 2]]);
  assert.deepEqual([sum.replica, sum.next, sum.rows[0].pass], ["2 replicas", null, 20]);
});

test("keys of sums are those of the server", () => {
  const [sum] = combine([answer("a", [row("labels", 20)]), answer("b", [row("labels", 3, 1)])], { by: "plugin" });
  assert.equal(sum.rows[0].key, "999999999976 999999999998  labels");
});

test("parts are not added up, because a plugin may be in another part", () => {
  const whole = answer("a", [row("labels", 5)]);
  for (const part of [answer("b", [row("labels", 1)], { next: "more" }), answer("b", [row("labels", 1)], { cursor: "later" })]) {
    const answers = [whole, part];
    assert.equal(combine(answers, { by: "plugin" }), answers);
  }
  const answers = [whole, whole];
  assert.equal(combine(answers, {}), answers, "a namespace belongs to one replica");
  assert.equal(combine([whole], { by: "plugin" })[0], whole);
});

test("what is missing is named", () => {
  const has = (answers, ...expected) => {
    const told = notices(answers);
    assert.equal(told.length, expected.length, told.join("\n"));
    for (const [index, part] of expected.entries()) assert.match(told[index], part);
  };
  has([answer("a", []), answer("b", [])]);
  has([answer("a", [], { replicas: 3 })], /^3 replicas share the namespaces, and 1 of them is shown/);
  has([answer("a", []), answer("b", [], { countedIn: null })], /No scan of b has counted anything yet/);
  has([answer("a", [], { changesHands: true, handedOver: 3 }), answer("b", [])], /3 namespaces of these replicas are left out/);
  has([answer("a", [], { omitted: 1 }), answer("b", [])], /^1 count without room is in the sum alone/);
  has([{ replica: "a", enabled: false, rows: [] }], /The background scan is off \(scan.enabled\)/);
  has([{ replica: "a", enabled: false, rows: [] }, answer("b", [], { replicas: null })], /is off on a\./);
});
