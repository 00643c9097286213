package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-dev/tollgate/guest-sdk/go/tollgatetest"
)

// secret reads a Secret of the suite.
func secret(t *testing.T, name string) map[string]any {
	t.Helper()
	text, err := os.ReadFile("secrets/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	data := map[string]any{}
	for line := range strings.Lines(string(text)) {
		if field, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && strings.HasPrefix(field, "tls.") {
			data[field] = value
		}
	}
	return map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "data": data}
}

func TestWhatIsWrongIsTold(t *testing.T) {
	february := time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		secret, settings string
		now              time.Time
		field, message   string
	}{
		{"usable", `{"domains": ["example.com"]}`, february, "", ""},
		{"rsa-2048", `{}`, february, "", ""},
		{"another-key", `{}`, february, keyField, "is not the key of the certificate in tls.crt"},
		{"nameless", `{}`, february, certificateField, "has no subject alternative name: clients do not look at the common name"},
		{"rsa-1024", `{}`, february, certificateField, "has an RSA key of 1024 bits: at least 2048 are needed"},
		{"rsa-2048", `{"domains": ["example.org"]}`, february, certificateField, "is for shop.example.com, which is not within: example.org"},
		{"usable", `{}`, february.AddDate(1, 0, 0), certificateField, "has expired on 2026-04-01"},
		{"usable", `{}`, february.AddDate(-1, 0, 0), certificateField, "is not valid before 2026-01-01"},
		{"usable", `{"minDaysLeft": 90}`, february, certificateField, "expires on 2026-04-01, in less than 90 days"},
	} {
		policy := tollgatetest.Configure(t, test.settings, New)
		outcome := tollgatetest.Create(secret(t, test.secret)).At(test.now).Validate(t, policy)
		if test.field == "" {
			if outcome.Denial != nil {
				t.Errorf("%s is denied: %v", test.secret, outcome.Denial)
			}
			continue
		}
		if outcome.Denial == nil || len(outcome.Denial.Causes) != 1 {
			t.Errorf("%s is denied with %v, not one cause", test.secret, outcome.Denial)
			continue
		}
		if cause := outcome.Denial.Causes[0]; cause.Field != test.field || cause.Message != test.message {
			t.Errorf("%s: %s %s, not %s %s", test.secret, cause.Field, cause.Message, test.field, test.message)
		}
	}
}

func TestAChainIsSignedInOrder(t *testing.T) {
	policy := tollgatetest.Configure(t, `{}`, New)
	outcome := tollgatetest.Create(secret(t, "unordered")).At(time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)).Validate(t, policy)
	if outcome.Denial == nil || !strings.Contains(outcome.Denial.Error(), "certificate 1 is not signed by certificate 2") {
		t.Errorf("denied with %v", outcome.Denial)
	}
}
