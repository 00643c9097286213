/** The plugin's log. `console` writes to it, too. Leave out the object's values: they may be secret. */

import { host } from './host.js';

const write = (level) => (...parts) => host().logging.log(level, parts.map(text).join(' '));

function text(part) {
  if (typeof part === 'string') return part;
  if (part instanceof Error) return String(part);
  return typeof part === 'object' ? JSON.stringify(part) : String(part);
}

export const log = Object.freeze({
  error: write('error'),
  warn: write('warn'),
  info: write('info'),
  debug: write('debug'),
  trace: write('trace'),
});
