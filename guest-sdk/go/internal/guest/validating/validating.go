// Package validating exports the contract's interface of that name.
package validating
