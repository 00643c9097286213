/** Denials: the message for the user, and every wrong field. */

import { describe, exact, list, optional, status, text } from './check.js';

/** The answer of `validate` that allows the request. */
export const allow = Object.freeze({ tag: 'allow' });

/** The CauseTypes of Kubernetes. */
export const CauseType = Object.freeze({
  valueRequired: 'FieldValueRequired',
  valueInvalid: 'FieldValueInvalid',
  valueNotSupported: 'FieldValueNotSupported',
  valueForbidden: 'FieldValueForbidden',
});

/** One reason for a denial. */
export class Cause {
  constructor(field, message, reason) {
    this.field = optional(field, 'the field of a cause', exact);
    this.message = text(message, 'the message of a cause');
    this.reason = optional(reason, 'the reason of a cause', exact);
  }
}

/** Denies a request. Return it or throw it. */
export class Denial extends Error {
  name = 'Denial';
  causes = [];
  #code;
  #reason;

  constructor(message) {
    super(text(message, 'the message of a denial'));
  }

  at(field, message, reason) {
    return this.because(new Cause(field, message, reason));
  }

  because(cause) {
    this.causes.push(cause);
    return this;
  }

  code(code) {
    this.#code = status(code, 'the code of a denial');
    return this;
  }

  reason(reason) {
    this.#reason = exact(reason, 'the reason of a denial');
    return this;
  }

  ifBlamed() {
    return this.causes.length > 0 ? this : allow;
  }

  /** Converts to the contract's type. Checks again, because anything except code and reason may have been set since. */
  toContract() {
    return {
      message: text(this.message, 'the message of a denial'),
      code: this.#code,
      reason: this.#reason,
      causes: list(this.causes, 'the list of causes', (cause) => {
        if (!(cause instanceof Cause)) throw new TypeError(`a cause of a denial is not a Cause but ${describe(cause)}`);
        const { field, message, reason } = new Cause(cause.field, cause.message, cause.reason);
        return { field: field === '' ? undefined : field, message, reason };
      }),
    };
  }
}

/** Returns a denial with HTTP status 403 and no causes. */
export function deny(message) {
  return new Denial(message);
}
