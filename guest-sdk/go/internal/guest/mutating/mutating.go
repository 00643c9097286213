// Package mutating exports the contract's interface mutating.
package mutating
