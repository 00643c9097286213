// Package clock is the clock capability. The host does not load a plugin that imports it unless the
// configuration grants clock. So no policy decides by a clock that stands still, like time.Now in a
// plugin.
package clock

import "time"

var now func() time.Time

// Now returns the time of the host's wall clock. It may step backwards when somebody sets the
// host's clock.
func Now() time.Time {
	if now == nil {
		panic("a test of a policy that reads the clock sets it: tollgatetest.Review.At")
	}
	return now()
}

// Use replaces the clock, and returns a function that undoes this. Package tollgatetest calls it.
func Use(other func() time.Time) (undo func()) {
	before := now
	now = other
	return func() { now = before }
}
