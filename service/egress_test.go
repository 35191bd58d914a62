package service_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/service"
)

// jetStream starts a NATS server with a stream of all subjects below manifold.
func jetStream(t *testing.T) (url string, stream jetstream.Stream) {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if stream, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "manifold", Subjects: []string{"manifold.>"}}); err != nil {
		t.Fatal(err)
	}
	return s.ClientURL(), stream
}

// A worker publishes what a web process appends, and the tenant can see the progress. When the egress is removed from
// the configuration, its groups are removed, too.
func TestEgressOfAWorker(t *testing.T) {
	t.Parallel()
	url, stream := jetStream(t)
	c := configuration(pgtest.Database(t))
	c.Role = config.RoleWeb
	web := start(t, c)
	key := newTenant(t, web, "acme")
	u := as(t, web, key)
	u.add("order-1", "OrderPlaced", `{"total": 1}`)

	c.Role = config.RoleWorker
	c.Egress = map[string]config.Egress{"orders": {
		Kind: config.EgressNATS, URLs: []string{url}, Subject: "manifold.{category}.{key}", Categories: []string{"order"}, From: "start",
	}}
	worker := start(t, c)
	u.add("order-2", "OrderPlaced", `{"total": 2}`)
	u.add("other-1", "Happened", `{}`)
	last := u.add("order-1", "OrderShipped", `{}`)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 3 {
		m, err := consumer.Next(jetstream.FetchMaxWait(30 * time.Second))
		if err != nil {
			t.Fatalf("behind %s: %v", got, err)
		}
		got = append(got, m.Subject()+" "+m.Headers()["ce-type"][0])
	}
	placed, shipped := slices.Index(got, "manifold.order.1 OrderPlaced"), slices.Index(got, "manifold.order.1 OrderShipped")
	if placed < 0 || shipped < placed || !slices.Contains(got, "manifold.order.2 OrderPlaced") {
		t.Errorf("published were %s", strings.Join(got, ", "))
	}
	awaitMetric(t, worker, `egress_messages_total{egress="orders",outcome="acked"} 3`)
	awaitMetric(t, worker, `egress_up{egress="orders"} 1`)

	group := func() (status int, checkpoint int64) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+web.Address()+"/v1/subscriptions/egress.orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+key)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var body struct {
			Progress []struct{ Checkpoint int64 }
		}
		if err := json.NewDecoder(response.Body).Decode(&body); err != nil || len(body.Progress) == 0 {
			return response.StatusCode, 0
		}
		return response.StatusCode, body.Progress[0].Checkpoint
	}
	eventually(t, "the group has reached the end", func() bool {
		status, checkpoint := group()
		return status == http.StatusOK && checkpoint == last
	})

	// Any process lists it for the operator, also when no process has it in its configuration any longer.
	operator := as(t, web, operatorKey)
	egresses := func() []client.Egress {
		listed, err := operator.ListEgressesWithResponse(ctx)
		if err != nil || listed.JSON200 == nil {
			t.Fatalf("list the egresses: %v, %s", err, listed.Body)
		}
		return listed.JSON200.Egresses
	}
	eventually(t, "the web process lists it", func() bool {
		all := egresses()
		return len(all) == 1 && all[0].Kind == config.EgressNATS && "nats://"+all[0].Addresses[0] == url && len(all[0].Processes) == 1 && all[0].Processes[0].Up
	})

	stop(t, worker)
	if all := egresses(); len(all) != 1 || all[0].Name != "orders" || len(all[0].Processes) != 0 {
		t.Errorf("without a process the egresses are %+v", all)
	}
	c.Egress = map[string]config.Egress{"orders": {Remove: true}}
	start(t, c)
	eventually(t, "the group is gone", func() bool {
		status, _ := group()
		return status == http.StatusNotFound
	})
	eventually(t, "the egress is listed as removed", func() bool {
		all := egresses()
		return len(all) == 1 && all[0].Removed && !all[0].Removing
	})
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to pass: %s", what)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func TestEgressRefusedAtStart(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	for name, one := range map[string]struct {
		egress config.Egress
		want   string
	}{
		"subject":  {config.Egress{Kind: config.EgressNATS, URLs: []string{"nats://a"}, Subject: "a.{stream}"}, "egress.a.subject: "},
		"wildcard": {config.Egress{Kind: config.EgressNATS, URLs: []string{"nats://a"}, Subject: "a.>"}, "egress.a.subject: "},
		"topic":    {config.Egress{Kind: config.EgressKafka, Brokers: []string{"a:9092"}, Topic: "a/b"}, "egress.a.topic: "},
		"filter":   {config.Egress{Kind: config.EgressNATS, URLs: []string{"nats://a"}, Subject: "a", Filter: "event."}, "egress.a.filter: "},
		"ca":       {config.Egress{Kind: config.EgressKafka, Brokers: []string{"a:9092"}, Topic: "a", TLS: config.EgressTLS{CAFile: "egress_test.go"}}, "egress.a.tls: "},
	} {
		c := configuration(db)
		c.Egress = map[string]config.Egress{"a": one.egress}
		p, err := service.Start(t.Context(), c, slog.New(slog.DiscardHandler), service.Extensions{})
		if err == nil {
			stop(t, p)
		}
		if err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s: %v; want %s", name, err, one.want)
		}
	}
}
