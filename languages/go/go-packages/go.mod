module github.com/tollgate-dev/tollgate/languages/go/go-packages

go 1.24

require (
	github.com/Masterminds/semver/v3 v3.4.0
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	github.com/tollgate-dev/tollgate/guest-sdk/go v0.0.0
	sigs.k8s.io/yaml v1.6.0
)

require (
	go.yaml.in/yaml/v2 v2.4.2 // indirect
	golang.org/x/text v0.14.0 // indirect
)

replace github.com/tollgate-dev/tollgate/guest-sdk/go => ../../../guest-sdk/go
