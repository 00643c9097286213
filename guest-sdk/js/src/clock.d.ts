/** Returns the time of the host's wall clock. The configuration has to grant `clock`. The time may step backwards. */
export function now(): Date;
