// Actor follows instructions in the object under review, for the conformance suite.
package main

import (
	"errors"
	"fmt"
	"os"

	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
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
		object.Get("data")
	case "log":
		tollgate.Log(tollgate.LevelInfo, "hello")
	default:
		act(do, 0)
	}
	return nil
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
