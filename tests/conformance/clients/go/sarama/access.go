package main

import (
	"crypto/sha256"
	"crypto/sha512"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"kraftrio/conformance/lines"
)

// getIn has a client get in as the environment says. It then tries a few times only: no broker of
// these tests restarts, and refusals are to be seen soon.
func getIn(c *sarama.Config) {
	access := lines.TheAccess()
	if access == nil {
		return
	}
	c.Metadata.Retry.Max = 3
	c.Net.DialTimeout = 5 * time.Second
	c.Net.ReadTimeout = 5 * time.Second
	if access.UsesTLS() {
		c.Net.TLS.Enable = true
		c.Net.TLS.Config = access.TLS()
	}
	if !access.UsesSASL() {
		return
	}
	c.Net.SASL.Enable = true
	c.Net.SASL.Mechanism = sarama.SASLMechanism(access.Mechanism)
	c.Net.SASL.User = access.User
	c.Net.SASL.Password = access.Password
	switch access.Mechanism {
	case sarama.SASLTypeSCRAMSHA256:
		c.Net.SASL.SCRAMClientGeneratorFunc = exchange(sha256.New)
	case sarama.SASLTypeSCRAMSHA512:
		c.Net.SASL.SCRAMClientGeneratorFunc = exchange(sha512.New)
	case sarama.SASLTypeOAuth:
		c.Net.SASL.TokenProvider = token(access.Token)
	}
}

type token string

// Token gives the same one each time.
func (t token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

type scramClient struct {
	*scram.ClientConversation
	hash scram.HashGeneratorFcn
}

func exchange(hash scram.HashGeneratorFcn) func() sarama.SCRAMClient {
	return func() sarama.SCRAMClient { return &scramClient{hash: hash} }
}

// Begin prepares an exchange.
func (s *scramClient) Begin(user, password, authorizationID string) error {
	made, err := s.hash.NewClient(user, password, authorizationID)
	if err != nil {
		return err
	}
	s.ClientConversation = made.NewConversation()
	return nil
}
