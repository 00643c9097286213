// Package mutating exports the contract's interface of that name.
package mutating
