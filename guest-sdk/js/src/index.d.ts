/** Write Tollgate admission plugins in JavaScript and TypeScript. */

/** A JSON Pointer, RFC 6901, such as `/spec/containers/0/image`; "" is the whole document. */
export type JSONPointer = string;

/** Any JSON value. Integers beyond 2⁵³ are given as bigint. */
export type JSONValue = null | boolean | number | bigint | string | readonly JSONValue[] | { readonly [name: string]: JSONValue | undefined };

/** The pointer of its tokens, which are member names and element indices, not escaped. */
export function pointer(...tokens: (string | number)[]): JSONPointer;

/** An array or object of a document, of which only the length is known. */
export class Container {
  readonly kind: 'array' | 'object';
  readonly length: number;
}

/** What stands in a document: integers beyond 2⁵³ are bigint, so that every one is exact. */
export type Value = null | boolean | number | bigint | string | Container;

/** A place in a document and what stands there. */
export interface Node {
  /** Complete and escaped: it can be used in a patch or a denial as it is. */
  readonly pointer: JSONPointer;
  readonly value: Value;
}

/**
 * One of the JSON documents of a review. The host parsed it; a read costs what it returns. A pointer that is not well
 * formed ends the call as a fault of the plugin: a typo must not read as absent.
 */
export interface Document {
  /** Whether the document is there at all. */
  readonly exists: boolean;
  /** What stands at a pointer; undefined when there is nothing. JSON null is null. */
  get(at: JSONPointer): Value | undefined;
  /** The string; undefined when nothing or something else is there. */
  text(at: JSONPointer): string | undefined;
  /** The boolean; undefined when nothing or something else is there. */
  boolean(at: JSONPointer): boolean | undefined;
  /** The number, rounded to a double; undefined when nothing or something else is there. */
  number(at: JSONPointer): number | undefined;
  /** The whole number, exact; undefined when nothing or something else is there. */
  integer(at: JSONPointer): number | bigint | undefined;
  /** How many elements or members; undefined when neither array nor object is there. */
  length(at: JSONPointer): number | undefined;
  /** The member names of an object, not escaped; undefined when no object is there. */
  keys(at: JSONPointer): string[] | undefined;
  /** Every place that matches a pattern: in `/spec/containers/*​/image` the `*` stands for any element or member. */
  select(pattern: JSONPointer): Node[];
  /** The JSON text; undefined when there is nothing. Numbers stand in it digit by digit as they were received. */
  json(at: JSONPointer): string | undefined;
  /** What stands there, parsed: costs its size, and integers beyond 2⁵³ are rounded. */
  read(at: JSONPointer): unknown;
}

export type Operation = 'CREATE' | 'UPDATE' | 'DELETE' | 'CONNECT';

/** What kube-apiserver says of the request. */
export interface Request {
  readonly uid: string;
  readonly operation: Operation;
  readonly kind: { readonly group: string; readonly version: string; readonly kind: string };
  readonly resource: { readonly group: string; readonly version: string; readonly resource: string };
  readonly subResource: string | undefined;
  /** Empty on CREATE with generateName and on deletecollection. */
  readonly name: string;
  readonly namespace: string | undefined;
  /** Nothing will be persisted. */
  readonly dryRun: boolean;
}

/** The one review that the plugin is called for. */
export interface Review {
  /** The object, as the plugins before this one left it. Absent on DELETE. */
  readonly object: Document;
  /** The object before the request. Absent on CREATE and CONNECT. */
  readonly oldObject: Document;
  /** The operation's options, such as CreateOptions. */
  readonly options: Document;
  /** The AdmissionRequest itself without object, oldObject and options: `/userInfo/username`, …. */
  readonly requestDocument: Document;
  /** Brings a dozen strings from the host: keep it where it is used more than once. */
  readonly request: Request;
  /** `request.operation`, for a fraction of its cost. */
  readonly operation: Operation;
  /** Whether the request makes something else of what stands at a pointer. */
  changes(at: JSONPointer): boolean;
  /** Shows a warning to the user who made the request. At most 120 characters are advised. */
  warn(message: string): void;
  /** Records something in kube-apiserver's audit log. A key has at most 63 letters, digits, dashes, underscores, dots. */
  annotate(key: string, value: string): void;
}

/** The answer of `validate` that has nothing against the request. */
export const allow: Allow;
declare const allowed: unique symbol;
/** The type of `allow`, which nothing else has. */
export interface Allow {
  readonly [allowed]: true;
}

/** Kubernetes' CauseTypes. */
export const CauseType: {
  readonly valueRequired: 'FieldValueRequired';
  readonly valueInvalid: 'FieldValueInvalid';
  readonly valueNotSupported: 'FieldValueNotSupported';
  readonly valueForbidden: 'FieldValueForbidden';
};

/** One reason for a denial. */
export class Cause {
  /** Without a field no single field is to blame. Leave the object's values out of the message: they may be secret. */
  constructor(field: JSONPointer | undefined, message: string, reason?: string);
  readonly field: JSONPointer | undefined;
  readonly message: string;
  readonly reason: string | undefined;
}

/** Refuses a request: returned or thrown. */
export class Denial extends Error {
  readonly causes: Cause[];
  /** Blames a field. */
  at(field: JSONPointer, message: string, reason?: string): this;
  /** Adds a cause. */
  because(cause: Cause): this;
  /** Another HTTP status than 403, from 400 to 499. */
  code(code: number): this;
  /** A Kubernetes StatusReason such as `Invalid`. */
  reason(reason: string): this;
  /** The denial when it has causes, and `allow` otherwise. */
  ifBlamed(): this | Allow;
}

/** A denial with HTTP status 403 and no causes yet. */
export function deny(message: string): Denial;

/** What `validate` returns. Anything else, and a Promise above all, is a fault of the plugin and never an allow. */
export type Verdict = Allow | Denial;

/** What `mutate` returns, beside a denial. */
export class Mutation {
  protected constructor();
  private readonly answer;
}

/** The object stays as it is. */
export const unchanged: Mutation;
/** A merge patch, RFC 7386: members are merged, null removes one, arrays are replaced as a whole. */
export function merge(value: JSONValue): Mutation;
/** The whole new object. What `read` has rounded is lost, which the host notices: prefer a patch. */
export function wholeObject(value: unknown): Mutation;
/** A JSON Patch that changes nothing yet. */
export function patch(): Patch;

/** A JSON Patch, RFC 6902, under construction. */
export class Patch extends Mutation {
  constructor();
  /** How many operations there are. */
  readonly length: number;
  /** Sets a member or inserts before an array's element (`-`: behind the last). The parent has to be there. */
  add(path: JSONPointer, value: JSONValue): this;
  /** Replaces what has to be there. */
  replace(path: JSONPointer, value: JSONValue): this;
  /** Removes what has to be there. */
  remove(path: JSONPointer): this;
  /** Moves what has to be there. */
  move(from: JSONPointer, path: JSONPointer): this;
  /** Copies what has to be there. */
  copy(from: JSONPointer, path: JSONPointer): this;
  /** Makes the patch fail, as a fault of the plugin, unless that value is there. */
  test(path: JSONPointer, value: JSONValue): this;
  /**
   * Sets a member and makes the objects on the way to it that are missing. An array's element is replaced. Reads the
   * document, which is the object as it was before this patch.
   */
  set(document: Document, path: JSONPointer, value: JSONValue): this;
  /** Adds behind the last element of a list, and makes the list when it is missing. */
  append(document: Document, list: JSONPointer, value: JSONValue): this;
}

/** The plugin's log in the host. Leave out the object's values: they may be secret. */
export const log: Readonly<Record<'error' | 'warn' | 'info' | 'debug' | 'trace', (...parts: unknown[]) => void>>;

/** Everything that is wrong with the settings: thrown by `configure`. */
export class SettingsErrors extends Error {
  /** Without a message there is no error yet. */
  constructor(message?: string);
  /** Adds an error about the setting at a pointer. */
  at(field: JSONPointer, message: string): this;
  /** Throws itself when there are errors. */
  throwIfAny(): void;
}

/** What settings are made of: `export const settings = settings.object({ … })`. */
export namespace settings {
  /** A setting that is a T. */
  interface Shape<T> {
    /** What holds where the setting is left out. Without a default it has to be there. */
    default(value: T): Shape<T>;
    /** Undefined where the setting is left out. */
    optional(): Shape<T | undefined>;
    read(value: unknown, at: JSONPointer, report: (field: JSONPointer, message: string) => void): T;
  }
  /** The type of the settings that a shape reads. */
  type Of<S> = S extends Shape<infer T> ? T : never;
  function boolean(): Shape<boolean>;
  function number(range?: { minimum?: number; maximum?: number }): Shape<number>;
  function integer(range?: { minimum?: number; maximum?: number }): Shape<number>;
  function string(options?: { pattern?: RegExp }): Shape<string>;
  function oneOf<const T extends string | number | boolean>(...values: T[]): Shape<T>;
  function list<T>(of: Shape<T>): Shape<T[]>;
  /** An object with any member names. */
  function table<T>(of: Shape<T>): Shape<Record<string, T>>;
  /** An object with these members and no others. */
  function object<M extends Record<string, Shape<any>>>(members: M): Shape<{ [K in keyof M]: Of<M[K]> }>;
}

/** Kubernetes' RuleWithOperations, with its wildcards. */
export interface Rule {
  operations: (Operation | '*')[];
  /** The empty string is the core group. */
  apiGroups: string[];
  apiVersions: string[];
  resources: string[];
  scope?: 'Cluster' | 'Namespaced' | '*';
}

/** What a plugin says of itself: `export const manifest`. */
export interface Manifest {
  /** Short, in lower case with dashes. The name that counts at run time is the configuration's. */
  name: string;
  version: string;
  /** One sentence for people. */
  description?: string;
  /** A JSON Schema for the settings, for people. */
  settingsSchema?: object;
  /** What the plugin is meant for. The configuration's rules, where given, win. */
  rules?: Rule[];
  /** More, by reverse-DNS or well-known key. */
  labels?: Record<string, string>;
}

/** What a policy module exports. `validate`, `mutate` or both have to be there. */
export interface PolicyModule<Settings = any, Configured = any> {
  manifest: Manifest;
  /** What the settings are. Without it `configure` gets whatever JSON they are. */
  settings?: settings.Shape<Settings>;
  /** Makes of the settings what `validate` and `mutate` get; without it they get the settings. */
  configure?(settings: Settings): Configured;
  validate?(review: Review, configured: Configured): Verdict;
  mutate?(review: Review, configured: Configured): Mutation | Denial;
}
