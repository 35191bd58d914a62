package systemtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
	"golang.org/x/sync/errgroup"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// frame is a message to a follower. Exactly one of its fields is set.
type frame struct {
	Event                *client.Event
	CaughtUp, Checkpoint *place
}

type place struct{ Position int64 }

// transports are the ways in which a log can be followed. Each calls each for every frame until that gives an error,
// which it returns, or the connection breaks.
var transports = []func(ctx context.Context, u user, path string, from int64, each func(frame) error) error{
	followLines, followServerSent, followWebSocket,
}

// open begins to follow over HTTP.
func open(ctx context.Context, u user, path, accept string, header ...string) (*http.Response, error) {
	address, err := u.site.address(ctx, 0)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, "GET", "http://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+u.key)
	request.Header.Set("Accept", accept)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := u.http.Do(request)
	if err == nil && response.StatusCode != http.StatusOK {
		response.Body.Close()
		err = fmt.Errorf("%s is answered %s", path, response.Status)
	}
	return response, err
}

func followLines(ctx context.Context, u user, path string, from int64, each func(frame) error) error {
	response, err := open(ctx, u, path+"&from="+strconv.FormatInt(from, 10), "application/x-ndjson")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewReaderSize(response.Body, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err // the incomplete line before it is dropped
		}
		var f frame
		if err := json.Unmarshal(line, &f); err != nil {
			return err
		}
		if err := each(f); err != nil {
			return err
		}
	}
}

// followServerSent resumes like an EventSource, after the last id that it has seen.
func followServerSent(ctx context.Context, u user, path string, from int64, each func(frame) error) error {
	response, err := open(ctx, u, path+"&from=start", "text/event-stream", "Last-Event-ID", strconv.FormatInt(from-1, 10))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewReaderSize(response.Body, 1<<16)
	fields := make(map[string]string)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		if line = strings.TrimSuffix(line, "\n"); line != "" {
			name, value, _ := strings.Cut(line, ":")
			fields[name] = strings.TrimPrefix(value, " ")
			continue
		}
		var f frame
		var at place
		switch fields["event"] {
		case "event":
			f.Event = new(client.Event)
			err = json.Unmarshal([]byte(fields["data"]), f.Event)
			at.Position = f.Event.Position
		case "caught-up":
			f.CaughtUp = &at
			err = json.Unmarshal([]byte(fields["data"]), &at)
		case "checkpoint":
			f.Checkpoint = &at
			err = json.Unmarshal([]byte(fields["data"]), &at)
		case "": // a comment, or a message about the client itself
			clear(fields)
			continue
		default:
			err = fmt.Errorf("there is no frame %q", fields["event"])
		}
		if err == nil && fields["id"] != strconv.FormatInt(at.Position, 10) {
			err = fmt.Errorf("the id of %v is not its position", fields)
		}
		if err == nil {
			err = each(f)
		}
		if err != nil {
			return err
		}
		clear(fields)
	}
}

func followWebSocket(ctx context.Context, u user, path string, from int64, each func(frame) error) error {
	address, err := u.site.address(ctx, 0)
	if err != nil {
		return err
	}
	conn, _, err := websocket.Dial(ctx, "ws://"+address+path+"&from="+strconv.FormatInt(from, 10), &websocket.DialOptions{
		HTTPClient: u.http, HTTPHeader: http.Header{"Authorization": {"Bearer " + u.key}},
	})
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	conn.SetReadLimit(8 << 20)
	for {
		_, message, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		var f frame
		if err := json.Unmarshal(message, &f); err != nil {
			return err
		}
		if err := each(f); err != nil {
			return err
		}
	}
}

var errKilled = errors.New("this follower is killed")

// resumed follows, and is disconnected at each of the given moments (numbers of events seen). Each time it resumes
// from its own checkpoint over another transport. It ends when it has everything up to last. It must see each of the
// wanted positions once and in order.
func resumed(ctx context.Context, u user, path string, moments []int, last int64, wanted func(position int64) bool, seen func(position int64, event *client.Event)) error {
	checkpoint, events, kills := int64(0), 0, 0
	ended := errors.New("everything was seen")
	for n := 0; ; n++ {
		err := transports[n%len(transports)](ctx, u, path, checkpoint+1, func(f frame) error {
			position := int64(0)
			switch {
			case f.Event != nil:
				position = f.Event.Position
				events++
			case f.CaughtUp != nil:
				position = f.CaughtUp.Position
			case f.Checkpoint != nil:
				position = f.Checkpoint.Position
			}
			// The positions in between must not be wanted ones.
			between := position
			if f.Event != nil {
				if between--; !wanted(position) {
					return fmt.Errorf("position %d was not asked for", position)
				}
			}
			for p := checkpoint + 1; p <= between; p++ {
				if wanted(p) {
					return fmt.Errorf("position %d is missing behind %d (connection %d, %d events)", p, checkpoint, n, events)
				}
			}
			if position < checkpoint || f.Event != nil && position == checkpoint {
				return fmt.Errorf("position %d comes behind %d (connection %d)", position, checkpoint, n)
			}
			checkpoint = position
			seen(position, f.Event)
			if kills < len(moments) && events >= moments[kills] {
				kills++
				return errKilled
			}
			if checkpoint >= last {
				return ended // either frame: a follower that was at the head all the time receives no caught-up frame
			}
			return nil
		})
		switch {
		case errors.Is(err, ended):
			if kills < len(moments) {
				return fmt.Errorf("it was killed %d times only", kills)
			}
			return nil
		case !errors.Is(err, errKilled):
			return err
		}
	}
}

// A follower is killed a hundred times during the import of the real events. Each time it resumes from its own
// checkpoint over the next transport. It must see each position once and in order. A follower of a rare type with a
// filter must see only the matching events.
func TestKilledFollowersResume(t *testing.T) {
	t.Parallel()
	_, lines := realLines(t)
	r := chance(t)
	_, u := newTenant(t, newUser(t, inside(t, configuration(pgtest.Database(t))), operatorKey), "acme")

	var all atomic.Int64 // events that the follower of everything has seen
	const rare = "DeclarationRejectedByEmployee"
	isRare := func(p int64) bool { return lines[p-1].Type == rare && lines[p-1].Stream != lines[0].Stream }
	rares := 0
	for p := range lines {
		if isRare(int64(p) + 1) {
			rares++
		}
	}
	moments := func(kills, events int) []int {
		at := make([]int, kills)
		for i := range at {
			at[i] = (i*events + r.IntN(events)) / kills
		}
		return slices.Compact(at)
	}
	whole, some := moments(100, len(lines)), moments(30, rares)
	var work errgroup.Group
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	run := func(what func() error) {
		work.Go(func() error {
			err := what()
			if err != nil {
				cancel()
			}
			return err
		})
	}
	news := make(chan struct{}, 1)
	run(func() error {
		return resumed(ctx, u, "/v1/subscribe/$all?", whole, int64(len(lines)), func(int64) bool { return true }, func(p int64, event *client.Event) {
			if event != nil && event.Id != lines[p-1].ID {
				t.Errorf("position %d has event %s, not %s", p, event.Id, lines[p-1].ID)
			}
			all.Store(p)
			select {
			case news <- struct{}{}:
			default:
			}
		})
	})
	run(func() error {
		path := "/v1/subscribe/categories/declaration?types=" + rare + "&filter=event.stream%20!=%20%22" + lines[0].Stream + "%22"
		return resumed(ctx, u, path, some, int64(len(lines)), isRare, func(int64, *client.Event) {})
	})
	// The import is no further ahead than a few of the follower's deaths, so that most of these are while it continues.
	run(func() error {
		step := len(lines) / 100
		for begin := 0; begin < len(lines); begin += step {
			part := lines[begin:min(begin+step, len(lines))]
			for all.Load() < int64(begin-3*step) {
				select {
				case <-news:
				case <-ctx.Done():
					return nil
				}
			}
			var body bytes.Buffer
			for _, line := range part {
				if err := json.NewEncoder(&body).Encode(line); err != nil {
					return err
				}
			}
			a, err := u.once(ctx, 0, "POST", "/v1/import", body.Bytes(), "Content-Type", "application/x-ndjson")
			if err != nil {
				return err
			}
			if a.status != http.StatusOK || !bytes.Contains(a.body, []byte(`"done":true`)) {
				return fmt.Errorf("import: %s", a)
			}
		}
		return nil
	})
	if err := work.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%d events; %d and %d deaths; %d events of the rare type", len(lines), len(whole), len(some), rares)
}
