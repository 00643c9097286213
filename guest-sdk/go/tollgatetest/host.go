package tollgatetest

import (
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"

	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
)

// host is a review in memory.
type host struct {
	review  *Review
	outcome *Outcome
}

func (host *host) Request() tollgate.Request {
	text := func(path ...string) string { return textAt(host.review.request, path...) }
	dryRun, _ := host.review.request["dryRun"].(bool)
	return tollgate.Request{
		UID: text("uid"), Operation: tollgate.Operation(text("operation")),
		Kind:        tollgate.GroupVersionKind{Group: text("kind", "group"), Version: text("kind", "version"), Kind: text("kind", "kind")},
		Resource:    tollgate.GroupVersionResource{Group: text("resource", "group"), Version: text("resource", "version"), Resource: text("resource", "resource")},
		SubResource: text("subResource"), Name: text("name"), Namespace: text("namespace"), DryRun: dryRun,
	}
}

func (host *host) Get(part tollgate.Part, at string) (tollgate.Value, bool) {
	found, ok := host.find(part, at)
	if !ok {
		return tollgate.Value{}, false
	}
	return describe(found), true
}

func (host *host) GetJSON(part tollgate.Part, at string) (string, bool) {
	found, ok := host.find(part, at)
	if !ok {
		return "", false
	}
	return string(must(json.Marshal(found))), true
}

func (host *host) GetMany(part tollgate.Part, at []string) []tollgate.Found {
	found := make([]tollgate.Found, len(at))
	for index, pointer := range at {
		found[index].Value, found[index].OK = host.Get(part, pointer)
	}
	return found
}

func (host *host) Keys(part tollgate.Part, at string) ([]string, bool) {
	found, _ := host.find(part, at)
	members, ok := found.(map[string]any)
	if !ok {
		return nil, false
	}
	return names(members), true
}

func (host *host) Select(part tollgate.Part, pattern string) []tollgate.Node {
	document, ok := host.document(part)
	if !ok {
		return nil
	}
	var nodes []tollgate.Node
	walk(tokens(pattern), document, "", &nodes)
	return nodes
}

func (host *host) Warn(message string) {
	host.outcome.Warnings = append(host.outcome.Warnings, message)
}

func (host *host) Annotate(key, value string) { host.outcome.Annotations[key] = value }

func (host *host) Log(_ tollgate.Level, message string) {
	host.outcome.Log = append(host.outcome.Log, message)
}

func (host *host) document(part tollgate.Part) (any, bool) {
	if part == tollgate.PartNamespace {
		return host.review.namespaceDocument()
	}
	document := map[tollgate.Part]any{
		tollgate.PartObject: host.review.object, tollgate.PartOldObject: host.review.oldObject,
		tollgate.PartOptions: host.review.options, tollgate.PartRequest: host.review.request,
	}[part]
	return document, document != nil
}

func (host *host) find(part tollgate.Part, at string) (any, bool) {
	path := tokens(at)
	here, ok := host.document(part)
	for index := 0; ok && index < len(path); index++ {
		here, ok = child(here, path[index])
	}
	return here, ok
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// tokens splits a pointer. The host ends the call on a malformed pointer, so a test must not pass
// with one.
func tokens(pointer string) []string {
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
		*nodes = append(*nodes, tollgate.Node{Pointer: at, Value: describe(here)})
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

func describe(value any) tollgate.Value {
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
