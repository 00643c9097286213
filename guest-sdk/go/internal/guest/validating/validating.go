// Package validating exports the contract's interface validating.
package validating
