// Package cluster is the cluster capability: objects of the cluster, from the lookups of the
// plugin's configuration. The host does not load a plugin that imports it unless the configuration
// has lookups.
//
//	for ingress, err := range cluster.Find("ingresses", "host", host) {
//		if err != nil {
//			return err
//		}
//		…
//	}
//
// The host follows the cluster with a watch. Its answers can lag behind by moments, and two requests
// that are reviewed at the same time do not see each other's objects.
package cluster

import (
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"sync"

	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/internal/tree"
)

// The reasons why a lookup has no answer. Compare with errors.Is. A plugin that enforces returns the
// error. Its failure policy then decides about the request.
var (
	// ErrNotGranted means that the configuration has no lookup of this name, no index of this name
	// in it, or that it does not cover this namespace.
	ErrNotGranted = errors.New("not granted")
	// ErrNotSynchronised means that the host has not read the objects yet, or has lost its
	// connection for too long. It must not count as "there is none".
	ErrNotSynchronised = errors.New("not synchronised")
)

// A Failure is the reason why a lookup has no answer. Its kind is ErrNotGranted or
// ErrNotSynchronised. The text is for the operator, and names the lookup.
type Failure struct {
	Kind error
	Text string
}

func (failure *Failure) Error() string { return failure.Kind.Error() + ": " + failure.Text }

// Unwrap returns the kind.
func (failure *Failure) Unwrap() error { return failure.Kind }

// An Object is an object of the cluster, with the fields that the lookup keeps.
type Object struct {
	// Namespace is empty for a cluster-scoped object.
	Namespace string
	// Name is the object's name.
	Name   string
	fields *fields
}

// Fields returns the kept fields at their places in the object, such as /spec/rules/0/host. Members
// are sorted by name. The object is parsed when a field is read for the first time.
func (object Object) Fields() tollgate.Document {
	return tollgate.DocumentOf(object.fields, tollgate.PartObject)
}

// Get returns one object of a lookup, and false if there is no such object. The namespace is empty
// for a cluster-scoped object.
func Get(lookup, namespace, name string) (Object, bool, error) {
	found, err := current().Get(lookup, namespace, name)
	if err != nil || found == nil {
		return Object{}, false, err
	}
	return found.object(), true, nil
}

// Find returns the objects that have a key in an index of the lookup, ordered by namespace and name.
// The keys are the texts, numbers and booleans at the places of the index's pattern, as text. The
// loop asks the host for one page at a time. It ends after an error.
func Find(lookup, index, key string) iter.Seq2[Object, error] {
	return all(func(after string) (Page, error) { return current().Find(lookup, index, key, after) })
}

// List returns all objects of a lookup, or those of one namespace, like Find. With an empty
// namespace, it returns all.
func List(lookup, namespace string) iter.Seq2[Object, error] {
	return all(func(after string) (Page, error) { return current().List(lookup, namespace, after) })
}

func all(page func(after string) (Page, error)) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for after := ""; ; {
			next, err := page(after)
			if err != nil {
				yield(Object{}, err)
				return
			}
			for _, found := range next.Objects {
				if !yield(found.object(), nil) {
					return
				}
			}
			if after = next.Next; after == "" {
				return
			}
		}
	}
}

// A Host gives access to lookups: Tollgate itself in a plugin, and objects in memory in a test.
// Policies use the functions of this package.
type Host interface {
	Get(lookup, namespace, name string) (*Found, error)
	Find(lookup, index, key, after string) (Page, error)
	List(lookup, namespace, after string) (Page, error)
}

// Found is an object as the host returns it. Fields is JSON text.
type Found struct{ Namespace, Name, Fields string }

// A Page has some of the objects. Next is empty on the last page.
type Page struct {
	Objects []Found
	Next    string
}

var host Host

// Use replaces the host, and returns a function that undoes this. Package tollgatetest calls it.
func Use(other Host) (undo func()) {
	before := host
	host = other
	return func() { host = before }
}

func current() Host {
	if host == nil {
		panic("there are no lookups outside of Validate and Mutate")
	}
	return host
}

func (found Found) object() Object {
	return Object{found.Namespace, found.Name, &fields{json: found.Fields}}
}

// fields is a host with one document.
type fields struct {
	json     string
	once     sync.Once
	document any
}

func (fields *fields) at(at string) (any, bool) {
	return tree.At(fields.parsed(), tree.Tokens(at))
}

func (fields *fields) parsed() any {
	fields.once.Do(func() {
		var err error
		if fields.document, err = tree.Parse(fields.json); err != nil {
			panic("the fields of the host are not JSON: " + err.Error())
		}
	})
	return fields.document
}

func (fields *fields) Get(_ tollgate.Part, at string) (tollgate.Value, bool) {
	found, ok := fields.at(at)
	if !ok {
		return tollgate.Value{}, false
	}
	return tree.Describe(found), true
}

func (fields *fields) GetJSON(_ tollgate.Part, at string) (string, bool) {
	if at == "" {
		return fields.json, true
	}
	found, ok := fields.at(at)
	if !ok {
		return "", false
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(found); err != nil {
		panic(err)
	}
	return strings.TrimSuffix(text.String(), "\n"), true
}

func (fields *fields) GetMany(part tollgate.Part, at []string) []tollgate.Found {
	found := make([]tollgate.Found, len(at))
	for index, pointer := range at {
		found[index].Value, found[index].OK = fields.Get(part, pointer)
	}
	return found
}

func (fields *fields) Keys(_ tollgate.Part, at string) ([]string, bool) {
	found, _ := fields.at(at)
	return tree.Keys(found)
}

func (fields *fields) Select(_ tollgate.Part, pattern string) []tollgate.Node {
	return tree.Select(fields.parsed(), tree.Tokens(pattern))
}

func (*fields) Request() tollgate.Request  { panic(notAReview) }
func (*fields) Warn(string)                { panic(notAReview) }
func (*fields) Annotate(string, string)    { panic(notAReview) }
func (*fields) Log(tollgate.Level, string) { panic(notAReview) }

const notAReview = "the fields of an object are not a review"
