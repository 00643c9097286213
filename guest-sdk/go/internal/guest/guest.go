// Package guest is the plugin's side of the contract: the exports that the host calls, and the
// imports of the host. Values have the memory layout of the component model's canonical ABI.
package guest

import tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"

// The exported plugin. A module has one.
var (
	manifest  tollgate.Manifest
	schema    func() string
	configure func(settings string) error
	// Validate and Mutate call the policy that configure has created.
	Validate func(review *tollgate.Review) error
	Mutate   func(review *tollgate.Review) (tollgate.Mutation, error)
)

// Export registers a plugin, so that the host can call it.
func Export[S, P any](what tollgate.Manifest, make func(S) (P, error), export func(P)) {
	if configure != nil {
		panic("tollgate: Export is called twice: a plugin has one policy")
	}
	manifest = what
	schema = tollgate.SettingsSchema[S]
	configure = func(settings string) error {
		policy, err := tollgate.Configure(settings, make)
		if err == nil {
			export(policy)
		}
		return err
	}
}
