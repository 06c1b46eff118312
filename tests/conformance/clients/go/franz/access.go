package main

import (
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"kraftrio/conformance/lines"
)

// newClient makes a client that gets in as the environment says.
func newClient(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, accessOptions()...)...)
}

func accessOptions() []kgo.Opt {
	access := lines.TheAccess()
	if access == nil {
		return nil
	}
	options := []kgo.Opt{}
	if access.UsesTLS() {
		options = append(options, kgo.DialTLSConfig(access.TLS()))
	}
	if !access.UsesSASL() {
		return options
	}
	switch access.Mechanism {
	case "PLAIN":
		login := plain.Auth{User: access.User, Pass: access.Password}
		return append(options, kgo.SASL(login.AsMechanism()))
	case "SCRAM-SHA-256":
		login := scram.Auth{User: access.User, Pass: access.Password}
		return append(options, kgo.SASL(login.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		login := scram.Auth{User: access.User, Pass: access.Password}
		return append(options, kgo.SASL(login.AsSha512Mechanism()))
	case "OAUTHBEARER":
		return append(options, kgo.SASL(oauth.Auth{Token: access.Token}.AsMechanism()))
	}
	panic("no mechanism " + access.Mechanism)
}
