/** Finds the names of called functions in source text. The engine reports only the place of a call of something else. */

/** An identifier, an optional index, and the bracket of a call. */
const call = /([\p{ID_Start}$_#][\p{ID_Continue}$]*)((?:\[[^[\]]*\])?)\s*(?:\?\.)?\(/gu;
/** The objects before the last dot: `review.object.`, `list[0].`, `text().`. */
const objects = /(?:[\p{ID_Start}$_#][\p{ID_Continue}$]*(?:\[[^[\]]*\]|\([^()]*\))*\??\.)*$/u;

/** Words that a bracket may follow without a call. */
const words = new Set(['if', 'for', 'while', 'switch', 'catch', 'function', 'return', 'super', 'import', 'typeof', 'await', 'yield', 'of', 'in']);
/** Longest name that is shown. Of a longer one, its end is shown. */
const most = 60;

/** Returns the columns of a line, counted from 0, at which the engine reports a call, each with what is called. */
export function calls(line) {
  const found = [];
  for (const { 1: identifier, 2: index, index: column } of line.matchAll(call)) {
    const [before] = line.slice(0, column).match(objects);
    if (before === '' && words.has(identifier)) continue;
    const name = before + identifier + index;
    found.push({ column, name: name.length > most ? `…${name.slice(-most)}` : name });
    // The engine reports a `new` at the beginning of its expression.
    const start = column - before.length;
    if (before !== '' && /\bnew\s+$/.test(line.slice(0, start))) found.push({ column: start, name });
  }
  return found;
}
