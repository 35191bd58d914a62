package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// transports are the transports for followers.
var transports = []string{"websocket", "sse", "ndjson"}

// upgrade contains the headers that ask for a WebSocket.
var upgrade = map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}

// frame is one message to a follower: kind is event, caughtUp, checkpoint or gap.
type frame struct {
	kind     string
	position int
	event    object
}

func (f frame) String() string { return f.kind + " " + strconv.Itoa(f.position) }

// json returns the frame in the contract's form.
func (f frame) json() object {
	if f.kind == "event" {
		return object{"event": f.event}
	}
	return object{f.kind: object{"position": float64(f.position)}}
}

// follower is a client that follows.
type follower struct {
	t      *testing.T
	header http.Header
	read   func() (frame, error)
	close  func()
}

// follow starts to follow over a transport.
func (a *actor) follow(t *testing.T, transport, path string, headers ...string) *follower {
	t.Helper()
	f := &follower{t: t}
	switch transport {
	case "websocket":
		conn, response := a.dial(t, path, headers...)
		f.header, f.close = response.Header, func() { _ = conn.CloseNow() }
		f.read = func() (frame, error) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, message, err := conn.Read(ctx)
			if err != nil {
				return frame{}, err
			}
			return frameOf(t, message), nil
		}
	case "sse":
		response := a.open("GET", path, nil, append(headers, "Accept", "text/event-stream")...)
		wantStream(t, response, "text/event-stream")
		lines := bufio.NewReader(response.Body)
		f.header, f.close = response.Header, func() { response.Body.Close() }
		f.read = func() (frame, error) { return readServerSent(t, lines) }
	default:
		response := a.open("GET", path, nil, append(headers, "Accept", "application/x-ndjson")...)
		wantStream(t, response, "application/x-ndjson")
		lines := bufio.NewReader(response.Body)
		f.header, f.close = response.Header, func() { response.Body.Close() }
		f.read = func() (frame, error) {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return frame{}, err
			}
			return frameOf(t, line), nil
		}
	}
	t.Cleanup(f.close)
	return f
}

// dial opens a WebSocket.
func (a *actor) dial(t *testing.T, path string, headers ...string) (*websocket.Conn, *http.Response) {
	t.Helper()
	header := http.Header{}
	if a.key != "" {
		header.Set("Authorization", "Bearer "+a.key)
	}
	for i := 0; i < len(headers); i += 2 {
		header.Set(headers[i], headers[i+1])
	}
	conn, response, err := websocket.Dial(t.Context(), strings.Replace(a.url, "http", "ws", 1)+path, &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		t.Fatalf("open a WebSocket to %s: %v", path, err)
	}
	conn.SetReadLimit(-1)
	return conn, response
}

func wantStream(t *testing.T, response *http.Response, kind string) {
	t.Helper()
	if got := response.Header.Get("Content-Type"); response.StatusCode != 200 || got != kind {
		body, _ := io.ReadAll(response.Body)
		t.Fatalf("answered %d with %s: %s", response.StatusCode, got, body)
	}
}

// frameOf decodes a frame, an object of one member.
func frameOf(t *testing.T, text []byte) frame {
	t.Helper()
	var members map[string]object
	if err := json.Unmarshal(text, &members); err != nil || len(members) != 1 {
		t.Fatalf("no frame: %s", text)
	}
	for kind, content := range members {
		f := frame{kind: kind, position: placeOf(kind, content)}
		if kind == "event" {
			f.event = content
		}
		return f
	}
	return frame{}
}

// placeOf returns the position of a frame; for a gap, the last position that may be missing.
func placeOf(kind string, content object) int {
	if kind == "gap" {
		return int(content["to"].(float64))
	}
	return int(content["position"].(float64))
}

func readServerSent(t *testing.T, lines *bufio.Reader) (frame, error) {
	t.Helper()
	var f frame
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return f, err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			f.position, err = strconv.Atoi(value)
			must(t, err)
		case "event":
			f.kind = map[string]string{"event": "event", "caught-up": "caughtUp", "checkpoint": "checkpoint", "gap": "gap"}[value]
		case "data":
			var data object
			must(t, json.Unmarshal([]byte(value), &data))
			if at := placeOf(f.kind, data); f.kind == "gap" && f.position == 0 {
				f.position = at // it has no id
			} else if at != f.position {
				t.Fatalf("the id is %d and the data %s", f.position, value)
			}
			if f.kind == "event" {
				f.event = data
			}
		case "":
			if f.kind != "" {
				return f, nil
			}
		case "retry":
		default:
			t.Fatalf("a line is %q", line)
		}
	}
}

// next returns the next frame.
func (f *follower) next() frame {
	f.t.Helper()
	got, err := f.read()
	if err != nil {
		f.t.Fatalf("read a frame: %v", err)
	}
	return got
}

// until reads frames up to the first one of a kind.
func (f *follower) until(kind string) []frame {
	f.t.Helper()
	var all []frame
	for {
		got := f.next()
		all = append(all, got)
		if got.kind == kind {
			return all
		}
	}
}

// want reads events until it has those positions, and fails at any other position.
func (f *follower) want(positions ...int) {
	f.t.Helper()
	for _, position := range positions {
		if all := f.until("event"); all[len(all)-1].position != position {
			f.t.Fatalf("there come %v, want event %d", all, position)
		}
	}
}

// end reads until the answer ends, and returns the reason.
func (f *follower) end() error {
	f.t.Helper()
	for {
		if _, err := f.read(); err != nil {
			return err
		}
	}
}

// On every transport, a follower gets the existing events, then a message that it has caught up, then new events, each
// once.
func TestFollowFromHistoryToLive(t *testing.T) {
	t.Parallel()
	var delivered [3]atomic.Int64
	counted := make(chan struct{}, 1000)
	w := newWorld(t, func(c *api.Config) {
		c.Observer.Followed = func(transport string, events int) {
			delivered[slices.Index(transports, transport)].Add(int64(events))
			counted <- struct{}{}
		}
	})
	a, other := w.tenant("one"), w.tenant("other")
	a.append("order-1", 3)
	other.append("order-1", 5)
	var followers []*follower
	for _, transport := range transports {
		f := a.follow(t, transport, "/v1/subscribe/$all")
		equal(t, transport+"'s frames", fmt.Sprint(f.until("caughtUp")), "[event 1 event 2 event 3 caughtUp 3]")
		equal(t, transport+"'s origin", f.header.Get("Access-Control-Allow-Origin"), "*")
		followers = append(followers, f)
	}
	a.post("/v1/streams/order-2/events", list{object{"type": "Said", "occurredAt": "2026-03-01T09:30:00Z", "data": object{"text": "ein\nzwei \u2028 \"drei\""}, "metadata": object{"by": "me"}}}).want(201)
	head := a.get("/v1/streams/$all?direction=backward&count=1").want(200)
	want := head.at("events", 0)
	for i, f := range followers {
		frames := f.until("event")
		equal(t, transports[i]+"'s event", frames[len(frames)-1].event, want)
	}
	for i, transport := range transports {
		late := time.After(patience)
		for delivered[i].Load() < 4 { // they are counted after they were sent
			select {
			case <-counted:
			case <-late:
				t.Fatalf("%d events are counted for %s", delivered[i].Load(), transport)
			}
		}
	}
}

func TestFollowWhereAndWhat(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("one")
	a.append("order-1", 2)
	a.post("/v1/streams/invoice-1/events", list{object{"type": "Sent", "data": object{"n": 7}}}).want(201)
	a.append("order-2", 2)
	third := a.get("/v1/streams/$all?from=3&count=1").want(200)
	at := url.QueryEscape(third.text("events", 0, "recordedAt"))
	for _, transport := range transports {
		for query, want := range map[string]string{
			"$all?from=start": "[event 1 event 2 event 3 event 4 event 5 caughtUp 5]",
			"$all?from=4":     "[event 4 event 5 caughtUp 5]",
			"$all?from=end":   "[caughtUp 5]",
			"$all?from=" + third.text("events", 0, "id"): "[event 3 event 4 event 5 caughtUp 5]",
			"$all?from=" + at:                                "[event 3 event 4 event 5 caughtUp 5]",
			"$all?from=2&types=Sent":                         "[event 3 caughtUp 5]",
			"$all?types=Sent,Happened&filter=event.data.n>0": "[event 2 event 3 event 5 caughtUp 5]",
			"streams/order-2":                                "[event 4 event 5 caughtUp 5]",
			"streams/nothing-yet":                            "[caughtUp 5]",
			"categories/invoice":                             "[event 3 caughtUp 5]",
			"categories/order?from=2":                        "[event 2 event 4 event 5 caughtUp 5]",
		} {
			f := a.follow(t, transport, "/v1/subscribe/"+query)
			equal(t, transport+" "+query, fmt.Sprint(f.until("caughtUp")), want)
			f.close()
		}
		// Last-Event-ID takes precedence over from.
		f := a.follow(t, transport, "/v1/subscribe/$all?from=1", "Last-Event-ID", "3")
		equal(t, transport+" behind 3", fmt.Sprint(f.until("caughtUp")), "[event 4 event 5 caughtUp 5]")
		f.close()
	}
}

// An invalid request is answered before anything is sent, even if it asks for a WebSocket.
func TestFollowRefuses(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("one")
	a.append("order-1", 1)
	reader := &actor{w, w.key(a.tenantID, auth.ScopeEventsAppend), a.tenantID}
	var asSocket []string
	for name, value := range upgrade {
		asSocket = append(asSocket, name, value)
	}
	for _, headers := range [][]string{asSocket, {"Accept", "text/event-stream"}, nil} {
		for path, where := range map[string]string{
			"$all?from=yesterday":             "query from",
			"$all?from=0":                     "query from",
			"$all?filter=event.data.n%20=":    "query filter",
			"$all?types=a%20b":                "query types",
			"$all?query=course:c1":            "query query",
			"$all?query=%7B%22items%22:[]%7D": "query query.items",
			"$all?query=%7B%22items%22:[%7B%22tags%22:[%22a%20b%22]%7D]%7D": "query query.items[0].tags[0]",
			"$all?form=1":      "query form",
			"streams/order":    "path streamId",
			"categories/a%20b": "path category",
		} {
			a.get("/v1/subscribe/"+path, headers...).wantProblem(400, domain.CodeInvalidRequest, where)
		}
		a.get("/v1/subscribe/$all?from="+domain.NewEventID().String(), headers...).wantProblem(404, domain.CodeNotFound, "query from")
		refused := reader.get("/v1/subscribe/$all", headers...)
		refused.wantProblem(403, domain.CodeForbidden, "")
		equal(t, "the origin", refused.header.Get("Access-Control-Allow-Origin"), "*")
		(&actor{world: w}).get("/v1/subscribe/$all", headers...).wantProblem(401, domain.CodeUnauthenticated, "")
	}
	a.get("/v1/subscribe/$all", "Accept", "application/json").wantProblem(400, domain.CodeInvalidRequest, "Accept")
	a.get("/v1/subscribe/$all", "Last-Event-ID", "seven").wantProblem(400, domain.CodeInvalidRequest, "Last-Event-ID")
	a.get("/v1/subscribe/$all", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "12").wantProblem(400, domain.CodeInvalidRequest, "Upgrade")
	for kind, accept := range map[string]string{"application/x-ndjson": "*/*", "text/event-stream": "text/event-stream;q=0.9, */*"} {
		head := a.send("HEAD", "/v1/subscribe/$all", nil, "Accept", accept).want(200)
		if head.header.Get("Content-Type") != kind || head.header.Get("Cache-Control") != "no-store" || len(head.body) > 0 {
			t.Errorf("HEAD is answered %v", head.header)
		}
	}
}

// A key for some categories can follow only those.
func TestFollowByCategory(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("one")
	a.append("order-1", 1)
	some := &actor{w, w.key(a.tenantID, "events:read:order"), a.tenantID}
	for _, transport := range transports {
		for _, path := range []string{"streams/order-1", "categories/order"} {
			some.follow(t, transport, "/v1/subscribe/"+path).until("caughtUp")
		}
	}
	some.get("/v1/subscribe/$all").wantProblem(403, domain.CodeForbidden, "")
	some.get("/v1/subscribe/streams/invoice-1").wantProblem(403, domain.CodeForbidden, "path streamId")
	some.get("/v1/subscribe/categories/invoice").wantProblem(403, domain.CodeForbidden, "path category")
}

// A follower receives its position even if its filter skips every event, and receives messages while nothing happens.
func TestFollowCheckpoints(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.Heartbeat = 200 * time.Millisecond })
	a := w.tenant("one")
	for _, transport := range transports {
		f := a.follow(t, transport, "/v1/subscribe/$all?types=Rare&from=end")
		started := f.until("caughtUp")
		at := started[len(started)-1].position
		for range 2 {
			if got := f.next(); got.kind != "checkpoint" || got.position != at {
				t.Fatalf("there comes %v", got)
			}
		}
		a.append("order-1", 10)
		for {
			if got := f.next(); got.kind == "event" {
				t.Fatalf("there comes %v", got)
			} else if got.position == at+10 {
				break
			}
		}
		f.close()
	}
}

func TestFollowEndsWhenTheKeyIsRevoked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.Recheck = 20 * time.Millisecond })
	a := w.tenant("one")
	a.append("order-1", 1)
	for _, transport := range transports {
		created := a.post("/v1/keys", object{"name": "short", "scopes": list{"events:read"}}).want(201)
		b := &actor{w, created.text("key"), a.tenantID}
		ticket := b.post("/v1/tickets", nil).want(201).text("ticket")
		mine, byTicket := b.follow(t, transport, "/v1/subscribe/$all"), (&actor{world: w}).follow(t, transport, "/v1/subscribe/$all?ticket="+ticket)
		mine.want(1)
		byTicket.want(1)
		a.send("DELETE", "/v1/keys/"+created.text("id"), nil).want(204)
		for _, f := range []*follower{mine, byTicket} {
			err := f.end()
			if transport != "websocket" {
				if errors.Is(err, io.EOF) {
					t.Errorf("%s ends with %v, as if it were whole", transport, err)
				}
				continue
			}
			var closed websocket.CloseError
			if !errors.As(err, &closed) || closed.Code != websocket.StatusPolicyViolation || !strings.Contains(closed.Reason, "revoked") {
				t.Errorf("the socket ends with %v", err)
			}
		}
	}
}

func TestFollowEndsWhenTheProcessStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("one")
	a.append("order-1", 1)
	var followers []*follower
	for _, transport := range transports {
		f := a.follow(t, transport, "/v1/subscribe/$all")
		f.until("caughtUp")
		followers = append(followers, f)
	}
	w.server.Stop()
	for i, f := range followers {
		err := f.end()
		if transports[i] != "websocket" {
			if !errors.Is(err, io.EOF) {
				t.Errorf("%s ends with %v", transports[i], err)
			}
		} else if websocket.CloseStatus(err) != websocket.StatusGoingAway {
			t.Errorf("the socket ends with %v", err)
		}
	}
	must(t, w.server.Wait(t.Context()))
	a.get("/v1/subscribe/$all", "Accept", "application/x-ndjson").wantProblem(503, domain.CodeUnavailable, "")
}

// A follower that stops reading is disconnected, and others are not affected.
func TestFollowCutsWhoDoesNotRead(t *testing.T) {
	t.Parallel()
	// Enough time for followers that read, on a slow machine with the race detector.
	w := newWorld(t, func(c *api.Config) { c.StallTimeout = 15 * time.Second })
	a := w.tenant("one")
	large := strings.Repeat("x", 500_000)
	for i := range 40 { // more than the buffers of a connection hold
		a.post(fmt.Sprintf("/v1/streams/order-%d/events", i), list{object{"type": "Grew", "data": object{"text": large}}}).want(201)
	}
	var deaf []net.Conn
	for _, transport := range transports {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		must(t, err)
		defer conn.Close()
		must(t, conn.(*net.TCPConn).SetReadBuffer(4096))
		request := a.request("GET", "/v1/subscribe/$all", nil)
		if transport == "websocket" {
			for name, value := range upgrade {
				request.Header.Set(name, value)
			}
		} else if transport == "sse" {
			request.Header.Set("Accept", "text/event-stream")
		}
		must(t, request.Write(conn))
		deaf = append(deaf, conn)
	}
	for _, transport := range transports {
		reading := a.follow(t, transport, "/v1/subscribe/$all")
		for i := range 40 {
			reading.want(i + 1)
		}
		reading.close()
	}
	for _, conn := range deaf {
		waitForCut(t, conn)
	}
	if text := w.log.String(); strings.Contains(text, "level=ERROR") {
		t.Errorf("a client that does not read is no fault of the service: %s", text)
	}
}

// waitForCut waits until the service has closed a connection that is not read.
func waitForCut(t *testing.T, conn net.Conn) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		// A peer that has disconnected answers with a reset, so that a later write fails.
		// The byte sequence is a pong for a WebSocket, and meaningless otherwise.
		if _, err := conn.Write([]byte{0x8a, 0x80, 0, 0, 0, 0}); err != nil {
			return
		}
	}
	t.Error("the connection is there still")
}

// A silent follower may stay connected without a time limit, as long as it answers pings.
func TestFollowLastsWhileNothingHappens(t *testing.T) {
	t.Parallel()
	// Enough time for the other requests of the test, and for answers to pings, on a slow machine.
	const timeout = 3 * time.Second
	w := newWorld(t, func(c *api.Config) { c.Timeout, c.StallTimeout, c.Heartbeat = timeout, timeout, 200*time.Millisecond })
	a := w.tenant("one")
	var followers []*follower
	for _, transport := range transports {
		followers = append(followers, a.follow(t, transport, "/v1/subscribe/$all"))
	}
	began := time.Now()
	var reading sync.WaitGroup
	for i, f := range followers {
		reading.Go(func() { // a socket answers pings while it is read
			for time.Since(began) < timeout+timeout/2 {
				if _, err := f.read(); err != nil {
					t.Errorf("%s ends after %s: %v", transports[i], time.Since(began), err)
					return
				}
			}
		})
	}
	reading.Wait()
}

// A client that reads but does not answer pings is disconnected.
func TestFollowLetsWhoIsSilentGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.StallTimeout, c.Heartbeat = 500*time.Millisecond, 200*time.Millisecond })
	a := w.tenant("one")
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	must(t, err)
	defer conn.Close()
	must(t, conn.SetReadDeadline(time.Now().Add(patience)))
	request := a.request("GET", "/v1/subscribe/$all", nil)
	for name, value := range upgrade {
		request.Header.Set(name, value)
	}
	must(t, request.Write(conn))
	all, err := io.ReadAll(conn)
	must(t, err)
	if !strings.HasPrefix(string(all), "HTTP/1.1 101 ") || !strings.Contains(string(all), "checkpoint") {
		t.Errorf("there came %q", all)
	}
}

// Messages of a client that is not expected to send any are ignored, up to a limit.
func TestFollowingSocketsTakeNothing(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("one")
	conn, _ := a.dial(t, "/v1/subscribe/$all")
	defer conn.CloseNow()
	must(t, conn.Write(t.Context(), websocket.MessageText, []byte("hello")))
	a.append("order-1", 1)
	for {
		_, message, err := conn.Read(t.Context())
		must(t, err)
		if frameOf(t, message).kind == "event" {
			break
		}
	}
	must(t, conn.Write(t.Context(), websocket.MessageText, []byte(strings.Repeat("hello", 1000))))
	for {
		if _, _, err := conn.Read(t.Context()); err != nil {
			if websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
				t.Errorf("it ends with %v", err)
			}
			return
		}
	}
}

func TestTickets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("one")
	a.append("order-1", 1)
	created := a.post("/v1/tickets", nil).want(201)
	ticket := created.text("ticket")
	nobody := &actor{world: w}
	for _, transport := range transports {
		nobody.follow(t, transport, "/v1/subscribe/$all?ticket="+ticket).want(1)
	}
	// Tickets are only for clients that cannot send a header, and for operations that accept tickets.
	nobody.get("/v1/subscribe/$all", "Authorization", "Bearer "+ticket).wantProblem(401, domain.CodeUnauthenticated, "Authorization")
	refused := nobody.get("/v1/streams/$all?ticket="+ticket).wantProblem(401, domain.CodeUnauthenticated, "Authorization")
	if detail, _ := refused["detail"].(string); !strings.Contains(detail, "takes no ticket") {
		t.Errorf("a ticket for an operation that takes none: %s", detail)
	}
	nobody.get("/v1/subscribe/$all?ticket="+a.key).wantProblem(401, domain.CodeUnauthenticated, "query ticket")
	nobody.post("/v1/tickets", nil).wantProblem(401, domain.CodeUnauthenticated, "")
	appending := &actor{w, w.key(a.tenantID, auth.ScopeEventsAppend), a.tenantID}
	appending.post("/v1/tickets", nil).wantProblem(403, domain.CodeForbidden, "")
	if strings.Contains(w.log.String(), ticket) {
		t.Error("a ticket is in the log")
	}
}
