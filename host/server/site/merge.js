// One list out of the lists of several replicas. A pure function, so that it can be tested without a browser.

// `answers` has one { replica, rows, next, cursor } for each replica: its sorted rows after `cursor`, and whether there
// are more (`next`). Returns the first `limit` rows of all, each with its replica, the cursor of each replica for the
// rows after them, and whether there are any.
export function merge(answers, { compare, cursorOf, limit }) {
  const all = answers.flatMap(({ replica, rows }) => rows.map((row) => ({ ...row, replica })));
  // The sort is stable: rows of one replica stay in their order.
  all.sort(compare);
  const rows = all.slice(0, limit);
  const cursors = {};
  let more = all.length > rows.length;
  for (const { replica, next, cursor } of answers) {
    const own = rows.filter((row) => row.replica === replica);
    cursors[replica] = own.length ? cursorOf(own[own.length - 1]) : cursor;
    more ||= next !== null && next !== undefined;
  }
  return { rows, cursors, more };
}

// Adds up a number of the answers.
export function total(answers, name) {
  return answers.reduce((sum, answer) => sum + (answer[name] ?? 0), 0);
}

export const byText = (of) => (one, other) => (of(one) < of(other) ? -1 : of(one) > of(other) ? 1 : 0);
export const byNumber = (of) => (one, other) => of(one) - of(other);
