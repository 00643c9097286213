package tollgate

import (
	"encoding/json"
	"fmt"
)

// A Review is the one review that the plugin is called for.
type Review struct{ host Host }

// A Document is one of the JSON documents of a review. The host parsed it; a read costs what it
// returns.
//
// Places are JSON Pointers (RFC 6901), such as /spec/containers/0/image; [Pointer] escapes names. One
// that is not well formed ends the call as a fault of the plugin: a typo must not read as absent.
type Document struct {
	host Host
	part Part
}

// An Operation is what the user asks of kube-apiserver.
type Operation string

// The operations.
const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// A Request is what kube-apiserver says of the request.
type Request struct {
	// UID identifies this one call of the webhook.
	UID string
	// Operation is what the user asks for.
	Operation Operation
	// Kind is the object's.
	Kind GroupVersionKind
	// Resource is what the object is one of.
	Resource GroupVersionResource
	// SubResource is empty for the resource itself.
	SubResource string
	// Name is empty on CREATE with generateName and on deletecollection.
	Name string
	// Namespace is empty for an object that is in none.
	Namespace string
	// DryRun tells that nothing will be persisted.
	DryRun bool
}

// A GroupVersionKind is a kind, fully qualified; the core group is empty.
type GroupVersionKind struct{ Group, Version, Kind string }

// A GroupVersionResource is a resource, fully qualified; the core group is empty.
type GroupVersionResource struct{ Group, Version, Resource string }

// ReviewOf is the review of a host. The export packages and package tollgatetest call it.
func ReviewOf(host Host) *Review { return &Review{host} }

// Object is the object as the plugins before this one left it. Absent on DELETE.
func (review *Review) Object() Document { return Document{review.host, PartObject} }

// OldObject is the object before the request. Absent on CREATE and CONNECT.
func (review *Review) OldObject() Document { return Document{review.host, PartOldObject} }

// Options are the operation's options, such as CreateOptions.
func (review *Review) Options() Document { return Document{review.host, PartOptions} }

// RequestDocument is the AdmissionRequest itself without object, oldObject and options:
// /userInfo/username, /requestKind, ….
func (review *Review) RequestDocument() Document { return Document{review.host, PartRequest} }

// Request brings a dozen strings from the host: keep the answer where it is used more than once.
func (review *Review) Request() Request { return review.host.Request() }

// Operation is Request's, for a fraction of its cost.
func (review *Review) Operation() Operation {
	text, _ := review.RequestDocument().Text("/operation")
	return Operation(text)
}

// Changes tells whether the request makes something else of what stands at a pointer. Creating and
// deleting it is a change, too. Costs the size of both values.
func (review *Review) Changes(at string) bool {
	after, isThere := review.Object().JSON(at)
	before, wasThere := review.OldObject().JSON(at)
	return isThere != wasThere || after != before
}

// Warn shows a warning to the user who made the request. At most 120 characters are advised.
func (review *Review) Warn(format string, arguments ...any) {
	review.host.Warn(text(format, arguments))
}

// Annotate records something in kube-apiserver's audit log. A key has at most 63 letters, digits,
// dashes, underscores and dots.
func (review *Review) Annotate(key, format string, arguments ...any) {
	review.host.Annotate(key, text(format, arguments))
}

// Exists tells whether the document is there at all.
func (document Document) Exists() bool {
	_, ok := document.Get("")
	return ok
}

// Get is what stands at a pointer; false when there is nothing. JSON null is a value.
func (document Document) Get(at string) (Value, bool) { return document.host.Get(document.part, at) }

// Text is the string at a pointer; false when nothing or something else is there.
func (document Document) Text(at string) (string, bool) {
	value, _ := document.Get(at)
	return value.Text()
}

// Integer is the whole number at a pointer, exact; false when nothing or something else is there.
func (document Document) Integer(at string) (int64, bool) {
	value, _ := document.Get(at)
	return value.Integer()
}

// Number is the number at a pointer, rounded to a double; false when nothing or something else is
// there.
func (document Document) Number(at string) (float64, bool) {
	value, _ := document.Get(at)
	return value.Number()
}

// Boolean is the boolean at a pointer; false when nothing or something else is there.
func (document Document) Boolean(at string) (boolean, ok bool) {
	value, _ := document.Get(at)
	return value.Boolean()
}

// Len is how many elements or members the array or object at a pointer has; false when neither is
// there.
func (document Document) Len(at string) (int, bool) {
	value, _ := document.Get(at)
	return value.Len()
}

// Keys are the member names of the object at a pointer, not escaped; false when no object is there.
func (document Document) Keys(at string) ([]string, bool) {
	return document.host.Keys(document.part, at)
}

// Select finds every place that matches a pattern, in document order: in /spec/containers/*/image
// the * stands for any element or member.
func (document Document) Select(pattern string) []Node {
	return document.host.Select(document.part, pattern)
}

// JSON is the JSON text at a pointer, "" being the whole document; false when there is nothing.
// Numbers stand in it digit by digit as they were received.
func (document Document) JSON(at string) (string, bool) {
	return document.host.GetJSON(document.part, at)
}

// Read unmarshals what stands at a pointer; false when there is nothing. Costs the size of the value;
// for a few fields the other functions are cheaper. The error names the pointer and never the value.
func (document Document) Read(at string, into any) (bool, error) {
	found, ok := document.JSON(at)
	if !ok {
		return false, nil
	}
	if err := json.Unmarshal([]byte(found), into); err != nil {
		return true, fmt.Errorf("%s: not of the expected type %T", at, into)
	}
	return true, nil
}

func text(format string, arguments []any) string {
	if len(arguments) == 0 {
		return format
	}
	return fmt.Sprintf(format, arguments...)
}
