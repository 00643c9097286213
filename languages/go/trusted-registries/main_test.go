package main

import (
	"testing"

	"github.com/tollgate-dev/tollgate/guest-sdk/go/tollgatetest"
)

func TestEveryOffendingImageIsBlamed(t *testing.T) {
	policy := tollgatetest.Configure(t, `{"allowed": ["registry.example.com/team/"]}`, New)
	pod := `{"apiVersion": "v1", "kind": "Pod", "spec": {
		"initContainers": [{"image": "nginx"}],
		"containers": [{"image": "registry.example.com/team/app:1"}, {"image": "registry.example.com/teams/app:1"}]}}`
	outcome := tollgatetest.Create(pod).Validate(t, policy)
	if outcome.Denial == nil || len(outcome.Denial.Causes) != 2 {
		t.Fatalf("denied with %v", outcome.Denial)
	}
	for index, field := range []string{"/spec/initContainers/0/image", "/spec/containers/1/image"} {
		if got := outcome.Denial.Causes[index].Field; got != field {
			t.Errorf("cause %d blames %s, not %s", index, got, field)
		}
	}
}

func TestReferencesAreTakenApart(t *testing.T) {
	for text, want := range map[string]image{
		"nginx":                  {"docker.io/library/nginx", "", false},
		"index.docker.io/a/b:1":  {"docker.io/a/b", "1", true},
		"Registry.io/a":          {"registry.io/a", "", false},
		"localhost:5000/a:1@sha": {"localhost:5000/a", "1", true},
		"a/b@sha256:12":          {"docker.io/a/b", "", true},
	} {
		if got := parse(text); got != want {
			t.Errorf("%s is %+v, not %+v", text, got, want)
		}
	}
}
