// Package clock is the clock capability. A plugin that imports it is refused unless its
// configuration grants clock, so that no policy decides by a clock that stands still, as time.Now
// does in a plugin.
package clock

import "time"

var now func() time.Time

// Now is the host's wall clock. It may step backwards when the host's clock is set.
func Now() time.Time {
	if now == nil {
		panic("a test of a policy that reads the clock sets it: tollgatetest.Review.At")
	}
	return now()
}

// Use sets the clock and gives back what undoes it. Package tollgatetest calls it.
func Use(other func() time.Time) (undo func()) {
	before := now
	now = other
	return func() { now = before }
}
