// Package tree reads JSON Pointers and patterns in a parsed document, by the host's rules.
package tree

import (
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"

	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
)

// Parse parses JSON text, and keeps the digits of numbers.
func Parse(text string) (any, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var parsed any
	err := decoder.Decode(&parsed)
	return parsed, err
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// Tokens splits a pointer, and panics on a malformed one. Otherwise a typo would read as absent.
func Tokens(pointer string) []string {
	if pointer == "" {
		return nil
	}
	if pointer[0] != '/' {
		panic(fmt.Sprintf("%q is no JSON Pointer: no leading slash", pointer))
	}
	for _, rest := range strings.Split(pointer, "~")[1:] {
		if !strings.HasPrefix(rest, "0") && !strings.HasPrefix(rest, "1") {
			panic(fmt.Sprintf("%q is no JSON Pointer: ~ is followed by neither 0 nor 1", pointer))
		}
	}
	path := strings.Split(pointer[1:], "/")
	for index := range path {
		path[index] = unescape.Replace(path[index])
	}
	return path
}

// At returns the value at a pointer's tokens.
func At(document any, path []string) (any, bool) {
	here, ok := document, true
	for index := 0; ok && index < len(path); index++ {
		here, ok = child(here, path[index])
	}
	return here, ok
}

// Keys returns the member names of an object.
func Keys(value any) ([]string, bool) {
	members, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	return names(members), true
}

// Select returns every place that matches the tokens of a pattern.
func Select(document any, pattern []string) []tollgate.Node {
	var nodes []tollgate.Node
	walk(pattern, document, "", &nodes)
	return nodes
}

func child(value any, token string) (any, bool) {
	switch value := value.(type) {
	case map[string]any:
		found, ok := value[token]
		return found, ok
	case []any:
		index, err := strconv.ParseUint(token, 10, 31)
		if err != nil || strconv.FormatUint(index, 10) != token || int(index) >= len(value) {
			return nil, false
		}
		return value[index], true
	}
	return nil, false
}

func walk(path []string, here any, at string, nodes *[]tollgate.Node) {
	if len(path) == 0 {
		*nodes = append(*nodes, tollgate.Node{Pointer: at, Value: Describe(here)})
		return
	}
	if path[0] != "*" {
		if found, ok := child(here, path[0]); ok {
			walk(path[1:], found, at+tollgate.Pointer(path[0]), nodes)
		}
		return
	}
	switch here := here.(type) {
	case []any:
		for index, element := range here {
			walk(path[1:], element, at+tollgate.Pointer(index), nodes)
		}
	case map[string]any:
		for _, name := range names(here) {
			walk(path[1:], here[name], at+tollgate.Pointer(name), nodes)
		}
	}
}

// Describe returns a value as the contract has it: arrays and objects as their length.
func Describe(value any) tollgate.Value {
	switch value := value.(type) {
	case bool:
		return tollgate.BooleanValue(value)
	case json.Number:
		if integer, err := strconv.ParseInt(value.String(), 10, 64); err == nil {
			return tollgate.IntegerValue(integer)
		}
		number, _ := value.Float64()
		return tollgate.NumberValue(number)
	case string:
		return tollgate.TextValue(value)
	case []any:
		return tollgate.ArrayValue(len(value))
	case map[string]any:
		return tollgate.ObjectValue(len(value))
	}
	return tollgate.NullValue()
}

func names(members map[string]any) []string {
	all := make([]string, 0, len(members))
	for name := range members {
		all = append(all, name)
	}
	sort.Strings(all)
	return all
}
