package tollgatetest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/tollgate-dev/tollgate/guest-sdk/go/images"
)

// Images grants the capability images, with the images that registries have, as in a suite. Every
// other image is not found.
//
//	Create(pod).Images(`{"image": "nginx:1.29", "result": "verified", "signers": ["release"]}`)
//
// An entry has image, and result: verified, last-known-good, unsigned, untrusted, not-found,
// not-granted or unavailable. It may have policy (default: every one), digest, signers and reason.
func (review *Review) Images(entries ...any) *Review {
	list := &listed{}
	for _, entry := range entries {
		list.entries = append(list.entries, imageOf(entry))
	}
	review.images = list
	return review
}

// listed answers from a list.
type listed struct{ entries []image }

// image has the keys of an image in a suite.
type image struct {
	Image, Result          string
	Policy, Digest, Reason *string
	Signers                []string

	name name
}

// name is an image with Docker's abbreviations resolved.
type name struct {
	// full has the tag, repository has not.
	full, repository, digest string
}

// failures has the kind and the general reason of each result that is a failure.
var failures = map[string]images.Failure{
	"unsigned":    {Kind: images.ErrUnsigned, Text: "it has no signature"},
	"untrusted":   {Kind: images.ErrUntrusted, Text: "its signatures are by others"},
	"not-found":   {Kind: images.ErrNotFound, Text: "the registry has no such tag"},
	"not-granted": {Kind: images.ErrNotGranted, Text: "the registry is not listed"},
	"unavailable": {Kind: images.ErrUnavailable, Text: "the registry does not answer"},
}

func imageOf(written any) image {
	var read image
	decoder := json.NewDecoder(bytes.NewReader(must(json.Marshal(parse(written)))))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&read); err != nil {
		panic(fmt.Sprintf("the test's image is malformed: %v", err))
	}
	name, ok := nameOf(read.Image)
	if !ok {
		panic(fmt.Sprintf("the test's image %q is no image", read.Image))
	}
	if _, isFailure := failures[read.Result]; !isFailure && read.Result != "verified" && read.Result != "last-known-good" {
		panic(fmt.Sprintf("the test's image %s has the result %q, which is none", read.Image, read.Result))
	}
	read.name = name
	if read.Digest == nil {
		own := name.digest
		if own == "" {
			own = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name.full)))
		}
		read.Digest = &own
	}
	return read
}

func (list *listed) Verify(requests []images.Request) []images.Result {
	results := make([]images.Result, len(requests))
	for index, request := range requests {
		verified, failure := list.answer(request)
		results[index] = images.Result{Verified: verified}
		if failure != nil {
			results[index].Err = failure
		}
	}
	return results
}

func (list *listed) answer(request images.Request) (*images.Verified, *images.Failure) {
	if list == nil {
		text := "the capability is not granted; a test grants it: Review.Images"
		return nil, &images.Failure{Kind: images.ErrNotGranted, Text: text}
	}
	asked, ok := nameOf(request.Image)
	if !ok {
		return nil, &images.Failure{Kind: images.ErrMalformed, Text: "expected an image"}
	}
	for _, entry := range list.entries {
		if entry.isAbout(asked) && (entry.Policy == nil || *entry.Policy == request.Policy) {
			return entry.answer(asked.digest != "")
		}
	}
	text := "no entry of images is about " + asked.full
	return nil, &images.Failure{Kind: images.ErrNotFound, Text: text}
}

// isAbout tells whether the entry is about an image. That of a tag is also about the digest that it
// gives to the tag.
func (entry image) isAbout(asked name) bool {
	if asked.digest != "" {
		return asked.digest == *entry.Digest && asked.repository == entry.name.repository
	}
	return entry.name.digest == "" && asked.full == entry.name.full
}

func (entry image) answer(pinned bool) (*images.Verified, *images.Failure) {
	failure, isFailure := failures[entry.Result]
	if !isFailure {
		isOld := entry.Result == "last-known-good"
		return &images.Verified{Digest: *entry.Digest, Pinned: pinned, Signers: entry.Signers, LastKnownGood: isOld}, nil
	}
	if entry.Reason != nil {
		failure.Text = *entry.Reason
	}
	if failure.Kind == images.ErrUnsigned || failure.Kind == images.ErrUntrusted {
		failure.Digest = *entry.Digest
	}
	return nil, &failure
}

var (
	digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	hostForm   = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*|\[[0-9a-f:]+\])(:[0-9]+)?$`)
	pathForm   = regexp.MustCompile(`^[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*)*$`)
	tagForm    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
)

// nameOf reads an image like the host and container runtimes.
func nameOf(image string) (name, bool) {
	rest, digest, hasDigest := strings.Cut(image, "@")
	if hasDigest && !digestForm.MatchString(digest) {
		return name{}, false
	}
	registry, path, isThere := strings.Cut(rest, "/")
	isHost := registry == "localhost" || strings.ContainsAny(registry, ".:") || registry != strings.ToLower(registry)
	if !isThere || !isHost {
		registry, path = "docker.io", rest
	}
	registry = strings.ToLower(registry)
	if registry == "index.docker.io" {
		registry = "docker.io"
	}
	path, tag, hasTag := strings.Cut(path, ":")
	if !hasTag {
		tag = "latest"
	}
	if registry == "docker.io" && !strings.Contains(path, "/") {
		path = "library/" + path
	}
	ok := hostForm.MatchString(registry) && pathForm.MatchString(path) && tagForm.MatchString(tag)
	repository := registry + "/" + path
	return name{repository + ":" + tag, repository, digest}, ok
}
