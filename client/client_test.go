package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/manifold-es/manifold"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const operatorKey = "mfo_the-key-of-the-operator-of-these-tests"

// service is a service with one tenant.
type service struct {
	config  config.Config
	process *manifold.Process
	key     string
}

func (s *service) url() string { return "http://" + s.process.Address() }

// start starts a service, or starts it again at its address.
func (s *service) start(t testing.TB) {
	t.Helper()
	var err error
	if s.process, err = manifold.Start(t.Context(), s.config, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	s.config.Listen = s.process.Address()
}

func (s *service) stop(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.process.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func newService(t testing.TB) *service {
	t.Helper()
	db := pgtest.Database(t)
	s := &service{config: config.Default()}
	s.config.Listen = "127.0.0.1:0"
	s.config.Database.URL = db.URL(pgtest.RoleMigrator)
	s.config.Database.App.URL = db.URL(migrations.RoleApp)
	s.config.Database.System.URL = db.URL(migrations.RoleSystem)
	s.config.Database.Documents.URL = db.URL(migrations.RoleDocuments)
	s.config.Database.Retention.URL = db.URL(migrations.RoleRetention)
	s.config.Database.MaxConns = 8
	s.config.OperatorKeys = []string{operatorKey}
	s.start(t)
	t.Cleanup(func() { s.stop(t) })
	operator := newClient(t, s.url(), client.WithKey(operatorKey))
	tenant := read[client.Tenant](t)(operator.CreateTenant(t.Context(), client.NewTenant{Name: "acme"}))
	var scopes []string
	for _, scope := range auth.TenantScopes {
		scopes = append(scopes, string(scope))
	}
	s.key = read[client.CreatedKey](t)(operator.CreateTenantKey(t.Context(), tenant.Id, client.NewKey{Name: "all", Scopes: scopes})).Key
	return s
}

// newClient returns a client whose connections close with the test.
func newClient(t testing.TB, url string, options ...client.ClientOption) *client.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := client.NewClient(url, append([]client.ClientOption{client.WithHTTPClient(&http.Client{Transport: transport})}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func read[T any](t testing.TB) func(*http.Response, error) T {
	return func(response *http.Response, err error) T {
		t.Helper()
		answer, err := client.Read[T](response, err)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
}

var quick = client.Retry{Attempts: 100, MinDelay: 5 * time.Millisecond, MaxDelay: 100 * time.Millisecond}

// numbered returns events with the data from ... to.
func numbered(from, to int) client.NewEvents {
	var events client.NewEvents
	for n := from; n <= to; n++ {
		events = append(events, client.NewEvent{Type: "Counted", Data: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))})
	}
	return events
}

func numberOf(t *testing.T, event client.Event) int {
	t.Helper()
	var data struct{ N int }
	if err := json.Unmarshal(event.Data, &data); err != nil {
		t.Error(err)
	}
	return data.N
}

// The examples run in their order, and each prints what README.md says.
func TestExamples(t *testing.T) {
	s := newService(t) // not parallel: the examples print to the standard output, and read the environment
	t.Setenv("MANIFOLD_URL", s.url())
	t.Setenv("MANIFOLD_KEY", s.key)
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	examples := []func(){Example_append, Example_problem, Example_follow, Example_consume, Example_query, Example_command}
	_, rest, _ := strings.Cut(string(page), "\n## Append\n")
	for i, example := range examples {
		var code, want string
		code, rest = fenced(t, rest, "go")
		want, rest = fenced(t, rest, "text")
		if got := printed(t, example); got != want {
			t.Errorf("example %d prints\n%s", i+1, got)
		}
		indented := "\t" + strings.ReplaceAll(strings.TrimSuffix(code, "\n"), "\n", "\n\t")
		if !strings.Contains(string(source), strings.ReplaceAll(indented, "\n\t\n", "\n\n")) {
			t.Errorf("example_test.go does not have\n%s", code)
		}
	}
}

// fenced returns the next fenced block of a kind, and what follows it.
func fenced(t *testing.T, page, kind string) (block, rest string) {
	t.Helper()
	_, rest, begins := strings.Cut(page, "```"+kind+"\n")
	block, rest, ends := strings.Cut(rest, "```\n")
	if !begins || !ends {
		t.Fatalf("README.md has too few blocks of %s", kind)
	}
	return block, rest
}

// printed returns what a function prints.
func printed(t *testing.T, do func()) string {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stdout
	os.Stdout = in
	do()
	os.Stdout = before
	in.Close()
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// cutter is a proxy that cuts its first connections, each after some bytes of answers.
func cutter(t *testing.T, to string, cuts ...int64) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for n := 0; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			most := int64(1 << 40)
			if n < len(cuts) {
				most = cuts[n]
			}
			all.Go(func() {
				defer conn.Close()
				behind, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				go func() {
					_, _ = io.Copy(behind, conn) // ends when either is closed
					behind.Close()
				}()
				answers := io.Reader(behind)
				if most == 0 { // wait for an answer, so that the request was carried out
					_, _ = behind.Read(make([]byte, 1))
				}
				_, _ = io.CopyN(conn, answers, most)
				behind.Close()
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		all.Wait()
	})
	return "http://" + listener.Addr().String()
}

func TestAnAppendWhoseAnswerIsLostHappensOnce(t *testing.T) {
	t.Parallel()
	s := newService(t)
	c := newClient(t, cutter(t, s.process.Address(), 0, 0, 0), client.WithKey(s.key), client.WithRetries(quick))
	none := "none"
	response, err := c.AppendToStream(t.Context(), "order-1", &client.AppendToStreamParams{ExpectedVersion: &none}, numbered(1, 3))
	if appended := read[client.AppendedStream](t)(response, err); appended.Version != 3 || response.StatusCode != http.StatusOK {
		t.Errorf("%d: %+v", response.StatusCode, appended)
	}
	read[client.Published](t)(c.Publish(t.Context(), nil, client.Message{Topic: "order", Payload: json.RawMessage(`{}`)}))
}

// What is sent again, and after which pauses.
func TestRetries(t *testing.T) {
	t.Parallel()
	problem := func(status int, code string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"type": "x", "title": "x", "status": %d, "code": %q}`, status, code)
		}
	}
	for name, test := range map[string]struct {
		answer func(w http.ResponseWriter)
		path   string
		sent   int
		waited time.Duration
		code   string
	}{
		"too many requests":                     {problem(429, "too-many-requests"), "/v1/keys", 3, 14 * time.Second, "too-many-requests"},
		"overloaded":                            {problem(503, "overloaded"), "/v1/keys", 3, 14 * time.Second, "overloaded"},
		"unknown outcome of an append":          {problem(503, "outcome-unknown"), "/v1/streams/order-1%2Fx/events", 3, 14 * time.Second, "outcome-unknown"},
		"unknown outcome of what may not again": {problem(503, "outcome-unknown"), "/v1/keys", 1, 0, "outcome-unknown"},
		"not caught up":                         {problem(503, "not-caught-up"), "/v1/query", 1, 0, "not-caught-up"},
		"refused":                               {problem(400, "invalid-request"), "/v1/query", 1, 0, "invalid-request"},
		"a proxy's answer":                      {func(w http.ResponseWriter) { w.WriteHeader(502) }, "/v1/query", 3, 50 * time.Millisecond, "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var keys []string
				sent := 0
				service := doer(func(request *http.Request) (*http.Response, error) {
					sent++
					if body, err := io.ReadAll(request.Body); err != nil || string(body) != "{}" {
						t.Errorf("the body is %q, %v", body, err)
					}
					keys = append(keys, request.Header.Get("Idempotency-Key"))
					recorder := httptest.NewRecorder()
					test.answer(recorder)
					return recorder.Result(), nil
				})
				c, err := client.NewClient("http://service", client.WithHTTPClient(service), client.WithRetries(client.Retry{Attempts: 3}))
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://service"+test.path, strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				_, err = client.Read[json.RawMessage](c.Client.Do(request))
				if problem, ok := errors.AsType[*client.ProblemError](err); !ok || problem.Code != test.code {
					t.Errorf("the error is %v", err)
				}
				if waited := time.Since(begun); sent != test.sent || waited < test.waited || waited > test.waited+time.Second {
					t.Errorf("it was sent %d times in %s", sent, waited)
				}
				if len(slices.Compact(keys)) != 1 || (keys[0] != "") != strings.Contains(test.path, "/events") {
					t.Errorf("the keys are %q", keys)
				}
			})
		})
	}
}

type doer func(*http.Request) (*http.Response, error)

func (d doer) Do(request *http.Request) (*http.Response, error) { return d(request) }

func TestAFollowerResumesAfterTheLastEvent(t *testing.T) {
	t.Parallel()
	s := newService(t)
	c := newClient(t, s.url(), client.WithKey(s.key), client.WithRetries(quick))
	const first, all = 2000, 2010
	for n := 0; n < first; n += 500 {
		read[client.AppendedStream](t)(c.AppendToStream(t.Context(), "order-1", nil, numbered(n+1, n+500)))
	}
	cutting := newClient(t, cutter(t, s.process.Address(), 40_000, 90_000), client.WithKey(s.key))
	seen, reconnects := 0, 0
	options := client.FollowOptions{Stream: "order-1", Retry: quick, OnReconnect: func(error) { reconnects++ }}
	for event, err := range cutting.Follow(t.Context(), options) {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; numberOf(t, event) != seen {
			t.Fatalf("event %d has the data %s", seen, event.Data)
		}
		if seen == first {
			s.stop(t)
			s.start(t)
			go func() {
				response, err := c.AppendToStream(t.Context(), "order-1", nil, numbered(first+1, all))
				if _, err := client.Read[client.AppendedStream](response, err); err != nil {
					t.Error(err)
				}
			}()
		}
		if seen == all {
			break
		}
	}
	if reconnects < 3 {
		t.Errorf("it reconnected %d times", reconnects)
	}
	for _, err := range c.Follow(t.Context(), client.FollowOptions{Filter: "event.dat"}) {
		if problem, ok := errors.AsType[*client.ProblemError](err); !ok || problem.Code != "invalid-request" {
			t.Errorf("a wrong filter gives %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range c.Follow(ctx, client.FollowOptions{}) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled follower gives %v", err)
		}
	}
}

func TestAConsumerHandlesEveryEventAndStopsGracefully(t *testing.T) {
	t.Parallel()
	s := newService(t)
	c := newClient(t, s.url(), client.WithKey(s.key), client.WithRetries(quick))
	short, soon, most := 10.0, 0.001, 3
	read[client.Subscription](t)(c.PutSubscription(t.Context(), "work", client.NewSubscription{
		Ordering: "stream", AckTimeout: &short, MaxAttempts: &most, Backoff: &client.Backoff{Min: &soon, Max: &soon},
		Source: &client.SubscriptionSource{Categories: []string{"job"}},
	}))
	for i := range 10 {
		read[client.AppendedStream](t)(c.AppendToStream(t.Context(), fmt.Sprint("job-", i), nil, numbered(1, 10)))
	}
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	handled, faults := make(map[string]int), 0
	err := c.Consume(ctx, "work", func(ctx context.Context, delivery client.Delivery) error {
		event := delivery.Event
		switch {
		case event.Stream == "job-1" && event.Version == 3 && delivery.Attempt < 3:
			return errors.New("not yet")
		case event.Stream == "job-2" && event.Version == 5:
			return client.ParkEvent("bad")
		case event.Stream == "job-3" && event.Version == 1:
			select { // longer than the lease
			case <-time.After(11 * time.Second):
			case <-ctx.Done():
				t.Error(context.Cause(ctx))
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if handled[event.Id]++; len(handled) == 99 {
			stop()
		}
		return nil
	}, client.ConsumeOptions{Concurrency: 4, OnError: func(err error, event *client.Event) {
		mu.Lock()
		defer mu.Unlock()
		faults++
	}})
	if err != nil || faults != 2 {
		t.Errorf("%v, %d errors of handlers", err, faults)
	}
	for id, times := range handled {
		if times != 1 {
			t.Errorf("event %s was handled %d times", id, times)
		}
	}
	got := read[client.Subscription](t)(c.GetSubscription(t.Context(), "work"))
	if p := got.Progress[0]; p.InFlight != 0 || p.Retrying != 0 || p.DeadLetters != 1 {
		t.Errorf("after the consumer has stopped: %+v", p)
	}
}

func TestAConsumerGivesUpHandlersThatTakeTooLong(t *testing.T) {
	t.Parallel()
	s := newService(t)
	c := newClient(t, s.url(), client.WithKey(s.key))
	read[client.Subscription](t)(c.PutSubscription(t.Context(), "slow", client.NewSubscription{
		Source: &client.SubscriptionSource{Categories: []string{"job"}}, Partitions: 4,
	}))
	read[client.AppendedStream](t)(c.AppendToStream(t.Context(), "job-1", nil, numbered(1, 1)))
	for attempt := range int64(2) {
		ctx, stop := context.WithCancel(t.Context())
		var attempts atomic.Int64
		err := c.Consume(ctx, "slow", func(ctx context.Context, delivery client.Delivery) error {
			attempts.Store(int64(delivery.Attempt))
			stop()
			if attempt == 0 {
				<-ctx.Done()
			}
			return nil
		}, client.ConsumeOptions{Member: "test", StopTimeout: 10 * time.Millisecond})
		if err != nil || attempts.Load() != attempt+1 {
			t.Errorf("%v; attempt %d, want %d", err, attempts.Load(), attempt+1)
		}
	}
	if members := read[client.SubscriptionMemberList](t)(c.ListSubscriptionMembers(t.Context(), "slow")); len(members.Members) > 0 {
		t.Errorf("it has the members %+v", members)
	}
	err := c.Consume(t.Context(), "missing", func(context.Context, client.Delivery) error { return nil }, client.ConsumeOptions{})
	if problem, ok := errors.AsType[*client.ProblemError](err); !ok || problem.Code != "not-found" {
		t.Errorf("a missing group gives %v", err)
	}
}

// Events whose handlers return before the next receive are acknowledged by it. If it fails, or a handler returns while
// it waits, they are acknowledged separately.
func TestAConsumerAcknowledgesInItsNextReceive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		var asked []string
		given, delivered := 0, time.Time{}
		deliver := func(count int) client.Deliveries {
			delivered = time.Now()
			deliveries := make([]client.Delivery, count)
			for i := range deliveries {
				given++
				deliveries[i] = client.Delivery{
					Event: client.Event{Id: fmt.Sprint(given)}, Attempt: 1, AckDeadline: time.Now().Add(time.Hour),
				}
			}
			return client.Deliveries{Deliveries: deliveries}
		}
		service := doer(func(request *http.Request) (*http.Response, error) {
			var body struct {
				Batch    int
				Ack, Ids []client.Attempt
			}
			if err := json.NewDecoder(request.Body).Decode(&body); err != nil {
				t.Error(err)
			}
			call := request.URL.Path[strings.LastIndex(request.URL.Path, "/")+1:]
			mu.Lock()
			defer mu.Unlock()
			if call == "receive" {
				asked = append(asked, fmt.Sprintf("receive %d, ack %d", body.Batch, len(body.Ack)))
			}
			for range body.Ids {
				asked = append(asked, call)
			}
			status, answer := http.StatusOK, any(client.Answers{})
			switch {
			case call != "receive":
			case len(body.Ack) == 3:
				status, answer = http.StatusTooManyRequests, client.Problem{Status: 429, Code: "too-many-requests"}
			case given == 0:
				answer = deliver(3)
			case given == 3:
				answer = deliver(2)
			default:
				if waited := time.Since(delivered); waited != time.Millisecond {
					t.Errorf("the receive waited %s for the handler that runs", waited)
				}
				mu.Unlock()
				<-ctx.Done()
				mu.Lock()
				return nil, context.Cause(ctx)
			}
			recorder := httptest.NewRecorder()
			recorder.Header().Set("Content-Type", "application/json")
			recorder.WriteHeader(status)
			if err := json.NewEncoder(recorder).Encode(answer); err != nil {
				t.Error(err)
			}
			return recorder.Result(), nil
		})
		c, err := client.NewClient("http://service", client.WithHTTPClient(service))
		if err != nil {
			t.Fatal(err)
		}
		err = c.Consume(ctx, "work", func(_ context.Context, delivery client.Delivery) error {
			if delivery.Event.Id == "5" {
				<-time.After(time.Second)
				time.AfterFunc(time.Second, stop)
			}
			return nil
		}, client.ConsumeOptions{})
		want := []string{
			"receive 10, ack 0", "receive 10, ack 3", "ack", "ack", "ack", "receive 10, ack 0", "receive 9, ack 1", "ack", "ack",
		}
		if err != nil || !slices.Equal(asked, want) {
			t.Errorf("%v; it asked for %q, want %q", err, asked, want)
		}
	})
}

// A service whose answers do not come cannot keep a consumer from stopping.
func TestAConsumerStopsThoughNothingAnswersItsCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var received atomic.Bool
		service := doer(func(request *http.Request) (*http.Response, error) {
			if strings.HasSuffix(request.URL.Path, "/receive") && !received.Swap(true) {
				recorder := httptest.NewRecorder()
				recorder.Header().Set("Content-Type", "application/json")
				delivery := client.Delivery{Attempt: 1, AckDeadline: time.Now().Add(30 * time.Second)}
				if err := json.NewEncoder(recorder).Encode(client.Deliveries{Deliveries: []client.Delivery{delivery}}); err != nil {
					t.Error(err)
				}
				return recorder.Result(), nil
			}
			<-request.Context().Done()
			return nil, context.Cause(request.Context())
		})
		c, err := client.NewClient("http://service", client.WithHTTPClient(service))
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		err = c.Consume(ctx, "work", func(context.Context, client.Delivery) error {
			stop()
			return nil
		}, client.ConsumeOptions{})
		if took := time.Since(begun); err != nil || took > time.Minute {
			t.Errorf("it stopped after %s: %v", took, err)
		}
	})
}

func TestPages(t *testing.T) {
	t.Parallel()
	s := newService(t)
	c := newClient(t, s.url(), client.WithKeys(func(context.Context) (string, error) { return s.key, nil }))
	for i := range 3 {
		read[client.AppendedStream](t)(c.AppendToStream(t.Context(), fmt.Sprint("job-", i), nil, numbered(1, 400)))
	}
	size := 1
	var names []string
	for page, err := range client.Pages[client.StreamList](t.Context(), c)(c.ListStreams(t.Context(), &client.ListStreamsParams{PageSize: &size})) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, page.Streams...)
	}
	if !slices.Equal(names, []string{"job-0", "job-1", "job-2"}) {
		t.Errorf("the streams are %q", names)
	}
	events, position, err := c.Search(t.Context(), client.Query{Items: []client.QueryItem{{Types: []string{"Counted"}}}}, 0)
	if err != nil || len(events) != 1200 || position != 1200 {
		t.Errorf("%d events up to %d, %v", len(events), position, err)
	}
}
