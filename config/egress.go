package config

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// These are the kinds of brokers to which events can be published.
const (
	EgressNATS  = "nats"
	EgressKafka = "kafka"
)

// Egress configures which events are published to which message broker.
type Egress struct {
	Kind   string `yaml:"kind"`   // nats (JetStream) or kafka
	Remove bool   `yaml:"remove"` // the egress has ended: remove its groups

	URLs    []string `yaml:"urls"`    // of NATS: nats://host:port, or tls://
	Brokers []string `yaml:"brokers"` // of Kafka: host:port
	Subject string   `yaml:"subject"` // of NATS: with the placeholders {tenant}, {category}, {key} and {type}
	Topic   string   `yaml:"topic"`   // of Kafka: with the same placeholders

	Tenants    []string         `yaml:"tenants"`    // ids; none: all
	Categories []string         `yaml:"categories"` // none: all
	Types      []string         `yaml:"types"`      // none: all
	Query      domain.QueryForm `yaml:"query"`      // only events that it matches; none: all
	Filter     string           `yaml:"filter"`     // an expression over the event; empty: all
	From       string           `yaml:"from"`       // start, or a time in RFC 3339; empty: when a process first had this setting

	SASL            string    `yaml:"sasl"` // of Kafka: plain, scram-sha-256 or scram-sha-512; empty: none
	User            string    `yaml:"user"`
	Password        Secret    `yaml:"password"`
	PasswordFile    string    `yaml:"passwordFile"`
	Token           Secret    `yaml:"token"` // of NATS
	TokenFile       string    `yaml:"tokenFile"`
	CredentialsFile string    `yaml:"credentialsFile"` // of NATS: a file written by nsc
	TLS             EgressTLS `yaml:"tls"`

	MessageBytes Size `yaml:"messageBytes"` // of Kafka: the size that its brokers and topics accept; 0: their own default
}

// EgressTLS configures how connections to a broker are encrypted.
type EgressTLS struct {
	Enabled  bool   `yaml:"enabled"`  // needed only if no other field is given
	CAFile   string `yaml:"caFile"`   // the CAs of the broker's certificate, as PEM; empty: the system's
	CertFile string `yaml:"certFile"` // the client's certificate and its key, as PEM
	KeyFile  string `yaml:"keyFile"`
}

// Used reports whether connections are encrypted whatever the URLs say.
func (t EgressTLS) Used() bool { return t.Enabled || t.CAFile != "" || t.CertFile != "" }

// TenantIDs returns the tenants whose events are published, or none for all. The setting must have been checked.
func (e Egress) TenantIDs() []domain.TenantID {
	ids := make([]domain.TenantID, 0, len(e.Tenants))
	for _, text := range e.Tenants {
		if id, err := domain.ParseTenantID(text); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// Addresses returns the hosts and ports of the broker. It leaves out everything else in a URL, such as credentials.
func (e Egress) Addresses() []string {
	var all []string
	for _, address := range slices.Concat(e.URLs, e.Brokers) {
		_, rest, ok := strings.Cut(address, "://")
		if !ok {
			rest = address
		}
		host, _, _ := strings.Cut(rest[strings.LastIndex(rest, "@")+1:], "/")
		host, _, _ = strings.Cut(host, "?")
		all = append(all, host)
	}
	return all
}

// check reports settings that cannot work. It passes refuse the setting's name within the egress.
func (e Egress) check(refuse func(setting, format string, args ...any)) {
	for _, text := range e.Tenants {
		if id, err := domain.ParseTenantID(text); err != nil || id == domain.Everyone {
			refuse("tenants", "%q is not a tenant's id", text)
		}
	}
	if e.Remove {
		return // the other settings no longer matter
	}
	of := func(kind, setting string, given bool) {
		if given && e.Kind != kind {
			refuse(setting, "it is for %s only", kind)
		}
	}
	switch e.Kind {
	case EgressNATS, EgressKafka:
		of(EgressNATS, "urls", len(e.URLs) > 0)
		of(EgressNATS, "subject", e.Subject != "")
		of(EgressNATS, "token", e.Token != "")
		of(EgressNATS, "credentialsFile", e.CredentialsFile != "")
		of(EgressKafka, "brokers", len(e.Brokers) > 0)
		of(EgressKafka, "topic", e.Topic != "")
		of(EgressKafka, "sasl", e.SASL != "")
		of(EgressKafka, "messageBytes", e.MessageBytes != 0)
	default:
		refuse("kind", "%q is not a kind of broker; write nats or kafka", e.Kind)
	}
	switch {
	case e.Kind == EgressNATS && len(e.URLs) == 0:
		refuse("urls", "missing; write [nats://host:4222]")
	case e.Kind == EgressNATS && e.Subject == "":
		refuse("subject", "missing; write one such as manifold.{tenant}.{category}.{key}")
	case e.Kind == EgressKafka && len(e.Brokers) == 0:
		refuse("brokers", "missing; write [host:9092]")
	case e.Kind == EgressKafka && e.Topic == "":
		refuse("topic", "missing; write one such as {category}")
	}
	for _, url := range e.URLs {
		if err := checkURL(url); err != nil || strings.Contains(url, ",") {
			refuse("urls", "one of them is not a URL such as nats://host:4222")
		} else if strings.Contains(url, "@") {
			refuse("urls", "one of them has a user; write user and passwordFile instead")
		}
	}
	if e.MessageBytes != 0 && e.MessageBytes < 1024 {
		refuse("messageBytes", "%s is not enough for an event; write 1MB", e.MessageBytes)
	}
	if e.MessageBytes > 1<<30 {
		refuse("messageBytes", "%s exceeds what Kafka's protocol supports", e.MessageBytes)
	}
	if !slices.Contains([]string{"", "plain", "scram-sha-256", "scram-sha-512"}, e.SASL) {
		refuse("sasl", "%q is not a login method; write plain, scram-sha-256 or scram-sha-512", e.SASL)
	}
	if e.Kind == EgressKafka && (e.User != "") != (e.SASL != "") {
		refuse("sasl", "give both sasl and user, or neither")
	}
	if (e.TLS.CertFile == "") != (e.TLS.KeyFile == "") {
		refuse("tls.keyFile", "give both certFile and keyFile, or neither")
	}
	for setting, file := range map[string]string{
		"credentialsFile": e.CredentialsFile, "tls.caFile": e.TLS.CAFile, "tls.certFile": e.TLS.CertFile, "tls.keyFile": e.TLS.KeyFile,
	} {
		if _, err := os.Stat(file); file != "" && err != nil {
			refuse(setting, "%s", err)
		}
	}
	if _, err := e.Place(); err != nil {
		refuse("from", "%s", err)
	}
}

// Place returns where the egress begins. If it begins when a process first had the setting, it returns the zero time
// and start false.
func (e Egress) Place() (place EgressPlace, err error) {
	if e.From == "" {
		return EgressPlace{}, nil
	}
	from, err := domain.ParseFrom("from", e.From)
	switch {
	case err != nil || from.End || from.Position > 0 || !from.EventID.IsZero():
		return EgressPlace{}, fmt.Errorf("%q is neither start nor a time such as 2026-03-01T09:30:00Z", e.From)
	case from.Time.IsZero():
		return EgressPlace{Start: true}, nil
	}
	return EgressPlace{Time: from.Time}, nil
}

// EgressPlace is the place in each log where an egress begins.
type EgressPlace struct {
	Start bool
	Time  time.Time
}
