/** The host's wall clock, for plugins whose configuration grants the capability `clock`. It may step backwards. */
export function now(): Date;
