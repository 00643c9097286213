// Package main allows only images from certain registries in Pods, and adds a tag to images without
// one.
package main

import (
	"regexp"
	"strconv"
	"strings"

	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/plugin"
)

// Settings are the settings of the plugin.
type Settings struct {
	Allowed    []string `json:"allowed"`
	DefaultTag string   `json:"defaultTag"`
	Message    string   `json:"message"`
}

// SetDefaults sets the values of missing settings.
func (settings *Settings) SetDefaults() {
	settings.Message = "images must come from trusted registries"
}

// Policy is the configured policy.
type Policy struct{ Settings }

var isTag = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

// New checks the settings, and creates the policy.
func New(settings Settings) (*Policy, error) {
	var errors tollgate.SettingsErrors
	if len(settings.Allowed) == 0 {
		errors = errors.At("/allowed", "name at least one registry, such as registry.example.com")
	}
	for index, prefix := range settings.Allowed {
		prefix = strings.TrimSuffix(prefix, "/")
		host, path, hasPath := strings.Cut(prefix, "/")
		if !looksLikeHost(host) || hasPath && (path == "" || path[0] == '/') {
			errors = errors.At(tollgate.Pointer("allowed", index), "begins with no registry, such as registry.example.com or localhost:5000")
		}
		settings.Allowed[index] = strings.ToLower(host) + strings.TrimPrefix(prefix, host)
	}
	if settings.DefaultTag != "" && !isTag.MatchString(settings.DefaultTag) {
		errors = errors.At("/defaultTag", "is no tag")
	}
	return &Policy{settings}, errors.IfAny()
}

// Validate adds a cause for every image that is not from an allowed registry.
func (policy *Policy) Validate(review *tollgate.Review) error {
	denial := tollgate.Deny("%s", policy.Message)
	nodes := images(review.Object())
	for _, node := range nodes {
		text, ok := node.Value.Text()
		if !ok {
			denial.At(node.Pointer, "must be a string")
			continue
		}
		image := parse(text)
		switch {
		case !policy.allows(image):
			denial.At(node.Pointer, "must be from one of: %s", strings.Join(policy.Allowed, ", "))
		case policy.DefaultTag != "" && !image.pinned:
			denial.At(node.Pointer, "must have a tag or a digest")
		case image.tag == "latest":
			review.Warn("%s: the tag latest may stand for another image tomorrow", node.Pointer)
		}
	}
	review.Annotate("images", "%d", len(nodes))
	return denial.IfBlamed()
}

// Mutate adds the default tag to images with neither tag nor digest.
func (policy *Policy) Mutate(review *tollgate.Review) (tollgate.Mutation, error) {
	patch := new(tollgate.Patch)
	if policy.DefaultTag == "" {
		return patch, nil
	}
	for _, node := range images(review.Object()) {
		if text, _ := node.Value.Text(); text != "" && !parse(text).pinned {
			patch.Replace(node.Pointer, text+":"+policy.DefaultTag)
		}
	}
	if pinned := len(patch.Operations()); pinned > 0 {
		review.Annotate("pinned", "%s", strconv.Itoa(pinned))
	}
	return patch, nil
}

func (policy *Policy) allows(image image) bool {
	for _, prefix := range policy.Allowed {
		if image.isWithin(prefix) {
			return true
		}
	}
	return false
}

func images(pod tollgate.Document) []tollgate.Node {
	nodes := pod.Select("/spec/initContainers/*/image")
	nodes = append(nodes, pod.Select("/spec/containers/*/image")...)
	nodes = append(nodes, pod.Select("/spec/ephemeralContainers/*/image")...)
	return append(nodes, pod.Select("/spec/volumes/*/image/reference")...)
}

func init() {
	plugin.Export(tollgate.Manifest{
		Name: "trusted-registries", Version: "0.1.0",
		Description: "Lets Pods have images of trusted registries only",
		Rules: []tollgate.Rule{{
			Operations: []string{"CREATE", "UPDATE"},
			APIGroups:  []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods", "pods/ephemeralcontainers"},
		}},
	}, New)
}

func main() {}
