// Package main uses modules of others, each on request of the object, to show that they work in a plugin and what they
// cost.
package main

import (
	"fmt"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/santhosh-tekuri/jsonschema/v6"
	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/validator"
	"sigs.k8s.io/yaml"
)

const text = "port: 80\nlist: [a, b]\n"

// Settings are the settings of the plugin.
type Settings struct {
	// Schema is a JSON Schema: a setting of any form.
	Schema any `json:"schema"`
}

// Policy holds what New prepares. It costs nothing in a call.
type Policy struct{ schema *jsonschema.Schema }

// New compiles the schema.
func New(settings Settings) (*Policy, error) {
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("settings.json", settings.Schema); err != nil {
		return nil, tollgate.SettingsErrors{}.At("/schema", err.Error())
	}
	schema, err := compiler.Compile("settings.json")
	if err != nil {
		return nil, tollgate.SettingsErrors{}.At("/schema", err.Error())
	}
	return &Policy{schema}, nil
}

// Validate uses the module that the object names, and warns with what comes out.
func (policy *Policy) Validate(review *tollgate.Review) error {
	name, _ := review.Object().Text("/data/use")
	review.Warn("%s", policy.use(name))
	return nil
}

func (policy *Policy) use(name string) string {
	switch name {
	case "jsonschema":
		return policy.schema.Validate(map[string]any{"port": 80}).(*jsonschema.ValidationError).Causes[0].Error()
	case "semver":
		constraint, err := semver.NewConstraint("^1.2")
		return fmt.Sprint(constraint.Check(semver.MustParse("1.2.3")), err)
	case "yaml":
		json, err := yaml.YAMLToJSON([]byte(text))
		return strings.TrimSpace(fmt.Sprintln(string(json), err))
	default:
		return "ok"
	}
}

func init() {
	validator.Export(tollgate.Manifest{
		Name: "go-packages", Version: "0.1.0",
		Rules: []tollgate.Rule{{
			Operations: []string{"*"},
			APIGroups:  []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
		}},
	}, New)
}

func main() {}
