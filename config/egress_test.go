package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/config"
)

func TestEgress(t *testing.T) {
	t.Parallel()
	password := write(t, "password", "secret\n")
	tenant := "3f8a9a52-6a1f-4a3e-9a8e-0b6f1c2d3e4f"
	c, err := config.Load("", []string{url, `MANIFOLD_EGRESS={"orders": {"kind": "nats", "urls": ["nats://a:4222"], "subject": "x.{key}", "query": {"items": [{"types": ["A"], "tags": ["t"]}]}, "user": "m",` +
		`"passwordFile": "` + password + `", "tenants": ["` + tenant + `"], "from": "2026-03-01T09:30:00Z"}, "log": {kind: kafka, brokers: ["b:9092"], topic: t, from: start}}`})
	if err != nil {
		t.Fatal(err)
	}
	orders := c.Egress["orders"]
	if orders.Password != "secret" || len(orders.TenantIDs()) != 1 || orders.TenantIDs()[0].String() != tenant {
		t.Errorf("it holds %+v", orders)
	}
	if !orders.Query.Items[0].Matches("A", []string{"t"}) || orders.Query.Items[0].Matches("A", nil) {
		t.Errorf("its query is %+v", orders.Query)
	}
	if place, err := orders.Place(); err != nil || !place.Time.Equal(time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC)) || place.Start {
		t.Errorf("it begins at %+v, %v", place, err)
	}
	if place, err := c.Egress["log"].Place(); err != nil || !place.Start {
		t.Errorf("the other begins at %+v, %v", place, err)
	}
	if place, err := (config.Egress{}).Place(); err != nil || place != (config.EgressPlace{}) {
		t.Errorf("without from it begins at %+v, %v", place, err)
	}
}

func TestEgressAddressesHaveNoCredentials(t *testing.T) {
	t.Parallel()
	e := config.Egress{URLs: []string{"nats://me:secret@a:4222/x?token=secret", "tls://b"}, Brokers: []string{"me:secret@c:9092", "d:9092"}}
	if got := strings.Join(e.Addresses(), " "); got != "a:4222 b c:9092 d:9092" {
		t.Errorf("the addresses are %s", got)
	}
}

func TestEgressThatCannotWork(t *testing.T) {
	t.Parallel()
	const nats = `kind: nats, urls: ["nats://a:4222"], subject: a`
	const kafka = `kind: kafka, brokers: ["a:9092"], topic: a`
	for egress, want := range map[string]string{
		`a: {}`:                                               `egress.a.kind: "" is not a kind of broker; write nats or kafka`,
		`a: {kind: rabbit}`:                                   `egress.a.kind: "rabbit" is not a kind of broker`,
		`A: {` + nats + `}`:                                   `egress.A: `,
		`a: {kind: nats, subject: a}`:                         `egress.a.urls: missing`,
		`a: {kind: nats, urls: ["nats://a"]}`:                 `egress.a.subject: missing`,
		`a: {kind: kafka, topic: a}`:                          `egress.a.brokers: missing`,
		`a: {kind: kafka, brokers: [a]}`:                      `egress.a.topic: missing`,
		`a: {` + nats + `, topic: a}`:                         `egress.a.topic: it is for kafka only`,
		`a: {` + nats + `, sasl: plain}`:                      `egress.a.sasl: it is for kafka only`,
		`a: {` + kafka + `, subject: a}`:                      `egress.a.subject: it is for nats only`,
		`a: {` + kafka + `, token: a}`:                        `egress.a.token: it is for nats only`,
		`a: {` + kafka + `, sasl: x, user: a}`:                `egress.a.sasl: "x" is not a login method`,
		`a: {` + kafka + `, user: a}`:                         `egress.a.sasl: give both sasl and user, or neither`,
		`a: {` + kafka + `, messageBytes: 10}`:                `egress.a.messageBytes: `,
		`a: {` + kafka + `, messageBytes: 4GiB}`:              `egress.a.messageBytes: `,
		`a: {` + nats + `, tenants: [acme]}`:                  `egress.a.tenants: "acme" is not a tenant's id`,
		`a: {` + nats + `, from: end}`:                        `egress.a.from: "end" is neither start nor a time`,
		`a: {` + nats + `, from: "7"}`:                        `egress.a.from: "7" is neither start nor a time`,
		`a: {` + nats + `, tls: {certFile: /nope}}`:           `egress.a.tls.keyFile: give both certFile and keyFile, or neither`,
		`a: {` + nats + `, tls: {caFile: /nope}}`:             `egress.a.tls.caFile: `,
		`a: {` + nats + `, credentialsFile: /nope}`:           `egress.a.credentialsFile: `,
		`a: {kind: nats, urls: [a], subject: a}`:              `egress.a.urls: one of them is not a URL`,
		`a: {kind: nats, urls: ["nats://u:p@a"], subject: a}`: `egress.a.urls: one of them has a user`,
		`a: {` + nats + `, subjects: a}`:                      `there is no setting egress.a.subjects; the settings there are `,
		`a: {` + nats + `, tls: {ca: a}}`:                     `there is no setting egress.a.tls.ca; the settings there are caFile, certFile, `,
		`a: {` + nats + `, password: a, passwordFile: /nope}`: `egress.a.password: both this and egress.a.passwordFile are given`,
	} {
		_, err := config.Load(write(t, "manifold.yaml", "database: {url: postgres://db:5432/manifold}\negress:\n  "+egress+"\n"), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngives %v\nwant %s", egress, err, want)
		}
	}
	if _, err := config.Load("", []string{url, "MANIFOLD_EGRESS={a: {remove: true, tenants: []}}"}); err != nil {
		t.Errorf("one that is removed: %v", err)
	}
}
