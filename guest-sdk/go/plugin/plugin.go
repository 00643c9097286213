// Package plugin exports a policy that changes objects and judges requests.
package plugin

import (
	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/internal/guest"
	_ "github.com/tollgate-dev/tollgate/guest-sdk/go/internal/guest/mutating"
	_ "github.com/tollgate-dev/tollgate/guest-sdk/go/internal/guest/validating"
)

// Export makes a policy that changes objects and judges requests of this module. Call it once, in an init function.
//
// What configure makes of the settings is what judges. Its error, best a [tollgate.SettingsErrors],
// says why the settings will not do.
func Export[S any, P tollgate.Plugin](manifest tollgate.Manifest, configure func(settings S) (P, error)) {
	guest.Export(manifest, configure, func(policy P) { guest.Mutate, guest.Validate = policy.Mutate, policy.Validate })
}
