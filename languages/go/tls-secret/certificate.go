package main

import (
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
)

// readCertificates returns the chain in tls.crt. The server's own certificate comes first.
func readCertificates(secret tollgate.Document) ([]*x509.Certificate, error) {
	blocks, err := readPEM(secret, certificateField)
	if err != nil {
		return nil, err
	}
	var certificates []*x509.Certificate
	for index, block := range blocks {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("holds a %s beside certificates", block.Type)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d cannot be parsed: %w", index+1, err)
		}
		certificates = append(certificates, certificate)
	}
	return certificates, nil
}

// readKey returns the private key in tls.key, in any form that servers accept. Its errors contain
// nothing of the key.
func readKey(secret tollgate.Document) (crypto.Signer, error) {
	blocks, err := readPEM(secret, keyField)
	if err != nil {
		return nil, err
	}
	for _, block := range blocks {
		if block.Type == "EC PARAMETERS" {
			continue
		}
		if block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "" {
			return nil, errors.New("is encrypted, and no server has the password")
		}
		if key, ok := parseKey(block.Bytes); ok {
			return key, nil
		}
		return nil, errors.New("holds no private key in PKCS #8, PKCS #1 or SEC 1")
	}
	return nil, errors.New("holds no private key")
}

func parseKey(der []byte) (crypto.Signer, bool) {
	if key, err := x509.ParsePKCS8PrivateKey(der); err == nil {
		signer, ok := key.(crypto.Signer)
		return signer, ok
	}
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		return key, true
	}
	key, err := x509.ParsePKCS1PrivateKey(der)
	return key, err == nil
}

// readPEM returns all PEM blocks of a Secret's value, at least one.
func readPEM(secret tollgate.Document, field string) ([]*pem.Block, error) {
	text, _ := secret.Text(field)
	if text == "" {
		return nil, errors.New("is missing")
	}
	rest, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("is not base64")
	}
	var blocks []*pem.Block
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		blocks = append(blocks, block)
	}
	if len(blocks) == 0 {
		return nil, errors.New("is not PEM: it has to begin with -----BEGIN, once base64 is taken off")
	}
	if strings.Contains(string(rest), "-----BEGIN") {
		return nil, fmt.Errorf("the PEM block after block %d is cut off or malformed", len(blocks))
	}
	return blocks, nil
}

// fits tells whether a private key belongs to a certificate.
func fits(key crypto.Signer, certificate *x509.Certificate) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(certificate.PublicKey)
}

// chainProblem reports a certificate that the next one has not signed. Servers send certificates in
// that order.
func chainProblem(certificates []*x509.Certificate) string {
	for index, certificate := range certificates[:len(certificates)-1] {
		if certificate.CheckSignatureFrom(certificates[index+1]) != nil {
			return fmt.Sprintf("certificate %d is not signed by certificate %d: the server's own comes first, then each one's issuer", index+1, index+2)
		}
	}
	return ""
}

func validity(certificate *x509.Certificate, now time.Time, minDays int) []string {
	switch {
	case now.Before(certificate.NotBefore):
		return []string{"is not valid before " + date(certificate.NotBefore)}
	case now.After(certificate.NotAfter):
		return []string{"has expired on " + date(certificate.NotAfter)}
	case now.AddDate(0, 0, minDays).After(certificate.NotAfter):
		return []string{fmt.Sprintf("expires on %s, in less than %d days", date(certificate.NotAfter), minDays)}
	}
	return nil
}

func weakness(certificate *x509.Certificate, minRSABits int) []string {
	key, isRSA := certificate.PublicKey.(*rsa.PublicKey)
	if isRSA && key.N.BitLen() < minRSABits {
		return []string{fmt.Sprintf("has an RSA key of %d bits: at least %d are needed", key.N.BitLen(), minRSABits)}
	}
	return nil
}

func date(moment time.Time) string { return moment.UTC().Format("2006-01-02") }
