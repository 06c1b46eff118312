package lines

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"os"
	"strings"
)

// accessVariable holds how a client gets in, as access.py writes it; unset: plaintext.
const accessVariable = "KAFKA_ACCESS"

// Access says how a client gets in: files are PEM, the identity's has a key and certificates.
type Access struct {
	Protocol  string `json:"protocol"`
	CA        string `json:"ca"`
	Identity  string `json:"identity"`
	Mechanism string `json:"mechanism"`
	User      string `json:"user"`
	Password  string `json:"password"`
	Token     string `json:"token"`
}

// TheAccess returns what the environment says; nil where it says nothing.
func TheAccess() *Access {
	text := os.Getenv(accessVariable)
	if text == "" {
		return nil
	}
	found := &Access{}
	if err := json.Unmarshal([]byte(text), found); err != nil {
		panic(err)
	}
	return found
}

// UsesTLS tells whether bytes are encrypted.
func (a *Access) UsesTLS() bool { return strings.HasSuffix(a.Protocol, "SSL") }

// UsesSASL tells whether the client logs in.
func (a *Access) UsesSASL() bool { return strings.HasPrefix(a.Protocol, "SASL") }

// TLS returns the settings of TLS.
func (a *Access) TLS() *tls.Config {
	made := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.CA != "" {
		text, err := os.ReadFile(a.CA)
		if err != nil {
			panic(err)
		}
		made.RootCAs = x509.NewCertPool()
		if !made.RootCAs.AppendCertsFromPEM(text) {
			panic(errors.New("no certificate in " + a.CA))
		}
	}
	if a.Identity != "" {
		pair, err := tls.LoadX509KeyPair(a.Identity, a.Identity)
		if err != nil {
			panic(err)
		}
		made.Certificates = []tls.Certificate{pair}
	}
	return made
}
