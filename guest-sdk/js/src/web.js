/**
 * Globals of the web that the engine lacks and that need no system: TextEncoder, TextDecoder and structuredClone. The build
 * puts each of them into a plugin only if something uses it. `URL` and others are too large: `missing.js` names packages.
 */

const utf8 = new Set(['unicode-1-1-utf-8', 'unicode11utf8', 'unicode20utf8', 'utf-8', 'utf8', 'x-unicode20utf8']);

export class TextEncoder {
  get encoding() {
    return 'utf-8';
  }

  encode(text = '') {
    const bytes = [];
    for (const character of String(text).toWellFormed()) put(bytes, character.codePointAt(0));
    return Uint8Array.from(bytes);
  }

  encodeInto(text, to) {
    let [read, written] = [0, 0];
    for (const character of String(text).toWellFormed()) {
      const bytes = [];
      put(bytes, character.codePointAt(0));
      if (written + bytes.length > to.length) break;
      to.set(bytes, written);
      read += character.length;
      written += bytes.length;
    }
    return { read, written };
  }
}

function put(bytes, code) {
  if (code < 0x80) bytes.push(code);
  else if (code < 0x800) bytes.push(0xc0 | (code >> 6), tail(code));
  else if (code < 0x10000) bytes.push(0xe0 | (code >> 12), tail(code >> 6), tail(code));
  else bytes.push(0xf0 | (code >> 18), tail(code >> 12), tail(code >> 6), tail(code));
}

const tail = (code) => 0x80 | (code & 0x3f);

/** Decodes UTF-8. A plugin gets no other encoding. */
export class TextDecoder {
  #fatal;
  #keepsMark;

  constructor(label = 'utf-8', { fatal = false, ignoreBOM = false } = {}) {
    const name = String(label).trim().toLowerCase();
    if (!utf8.has(name)) throw new RangeError(`a plugin decodes only UTF-8, and not ${name}`);
    this.#fatal = Boolean(fatal);
    this.#keepsMark = Boolean(ignoreBOM);
  }

  get encoding() {
    return 'utf-8';
  }

  get fatal() {
    return this.#fatal;
  }

  get ignoreBOM() {
    return this.#keepsMark;
  }

  decode(input, { stream = false } = {}) {
    if (stream) throw new TypeError('a plugin decodes a whole text at once: leave out `stream`');
    const bytes = bytesOf(input);
    const parts = [];
    for (let at = 0; at < bytes.length; ) {
      const [code, length] = character(bytes, at);
      if (code === undefined && this.#fatal) throw new TypeError('the bytes are not UTF-8');
      parts.push(String.fromCodePoint(code ?? 0xfffd));
      at += length;
    }
    if (parts[0] === '\ufeff' && !this.#keepsMark) parts.shift();
    return parts.join('');
  }
}

function bytesOf(input) {
  if (input === undefined) return new Uint8Array();
  if (ArrayBuffer.isView(input)) return new Uint8Array(input.buffer, input.byteOffset, input.byteLength);
  if (input instanceof ArrayBuffer) return new Uint8Array(input);
  throw new TypeError('bytes are decoded from an ArrayBuffer, or from a view of one');
}

/** Returns the code point at a place and its length, or only the length of what is none. */
function character(bytes, at) {
  const first = bytes[at];
  if (first < 0x80) return [first, 1];
  const length = first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;
  if (length === 0) return [undefined, 1];
  let code = first & (0x7f >> length);
  for (let index = 1; index < length; index++) {
    const byte = bytes[at + index];
    // No overlong forms, no surrogates, and nothing beyond U+10FFFF.
    const from = index > 1 ? 0x80 : first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80;
    const to = index > 1 ? 0xbf : first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf;
    if (!(byte >= from && byte <= to)) return [undefined, index];
    code = (code << 6) | (byte & 0x3f);
  }
  return [code, length];
}

const errors = [EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError];

/** Copies a value with everything in it. Circles stay circles. */
export function structuredClone(value) {
  return copy(value, new Map());
}

function copy(value, copies) {
  if (typeof value === 'function' || typeof value === 'symbol') throw notCloned(value);
  if (typeof value !== 'object' || value === null) return value;
  if (copies.has(value)) return copies.get(value);
  const kept = (made) => (copies.set(value, made), made);
  const kind = Object.prototype.toString.call(value).slice(8, -1);
  if (['Boolean', 'Number', 'String', 'BigInt'].includes(kind)) return kept(Object(value.valueOf()));
  if (kind === 'Date') return kept(new Date(value.getTime()));
  if (kind === 'RegExp') return kept(new RegExp(value.source, value.flags));
  if (kind === 'ArrayBuffer') return kept(value.slice(0));
  if (ArrayBuffer.isView(value)) {
    const length = value instanceof DataView ? value.byteLength : value.length;
    return kept(new value.constructor(copy(value.buffer, copies), value.byteOffset, length));
  }
  if (value instanceof Map) {
    const made = kept(new Map());
    for (const [key, member] of value) made.set(copy(key, copies), copy(member, copies));
    return made;
  }
  if (value instanceof Set) {
    const made = kept(new Set());
    for (const member of value) made.add(copy(member, copies));
    return made;
  }
  if (value instanceof Error) {
    const made = kept(new (errors.find(({ name }) => name === value.name) ?? Error)(value.message));
    for (const name of ['stack', 'cause']) {
      if (Object.hasOwn(value, name)) Object.defineProperty(made, name, { value: copy(value[name], copies), configurable: true, writable: true });
    }
    return made;
  }
  if (Array.isArray(value)) return members(value, kept(new Array(value.length)), copies);
  if (['WeakMap', 'WeakSet', 'WeakRef', 'Promise'].includes(kind)) throw notCloned(value);
  return members(value, kept({}), copies);
}

function members(from, to, copies) {
  for (const name of Object.keys(from)) to[name] = copy(from[name], copies);
  return to;
}

function notCloned(value) {
  return new DOMException(`${typeof value === 'object' ? Object.prototype.toString.call(value) : String(value)} could not be cloned.`, 'DataCloneError');
}
