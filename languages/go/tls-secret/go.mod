module github.com/tollgate-dev/tollgate/languages/go/tls-secret

go 1.24

require github.com/tollgate-dev/tollgate/guest-sdk/go v0.0.0

require gopkg.in/evanphx/json-patch.v4 v4.13.0 // indirect

replace github.com/tollgate-dev/tollgate/guest-sdk/go => ../../../guest-sdk/go
