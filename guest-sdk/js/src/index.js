/** Write Tollgate admission plugins in JavaScript and TypeScript. The documentation is in the types: index.d.ts. */

export { allow, deny, Cause, CauseType, Denial } from './denial.js';
export { log } from './log.js';
export { merge, Mutation, patch, Patch, unchanged, wholeObject } from './patch.js';
export { pointer } from './pointer.js';
export { Container, Review } from './review.js';
export * as settings from './settings.js';
export { SettingsErrors } from './settings.js';
