package guest

import (
	"errors"
	"sort"
	"unsafe"

	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
)

//go:wasmexport tollgate:admission/lifecycle@0.1.0#describe
func describe() unsafe.Pointer {
	return Answer(func() []uint32 {
		if configure == nil {
			panic("tollgate: nothing is exported: call Export of package validator, mutator or plugin in an init function")
		}
		settings := manifest.SettingsSchema
		if settings == "" {
			settings = schema()
		}
		return Join(
			Text(manifest.Name), Text(manifest.Version), Text(manifest.Description), Option(settings),
			List(manifest.Rules, rule), List(sorted(manifest.Labels), label),
		)
	})
}

//go:wasmexport tollgate:admission/lifecycle@0.1.0#configure
func configureExport(at, length uint32) unsafe.Pointer {
	return Answer(func() []uint32 {
		settings := take(at, length)
		taken()
		err := configure(settings)
		var all tollgate.SettingsErrors
		switch {
		case err == nil:
			return []uint32{0, 0, 0}
		case errors.As(err, &all):
			return Join([]uint32{1}, List(all, settingsError))
		default:
			one := tollgate.SettingsErrors{{Message: err.Error()}}
			return Join([]uint32{1}, List(one, settingsError))
		}
	})
}

func rule(rule tollgate.Rule) []uint32 {
	return Join(
		List(rule.Operations, Text), List(rule.APIGroups, Text), List(rule.APIVersions, Text), List(rule.Resources, Text),
		Option(rule.Scope),
	)
}

func label(label [2]string) []uint32 { return Join(Text(label[0]), Text(label[1])) }

func settingsError(one tollgate.SettingsError) []uint32 {
	return Join(Option(one.Setting), Text(one.Message))
}

func sorted(labels map[string]string) [][2]string {
	pairs := make([][2]string, 0, len(labels))
	for key, value := range labels {
		pairs = append(pairs, [2]string{key, value})
	}
	sort.Slice(pairs, func(i, j int) bool { return pairs[i][0] < pairs[j][0] })
	return pairs
}

// Denial returns the words of a denial. Any other error ends the call.
func Denial(err error) []uint32 {
	var denial *tollgate.Denial
	if !errors.As(err, &denial) {
		Fault("%s", err.Error())
	}
	if denial == nil {
		Fault("a nil *tollgate.Denial was returned as the error: return nil to allow")
	}
	code := uint32(0)
	if denial.Code != 0 {
		code = 1 | uint32(denial.Code)<<16
	}
	return Join(Text(denial.Message), []uint32{code}, Option(denial.Reason), List(denial.Causes, cause))
}

func cause(cause tollgate.Cause) []uint32 {
	return Join(Option(cause.Field), Text(cause.Message), Option(cause.Reason))
}

// Review returns the review of this call.
func Review() *tollgate.Review { return tollgate.ReviewOf(host{}) }
