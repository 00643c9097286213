package tollgate

import (
	"encoding/json"
	"fmt"
)

// A Review is the review for which the host called the plugin.
type Review struct{ host Host }

// A Document is one of the JSON documents of a review. The host has parsed it. A read costs the
// size of its result.
//
// Places are JSON Pointers (RFC 6901), such as /spec/containers/0/image. [Pointer] escapes names. A
// malformed pointer ends the call as a fault of the plugin, with the pointer and your line. Otherwise
// a typo would read as absent.
type Document struct {
	host Host
	part Part
}

// An Operation is the operation that the user requests from kube-apiserver.
type Operation string

// The operations of Kubernetes.
const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// A Request is the request's metadata from kube-apiserver.
type Request struct {
	// UID identifies this call of the webhook.
	UID string
	// Operation is the requested operation.
	Operation Operation
	// Kind is the kind of the object.
	Kind GroupVersionKind
	// Resource is the resource of the object.
	Resource GroupVersionResource
	// SubResource is empty for the resource itself.
	SubResource string
	// Name is empty on CREATE with generateName and on deletecollection.
	Name string
	// Namespace is empty for an object without one.
	Namespace string
	// DryRun is true if kube-apiserver will not persist anything.
	DryRun bool
}

// A GroupVersionKind is a fully qualified kind. The core group is empty.
type GroupVersionKind struct{ Group, Version, Kind string }

// A GroupVersionResource is a fully qualified resource. The core group is empty.
type GroupVersionResource struct{ Group, Version, Resource string }

// ReviewOf returns the review of a host. The export packages and package tollgatetest call it.
func ReviewOf(host Host) *Review { return &Review{host} }

// DocumentOf returns a document of a host. Package cluster calls it.
func DocumentOf(host Host, part Part) Document { return Document{host, part} }

// Object returns the object, as the plugins before this one left it. Absent on DELETE.
func (review *Review) Object() Document { return Document{review.host, PartObject} }

// OldObject returns the object before the request. Absent on CREATE and CONNECT.
func (review *Review) OldObject() Document { return Document{review.host, PartOldObject} }

// Options returns the operation's options, such as CreateOptions.
func (review *Review) Options() Document { return Document{review.host, PartOptions} }

// RequestDocument returns the AdmissionRequest itself without object, oldObject and options:
// /userInfo/username, /requestKind, ….
func (review *Review) RequestDocument() Document { return Document{review.host, PartRequest} }

// Namespace returns the Namespace of the object: apiVersion, kind and metadata with labels and
// annotations. No grant is needed. It is absent only for a cluster-scoped object, and a Namespace
// is in itself. If the host cannot find out about the namespace, the call ends as a fault. The
// host's cache can lag behind the cluster by moments.
func (review *Review) Namespace() Document { return Document{review.host, PartNamespace} }

// Request copies a dozen strings from the host. Keep the result if you need it more than once.
func (review *Review) Request() Request { return review.host.Request() }

// Operation returns the operation of Request, for a fraction of its cost.
func (review *Review) Operation() Operation {
	text, _ := review.RequestDocument().Text("/operation")
	return Operation(text)
}

// Changes tells whether the request changes the value at a pointer. Creating or deleting the value
// is also a change. The cost is the size of both values.
func (review *Review) Changes(at string) bool {
	after, isThere := review.Object().JSON(at)
	before, wasThere := review.OldObject().JSON(at)
	return isThere != wasThere || after != before
}

// Warn shows a warning to the user who made the request. Kubernetes recommends at most 120
// characters.
func (review *Review) Warn(format string, arguments ...any) {
	review.host.Warn(text(format, arguments))
}

// Annotate adds an annotation to kube-apiserver's audit log. A key has at most 63 letters, digits,
// dashes, underscores and dots.
func (review *Review) Annotate(key, format string, arguments ...any) {
	review.host.Annotate(key, text(format, arguments))
}

// Exists tells whether the document exists.
func (document Document) Exists() bool {
	_, ok := document.Get("")
	return ok
}

// Get returns the value at a pointer, and false if there is nothing. JSON null is a value.
func (document Document) Get(at string) (Value, bool) {
	return document.host.Get(document.part, checked(at))
}

// GetMany returns the values at several pointers, in their order, with one call of the host.
func (document Document) GetMany(at ...string) []Found {
	for _, pointer := range at {
		checked(pointer)
	}
	return document.host.GetMany(document.part, at)
}

// Text returns the string at a pointer, and false for nothing or another type.
func (document Document) Text(at string) (string, bool) {
	value, _ := document.Get(at)
	return value.Text()
}

// Integer returns the exact integer at a pointer, and false for nothing or another type.
func (document Document) Integer(at string) (int64, bool) {
	value, _ := document.Get(at)
	return value.Integer()
}

// Number returns the number at a pointer, rounded to a double, and false for nothing or another
// type.
func (document Document) Number(at string) (float64, bool) {
	value, _ := document.Get(at)
	return value.Number()
}

// Boolean returns the boolean at a pointer, and false for nothing or another type.
func (document Document) Boolean(at string) (boolean, ok bool) {
	value, _ := document.Get(at)
	return value.Boolean()
}

// Len returns the number of elements or members of the array or object at a pointer, and false for
// nothing or another type.
func (document Document) Len(at string) (int, bool) {
	value, _ := document.Get(at)
	return value.Len()
}

// Keys returns the member names of the object at a pointer, not escaped, and false if there is no
// object.
func (document Document) Keys(at string) ([]string, bool) {
	return document.host.Keys(document.part, checked(at))
}

// Select returns every place that matches a pattern, in document order. In
// /spec/containers/*/image, the * matches any element or member.
func (document Document) Select(pattern string) []Node {
	return document.host.Select(document.part, checked(pattern))
}

// JSON returns the JSON text at a pointer, and false if there is nothing. "" is the whole document.
// Numbers keep their original digits.
func (document Document) JSON(at string) (string, bool) {
	return document.host.GetJSON(document.part, checked(at))
}

// Read unmarshals the value at a pointer, and returns false if there is nothing. The cost is the
// size of the value. For a few fields, the other functions are cheaper. The error names the pointer
// and never the value.
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
