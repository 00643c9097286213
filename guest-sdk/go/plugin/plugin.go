// Package plugin exports a policy that changes objects and evaluates requests.
package plugin

import (
	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/internal/guest"
	_ "github.com/tollgate-dev/tollgate/guest-sdk/go/internal/guest/mutating"
	_ "github.com/tollgate-dev/tollgate/guest-sdk/go/internal/guest/validating"
)

// Export exports a policy that changes objects and evaluates requests from this module. Call it
// once, in an init function.
//
// The host calls the policy that configure returns. If the settings are invalid, configure returns
// an error, preferably [tollgate.SettingsErrors].
func Export[S any, P tollgate.Plugin](manifest tollgate.Manifest, configure func(settings S) (P, error)) {
	guest.Export(manifest, configure, func(policy P) { guest.Mutate, guest.Validate = policy.Mutate, policy.Validate })
}
