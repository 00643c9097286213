// Actor follows instructions in the object under review, for the conformance suite.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/access"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/cluster"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/images"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/plugin"
)

type settings struct {
	Do string `json:"do"`
}

type actor struct{}

func configure(settings settings) (actor, error) {
	if settings.Do != "" {
		act(settings.Do, 0)
	}
	return actor{}, nil
}

func (actor) Validate(review *tollgate.Review) error {
	object := review.Object()
	do, _ := object.Text("/data/do")
	switch do {
	case "deny":
		return tollgate.Deny("no").WithCode(422).WithReason("Invalid").
			Because(tollgate.Cause{Field: tollgate.Pointer("data", "a/b"), Message: "wrong", Reason: tollgate.ValueInvalid})
	case "wrong answer":
		var none *tollgate.Denial
		return none
	case "other error":
		return errors.New("boom")
	case "read":
		big, _ := object.Integer("/data/big")
		text, _ := object.Text("/data/text")
		value, isThere := object.Get("/data/null")
		_, absent := object.Get("/data/absent")
		keys, _ := object.Keys("/data/members")
		json, _ := object.JSON("/data/exact")
		review.Warn("%d %s %t %t %v %s", big, text, isThere && value.Kind() == tollgate.Null, absent, keys, json)
		review.Annotate("operation", "%s", review.Operation())
	case "read many":
		found := object.GetMany("/data/big", "/data/absent", "/data/text")
		big, _ := found[0].Value.Integer()
		text, _ := found[2].Value.Text()
		review.Warn("%d %t %s", big, found[1].OK, text)
	case "namespace":
		review.Namespace().Text("/metadata/labels/team")
	case "whole":
		json, _ := object.JSON("")
		review.Warn("%t", len(json) > 1<<20)
	case "pointer":
		// A malformed pointer is a fault even for a policy that recovers from panics.
		defer func() { _ = recover() }()
		object.Get("data")
	case "escape":
		object.Get("/data/a~b")
	case "log":
		tollgate.Log(tollgate.LevelInfo, "hello")
	case "get", "find", "list", "lookup":
		return lookUp(do, review)
	case "may", "rights":
		return ask(do, review)
	case "verify":
		verify(review)
	default:
		act(do, 0)
	}
	return nil
}

// lookUp reads the lookup that the object names, and warns with what it finds.
func lookUp(do string, review *tollgate.Review) error {
	text := func(member string) string {
		text, _ := review.Object().Text(tollgate.Pointer("data", member))
		return text
	}
	if do == "get" {
		object, ok, err := cluster.Get(text("lookup"), text("namespace"), text("name"))
		if err != nil {
			return err
		}
		if ok {
			review.Warn("%s", shown(object))
		} else {
			review.Warn("none")
		}
		return nil
	}
	objects := cluster.List(text("lookup"), text("namespace"))
	if do == "find" {
		objects = cluster.Find(text("lookup"), text("index"), text("key"))
	}
	for object, err := range objects {
		switch {
		case err == nil:
			review.Warn("%s", shown(object))
		case do != "lookup":
			return err
		case errors.Is(err, cluster.ErrNotGranted):
			review.Warn("not granted")
		case errors.Is(err, cluster.ErrNotSynchronised):
			review.Warn("not synchronised")
		}
	}
	return nil
}

// ask asks about the right that the object names, and warns with the answer. "rights" warns with the kind of a failure.
func ask(do string, review *tollgate.Review) error {
	text := func(member string) string {
		text, _ := review.Object().Text(tollgate.Pointer("data", member))
		return text
	}
	var action interface {
		Check() (access.Decision, error)
		CheckServiceAccount(access.ServiceAccount) (access.Decision, error)
	} = access.Resource{
		Verb: text("verb"), Group: text("group"), Resource: text("resource"), Subresource: text("subresource"),
		Namespace: text("namespace"), Name: text("name"),
	}
	if path := text("path"); path != "" {
		action = access.Path{Verb: text("verb"), Path: path}
	}
	decision, err := action.Check()
	if account := text("account"); account != "" {
		decision, err = action.CheckServiceAccount(access.ServiceAccount{Namespace: text("accountNamespace"), Name: account})
	}
	switch {
	case err == nil:
		review.Warn("%t %s", decision.Allowed, decision.Reason)
	case do != "rights":
		return err
	case errors.Is(err, access.ErrNotGranted):
		review.Warn("not granted")
	case errors.Is(err, access.ErrUnavailable):
		review.Warn("unavailable")
	}
	return nil
}

// kinds has the name of each kind of failure.
var kinds = map[error]string{
	images.ErrMalformed: "malformed", images.ErrNotGranted: "not granted", images.ErrNotFound: "not found",
	images.ErrUnsigned: "unsigned", images.ErrUntrusted: "untrusted", images.ErrUnavailable: "unavailable",
}

// verify asks about the images that the object names, and warns with each answer.
func verify(review *tollgate.Review) {
	policy, _ := review.Object().Text("/data/policy")
	var requests []images.Request
	for _, node := range review.Object().Select("/data/images/*") {
		image, _ := node.Value.Text()
		requests = append(requests, images.Request{Image: image, Policy: policy})
	}
	for _, result := range images.Verify(requests...) {
		var failure *images.Failure
		if errors.As(result.Err, &failure) {
			digest := failure.Digest
			if digest == "" {
				digest = "-"
			}
			review.Warn("%s %s %s", kinds[failure.Kind], digest, failure.Text)
			continue
		}
		signers := strings.Join(append([]string{""}, result.Signers...), " ")
		review.Warn("verified %t %t%s %s", result.Pinned, result.LastKnownGood, signers, result.Digest)
	}
}

func shown(object cluster.Object) string {
	fields := object.Fields()
	hosts := []string{}
	for _, node := range fields.Select("/spec/rules/*/host") {
		host, _ := node.Value.Text()
		hosts = append(hosts, host)
	}
	namespace, label := object.Namespace, "-"
	if namespace == "" {
		namespace = "-"
	}
	if text, ok := fields.Text("/metadata/labels/a~1b"); ok {
		label = text
	}
	_, hasUID := fields.Get("/metadata/uid")
	return fmt.Sprintf("%s/%s %v %s %t", namespace, object.Name, hosts, label, hasUID)
}

func act(do string, depth int) int {
	switch do {
	case "throw":
		panic("boom")
	case "crash":
		var none []int
		return none[depth]
	case "loop":
		for {
			depth++
		}
	case "memory":
		var all [][]byte
		for {
			all = append(all, make([]byte, 1<<20))
		}
	case "recurse":
		return act(do, depth+1) + 1
	case "deadlock":
		select {}
	case "exit":
		fmt.Println("never shown")
		panic(fmt.Errorf("wrapped: %w", errors.New("boom")))
	case "exit code":
		os.Exit(203)
	case "forgotten":
		go func() { panic("boom") }()
	}
	return depth
}

func (actor) Mutate(review *tollgate.Review) (tollgate.Mutation, error) {
	do, _ := review.Object().Text("/data/do")
	switch do {
	case "patch":
		return new(tollgate.Patch).
			Set(review.Object(), "/metadata/annotations/a~1b", "ü\"\n").
			Set(review.Object(), "/data/done", true).
			Remove("/data/text"), nil
	case "pointer":
		return new(tollgate.Patch).Remove("data/text"), nil
	case "merge":
		return tollgate.Merge(map[string]any{"data": map[string]any{"text": nil, "done": true}}), nil
	case "wrong value":
		return new(tollgate.Patch).Add("/data/none", make(chan int)), nil
	case "throw", "loop":
		act(do, 0)
	}
	return nil, nil
}

func init() {
	plugin.Export(tollgate.Manifest{
		Name: "actor", Version: "0.1.0",
		Rules: []tollgate.Rule{{
			Operations: []string{"*"}, APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"},
		}},
	}, configure)
}

func main() {}
