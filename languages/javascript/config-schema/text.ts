import { isNode, LineCounter, parseDocument } from 'yaml';

/** A value parsed from YAML or JSON (which YAML includes), with the lines of its parts. */
export interface Parsed {
  value: unknown;
  /** The reasons why the text cannot be parsed. */
  problems: string[];
  /** Describes a part: its line, and the text there. The part is given by names and indices. */
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
    // Aliases can expand to more than all memory.
    return { value: undefined, problems: [(error as Error).message], placeOf };
  }
}
