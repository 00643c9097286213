package tollgatetest

import (
	"encoding/json"

	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/internal/tree"
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
	return tree.Describe(found), true
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
	return tree.Keys(found)
}

func (host *host) Select(part tollgate.Part, pattern string) []tollgate.Node {
	document, ok := host.document(part)
	if !ok {
		return nil
	}
	return tree.Select(document, tree.Tokens(pattern))
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
	path := tree.Tokens(at)
	document, ok := host.document(part)
	if !ok {
		return nil, false
	}
	return tree.At(document, path)
}
