/** Denials: what the user reads, and every field that is to blame. */

/** The answer of `validate` that has nothing against the request. */
export const allow = Object.freeze({ tag: 'allow' });

/** Kubernetes' CauseTypes. */
export const CauseType = Object.freeze({
  valueRequired: 'FieldValueRequired',
  valueInvalid: 'FieldValueInvalid',
  valueNotSupported: 'FieldValueNotSupported',
  valueForbidden: 'FieldValueForbidden',
});

/** One reason for a denial. */
export class Cause {
  constructor(field, message, reason) {
    this.field = field;
    this.message = message;
    this.reason = reason;
  }
}

/** Refuses a request: returned or thrown. */
export class Denial extends Error {
  name = 'Denial';
  causes = [];
  #code;
  #reason;

  at(field, message, reason) {
    return this.because(new Cause(field, message, reason));
  }

  because(cause) {
    this.causes.push(cause);
    return this;
  }

  code(code) {
    this.#code = code;
    return this;
  }

  reason(reason) {
    this.#reason = reason;
    return this;
  }

  ifBlamed() {
    return this.causes.length > 0 ? this : allow;
  }

  /** As the contract has it. */
  toContract() {
    return {
      message: text(this.message, 'the message of a denial'),
      code: this.#code,
      reason: this.#reason,
      causes: this.causes.map(({ field, message, reason }) => ({
        field: field === undefined || field === '' ? undefined : text(field, 'the field of a cause'),
        message: text(message, 'the message of a cause'),
        reason,
      })),
    };
  }
}

/** A denial with HTTP status 403 and no causes yet. */
export function deny(message) {
  return new Denial(message);
}

function text(value, what) {
  if (typeof value !== 'string') throw new TypeError(`${what} is not a string but ${describe(value)}`);
  return value;
}

/** What a value is, for a message: never its content, which may be secret. */
export function describe(value) {
  if (value === null) return 'null';
  if (value instanceof Promise) return 'a Promise';
  if (typeof value === 'object') return `an object of type ${value.constructor?.name ?? 'Object'}`;
  return value === undefined ? 'undefined' : `a ${typeof value}`;
}
