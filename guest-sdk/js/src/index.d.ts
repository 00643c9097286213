/** Write Tollgate admission plugins in JavaScript and TypeScript. */

/** A JSON Pointer, RFC 6901, such as `/spec/containers/0/image`; "" is the whole document. */
export type JSONPointer = string;

/** The type of a malformed pointer. No value has it. */
export interface Malformed<Problem extends string> {
  readonly 'is no JSON Pointer': Problem;
}

/**
 * The type of a pointer that is checked when it is a literal: `/${string}` or "", and each `~` followed by 0 or 1. A
 * malformed literal is an error of the type checker. Any other string is checked when it is used.
 */
export type Pointer<P extends string> = P & WellFormed<P>;

type WellFormed<P extends string> = P extends `${infer First}${string}`
  ? string extends First
    ? Escaped<P, P>
    : First extends '/'
      ? Escaped<P, P>
      : Malformed<`it has no leading slash; write /${P}`>
  : P;
type Escaped<Rest extends string, P> = Rest extends `${string}~${infer After}`
  ? After extends `0${string}` | `1${string}`
    ? Escaped<After, P>
    : string extends After
      ? P
      : Malformed<'a ~ is followed by neither 0 nor 1; write ~0 for ~ and ~1 for /, or make it with pointer(…)'>
  : P;
/** Any JSON value. Pass integers beyond 2⁵³ as bigint. */
export type JSONValue = null | boolean | number | bigint | string | readonly JSONValue[] | { readonly [name: string]: JSONValue | undefined };

/** Returns a pointer from tokens, and escapes them. Tokens are member names and element indices. */
export function pointer(...tokens: (string | number)[]): `/${string}` | '';

/** An array or object of a document, as its length. */
export class Container {
  readonly kind: 'array' | 'object';
  readonly length: number;
}

/** A value in a document. Integers beyond 2⁵³ are bigint, so that every integer is exact. */
export type Value = null | boolean | number | bigint | string | Container;

/** A place in a document, and its value. */
export interface Node {
  /** Complete and escaped. Patches and denials accept it unchanged. */
  readonly pointer: JSONPointer;
  readonly value: Value;
}

/**
 * One of the JSON documents of a review. The host has parsed it. A read costs the size of its result. A malformed
 * pointer ends the call as a fault of the plugin. Otherwise a typo would read as absent.
 */
export interface Document {
  /** Whether the document exists. */
  readonly exists: boolean;
  /** Returns the value at a pointer. Undefined if there is nothing. JSON null is null. */
  get<P extends string>(at: Pointer<P>): Value | undefined;
  /** Returns the values at several pointers, in their order, with one call of the host. */
  getMany<P extends string>(at: Iterable<Pointer<P>>): (Value | undefined)[];
  /** Returns the string. Undefined for nothing or another type. */
  text<P extends string>(at: Pointer<P>): string | undefined;
  /** Returns the boolean. Undefined for nothing or another type. */
  boolean<P extends string>(at: Pointer<P>): boolean | undefined;
  /** Returns the number, rounded to a double. Undefined for nothing or another type. */
  number<P extends string>(at: Pointer<P>): number | undefined;
  /** Returns the exact integer. Undefined for nothing or another type. */
  integer<P extends string>(at: Pointer<P>): number | bigint | undefined;
  /** Returns the number of elements or members. Undefined for nothing or another type. */
  length<P extends string>(at: Pointer<P>): number | undefined;
  /** Returns the member names of an object, not escaped. Undefined if there is no object. */
  keys<P extends string>(at: Pointer<P>): string[] | undefined;
  /** Every place that matches a pattern: in `/spec/containers/*​/image` the `*` matches any element or member. */
  select<P extends string>(pattern: Pointer<P>): Node[];
  /** Returns the JSON text. Undefined if there is nothing. Numbers keep their original digits. */
  json<P extends string>(at: Pointer<P>): string | undefined;
  /** Returns the parsed value. The cost is its size, and integers beyond 2⁵³ are rounded. */
  read<P extends string>(at: Pointer<P>): unknown;
}

export type Operation = 'CREATE' | 'UPDATE' | 'DELETE' | 'CONNECT';

/** The request's metadata from kube-apiserver. */
export interface Request {
  readonly uid: string;
  readonly operation: Operation;
  readonly kind: { readonly group: string; readonly version: string; readonly kind: string };
  readonly resource: { readonly group: string; readonly version: string; readonly resource: string };
  readonly subResource: string | undefined;
  /** Empty on CREATE with generateName and on deletecollection. */
  readonly name: string;
  readonly namespace: string | undefined;
  /** True if kube-apiserver will not persist anything. */
  readonly dryRun: boolean;
}

/** The review for which the host called the plugin. */
export interface Review {
  /** The object, as the plugins before this one left it. Absent on DELETE. */
  readonly object: Document;
  /** The object before the request. Absent on CREATE and CONNECT. */
  readonly oldObject: Document;
  /** The operation's options, such as CreateOptions. */
  readonly options: Document;
  /** The AdmissionRequest itself without object, oldObject and options: `/userInfo/username`, …. */
  readonly requestDocument: Document;
  /**
   * The Namespace of the object: apiVersion, kind and metadata with labels and annotations. No grant is needed.
   *
   * Absent only for a cluster-scoped object. A Namespace is in itself. If the host cannot find out about the namespace,
   * the call ends as a fault. The host's cache can lag behind the cluster by moments.
   */
  readonly namespace: Document;
  /** Copies a dozen strings from the host. Keep the result if you need it more than once. */
  readonly request: Request;
  /** `request.operation`, for a fraction of its cost. */
  readonly operation: Operation;
  /** Whether the request changes the value at a pointer. */
  changes<P extends string>(at: Pointer<P>): boolean;
  /** Shows a warning to the user who made the request. Kubernetes recommends at most 120 characters. */
  warn(message: string): void;
  /** Adds an annotation to the audit log. A key has at most 63 letters, digits, dashes, underscores and dots. */
  annotate(key: string, value: string): void;
}

/** The answer of `validate` that allows the request. */
export const allow: Allow;
declare const allowed: unique symbol;
/** The type of `allow`. No other value has it. */
export interface Allow {
  readonly [allowed]: true;
}

/** The CauseTypes of Kubernetes. */
export const CauseType: {
  readonly valueRequired: 'FieldValueRequired';
  readonly valueInvalid: 'FieldValueInvalid';
  readonly valueNotSupported: 'FieldValueNotSupported';
  readonly valueForbidden: 'FieldValueForbidden';
};

/** One reason for a denial. */
export class Cause {
  /**
   * Leave the field out if the cause is not a single field. Leave the object's values out, because they may be secret.
   */
  constructor(field: JSONPointer | undefined, message: string, reason?: string);
  readonly field: JSONPointer | undefined;
  readonly message: string;
  readonly reason: string | undefined;
}

/** Denies a request. Return it or throw it. */
export class Denial extends Error {
  readonly causes: Cause[];
  /** Adds a cause for a field. */
  at(field: JSONPointer, message: string, reason?: string): this;
  /** Adds a cause. */
  because(cause: Cause): this;
  /** Sets the HTTP status, from 400 to 499. The default is 403. */
  code(code: number): this;
  /** Sets the Kubernetes StatusReason, such as `Invalid`. */
  reason(reason: string): this;
  /** Returns the denial if it has causes, and `allow` otherwise. */
  ifBlamed(): this | Allow;
}

/** Returns a denial with HTTP status 403 and no causes. */
export function deny(message: string): Denial;

/** The answer of `validate`. Anything else, such as a Promise, is a fault of the plugin and never an allow. */
export type Verdict = Allow | Denial;

/** The answer of `mutate`, if it is not a denial. */
export class Mutation {
  protected constructor();
  private readonly answer;
}

/** The object stays as it is. */
export const unchanged: Mutation;
/** A merge patch, RFC 7386. Members are merged, null removes a member, and arrays are replaced as a whole. */
export function merge(value: JSONValue): Mutation;
/** The whole new object. Values that `read` has rounded get lost, and the host detects that. Prefer a patch. */
export function wholeObject(value: unknown): Mutation;
/** Returns an empty JSON Patch. */
export function patch(): Patch;

/** A JSON Patch, RFC 6902, under construction. */
export class Patch extends Mutation {
  constructor();
  /** The number of operations. */
  readonly length: number;
  /** Sets a member, or inserts before an array's element (`-`: after the last). The parent must exist. */
  add<P extends string>(path: Pointer<P>, value: JSONValue): this;
  /** Replaces an existing value. */
  replace<P extends string>(path: Pointer<P>, value: JSONValue): this;
  /** Removes an existing value. */
  remove<P extends string>(path: Pointer<P>): this;
  /** Moves an existing value. */
  move<F extends string, P extends string>(from: Pointer<F>, path: Pointer<P>): this;
  /** Copies an existing value. */
  copy<F extends string, P extends string>(from: Pointer<F>, path: Pointer<P>): this;
  /** Tests that a value exists. Otherwise the patch fails, as a fault of the plugin. */
  test<P extends string>(path: Pointer<P>, value: JSONValue): this;
  /**
   * Sets a member, and creates missing objects on the way. An array's element is replaced. Reads the document, which is
   * the object before this patch.
   */
  set<P extends string>(document: Document, path: Pointer<P>, value: JSONValue): this;
  /** Adds after the last element of a list, and creates the list if it is missing. */
  append<P extends string>(document: Document, list: Pointer<P>, value: JSONValue): this;
}

/** The plugin's log in the host. Leave out the object's values, because they may be secret. */
export const log: Readonly<Record<'error' | 'warn' | 'info' | 'debug' | 'trace', (...parts: unknown[]) => void>>;

/** All errors in the settings. `configure` throws it. */
export class SettingsErrors extends Error {
  /** Without a message, there is no error yet. */
  constructor(message?: string);
  /** Adds an error about the setting at a pointer. */
  at(field: JSONPointer, message: string): this;
  /** Throws itself if there are errors. */
  throwIfAny(): void;
}

/** The shapes of settings: `export const settings = settings.object({ … })`. */
export namespace settings {
  /** The shape of a setting of type T. */
  interface Shape<T> {
    /** Sets the value for a missing setting. Without a default, the setting is required. */
    default(value: T): Shape<T>;
    /** Makes a missing setting undefined. */
    optional(): Shape<T | undefined>;
    /** The JSON Schema of the setting, for people. */
    readonly schema?: object;
    read(value: unknown, at: JSONPointer, report: (field: JSONPointer, message: string) => void): T;
  }
  /** The type of the settings that a shape reads. */
  type Of<S> = S extends Shape<infer T> ? T : never;
  function boolean(): Shape<boolean>;
  function number(range?: { minimum?: number; maximum?: number }): Shape<number>;
  function integer(range?: { minimum?: number; maximum?: number }): Shape<number>;
  function string(options?: { pattern?: RegExp }): Shape<string>;
  /** Any JSON, such as a JSON Schema. `T` is a promise of the policy: nothing checks it. */
  function json<T = unknown>(): Shape<T>;
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
  /** The API groups. The empty string is the core group. */
  apiGroups: string[];
  apiVersions: string[];
  resources: string[];
  scope?: 'Cluster' | 'Namespaced' | '*';
}

/** A plugin's description of itself: `export const manifest`. */
export interface Manifest {
  /** Short, in lower case with dashes. At run time, the name in the configuration counts. */
  name: string;
  version: string;
  /** A sentence for people. */
  description?: string;
  /** A JSON Schema for the settings, for people. Without it, the schema of the export `settings` counts. */
  settingsSchema?: object;
  /** The requests that the plugin is meant for. Rules in the configuration override them. */
  rules?: Rule[];
  /** Additional keys and values, by reverse-DNS or well-known key. */
  labels?: Record<string, string>;
}

/** The exports of a policy module. `validate`, `mutate` or both must exist. */
export interface PolicyModule<Settings = any, Configured = any> {
  manifest: Manifest;
  /** The shape of the settings. Without it, `configure` gets the settings as any JSON. */
  settings?: settings.Shape<Settings>;
  /** Turns the settings into the value that `validate` and `mutate` get. Without it, they get the settings. */
  configure?(settings: Settings): Configured;
  validate?(review: Review, configured: Configured): Verdict;
  mutate?(review: Review, configured: Configured): Mutation | Denial;
}
