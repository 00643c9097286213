// Package guest is the plugin's side of the contract: what the host calls, and what of the host can
// be called. The layout of values in memory is that of the component model's canonical ABI.
package guest

import tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"

// What has been exported. There is one plugin in a module.
var (
	manifest  tollgate.Manifest
	configure func(settings string) error
	// Validate and Mutate judge with the policy that configure left.
	Validate func(review *tollgate.Review) error
	Mutate   func(review *tollgate.Review) (tollgate.Mutation, error)
)

// Export keeps a plugin for the host to call.
func Export[S, P any](what tollgate.Manifest, make func(S) (P, error), export func(P)) {
	if configure != nil {
		panic("tollgate: Export is called twice: a plugin has one policy")
	}
	manifest = what
	configure = func(settings string) error {
		policy, err := tollgate.Configure(settings, make)
		if err == nil {
			export(policy)
		}
		return err
	}
}
