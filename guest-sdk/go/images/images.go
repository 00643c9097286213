// Package images is the images capability: whether container images are signed as a policy of the
// configuration requires. The host does not load a plugin that imports it unless its configuration
// has images.
//
//	for _, result := range images.Verify(images.Request{Image: image, Policy: "release"}) {
//		if result.Err != nil {
//			return tollgate.Deny("images must be signed").At(pointer, "%s", result.Err)
//		}
//	}
//
// The host asks registries, and remembers the answers for as long as the configuration says. A
// question that it has to pass on starts the call anew, so a plugin asks about all images in one
// call of Verify.
package images

import (
	"errors"
	"fmt"
)

// The reasons why an image does not count as verified. Compare with errors.Is. A plugin that
// enforces denies the request in each of these cases.
var (
	// ErrMalformed means that no node could pull the image, or that its digest is not SHA-256.
	ErrMalformed = errors.New("no valid image")
	// ErrNotGranted means that the configuration has no such policy, that the policy does not cover
	// the repository, or that the registry is not listed.
	ErrNotGranted = errors.New("not granted")
	// ErrNotFound means that the registry has no such tag.
	ErrNotFound = errors.New("not found")
	// ErrUnsigned means that the image has no signature.
	ErrUnsigned = errors.New("not signed")
	// ErrUntrusted means that the image has signatures or attestations, and that they do not meet
	// the policy.
	ErrUntrusted = errors.New("not signed as required")
	// ErrUnavailable means that a registry has not answered, and that no earlier answer counts. It
	// must not count as "verified".
	ErrUnavailable = errors.New("cannot be verified now")
)

// A Failure is the reason why an image does not count as verified. Its kind is one of the errors of
// this package. The text names no user and no credentials.
type Failure struct {
	Kind error
	// Text says which rules are not met, and what was found.
	Text string
	// Digest is the digest whose signatures were examined. Only ErrUnsigned and ErrUntrusted have it.
	Digest string
}

func (failure *Failure) Error() string { return failure.Kind.Error() + ": " + failure.Text }

// Unwrap returns the kind.
func (failure *Failure) Unwrap() error { return failure.Kind }

// A Request is an image, and the policy that it must meet.
type Request struct {
	// Image is the image as the object names it, such as nginx:1.29.
	Image string
	// Policy is the name of a policy of the configuration.
	Policy string
}

// A Verified is an image that meets its policy.
type Verified struct {
	// Digest is the digest that was verified.
	Digest string
	// Pinned says whether the image names the digest itself. If not, its tag can lead to another
	// digest by the time that a node pulls it.
	Pinned bool
	// Signers are the names of the signers who have signed.
	Signers []string
	// LastKnownGood says whether a registry has not answered, and an earlier verification of this
	// digest counts.
	LastKnownGood bool
}

// A Result is the answer to a request.
type Result struct {
	// Verified is nil if the image is not verified.
	*Verified
	// Err is a *Failure, or nil if the image is verified.
	Err error
}

// Verify verifies images, all at the same time. It returns a result for each request, in the same
// order. A call may ask about at most 128 different images; further ones are ErrNotGranted.
func Verify(requests ...Request) []Result {
	if host == nil {
		panic("nobody can be asked about images outside of Validate and Mutate")
	}
	results := host.Verify(requests)
	// A policy that goes over the results would take an image without one for verified.
	if len(results) != len(requests) {
		panic(fmt.Sprintf("the host has answered %d of %d requests about images", len(results), len(requests)))
	}
	return results
}

// A Host answers requests: Tollgate itself in a plugin, and a list in a test. Policies use Verify.
type Host interface {
	Verify(requests []Request) []Result
}

var host Host

// Use replaces the host, and returns a function that undoes this. Package tollgatetest calls it.
func Use(other Host) (undo func()) {
	before := host
	host = other
	return func() { host = before }
}
