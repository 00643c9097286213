// Package main denies Secrets of type kubernetes.io/tls that no server can use or no client
// accepts.
package main

import (
	"crypto/x509"
	"strings"

	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/clock"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/validator"
)

const (
	certificateField = "/data/tls.crt"
	keyField         = "/data/tls.key"
)

// Settings are the settings of the plugin.
type Settings struct {
	// Domains are the allowed domains, including all domains below them. Empty allows any domain.
	Domains []string `json:"domains"`
	// MinDaysLeft is the number of days for which a certificate must still be valid.
	MinDaysLeft int `json:"minDaysLeft"`
	// MinRSABits is the minimum length of an RSA key.
	MinRSABits int `json:"minRSABits"`
}

// SetDefaults sets the values of missing settings.
func (settings *Settings) SetDefaults() {
	settings.MinRSABits = 2048
}

// Policy is the configured policy.
type Policy struct{ Settings }

// New checks the settings, and creates the policy.
func New(settings Settings) (*Policy, error) {
	var errors tollgate.SettingsErrors
	for index, domain := range settings.Domains {
		domain = strings.ToLower(strings.TrimSuffix(domain, "."))
		if domain == "" || strings.ContainsAny(domain, "*/: ") || strings.HasPrefix(domain, ".") {
			errors = errors.At(tollgate.Pointer("domains", index), "is no domain, such as example.com, which stands for all below it, too")
		}
		settings.Domains[index] = domain
	}
	if settings.MinDaysLeft < 0 {
		errors = errors.At("/minDaysLeft", "must be at least 0")
	}
	if settings.MinRSABits < 1024 || settings.MinRSABits > 8192 {
		errors = errors.At("/minRSABits", "must be from 1024 to 8192")
	}
	return &Policy{settings}, errors.IfAny()
}

// Validate adds a cause for every problem of the certificate or the key for servers or clients.
func (policy *Policy) Validate(review *tollgate.Review) error {
	object := review.Object()
	if kind, _ := object.Text("/type"); kind != "kubernetes.io/tls" {
		return nil
	}
	denial := tollgate.Deny("this is no usable TLS certificate")
	certificates, err := readCertificates(object)
	if err != nil {
		denial.At(certificateField, "%s", err)
	}
	key, err := readKey(object)
	if err != nil {
		denial.At(keyField, "%s", err)
	}
	if len(certificates) == 0 || key == nil {
		return denial.IfBlamed()
	}
	leaf := certificates[0]
	if !fits(key, leaf) {
		denial.At(keyField, "is not the key of the certificate in tls.crt")
	}
	for _, problem := range policy.problems(leaf) {
		denial.At(certificateField, "%s", problem)
	}
	if problem := chainProblem(certificates); problem != "" {
		denial.At(certificateField, "%s", problem)
	}
	return denial.IfBlamed()
}

// isWithin tells whether a DNS name is one of the domains, or below one.
func (policy *Policy) isWithin(name string) bool {
	name = strings.ToLower(strings.TrimPrefix(name, "*."))
	for _, domain := range policy.Domains {
		if name == domain || strings.HasSuffix(name, "."+domain) {
			return true
		}
	}
	return len(policy.Domains) == 0
}

// problems returns all problems of a single certificate.
func (policy *Policy) problems(leaf *x509.Certificate) []string {
	problems := validity(leaf, clock.Now(), policy.MinDaysLeft)
	problems = append(problems, weakness(leaf, policy.MinRSABits)...)
	if len(leaf.DNSNames)+len(leaf.IPAddresses)+len(leaf.URIs) == 0 {
		problems = append(problems, "has no subject alternative name: clients do not look at the common name")
	}
	for _, name := range leaf.DNSNames {
		if !policy.isWithin(name) {
			problems = append(problems, "is for "+name+", which is not within: "+strings.Join(policy.Domains, ", "))
		}
	}
	return problems
}

func init() {
	validator.Export(tollgate.Manifest{
		Name: "tls-secret", Version: "0.1.0",
		Description: "Refuses TLS Secrets whose certificate or key cannot be used",
		Rules: []tollgate.Rule{{
			Operations: []string{"CREATE", "UPDATE"},
			APIGroups:  []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"},
		}},
	}, New)
}

func main() {}
