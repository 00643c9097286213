package tollgate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/access"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/cluster"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/images"
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

// ended runs a policy and returns what it panics with.
func ended(t *testing.T, policy func(object tollgate.Document)) (reason any) {
	defer func() { reason = recover() }()
	tollgatetest.Create(deployment).Validate(t, validator(func(review *tollgate.Review) error {
		policy(review.Object())
		return nil
	}))
	return nil
}

func TestAMalformedPointerEndsEveryRead(t *testing.T) {
	for name, read := range map[string]func(tollgate.Document){
		"Get":     func(object tollgate.Document) { object.Get("spec/replicas") },
		"GetMany": func(object tollgate.Document) { object.GetMany("/spec", "spec/replicas") },
		"Text":    func(object tollgate.Document) { object.Text("spec/replicas") },
		"Integer": func(object tollgate.Document) { object.Integer("spec/replicas") },
		"Number":  func(object tollgate.Document) { object.Number("spec/replicas") },
		"Boolean": func(object tollgate.Document) { object.Boolean("spec/replicas") },
		"Len":     func(object tollgate.Document) { object.Len("spec/replicas") },
		"Keys":    func(object tollgate.Document) { object.Keys("spec/replicas") },
		"Select":  func(object tollgate.Document) { object.Select("spec/replicas") },
		"JSON":    func(object tollgate.Document) { object.JSON("spec/replicas") },
		"Read":    func(object tollgate.Document) { _, _ = object.Read("spec/replicas", new(int)) },
		"Add":     func(tollgate.Document) { new(tollgate.Patch).Add("spec/replicas", 1) },
		"Replace": func(tollgate.Document) { new(tollgate.Patch).Replace("spec/replicas", 1) },
		"Remove":  func(tollgate.Document) { new(tollgate.Patch).Remove("spec/replicas") },
		"Test":    func(tollgate.Document) { new(tollgate.Patch).Test("spec/replicas", 1) },
		"Move":    func(tollgate.Document) { new(tollgate.Patch).Move("spec/replicas", "/a") },
		"Copy":    func(tollgate.Document) { new(tollgate.Patch).Copy("/a", "spec/replicas") },
		"Set":     func(object tollgate.Document) { new(tollgate.Patch).Set(object, "spec/replicas", 1) },
		"Append":  func(object tollgate.Document) { new(tollgate.Patch).Append(object, "spec/replicas", 1) },
	} {
		want := "`spec/replicas` is no JSON Pointer: it has no leading slash; write `/spec/replicas`"
		if reason := ended(t, read); reason != want {
			t.Errorf("%s ended with %v", name, reason)
		}
	}
}

func TestAMalformedEscapeIsExplained(t *testing.T) {
	for _, pointer := range []string{"/a~", "/a~2", "/~0~b"} {
		reason := ended(t, func(object tollgate.Document) { object.Get(pointer) })
		want := "`" + pointer + "` is no JSON Pointer: a `~` is followed by neither 0 nor 1; " +
			"write `~0` for `~` and `~1` for `/`, or make it with tollgate.Pointer"
		if reason != want {
			t.Errorf("%s ended with %v", pointer, reason)
		}
	}
	for _, pointer := range []string{"", "/", "/~0~1", tollgate.Pointer("~2", "a/b")} {
		if reason := ended(t, func(object tollgate.Document) { object.Get(pointer) }); reason != nil {
			t.Errorf("%s ended with %v", pointer, reason)
		}
	}
}

// aborting is a host that ends the call, like Tollgate itself.
type aborting struct {
	tollgate.Host
	said []string
}

func (host *aborting) Abort(message string) { host.said = append(host.said, message) }

func TestTheHostIsToldBeforeAnythingCanRecover(t *testing.T) {
	host := &aborting{}
	defer tollgate.UseHost(tollgate.UseHost(host))
	defer func() {
		if recover() == nil || len(host.said) != 1 {
			t.Errorf("the host was told %q", host.said)
		}
	}()
	tollgate.ReviewOf(host).Object().Get("spec")
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

const ingresses = `{
	"name": "ingresses",
	"resource": {"group": "networking.k8s.io", "version": "v1", "resource": "ingresses"},
	"namespaces": ["blog", "shop"],
	"fields": ["/spec/rules/*/host", "/spec/priority"],
	"indexes": {"host": "/spec/rules/*/host", "team": "/metadata/labels/team"}
}`

func ingress(namespace, name, host string) string {
	return fmt.Sprintf(`{"metadata": {"namespace": %q, "name": %q, "labels": {"team": "a"}}, "spec": {
		"priority": 9007199254740993, "rules": [{"host": %q, "http": {}}, {}]}}`, namespace, name, host)
}

// inCluster runs a function where lookups are.
func inCluster(t *testing.T, review *tollgatetest.Review, run func() error) error {
	var err error
	review.Validate(t, validator(func(*tollgate.Review) error {
		err = run()
		return nil
	}))
	return err
}

func TestLookupsFindObjects(t *testing.T) {
	review := tollgatetest.Create(deployment).Lookup(ingresses,
		ingress("shop", "web", "b.example"), ingress("blog", "web", "b.example"), ingress("blog", "api", "a.example"))
	err := inCluster(t, review, func() error {
		var found []string
		for object, err := range cluster.Find("ingresses", "host", "b.example") {
			if err != nil {
				return err
			}
			found = append(found, object.Namespace+"/"+object.Name)
		}
		if got := strings.Join(found, " "); got != "blog/web shop/web" {
			t.Errorf("found %s", got)
		}
		count := 0
		for _, err := range cluster.List("ingresses", "blog") {
			if err != nil {
				return err
			}
			count++
		}
		for range cluster.Find("ingresses", "team", "a") {
			count++
			break
		}
		if count != 3 {
			t.Errorf("listed %d", count)
		}
		object, ok, err := cluster.Get("ingresses", "blog", "api")
		if !ok || err != nil {
			t.Fatalf("got %v, %v", ok, err)
		}
		whole, _ := object.Fields().JSON("")
		if want := `{"spec":{"priority":9007199254740993,"rules":[{"host":"a.example"},{}]}}`; whole != want {
			t.Errorf("kept %s", whole)
		}
		if priority, _ := object.Fields().Integer("/spec/priority"); priority != 9007199254740993 {
			t.Errorf("the priority is %d", priority)
		}
		if nodes := object.Fields().Select("/spec/rules/*/host"); len(nodes) != 1 || nodes[0].Pointer != "/spec/rules/0/host" {
			t.Errorf("selected %v", nodes)
		}
		if _, ok, err := cluster.Get("ingresses", "blog", "none"); ok || err != nil {
			t.Errorf("got %v, %v", ok, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestListReturnsAllPages(t *testing.T) {
	var objects []any
	for number := range 1201 {
		objects = append(objects, ingress("shop", fmt.Sprintf("web-%04d", number), "a.example"))
	}
	var names []string
	inCluster(t, tollgatetest.Create(deployment).Lookup(ingresses, objects...), func() error {
		for object := range cluster.List("ingresses", "") {
			names = append(names, object.Name)
		}
		return nil
	})
	if len(names) != 1201 || names[1200] != "web-1200" {
		t.Errorf("%d names", len(names))
	}
}

func TestFailuresOfLookupsAreTyped(t *testing.T) {
	review := tollgatetest.Create(deployment).Lookup(ingresses).NotSynchronised("pods")
	get := func(lookup, namespace string) error {
		return inCluster(t, review, func() error {
			_, _, err := cluster.Get(lookup, namespace, "a")
			return err
		})
	}
	if err := get("pods", "shop"); !errors.Is(err, cluster.ErrNotSynchronised) || err.Error() != "not synchronised: the lookup pods" {
		t.Error(err)
	}
	if err := get("ingress", "shop"); !errors.Is(err, cluster.ErrNotGranted) {
		t.Error(err)
	}
	for _, namespace := range []string{"other", ""} {
		if err := get("ingresses", namespace); !errors.Is(err, cluster.ErrNotGranted) {
			t.Error(err)
		}
	}
	err := inCluster(t, review, func() error {
		for _, err := range cluster.Find("ingresses", "hosts", "a") {
			return err
		}
		return nil
	})
	if !errors.Is(err, cluster.ErrNotGranted) {
		t.Error(err)
	}
}

// asking calls a function within a review.
func asking(t *testing.T, review *tollgatetest.Review, call func() error) error {
	t.Helper()
	return inCluster(t, review, call)
}

func TestRulesSayWhatTheUserMayDo(t *testing.T) {
	rules := []any{
		`{"user": "anna", "verb": "delete", "apiGroup": "apps", "resource": "deployments/scale", "namespace": "shop"}`,
		`{"group": "dev", "verb": "*", "path": "/metrics*"}`,
		`{"user": "system:serviceaccount:shop:robot", "verb": "get", "resource": "*"}`,
	}
	review := tollgatetest.Create(deployment).User("anna", "dev").Access(rules...)
	scale := access.Resource{Verb: "delete", Group: "apps", Resource: "deployments", Subresource: "scale", Namespace: "shop"}
	elsewhere, whole := scale, scale
	elsewhere.Namespace, whole.Subresource = "blog", ""
	robot := access.ServiceAccount{Namespace: "shop", Name: "robot"}
	pods := access.Resource{Verb: "get", Resource: "pods"}
	for _, test := range []struct {
		check   func() (access.Decision, error)
		allowed bool
	}{
		{scale.Check, true},
		{elsewhere.Check, false},
		{whole.Check, false},
		{access.Path{Verb: "get", Path: "/metrics/slis"}.Check, true},
		{access.Path{Verb: "get", Path: "/healthz"}.Check, false},
		{pods.Check, false},
		{func() (access.Decision, error) { return pods.CheckServiceAccount(robot) }, true},
		{func() (access.Decision, error) { return scale.CheckServiceAccount(robot) }, false},
	} {
		err := asking(t, review, func() error {
			decision, err := test.check()
			if decision.Allowed != test.allowed || decision.Reason == "" {
				t.Errorf("got %v, expected %v", decision, test.allowed)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestFailuresOfAccessAreTyped(t *testing.T) {
	ask := func(review *tollgatetest.Review) error {
		return asking(t, review, func() error {
			_, err := access.Resource{Verb: "get", Resource: "pods"}.Check()
			return err
		})
	}
	if err := ask(tollgatetest.Create(deployment)); !errors.Is(err, access.ErrNotGranted) {
		t.Error(err)
	}
	if err := ask(tollgatetest.Create(deployment).AccessUnavailable()); !errors.Is(err, access.ErrUnavailable) {
		t.Error(err)
	}
}

func TestImagesAreAnsweredFromTheList(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	review := tollgatetest.Create(deployment).Images(
		map[string]any{"image": "nginx", "result": "verified", "digest": digest, "signers": []string{"release"}},
		`{"image": "nginx:2", "policy": "other", "result": "last-known-good"}`,
		`{"image": "nginx:2", "result": "unsigned", "reason": "none at all"}`,
	)
	verify := func(review *tollgatetest.Review, requests ...images.Request) (results []images.Result) {
		inCluster(t, review, func() error {
			results = images.Verify(requests...)
			return nil
		})
		return results
	}
	results := verify(review,
		images.Request{Image: "nginx", Policy: "release"}, images.Request{Image: "docker.io/library/nginx:latest", Policy: "release"},
		images.Request{Image: "nginx@" + digest, Policy: "release"}, images.Request{Image: "nginx:2", Policy: "other"})
	for index, result := range results {
		isOther := index == 3
		if result.Err != nil || result.Pinned != (index == 2) || result.LastKnownGood != isOther || len(result.Signers) == 0 != isOther {
			t.Errorf("%d: %v %v", index, result.Verified, result.Err)
		}
	}
	for _, test := range []struct {
		image, said string
		kind        error
	}{
		{"nginx:2", "not signed: none at all", images.ErrUnsigned},
		{"nginx:3", "not found: no entry of images is about docker.io/library/nginx:3", images.ErrNotFound},
		{"nginx@sha256:" + strings.Repeat("b", 64), "", images.ErrNotFound},
		{"Nginx", "no valid image: expected an image", images.ErrMalformed},
		{"nginx:", "", images.ErrMalformed},
	} {
		result := verify(review, images.Request{Image: test.image, Policy: "release"})[0]
		if !errors.Is(result.Err, test.kind) || result.Verified != nil || test.said != "" && result.Err.Error() != test.said {
			t.Errorf("%s: %v", test.image, result.Err)
		}
	}
	if result := verify(tollgatetest.Create(deployment), images.Request{Image: "nginx"})[0]; !errors.Is(result.Err, images.ErrNotGranted) {
		t.Error(result.Err)
	}
}

// short is a host that answers one request less than it was asked.
type short struct{}

func (short) Verify(requests []images.Request) []images.Result {
	return make([]images.Result, len(requests)-1)
}

func TestEveryImageHasAnAnswer(t *testing.T) {
	defer images.Use(short{})()
	defer func() {
		if said := recover(); said != "the host has answered 1 of 2 requests about images" {
			t.Errorf("%v", said)
		}
	}()
	images.Verify(images.Request{Image: "a", Policy: "p"}, images.Request{Image: "b", Policy: "p"})
}
