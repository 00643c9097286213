package tollgate

// A Validator judges requests.
type Validator interface {
	// Validate judges the review on the object as every mutator left it. Nil allows the request, a
	// [*Denial] refuses it, and every other error is a fault of the plugin.
	Validate(review *Review) error
}

// A Mutator changes objects.
//
// It may run again on its own output, and must then change nothing.
type Mutator interface {
	// Mutate says what is to change: a [*Patch], a [MergePatch], a [WholeObject], or nil for
	// nothing. On DELETE there is no object, and nothing to change. A [*Denial] refuses the request,
	// and every other error is a fault of the plugin.
	Mutate(review *Review) (Mutation, error)
}

// A Plugin does both.
type Plugin interface {
	Validator
	Mutator
}

// A Manifest is what a plugin says of itself.
type Manifest struct {
	// Name is short, in lower case with dashes. The name that counts at run time is the
	// configuration's.
	Name string
	// Version is the plugin's own, by convention a semantic version without a leading v.
	Version string
	// Description is one sentence for people.
	Description string
	// SettingsSchema is a JSON Schema for the settings, or empty. It documents; what decides is the
	// function that reads the settings.
	SettingsSchema string
	// Rules are what the plugin is meant for. The configuration's, where given, win.
	Rules []Rule
	// Labels are more, by reverse-DNS or well-known key (documentation, licence, …).
	Labels map[string]string
}

// A Rule is Kubernetes' RuleWithOperations, with its wildcards.
type Rule struct {
	// Operations are CREATE, UPDATE, DELETE, CONNECT, or * for all.
	Operations []string
	// APIGroups are groups; the empty string is the core group, * is all.
	APIGroups []string
	// APIVersions are versions such as v1; * is all.
	APIVersions []string
	// Resources are resources such as pods, and subresources such as pods/status.
	Resources []string
	// Scope is Cluster, Namespaced or *; empty means *.
	Scope string
}
