//go:build ignore

// Writes the Secrets of the suite again: `go run secrets/make.go`. Their keys are used nowhere
// else.
package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"time"
)

// An issued certificate with its key.
type issued struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

func main() {
	authority := issue(curveKey(), nil)
	usable := issue(curveKey(), &authority, "shop.example.com", "*.shop.example.com")
	write("usable", usable.key, usable, authority)
	write("another-key", curveKey(), usable, authority)
	write("unordered", authority.key, authority, usable)
	long := issue(rsaKey(2048), &authority, "shop.example.com")
	write("rsa-2048", long.key, long, authority)
	short := issue(rsaKey(1024), &authority, "shop.example.com")
	write("rsa-1024", short.key, short, authority)
	nameless := issue(curveKey(), &authority)
	write("nameless", nameless.key, nameless)
}

func issue(key crypto.Signer, issuer *issued, names ...string) issued {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "shop.example.com"},
		NotBefore:    time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC),
		DNSNames:     names,
	}
	if issuer == nil {
		template.Subject.CommonName = "Suite CA"
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		issuer = &issued{template, key}
	}
	der := must(x509.CreateCertificate(rand.Reader, template, issuer.certificate, key.Public(), issuer.key))
	return issued{must(x509.ParseCertificate(der)), key}
}

func write(name string, key crypto.Signer, chain ...issued) {
	var certificates bytes.Buffer
	for _, one := range chain {
		certificates.Write(encode("CERTIFICATE", one.certificate.Raw))
	}
	private := encode("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key)))
	text := fmt.Sprintf("# Made by make.go for the suite.\napiVersion: v1\nkind: Secret\nmetadata: { name: shop, namespace: shop }\n"+
		"type: kubernetes.io/tls\ndata:\n  tls.crt: %s\n  tls.key: %s\n",
		base64.StdEncoding.EncodeToString(certificates.Bytes()), base64.StdEncoding.EncodeToString(private))
	must(0, os.WriteFile("secrets/"+name+".yaml", []byte(text), 0o644))
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func curveKey() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func rsaKey(bits int) crypto.Signer { return must(rsa.GenerateKey(rand.Reader, bits)) }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
