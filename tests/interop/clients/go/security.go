package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// A client of the broker at this address.  The environment has the security: TEST_CA is the file of a CA, with which the
// connections are encrypted; TEST_MECHANISM, TEST_USERNAME and TEST_PASSWORD log in.
func newClient(bootstrap string, more ...kgo.Opt) (*kgo.Client, error) {
	options, err := clientOptions(bootstrap, more...)
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(options...)
}

func clientOptions(bootstrap string, more ...kgo.Opt) ([]kgo.Opt, error) {
	options := append(more, kgo.SeedBrokers(bootstrap))
	if path := os.Getenv("TEST_CA"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		authorities := x509.NewCertPool()
		if !authorities.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("no certificate in %s", path)
		}
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: authorities}))
	}
	username, password := os.Getenv("TEST_USERNAME"), os.Getenv("TEST_PASSWORD")
	switch mechanism := os.Getenv("TEST_MECHANISM"); mechanism {
	case "":
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: username, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: username, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: username, Pass: password}.AsSha512Mechanism()))
	default:
		return nil, fmt.Errorf("no mechanism %s", mechanism)
	}
	return options, nil
}
