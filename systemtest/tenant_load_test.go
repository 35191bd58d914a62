package systemtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/manifold-es/manifold/client"
)

// append appends, and repeats it until there is an answer. Only expected versions may be in the way.
func (p *tenantLoad) append(ctx context.Context, n int, request client.AppendRequest) (operation, error) {
	o := operation{request: request, begin: time.Since(p.history.epoch)}
	a, err := p.call(ctx, n, "POST", "/v1/append", request)
	if err != nil {
		return o, fmt.Errorf("append: %w", err)
	}
	o.end = time.Since(p.history.epoch)
	switch {
	case a.status == http.StatusConflict && a.code() == "version-conflict":
		o.refused = true
	case a.status == http.StatusCreated || a.status == http.StatusOK:
		if err := json.Unmarshal(a.body, &o.answer); err != nil {
			return o, err
		}
	default:
		return o, fmt.Errorf("append: %s", a)
	}
	p.history.add(o)
	return o, nil
}

// appender is one client. It alone appends to one stream, whose version it knows, and it competes for the next
// version of another one.
type appender struct {
	*tenantLoad
	n      int
	chance *rand.Rand

	made      int // requests
	own, race int64
	done      []operation // that were acknowledged
}

func (a *appender) run(ctx context.Context, w *workload) error {
	for w.quit.Err() == nil {
		select {
		case <-w.pause(0):
		case <-w.quit.Done():
		}
		var err error
		if len(a.done) > 0 && a.chance.IntN(8) == 0 {
			err = a.repeat(ctx)
		} else {
			err = a.one(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *appender) events(stream, most int) []client.NewEvent {
	some := make([]client.NewEvent, 1+a.chance.IntN(most))
	for i := range some {
		id := eventID("appender", a.n, a.made, stream, i)
		switch k := a.chance.IntN(permanentDocuments + 2*temporaryDocuments + 1); {
		case k < permanentDocuments:
			some[i] = newEvent(id, "Added", fmt.Sprintf("key-%d", k), a.chance.Int64N(100)-20)
		case k < permanentDocuments+temporaryDocuments:
			some[i] = newEvent(id, "Added", fmt.Sprintf("temporary-%d", k-permanentDocuments), a.chance.Int64N(100))
		case k < permanentDocuments+2*temporaryDocuments:
			some[i] = newEvent(id, "Closed", fmt.Sprintf("temporary-%d", k-permanentDocuments-temporaryDocuments), 0)
		default:
			some[i] = newEvent(id, "Noted", "nothing", 0)
		}
	}
	return some
}

// version is the expected version in the body of an append.
func version(n int64) client.Expectation {
	if n == 0 {
		return "none"
	}
	return n
}

// one appends something new.
func (a *appender) one(ctx context.Context) error {
	a.made++
	own := client.StreamAppend{Stream: fmt.Sprintf("account-own%d", a.n), ExpectedVersion: version(a.own), Events: a.events(0, 3)}
	common := client.StreamAppend{Stream: fmt.Sprintf("account-%d", a.chance.IntN(4)), ExpectedVersion: "any", Events: a.events(1, 5)}
	other := client.StreamAppend{Stream: fmt.Sprintf("other-%d", a.chance.IntN(4)), Events: a.events(2, 2)} // of another category
	race := client.StreamAppend{Stream: fmt.Sprintf("account-race%d", a.n/2), ExpectedVersion: version(a.race), Events: a.events(3, 2)}
	streams := [][]client.StreamAppend{{common}, {own}, {common, own, other}, {race, other}, {other, common}}[a.chance.IntN(5)]
	o, err := a.append(ctx, a.n, client.AppendRequest{Streams: streams})
	if err != nil {
		return err
	}
	if o.refused {
		if !slices.ContainsFunc(streams, func(s client.StreamAppend) bool { return s.Stream == race.Stream }) {
			return fmt.Errorf("%s has one client alone, who was refused: its version is not %v", own.Stream, own.ExpectedVersion)
		}
		var current client.StreamMetadata
		read, err := a.call(ctx, a.n, "GET", "/v1/streams/"+race.Stream+"/metadata", nil)
		if err != nil {
			return err
		}
		if err := read.decode(http.StatusOK, &current); err != nil {
			return err
		}
		a.race = current.Version
		return nil
	}
	for _, stream := range o.answer.Streams {
		switch stream.Stream {
		case own.Stream:
			a.own = stream.Version
		case race.Stream:
			a.race = stream.Version
		}
	}
	a.done = append(a.done[max(0, len(a.done)-50):], o)
	return nil
}

// repeat sends a request again that was acknowledged: nothing is appended, and the answer is the first one.
func (a *appender) repeat(ctx context.Context) error {
	first := a.done[a.chance.IntN(len(a.done))]
	again, err := a.append(ctx, a.n+1, first.request)
	if err != nil {
		return err
	}
	if again.refused || fmt.Sprint(again.answer) != fmt.Sprint(first.answer) {
		return fmt.Errorf("a request was answered %+v, and its repeat %+v", first.answer, again)
	}
	return nil
}

// readFrom reads the log from a position until it ends or the connection breaks. A missing position is a final error.
func (p *tenantLoad) readFrom(ctx context.Context, n int, from int64, yield func(client.Event)) (broken, wrong error) {
	address, err := p.site.address(ctx, n)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("http://%s/v1/streams/$all?from=%d", address, from), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+p.key)
	request.Header.Set("Accept", "application/x-ndjson")
	response, err := p.http.Do(request)
	if err != nil {
		return err, nil
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusServiceUnavailable {
		return errors.New(response.Status), nil
	}
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(response.Body)
		return nil, fmt.Errorf("read the log: %s %s %w", response.Status, body, err)
	}
	in := bufio.NewReader(response.Body)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil, nil
		}
		if err != nil {
			return err, nil
		}
		var event client.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("a line of the log is %q: %w", line, err)
		}
		if event.Position != from {
			return nil, fmt.Errorf("behind position %d a reader of the log gets position %d", from-1, event.Position)
		}
		yield(event)
		from++
	}
}

// follow reads the log from its beginning as it grows, and continues where it was when something breaks, until it has
// all that was appended.
func (p *tenantLoad) follow(ctx context.Context, w *workload, appended <-chan struct{}) error {
	quitting := false
	var late <-chan time.Time // when the end should have come long ago
	for n := 0; ; n++ {
		before := len(p.followed)
		broken, wrong := p.readFrom(ctx, n, int64(before+1), func(event client.Event) { p.followed = append(p.followed, event) })
		if wrong != nil {
			return wrong
		}
		if quitting && broken == nil && len(p.followed) == before {
			return nil
		}
		select {
		case <-appended:
			appended, quitting, late = nil, true, time.After(3*time.Minute)
		case <-late:
			return fmt.Errorf("behind position %d, where appends have ended, the log cannot be read to its end: %v", before, broken)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.pause(20 * time.Millisecond):
		}
	}
}

// log is the whole log. It continues where it was when something breaks.
func (p *tenantLoad) log(ctx context.Context) ([]client.Event, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not read in %s", patience))
	defer cancel()
	var all []client.Event
	for n := 0; ; n++ {
		broken, wrong := p.readFrom(waiting, n, int64(len(all)+1), func(event client.Event) { all = append(all, event) })
		if wrong != nil || broken == nil {
			return all, wrong
		}
		select {
		case <-waiting.Done():
			return nil, fmt.Errorf("behind position %d the log is %w; at last: %w", len(all), context.Cause(waiting), broken)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// watch reads a projection's documents repeatedly. Whatever happens, an answer must be of one complete build, and not
// older than the one before, unless the database has crashed.
func (p *tenantLoad) watch(ctx context.Context, w *workload, name string) error {
	var edition, events, crashes int64
	for n := 0; w.quit.Err() == nil; n++ {
		begun := w.crashes.Load()
		a, err := p.call(ctx, n, "GET", "/v1/projections/"+name+"/documents?pageSize=1000", nil)
		if err != nil {
			return err
		}
		if now := w.crashes.Load(); now != crashes || now != begun || now%2 == 1 {
			crashes, events = now, 0
		}
		var page client.DocumentList
		if err := a.decode(http.StatusOK, &page); err != nil {
			return fmt.Errorf("%s, %s: %w", p.name, name, err)
		}
		documents, err := readSums(page.Documents)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", p.name, name, err)
		}
		now, seen, there := int64(0), int64(0), 0
		for id, s := range documents {
			if now != 0 && s.Edition != now {
				return fmt.Errorf("%s, %s: a page of two builds: %s is of edition %d, another document of %d", p.name, name, id, s.Edition, now)
			}
			now = s.Edition
			if id[0] == 'k' { // one of those that never go
				seen += s.Events
				there++
			}
		}
		if there != permanentDocuments || now < edition || seen < events || seen < p.filled {
			return fmt.Errorf("%s, %s: %d documents of edition %d with %d events, after edition %d with %d events", p.name, name, there, now, seen, edition, events)
		}
		if edition = now; begun == crashes && begun%2 == 0 {
			events = seen
		}
		w.rests()
	}
	return nil
}

// pauseBriefly leaves the machine to the others for a moment: readers that read without it would leave little to
// appends.
func pauseBriefly(quit context.Context) {
	select {
	case <-time.After(10 * time.Millisecond):
	case <-quit.Done():
	}
}
