// Package access is the access capability: whether the user of the request may do something in the
// cluster. The host does not load a plugin that imports it unless the configuration grants access.
//
//	decision, err := access.Resource{Verb: "delete", Group: "apps", Resource: "deployments"}.Check()
//	if err != nil {
//		return err
//	}
//
// kube-apiserver answers, and the host remembers an answer for at most ten seconds. A question that
// the host has to pass on starts the call anew, so a plugin asks late and seldom.
package access

import "errors"

// The reasons why there is no answer. Compare with errors.Is. A plugin that enforces returns the
// error. Its failure policy then decides about the request.
var (
	// ErrNotGranted means that the configuration does not let the plugin ask this.
	ErrNotGranted = errors.New("access not granted")
	// ErrUnavailable means that kube-apiserver has not answered, or that the host has no authorizer.
	// It must not count as "allowed".
	ErrUnavailable = errors.New("access unavailable")
)

// A Failure is the reason why there is no answer. Its kind is ErrNotGranted or ErrUnavailable. The
// text is for the operator, and names no user.
type Failure struct {
	Kind error
	Text string
}

func (failure *Failure) Error() string { return failure.Kind.Error() + ": " + failure.Text }

// Unwrap returns the kind.
func (failure *Failure) Unwrap() error { return failure.Kind }

// A Decision is the answer of kube-apiserver.
type Decision struct {
	// Allowed says whether the user may do it.
	Allowed bool
	// Reason may be empty, and may name roles and bindings.
	Reason string
	// Err is what an authorizer of kube-apiserver failed at, or empty. Allowed counts all the same.
	Err string
}

// A ServiceAccount counts with its groups. The configuration has to grant serviceAccounts.
type ServiceAccount struct{ Namespace, Name string }

// A Resource is an action on a resource. An empty text is "not set".
type Resource struct {
	// Verb is in lower case, such as delete.
	Verb string
	// Group is empty for the core group.
	Group string
	// Resource is in lower-case plural, such as pods. It must not be empty.
	Resource string
	// Subresource is such as exec.
	Subresource string
	// Namespace is empty for a cluster-scoped resource, and for "in all namespaces".
	Namespace string
	// Name is empty for "all objects".
	Name string
}

// A Path is an action on a path that is no resource, such as get on /metrics.
type Path struct{ Verb, Path string }

// Check returns whether the user of the request may do it.
func (action Resource) Check() (Decision, error) {
	return current().Check(Question{Resource: action})
}

// CheckServiceAccount returns whether a service account may do it.
func (action Resource) CheckServiceAccount(account ServiceAccount) (Decision, error) {
	return current().Check(Question{Resource: action, Account: &account})
}

// Check returns whether the user of the request may do it.
func (action Path) Check() (Decision, error) {
	return current().Check(Question{Path: &action})
}

// CheckServiceAccount returns whether a service account may do it.
func (action Path) CheckServiceAccount(account ServiceAccount) (Decision, error) {
	return current().Check(Question{Path: &action, Account: &account})
}

// A Question is what a host is asked: about the path, or if there is none about the resource.
type Question struct {
	Resource Resource
	Path     *Path
	Account  *ServiceAccount
}

// A Host answers questions: Tollgate itself in a plugin, and rules in a test. Policies use the
// methods of Resource and Path.
type Host interface {
	Check(question Question) (Decision, error)
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
		panic("nobody can be asked about rights outside of Validate and Mutate")
	}
	return host
}
