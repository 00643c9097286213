package tollgate

// A Validator evaluates requests.
type Validator interface {
	// Validate evaluates the review. The object is the result of all mutators. Nil allows the request,
	// and a [*Denial] denies it. Any other error is a fault of the plugin.
	Validate(review *Review) error
}

// A Mutator changes objects.
//
// The host may call it on its own output. It must then change nothing.
type Mutator interface {
	// Mutate returns the change: a [*Patch], a [MergePatch], a [WholeObject], or nil for no change. On
	// DELETE there is no object, and nothing to change. A [*Denial] denies the request. Any other
	// error is a fault of the plugin.
	Mutate(review *Review) (Mutation, error)
}

// A Plugin does both.
type Plugin interface {
	Validator
	Mutator
}

// A Manifest is a plugin's description of itself.
type Manifest struct {
	// Name is short, in lower case with dashes. At run time, the name in the configuration counts.
	Name string
	// Version is the plugin's version, by convention a semantic version without a leading v.
	Version string
	// Description is one sentence for people.
	Description string
	// SettingsSchema is a JSON Schema for the settings. If it is empty, the schema comes from the type
	// of the settings. The schema is documentation. The function that reads the settings decides.
	SettingsSchema string
	// Rules are the requests that the plugin is meant for. Rules in the configuration override them.
	Rules []Rule
	// Labels are additional keys and values, by reverse-DNS or well-known key (documentation, licence,
	// …).
	Labels map[string]string
}

// A Rule is Kubernetes' RuleWithOperations, with its wildcards.
type Rule struct {
	// Operations are CREATE, UPDATE, DELETE, CONNECT, or * for all.
	Operations []string
	// APIGroups are API groups. The empty string is the core group, and * is all.
	APIGroups []string
	// APIVersions are API versions such as v1; * is all.
	APIVersions []string
	// Resources are resources such as pods, and subresources such as pods/status.
	Resources []string
	// Scope is Cluster, Namespaced or *; empty means *.
	Scope string
}
