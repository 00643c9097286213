package tollgate

import (
	"strings"

	"github.com/tollgate-dev/tollgate/guest-sdk/go/internal/settings"
)

// SettingsErrors has all errors in the settings. A function that reads settings returns it as its
// error.
type SettingsErrors []SettingsError

// A SettingsError is one error in the settings.
type SettingsError struct {
	// Setting is a pointer into the settings. Empty if the error is not in a single setting.
	Setting string
	// Message says what a correct value would be, for the author of the configuration.
	Message string
}

// SettingsErrorAt returns one error about the setting at a pointer.
func SettingsErrorAt(setting, format string, arguments ...any) SettingsErrors {
	return SettingsErrors{}.At(setting, format, arguments...)
}

// At adds an error about the setting at a pointer.
func (errors SettingsErrors) At(setting, format string, arguments ...any) SettingsErrors {
	return append(errors, SettingsError{setting, text(format, arguments)})
}

// IfAny returns the errors if there are any, and nil otherwise.
func (errors SettingsErrors) IfAny() error {
	if len(errors) == 0 {
		return nil
	}
	return errors
}

// Error returns all errors on one line.
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

// Defaults is for settings whose default is not the zero value. SetDefaults is called before the
// settings are read.
type Defaults interface{ SetDefaults() }

func withDefaults[S any]() S {
	var made S
	if defaults, ok := any(&made).(Defaults); ok {
		defaults.SetDefaults()
	}
	return made
}

// SettingsSchema returns the JSON Schema of settings of this type. The export packages describe a
// plugin with it whose manifest has no SettingsSchema.
func SettingsSchema[S any]() string {
	made := withDefaults[S]()
	return settings.Schema(&made)
}

// Configure configures a policy strictly, like the host. An unknown setting is an error, and each
// error has the pointer of its setting. The export packages and package tollgatetest call it.
func Configure[S, P any](from string, configure func(S) (P, error)) (P, error) {
	read := withDefaults[S]()
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
