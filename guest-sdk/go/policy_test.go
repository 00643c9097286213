package tollgate_test

import (
	"testing"

	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/tollgatetest"
)

type settings struct {
	MaxReplicas int64             `json:"maxReplicas"`
	Teams       []string          `json:"teams"`
	Limits      map[string]uint16 `json:"limits"`
}

func (settings *settings) SetDefaults() { settings.MaxReplicas = 10 }

type replicaLimit struct{ settings }

func configure(settings settings) (*replicaLimit, error) {
	var errors tollgate.SettingsErrors
	if settings.MaxReplicas < 1 {
		errors = errors.At("/maxReplicas", "must be at least 1")
	}
	for index, team := range settings.Teams {
		if team == "" {
			errors = errors.At(tollgate.Pointer("teams", index), "is empty")
		}
	}
	return &replicaLimit{settings}, errors.IfAny()
}

func (limit *replicaLimit) Validate(review *tollgate.Review) error {
	denial := tollgate.Deny("too many replicas")
	replicas, ok := review.Object().Integer("/spec/replicas")
	if ok && replicas > limit.MaxReplicas {
		denial.At("/spec/replicas", "must be at most %d", limit.MaxReplicas)
	}
	review.Annotate("user", review.Request().Name)
	for _, node := range review.Object().Select("/metadata/labels/*") {
		review.Warn("%s", node.Pointer)
	}
	return denial.IfBlamed()
}

func (limit *replicaLimit) Mutate(review *tollgate.Review) (tollgate.Mutation, error) {
	if !review.Object().Exists() {
		return nil, nil
	}
	patch := new(tollgate.Patch).
		Set(review.Object(), "/metadata/annotations/a", "<ü>").
		Set(review.Object(), "/metadata/annotations/b~1c", limit.MaxReplicas).
		Append(review.Object(), "/spec/list", 1).
		Append(review.Object(), "/spec/list", nil)
	return patch, nil
}

const deployment = `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"a/b": "", "c~d": ""}},
	"spec": {"replicas": 12}}`

func TestADenialBlamesTheField(t *testing.T) {
	limit := tollgatetest.Configure(t, `{}`, configure)
	outcome := tollgatetest.Create(deployment).Validate(t, limit)
	if got, want := outcome.Denial.Error(), "too many replicas; /spec/replicas: must be at most 10"; got != want {
		t.Errorf("denied with %q, not %q", got, want)
	}
	if outcome.Annotations["user"] != "web" {
		t.Errorf("annotations are %v", outcome.Annotations)
	}
	if len(outcome.Warnings) != 2 || outcome.Warnings[0] != "/metadata/labels/a~1b" || outcome.Warnings[1] != "/metadata/labels/c~0d" {
		t.Errorf("warnings are %q", outcome.Warnings)
	}
}

func TestWhatIsNotBlamedIsAllowed(t *testing.T) {
	limit := tollgatetest.Configure(t, `{"maxReplicas": 12}`, configure)
	if outcome := tollgatetest.Create(deployment).Validate(t, limit); outcome.Denial != nil {
		t.Errorf("denied: %v", outcome.Denial)
	}
	if outcome := tollgatetest.Delete(deployment).Validate(t, limit); outcome.Denial != nil {
		t.Errorf("denied: %v", outcome.Denial)
	}
}

func TestEachSettingThatIsWrongIsNamed(t *testing.T) {
	for settings, want := range map[string]string{
		`{"maxReplicas": 0, "teams": ["a", ""]}`: "/maxReplicas: must be at least 1; /teams/1: is empty",
		`{"maxReplica": 1}`:                      "/maxReplica: unknown setting; there are: limits, maxReplicas, teams",
		`{"MaxReplicas": 1}`:                     "/MaxReplicas: unknown setting; there are: limits, maxReplicas, teams",
		`{"maxReplicas": null}`:                  "/maxReplicas: must be a whole number that fits into 64 bits",
		`{"teams": ["a", 1]}`:                    "/teams/1: must be a string",
		`{"limits": {"a/b": -1}}`:                "/limits/a~1b: must be a whole number from 0 that fits into 16 bits",
		`{"teams": {}, "limits": []}`:            "/limits: must be an object; /teams: must be a list",
		`[]`:                                     "the settings are not an object",
	} {
		_, err := tollgate.Configure(settings, configure)
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v\nnot: %s", settings, err, want)
		}
	}
}

func TestSetMakesMissingParentsOnce(t *testing.T) {
	limit := tollgatetest.Configure(t, `{}`, configure)
	outcome := tollgatetest.Create(`{"metadata": {"annotations": null}, "spec": {}}`).Mutate(t, limit)
	want := `{"metadata":{"annotations":{"a":"<ü>","b/c":10}},"spec":{"list":[1,null]}}`
	if !outcome.Changed || outcome.Object != want {
		t.Errorf("became %s\nnot    %s", outcome.Object, want)
	}
	if outcome := tollgatetest.Delete(deployment).Mutate(t, limit); outcome.Changed || outcome.Object != "" {
		t.Errorf("became %s", outcome.Object)
	}
}

func TestNumbersAreExact(t *testing.T) {
	var review *tollgate.Review
	tollgatetest.Create(`{"n": 9007199254740993, "f": 1.0, "big": 18446744073709551616}`).Validate(t, validator(func(r *tollgate.Review) error {
		review = r
		return nil
	}))
	if n, ok := review.Object().Integer("/n"); !ok || n != 9007199254740993 {
		t.Errorf("/n is %d, %v", n, ok)
	}
	for _, pointer := range []string{"/f", "/big", "/none"} {
		if n, ok := review.Object().Integer(pointer); ok {
			t.Errorf("%s is %d", pointer, n)
		}
	}
	if text, _ := review.Object().JSON("/big"); text != "18446744073709551616" {
		t.Errorf("/big is %s", text)
	}
}

func TestAMalformedPointerEndsTheCall(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("`spec` was taken for a pointer")
		}
	}()
	tollgatetest.Create(deployment).Validate(t, validator(func(review *tollgate.Review) error {
		review.Object().Get("spec")
		return nil
	}))
}

type validator func(*tollgate.Review) error

func (validate validator) Validate(review *tollgate.Review) error { return validate(review) }

// labelled denies objects in namespaces without the label team.
type labelled struct{ namespace, tier string }

func (policy *labelled) Validate(review *tollgate.Review) error {
	policy.namespace, _ = review.Namespace().JSON("")
	found := review.Namespace().GetMany("/metadata/labels/tier", "/spec", "/metadata")
	policy.tier, _ = found[0].Value.Text()
	if found[1].OK || len(found) != 3 {
		return tollgate.Deny("shows more than metadata")
	}
	if _, ok := review.Namespace().Text("/metadata/labels/team"); !ok && review.Namespace().Exists() {
		return tollgate.Deny("no team")
	}
	return nil
}

const shop = `{"apiVersion": "v1", "kind": "Namespace", "spec": {"finalizers": []},
	"metadata": {"name": "shop", "labels": {"team": "a", "tier": "gold"}, "managedFields": []}}`

func TestNamespaceIsThatOfTheObject(t *testing.T) {
	policy := &labelled{}
	review := tollgatetest.Create(deployment).NamespaceObject(shop)
	if outcome := review.Validate(t, policy); outcome.Denial != nil {
		t.Fatal(outcome.Denial)
	}
	expected := `{"apiVersion":"v1","kind":"Namespace","metadata":{"labels":{"team":"a","tier":"gold"},"name":"shop"}}`
	if policy.namespace != expected || policy.tier != "gold" {
		t.Fatal(policy)
	}
	itself := `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}`
	if outcome := tollgatetest.Create(itself).Validate(t, policy); outcome.Denial == nil {
		t.Fatal("a new Namespace is in itself")
	}
	if outcome := tollgatetest.Delete(shop).Validate(t, policy); outcome.Denial != nil {
		t.Fatal("a Namespace that is deleted is in the stored one")
	}
	node := `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}`
	if outcome := tollgatetest.Create(node).Validate(t, policy); outcome.Denial != nil || policy.namespace != "" {
		t.Fatal("a Node is in no namespace")
	}
}

func TestNamespaceThatTheTestLeavesOutIsNotAbsent(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("the host would end the call")
		}
	}()
	tollgatetest.Create(deployment).With("namespace", "shop").Validate(t, &labelled{})
}
