package service

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/delivery/egress"
	"github.com/manifold-es/manifold/delivery/egress/kafka"
	"github.com/manifold-es/manifold/delivery/egress/nats"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/schema"
)

// wireEgress creates the egresses, which publish events to message brokers. The process starts even if a broker does
// not answer.
func (p *Process) wireEgress() (sources []consume.Source, err error) {
	if !p.config.Role.Worker() {
		return nil, nil
	}
	for _, name := range slices.Sorted(maps.Keys(p.config.Egress)) {
		one, err := p.newEgress(name, p.config.Egress[name])
		if err != nil {
			return nil, fmt.Errorf("egress.%s.%w", name, err)
		}
		p.egresses = append(p.egresses, one)
		sources = append(sources, one)
	}
	p.metrics.CollectEgress(func(yield func(egress string, up bool, lag time.Duration)) {
		for _, one := range p.egresses {
			state, lag := one.State(), time.Duration(0)
			if !state.WaitingSince.IsZero() {
				lag = time.Since(state.WaitingSince)
			}
			yield(one.Name(), state.Up, lag)
		}
	})
	return sources, nil
}

// reportEgresses returns the egresses of this process.
func (p *Process) reportEgresses() []domain.EgressReport {
	reports := make([]domain.EgressReport, len(p.egresses))
	for i, one := range p.egresses {
		reports[i] = one.Report()
	}
	return reports
}

// egressLabel precedes the process's id in the labels of members of an egress's groups.
const egressLabel = "egress of process "

// egressDied reports whether the process in the label of an egress group's member has died. Labels of earlier
// releases contain no process, so it returns false for them.
func (p *Process) egressDied(label string) bool {
	text, ours := strings.CutPrefix(label, egressLabel)
	id, err := domain.ParseMemberID(text)
	if !ours || err != nil {
		return false
	}
	return p.members.Died(id)
}

// newEgress creates one egress. Its error begins with the name of the setting.
func (p *Process) newEgress(name string, of config.Egress) (*egress.Egress, error) {
	place, err := of.Place()
	if err != nil {
		return nil, fmt.Errorf("from: %w", err)
	}
	c := egress.Config{
		Name: name, Remove: of.Remove, Tenants: of.TenantIDs(), Start: place.Start, From: place.Time,
		Selection: domain.Selection{Categories: of.Categories, Types: of.Types, Query: of.Query.Items, Filter: of.Filter},
		Groups:    p.groups, Births: p.store.GroupTables, Active: p.activeTenant, Owns: p.members.Owns, Owned: p.members.Owned, Log: p.log, Tracer: p.tracer,
		Label: egressLabel + p.id.String(), Died: p.egressDied, DataSchema: schema.VersionURI(p.config.PublicURL),
		Observer: egress.Observer{
			Published: func(messages int, delay time.Duration) { p.metrics.EgressPublished(name, messages, delay) },
			Refused:   func(messages int) { p.metrics.EgressRefused(name, messages) },
			Failed:    func(messages int) { p.metrics.EgressFailed(name, messages) },
		},
	}
	if of.Remove {
		return egress.New(c)
	}
	encrypted, err := tlsOf(of.TLS)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	switch of.Kind {
	case config.EgressNATS:
		c.Topic, c.Alphabet = of.Subject, nats.Alphabet
		if err := nats.CheckSubject(of.Subject); err != nil {
			return nil, fmt.Errorf("subject: %w", err)
		}
		broker, err := nats.Open(nats.Config{
			URLs: of.URLs, Name: "manifold " + name, User: of.User, Password: string(of.Password), Token: string(of.Token),
			Credentials: of.CredentialsFile, TLS: encrypted, Log: p.log.With("egress", name),
		})
		if err != nil {
			return nil, fmt.Errorf("urls: %w", err)
		}
		c.Broker, c.Kind, c.Addresses = broker, of.Kind, of.Addresses()
	default:
		c.Topic, c.Alphabet = of.Topic, kafka.Alphabet
		if err := kafka.CheckTopic(of.Topic); err != nil {
			return nil, fmt.Errorf("topic: %w", err)
		}
		broker, err := kafka.Open(kafka.Config{
			Brokers: of.Brokers, Name: "manifold-" + name, SASL: of.SASL, User: of.User, Password: string(of.Password), TLS: encrypted,
			MessageBytes: int(of.MessageBytes),
		})
		if err != nil {
			return nil, fmt.Errorf("brokers: %w", err)
		}
		c.Broker, c.Kind, c.Addresses = broker, of.Kind, of.Addresses()
	}
	p.undo = append(p.undo, c.Broker.Close)
	return egress.New(c)
}

// declareEgress records when each egress first existed, unless that is already recorded.
func (p *Process) declareEgress(ctx context.Context) error {
	for _, one := range p.egresses {
		if err := one.Declare(ctx); err != nil {
			return err
		}
	}
	return nil
}

// activeTenant reports whether the service may create groups for a tenant.
func (p *Process) activeTenant(ctx context.Context, id domain.TenantID) (bool, error) {
	tenant, err := p.store.Tenant(ctx, id)
	if failure, ok := errors.AsType[*domain.Error](err); ok && failure.Code == domain.CodeNotFound {
		return false, nil
	}
	return tenant.State == domain.TenantActive || tenant.State == domain.TenantSuspended, err
}

// tlsOf returns how connections are encrypted, or nil if their URLs decide.
func tlsOf(of config.EgressTLS) (*tls.Config, error) {
	if !of.Used() {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if of.CAFile != "" {
		pem, err := os.ReadFile(of.CAFile)
		if err != nil {
			return nil, err
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s contains no PEM certificate", of.CAFile)
		}
	}
	if of.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(of.CertFile, of.KeyFile)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
