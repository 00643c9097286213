// Package validator exports a policy that evaluates requests.
package validator

import (
	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/internal/guest"
	_ "github.com/tollgate-dev/tollgate/guest-sdk/go/internal/guest/validating"
)

// Export exports a policy that evaluates requests from this module. Call it once, in an init
// function.
//
// The host calls the policy that configure returns. If the settings are invalid, configure returns
// an error, preferably [tollgate.SettingsErrors].
func Export[S any, P tollgate.Validator](manifest tollgate.Manifest, configure func(settings S) (P, error)) {
	guest.Export(manifest, configure, func(policy P) { guest.Validate = policy.Validate })
}
