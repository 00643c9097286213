// Package tollgatetest is for unit tests of policies. They run natively, without WebAssembly and
// without a host.
//
//	limit := tollgatetest.Configure(t, `{"maxReplicas": 3}`, New)
//	outcome := tollgatetest.Create(`{"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 12}}`).Validate(t, limit)
//	if outcome.Denial == nil { … }
//
// The package reads pointers as strictly as the host, and applies patches with the library of
// kube-apiserver. There are no budgets, and the members of an object are sorted by name.
package tollgatetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/access"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/clock"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/cluster"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/images"
)

// A Review is an admission review under construction. The fields of the request are derived from
// the object. The functions override them.
type Review struct {
	object, oldObject, options, namespace any
	request                               map[string]any
	now                                   time.Time
	lookups                               map[string]*lookup
	access                                *rights
	images                                *listed
}

// An Outcome is the result of a policy.
type Outcome struct {
	// Denial is nil if the policy allowed the request.
	Denial *tollgate.Denial
	// Object is the object after the mutation, as JSON text with sorted members; empty when there is none.
	Object string
	// Changed tells whether a mutator changed the object.
	Changed bool
	// Warnings has the warnings, in order.
	Warnings []string
	// Annotations has the audit annotations.
	Annotations map[string]string
	// Log has the log messages, in order.
	Log []string
}

// Configure configures a policy like the host, and fails the test if the policy rejects the
// settings. To test invalid settings, use [tollgate.Configure].
func Configure[S, P any](t testing.TB, settings string, configure func(S) (P, error)) P {
	t.Helper()
	policy, err := tollgate.Configure(settings, configure)
	if err != nil {
		t.Fatalf("the policy refuses its settings: %v", err)
	}
	return policy
}

// Create returns a review of the creation of an object: JSON text, or any value that can be
// marshalled.
func Create(object any) *Review { return newReview(tollgate.Create, parse(object), nil) }

// Update returns a review of the replacement of an object.
func Update(oldObject, object any) *Review {
	return newReview(tollgate.Update, parse(object), parse(oldObject))
}

// Delete returns a review of the deletion of an object.
func Delete(oldObject any) *Review { return newReview(tollgate.Delete, nil, parse(oldObject)) }

// Connect returns a review of a new connection such as exec. The object is its options.
func Connect(object any) *Review { return newReview(tollgate.Connect, parse(object), nil) }

// With sets a field of the request, such as With("subResource", "status").
func (review *Review) With(key string, value any) *Review {
	review.request[key] = parse(must(json.Marshal(value)))
	return review
}

// User sets the user who makes the request.
func (review *Review) User(name string, groups ...string) *Review {
	return review.With("userInfo", map[string]any{"username": name, "groups": groups})
}

// Options sets the operation's options.
func (review *Review) Options(options any) *Review {
	review.options = parse(options)
	return review
}

// NamespaceObject sets the Namespace of the object, and the request's namespace if the object names
// none. A policy sees only apiVersion, kind and metadata of it. A review of a Namespace does not
// need it, because a Namespace is in itself.
func (review *Review) NamespaceObject(namespace any) *Review {
	review.namespace = parse(namespace)
	if textAt(review.request, "namespace") == "" {
		review.request["namespace"] = textAt(review.namespace, "metadata", "name")
	}
	return review
}

// At sets the time that clock.Now returns.
func (review *Review) At(now time.Time) *Review {
	review.now = now
	return review
}

// Validate validates the review. An error that is not a denial fails the test.
func (review *Review) Validate(t testing.TB, policy tollgate.Validator) *Outcome {
	t.Helper()
	return review.evaluate(t, func(review *tollgate.Review) (tollgate.Mutation, error) {
		return nil, policy.Validate(review)
	})
}

// Mutate mutates the object. An error that is not a denial fails the test, and so does a patch that
// does not apply.
func (review *Review) Mutate(t testing.TB, policy tollgate.Mutator) *Outcome {
	t.Helper()
	return review.evaluate(t, policy.Mutate)
}

func (review *Review) evaluate(t testing.TB, call func(*tollgate.Review) (tollgate.Mutation, error)) *Outcome {
	t.Helper()
	host := &host{review: review, outcome: &Outcome{Annotations: map[string]string{}}}
	before := tollgate.UseHost(host)
	defer tollgate.UseHost(before)
	if !review.now.IsZero() {
		defer clock.Use(func() time.Time { return review.now })()
	}
	defer cluster.Use(lookups(review.lookups))()
	defer access.Use(review.access)()
	defer images.Use(review.images)()
	mutation, err := call(tollgate.ReviewOf(host))
	outcome := host.outcome
	if err != nil {
		if !errors.As(err, &outcome.Denial) || outcome.Denial == nil {
			t.Fatalf("a fault of the policy: %v", err)
		}
		return outcome
	}
	if review.object != nil {
		outcome.Object = compact(review.object)
	}
	changed, err := apply(outcome.Object, mutation)
	if err != nil {
		t.Fatalf("the mutation does not apply: %v", err)
	}
	outcome.Changed = changed != "" && !reflect.DeepEqual(parse(changed), review.object)
	if changed != "" {
		outcome.Object = compact(parse(changed))
	}
	return outcome
}

func apply(object string, mutation tollgate.Mutation) (string, error) {
	patch, isPatch := mutation.(*tollgate.Patch)
	if mutation == nil || isPatch && len(patch.Operations()) == 0 {
		return object, nil
	}
	if object == "" {
		return "", errors.New("where there is no object, nothing can be changed")
	}
	switch mutation := mutation.(type) {
	case tollgate.MergePatch:
		changed, err := jsonpatch.MergePatch([]byte(object), []byte(mutation))
		return string(changed), err
	case tollgate.WholeObject:
		return string(mutation), nil
	default:
		var operations []map[string]any
		for _, operation := range patch.Operations() {
			one := map[string]any{"op": operation.Op, "path": operation.Path}
			if operation.From != "" {
				one["from"] = operation.From
			}
			if operation.Value != "" {
				one["value"] = json.RawMessage(operation.Value)
			}
			operations = append(operations, one)
		}
		decoded, err := jsonpatch.DecodePatch(must(json.Marshal(operations)))
		if err != nil {
			return "", err
		}
		changed, err := decoded.Apply([]byte(object))
		return string(changed), err
	}
}

const uid = "00000000-0000-4000-8000-000000000000"

func newReview(operation tollgate.Operation, object, oldObject any) *Review {
	about := object
	if about == nil {
		about = oldObject
	}
	group, version, found := strings.Cut(textAt(about, "apiVersion"), "/")
	if !found {
		group, version = "", group
	}
	kind := textAt(about, "kind")
	kindOf := map[string]any{"group": group, "version": version, "kind": kind}
	resource := map[string]any{"group": group, "version": version, "resource": plural(kind)}
	return &Review{object: object, oldObject: oldObject, request: map[string]any{
		"uid": uid, "operation": string(operation),
		"kind": kindOf, "requestKind": kindOf, "resource": resource, "requestResource": resource,
		"name": textAt(about, "metadata", "name"), "namespace": textAt(about, "metadata", "namespace"),
		"userInfo": map[string]any{"username": "kubernetes-admin", "groups": []any{"system:authenticated"}},
		"dryRun":   false,
	}}
}

// plural forms the English plural like Kubernetes.
func plural(kind string) string {
	name := strings.ToLower(kind)
	switch {
	case name == "" || name == "endpoints":
		return name
	case strings.HasSuffix(name, "y") && !strings.ContainsAny(name[max(len(name)-2, 0):len(name)-1], "aeiou"):
		return name[:len(name)-1] + "ies"
	case strings.HasSuffix(name, "s"), strings.HasSuffix(name, "x"), strings.HasSuffix(name, "ch"), strings.HasSuffix(name, "sh"):
		return name + "es"
	default:
		return name + "s"
	}
}

func parse(value any) any {
	var text []byte
	switch value := value.(type) {
	case string:
		text = []byte(value)
	case []byte:
		text = value
	default:
		text = must(json.Marshal(value))
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var parsed any
	if err := decoder.Decode(&parsed); err != nil {
		panic(fmt.Sprintf("the test's JSON is malformed: %v", err))
	}
	return parsed
}

// compact marshals a value without the HTML escapes of package encoding/json.
func compact(value any) string {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err)
	}
	return strings.TrimSuffix(text.String(), "\n")
}

func textAt(value any, path ...string) string {
	for _, name := range path {
		members, _ := value.(map[string]any)
		value = members[name]
	}
	text, _ := value.(string)
	return text
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
