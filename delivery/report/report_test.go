package report_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/delivery/report"
	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestADeadLetterBecomesOneEventPerParking(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	if _, _, err := b.groups.Put(t.Context(), tenant, "send-mail", domain.GroupDefinition{From: "start", Selection: domain.Selection{Categories: []string{"order"}}}); err != nil {
		t.Fatal(err)
	}
	first := b.add(t, tenant, "order-1", `{"secret": 1}`)
	b.add(t, tenant, "order-2", `{}`)
	if n := b.park(t, tenant, "send-mail"); n != 2 {
		t.Fatalf("%d events are parked", n)
	}
	b.mustLook(t, tenant)
	reports := b.reports(t, tenant)
	if got := summary(reports); got != "dlq.send_mail-order-1 EventDeadLettered, dlq.send_mail-order-2 EventDeadLettered" {
		t.Fatalf("the reports are %s", got)
	}
	var data map[string]any
	if err := json.Unmarshal(reports[0].Data, &data); err != nil {
		t.Fatal(err)
	}
	if data["group"] != "send-mail" || data["position"] != float64(first) || data["stream"] != "order-1" || data["type"] != "Added" ||
		data["attempts"] != 1.0 || data["reason"] != "the mail server said no" || data["deadLetteredAt"] == nil || len(data) != 8 ||
		!strings.Contains(string(reports[0].Metadata), data["eventId"].(string)) || !slices.Equal(reports[0].Tags, []string{"cause:" + data["eventId"].(string)}) {
		t.Errorf("the report is %s, %s, with the tags %q", reports[0].Data, reports[0].Metadata, reports[0].Tags)
	}
	if n, err := b.groups.Replay(t.Context(), tenant, "send-mail", domain.EventID{}); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	b.mustLook(t, tenant)
	if n := len(b.reports(t, tenant)); n != 2 {
		t.Errorf("a request for a replay is reported: %d reports", n)
	}
	await(t, func() bool { return b.park(t, tenant, "send-mail") > 0 })
	await(t, func() bool {
		b.park(t, tenant, "send-mail")
		b.mustLook(t, tenant)
		return len(b.reports(t, tenant)) == 4
	})
}

// The service's consumers have dead letters, too.
func TestDeadLettersOfWebhooksAndEgressAreReported(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	from := domain.GroupDefinition{From: "start", Selection: domain.Selection{Categories: []string{"order"}}, AckTimeout: time.Minute, BatchSize: 1, MaxInFlight: 1, MaxAttempts: 1}
	secret := webhook.Secret{ID: webhook.NewSecretID(), Key: []byte("key")}
	_, _, err := b.store.PutWebhook(t.Context(), tenant, "mail", webhook.Definition{URL: "https://mail.example"}, from, 0, secret)
	tablestest.Must(t, err)
	_, _, err = b.groups.Put(t.Context(), tenant, domain.ServiceGroup(domain.ServiceEgress, "data-lake"), from)
	tablestest.Must(t, err)
	b.mustLook(t, tenant)
	b.add(t, tenant, "order-1", `{}`)
	for group, want := range map[string]string{
		domain.ServiceGroup(domain.ServiceWebhook, "mail"):     "dlq.webhook.mail-order-1 EventDeadLettered",
		domain.ServiceGroup(domain.ServiceEgress, "data-lake"): "dlq.egress.data_lake-order-1 EventDeadLettered",
	} {
		if n := b.park(t, tenant, group); n != 1 {
			t.Fatalf("%d events of %s are parked", n, group)
		}
		b.mustLook(t, tenant)
		if got := summary(b.reports(t, tenant)); !strings.Contains(got, want) {
			t.Errorf("the reports are %s, want %s", got, want)
		}
	}
}

// A consumer of reports that fails makes no further reports.
func TestReportsAboutReportsEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.follow(t)
	tenant := b.tenant(t)
	if _, _, err := b.groups.Put(t.Context(), tenant, "all", domain.GroupDefinition{From: "start"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.catalog.Create(t.Context(), tenant, folding.WithDefaults(domain.Definition{
		Name: "letters", On: map[string]string{"EventDeadLettered": "{'n': 1 / 0}"}, OnError: domain.OnErrorPark,
	}), "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.catalog.Create(t.Context(), tenant, folding.WithDefaults(domain.Definition{
		Name: "stops", On: map[string]string{"EventDeadLettered": "{'n': 1 / 0}"},
	}), "test"); err != nil {
		t.Fatal(err)
	}
	b.add(t, tenant, "order-1", `{}`)
	parked := 0
	await(t, func() bool {
		parked += b.park(t, tenant, "all")
		b.mustLook(t, tenant)
		return parked == 2 // the event and the report
	})
	await(t, func() bool {
		faults, err := b.store.TenantFaults(t.Context(), tenant, 10)
		if err != nil {
			t.Fatal(err)
		}
		documents, err := b.catalog.Parked(t.Context(), tenant, "letters", "", 10)
		if err != nil {
			t.Fatal(err)
		}
		return len(faults) == 1 && len(documents) == 1
	})
	for range 3 {
		b.mustLook(t, tenant)
		if n := b.park(t, tenant, "all"); n != 0 {
			t.Errorf("%d more events", n)
		}
	}
	if got := summary(b.reports(t, tenant)); got != "dlq.all-order-1 EventDeadLettered" {
		t.Errorf("the reports are %s", got)
	}
}

// Each dead letter is reported once, whatever fails between its row and its event.
func TestReportsSurviveFailures(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	for _, name := range []string{"a", "b"} {
		if _, _, err := b.groups.Put(t.Context(), tenant, name, domain.GroupDefinition{From: "start", Selection: domain.Selection{Categories: []string{"order"}}}); err != nil {
			t.Fatal(err)
		}
	}
	b.mustLook(t, tenant)
	failed := errors.New("the connection broke")
	want := 0
	rapid.Check(t, func(r *rapid.T) {
		for range rapid.IntRange(0, 3).Draw(r, "events") {
			b.add(t, tenant, "order-1", `{}`)
		}
		for _, name := range []string{"a", "b"} {
			if rapid.Bool().Draw(r, "parks") {
				want += b.park(t, tenant, name)
			}
		}
		for _, outcome := range rapid.SliceOfN(rapid.SampledFrom([]string{"lost", "unknown", "half"}), 0, 2).Draw(r, "failures") {
			b.append = func(ctx context.Context, tenant domain.TenantID, request domain.Append) (domain.Appended, error) {
				switch outcome {
				case "unknown":
					_, _ = b.store.Append(ctx, tenant, request)
				case "half": // as an interrupted look that has appended event by event
					_, _ = b.store.Append(ctx, tenant, domain.Append{Streams: request.Streams[:(len(request.Streams)+1)/2]})
				}
				return domain.Appended{}, failed
			}
			if err := b.look(t, tenant); err != nil && !errors.Is(err, failed) {
				t.Fatal(err)
			}
		}
		b.append = b.store.Append
		if err := b.look(t, tenant); err != nil {
			t.Fatal(err)
		}
		if got := b.reports(t, tenant); len(got) != want {
			t.Fatalf("%d dead letters, and the reports %s", want, summary(got))
		}
	})
}

func TestStoppedProjectionsAndParkedDocuments(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.follow(t)
	tenant, other := b.tenant(t), tablestest.NewTenant(t, b.store)
	for _, onError := range []domain.OnError{domain.OnErrorStop, domain.OnErrorPark} {
		for _, of := range []domain.TenantID{tenant, other} {
			if _, err := b.catalog.Create(t.Context(), of, folding.WithDefaults(domain.Definition{
				Name: "by-" + string(onError), On: map[string]string{"Added": "{'n': 1 / event.data.n}"}, OnError: onError,
			}), "test"); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.add(t, other, "order-1", `{"n": 0}`)
	bad := b.add(t, tenant, "order-1", `{"n": 0}`)
	reported := func(want string) {
		t.Helper()
		var got string
		await(t, func() bool {
			b.mustLook(t, tenant)
			got = summary(b.reports(t, tenant))
			return len(got) >= len(want)
		})
		b.mustLook(t, tenant)
		if got = summary(b.reports(t, tenant)); got != want {
			t.Fatalf("the reports are %s, want %s", got, want)
		}
	}
	await(t, func() bool {
		faults, err := b.store.TenantFaults(t.Context(), tenant, 10)
		documents, parkedErr := b.catalog.Parked(t.Context(), tenant, "by-park", "", 10)
		return err == nil && parkedErr == nil && len(documents) == 1 && len(faults) == 1 && faults[0].Retries > 3
	})
	want := "dlq.projection.by_park-order-1 DocumentParked, manifold.alerts-projection.by-stop ProjectionStopped"
	reported(want)
	var data map[string]any
	if err := json.Unmarshal(b.reports(t, tenant)[1].Data, &data); err != nil || data["projection"] != "by-stop" || data["position"] != float64(bad) || data["stoppedAt"] == nil || data["message"] == "" {
		t.Errorf("the report is %v, %v", data, err)
	}
	if _, err := b.catalog.Skip(t.Context(), tenant, "by-stop", bad, "", "test"); err != nil {
		t.Fatal(err)
	}
	want += ", manifold.alerts-projection.by-stop ProjectionResumed"
	reported(want)
	// Another build parks the same document, and stops at no skipped event.
	for _, name := range []string{"by-stop", "by-park"} {
		if _, err := b.catalog.Reset(t.Context(), tenant, name, "test", false); err != nil {
			t.Fatal(err)
		}
	}
	again := b.add(t, tenant, "order-2", `{"n": 0}`)
	want += ", dlq.projection.by_park-order-2 DocumentParked, manifold.alerts-projection.by-stop ProjectionStopped"
	await(t, func() bool {
		documents, err := b.catalog.Parked(t.Context(), tenant, "by-park", "", 10)
		faults, faultsErr := b.store.TenantFaults(t.Context(), tenant, 10)
		return err == nil && len(documents) == 2 && faultsErr == nil && len(faults) == 1 && faults[0].Position == again
	})
	reported(want)
	// A projection that is removed has not resumed.
	if err := b.catalog.Delete(t.Context(), tenant, "by-stop", "test"); err != nil {
		t.Fatal(err)
	}
	reported(want)
	if got := b.reports(t, other); len(got) > 0 {
		t.Errorf("a tenant without reports has %s", summary(got))
	}
}

func TestLag(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	if _, err := b.reporter.Put(t.Context(), tenant, true, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.groups.Put(t.Context(), tenant, "slow", domain.GroupDefinition{From: "start", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	// Groups without anything to deliver do not lag, although nobody receives from them.
	for name, definition := range map[string]domain.GroupDefinition{
		"category": {From: "start", Selection: domain.Selection{Categories: []string{"none"}}}, "type": {From: "start", Selection: domain.Selection{Types: []string{"None"}}},
		"stream": {From: "start", Selection: domain.Selection{Stream: "order-9"}}, "tag": {From: "start", Selection: domain.Selection{Query: domain.Query{{Tags: []string{"none"}}}}},
	} {
		if _, _, err := b.groups.Put(t.Context(), tenant, name, definition); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.catalog.Create(t.Context(), tenant, folding.WithDefaults(domain.Definition{Name: "late", On: map[string]string{"Added": "{}"}}), "test"); err != nil {
		t.Fatal(err)
	}
	b.add(t, tenant, "order-1", `{}`)
	b.mustLook(t, tenant)
	if got := summary(b.reports(t, tenant)); got != "" {
		t.Fatalf("a second's lag is reported: %s", got)
	}
	b.age(t, tenant, 11*time.Second)
	behind := "manifold.alerts-group-lag.slow GroupBehind, manifold.alerts-projection-lag.late ProjectionBehind"
	await(t, func() bool {
		b.mustLook(t, tenant)
		return len(b.reports(t, tenant)) == 2
	})
	b.mustLook(t, tenant)
	reports := b.reports(t, tenant)
	if got := summary(reports); got != behind {
		t.Fatalf("the reports are %s", got)
	}
	var data map[string]any
	if err := json.Unmarshal(reports[0].Data, &data); err != nil || data["group"] != "slow" || data["lagSeconds"].(float64) < 11 || data["maxLag"] != 10.0 || data["position"] != 0.0 {
		t.Errorf("the report is %s, %v", reports[0].Data, err)
	}
	b.follow(t)
	await(t, func() bool {
		b.mustLook(t, tenant)
		return strings.HasPrefix(summary(b.reports(t, tenant)), behind+", manifold.alerts-projection-lag.late ProjectionCaughtUp")
	})
	// Removed groups end nothing.
	if err := b.groups.Delete(t.Context(), tenant, "slow"); err != nil {
		t.Fatal(err)
	}
	b.mustLook(t, tenant)
	if n := len(b.reports(t, tenant)); n != 3 {
		t.Errorf("the reports are %s", summary(b.reports(t, tenant)))
	}
}

func TestFailingWebhooks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	const url = "https://mail.example"
	consumer := domain.GroupDefinition{From: "start", BatchSize: 1, MaxInFlight: 1, MaxAttempts: 1}
	_, _, err := b.store.PutWebhook(t.Context(), tenant, "mail", webhook.Definition{URL: url}, consumer, 1, webhook.Secret{ID: webhook.NewSecretID(), Key: []byte("key")})
	tablestest.Must(t, err)
	now := time.Now()
	attempt := func(outcome webhook.Outcome, at time.Time) {
		t.Helper()
		tablestest.Must(t, b.store.AddWebhookAttempts(t.Context(), tenant, "mail", []webhook.Attempt{{
			ID: webhook.FirstAttemptID(at), EventID: domain.NewEventID(), URL: url, Outcome: outcome, At: at,
		}}))
	}
	want := ""
	check := func() {
		t.Helper()
		b.mustLook(t, tenant)
		if got := summary(b.reports(t, tenant)); got != want {
			t.Fatalf("the reports are %s, want %s", got, want)
		}
	}
	attempt(webhook.OutcomeFailed, now.Add(-20*time.Minute))
	attempt(webhook.OutcomeFailed, now.Add(-18*time.Minute))
	check()
	attempt(webhook.OutcomeFailed, now.Add(-14*time.Minute))
	want = "manifold.alerts-webhook.mail WebhookFailing"
	check()
	attempt(webhook.OutcomeOK, now.Add(-10*time.Minute))
	want += ", manifold.alerts-webhook.mail WebhookRecovered"
	check()
}

// Processes that work for the same tenant at the same time, as when one takes over from another, report each fact once.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.follow(t)
	tenant := b.tenant(t)
	if _, _, err := b.groups.Put(t.Context(), tenant, "mail", domain.GroupDefinition{From: "start", Selection: domain.Selection{Categories: []string{"order"}}}); err != nil {
		t.Fatal(err)
	}
	for _, onError := range []domain.OnError{domain.OnErrorStop, domain.OnErrorPark} {
		if _, err := b.catalog.Create(t.Context(), tenant, folding.WithDefaults(domain.Definition{
			Name: string(onError), On: map[string]string{"Added": "{'n': 1 / 0}"}, OnError: onError,
		}), "test"); err != nil {
			t.Fatal(err)
		}
	}
	const events = 30
	for i := range events {
		b.add(t, tenant, fmt.Sprintf("order-%d", i), `{}`)
	}
	b.park(t, tenant, "mail")
	await(t, func() bool {
		documents, err := b.catalog.Parked(t.Context(), tenant, "park", "", 100)
		status, statusErr := b.catalog.Status(t.Context(), tenant, "stop")
		return err == nil && statusErr == nil && len(documents) == events && status.Fault != nil
	})
	var processes sync.WaitGroup
	for range 3 {
		other := report.New(b.config)
		b.run(t, other.Run)
		await(t, func() bool {
			consumers, err := other.Consumers(t.Context(), tenant)
			return err == nil && len(consumers) == 1
		})
		processes.Go(func() {
			consumers, err := other.Consumers(t.Context(), tenant)
			for range 5 {
				if err == nil {
					_, err = consumers[0].Run(t.Context())
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	processes.Wait()
	b.mustLook(t, tenant)
	counts := make(map[string]int)
	for _, e := range b.reports(t, tenant) {
		counts[e.Type]++
	}
	if want := (map[string]int{"EventDeadLettered": events, "DocumentParked": events, "ProjectionStopped": 1}); !maps.Equal(counts, want) {
		t.Errorf("reported are %v, want %v", counts, want)
	}
}

// A report that the log refuses is left out. It keeps no other report back.
func TestRefusedReports(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	write := b.append
	b.append = func(ctx context.Context, tenant domain.TenantID, request domain.Append) (domain.Appended, error) {
		for _, s := range request.Streams {
			if strings.HasPrefix(s.Stream, "dlq.") {
				return domain.Appended{}, domain.Errorf(domain.CodeTooCostly, "", "an inline projection would take too long")
			}
		}
		return write(ctx, tenant, request)
	}
	b.follow(t)
	if _, err := b.catalog.Create(t.Context(), tenant, folding.WithDefaults(domain.Definition{Name: "by-stop", On: map[string]string{"Added": "{'n': 1 / event.data.n}"}}), "test"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.groups.Put(t.Context(), tenant, "mail", domain.GroupDefinition{From: "start"}); err != nil {
		t.Fatal(err)
	}
	b.mustLook(t, tenant) // dead letters from now on
	b.add(t, tenant, "order-1", `{"n": 0}`)
	if n := b.park(t, tenant, "mail"); n == 0 {
		t.Fatal("there is no dead letter")
	}
	await(t, func() bool {
		b.mustLook(t, tenant)
		return summary(b.reports(t, tenant)) == "manifold.alerts-projection.by-stop ProjectionStopped"
	})
}
