/** The plugin's log. `console` also writes to it. Leave out the object's values, because they may be secret. */

import { describe } from './check.js';
import { host } from './host.js';

const write = (level) => (...parts) => host().logging.log(level, parts.map(text).join(' ').toWellFormed());

function text(part) {
  try {
    if (typeof part === 'string') return part;
    if (part instanceof Error) return String(part);
    return typeof part === 'object' ? JSON.stringify(part) : String(part);
  } catch {
    return describe(part);
  }
}

export const log = Object.freeze({
  error: write('error'),
  warn: write('warn'),
  info: write('info'),
  debug: write('debug'),
  trace: write('trace'),
});
