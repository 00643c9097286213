import { isNode, LineCounter, parseDocument } from 'yaml';

/** JSON, which YAML includes, or YAML, as a value whose parts know their lines. */
export interface Parsed {
  value: unknown;
  /** Why it cannot be read. */
  problems: string[];
  /** The line, and what stands there, of the part that these names and indices lead to. */
  placeOf: (at: readonly string[]) => string;
}

export function read(text: string): Parsed {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  const lineOf = (offset: number) => `line ${lines.linePos(offset).line}`;
  const problems = document.errors.map(({ message, pos }) => `${lineOf(pos[0])}: ${message}`);
  const placeOf = (at: readonly string[]) => {
    const node = document.getIn(at, true);
    const line = isNode(node) && node.range ? lineOf(node.range[0]) : 'line 1';
    return at.length === 0 ? line : `${line}, ${at.join('.')}`;
  };
  if (problems.length > 0) return { value: undefined, problems, placeOf };
  try {
    return { value: document.toJS(), problems, placeOf };
  } catch (error) {
    // Aliases that stand for more than all memory.
    return { value: undefined, problems: [(error as Error).message], placeOf };
  }
}
