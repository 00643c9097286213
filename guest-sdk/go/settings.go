package tollgate

import (
	"strings"

	"github.com/tollgate-dev/tollgate/guest-sdk/go/internal/settings"
)

// SettingsErrors is everything that is wrong with the settings. A function that reads settings
// returns it as its error.
type SettingsErrors []SettingsError

// A SettingsError is something that is wrong with the settings.
type SettingsError struct {
	// Setting is a pointer into the settings; empty when none is to blame alone.
	Setting string
	// Message says what would be right, for whoever wrote the configuration.
	Message string
}

// SettingsErrorAt is one error about the setting at a pointer.
func SettingsErrorAt(setting, format string, arguments ...any) SettingsErrors {
	return SettingsErrors{}.At(setting, format, arguments...)
}

// At adds an error about the setting at a pointer.
func (errors SettingsErrors) At(setting, format string, arguments ...any) SettingsErrors {
	return append(errors, SettingsError{setting, text(format, arguments)})
}

// IfAny is the errors when there are any, and nil otherwise.
func (errors SettingsErrors) IfAny() error {
	if len(errors) == 0 {
		return nil
	}
	return errors
}

// Error is all of them on one line.
func (errors SettingsErrors) Error() string {
	texts := make([]string, len(errors))
	for index, one := range errors {
		texts[index] = one.Message
		if one.Setting != "" {
			texts[index] = one.Setting + ": " + one.Message
		}
	}
	return strings.Join(texts, "; ")
}

// Defaults is for settings that are not the zero value where they are left out: SetDefaults is
// called before the settings are read.
type Defaults interface{ SetDefaults() }

// Configure makes a policy of settings as the host does: strictly, so that an unknown setting is an
// error, and each error has the pointer of its setting. The export packages and package tollgatetest
// call it.
func Configure[S, P any](from string, configure func(S) (P, error)) (P, error) {
	var read S
	if defaults, ok := any(&read).(Defaults); ok {
		defaults.SetDefaults()
	}
	var errors SettingsErrors
	settings.Read([]byte(from), &read, func(setting, message string) {
		errors = append(errors, SettingsError{setting, message})
	})
	if len(errors) > 0 {
		var none P
		return none, errors
	}
	return configure(read)
}
