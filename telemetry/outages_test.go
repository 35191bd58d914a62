package telemetry_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/manifold-es/manifold/telemetry"
)

var errRefused = errors.New("connection refused")

// newOutages logs to a buffer, without times; errors that are errRefused are outages.
func newOutages() (o *telemetry.Outages, log *slog.Logger, text *bytes.Buffer) {
	text = new(bytes.Buffer)
	o = telemetry.NewOutages(func(err error) (string, bool) { return "refused", errors.Is(err, errRefused) })
	handler := slog.NewTextHandler(text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, attr slog.Attr) slog.Attr {
		if attr.Value.Kind() == slog.KindTime {
			return slog.Attr{}
		}
		return attr
	}})
	return o, o.Logger(slog.New(handler)), text
}

func TestOutageIsLoggedAtItsStartAndEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, log, text := newOutages()
		for second := range 120 { // each tenant, once a second
			for tenant := range 100 {
				log.Warn("it failed", "tenant", tenant, "error", fmt.Errorf("attempt %d: %w", second, errRefused))
			}
			<-time.After(time.Second)
		}
		if o.Counted() != 120*100-1 || strings.Count(text.String(), "\n") != 1 {
			t.Errorf("%d warnings were counted; logged is\n%s", o.Counted(), text)
		}
		<-time.After(time.Minute)
		want := "level=WARN msg=\"it failed\" tenant=0 error=\"attempt 0: connection refused\"\n" +
			"level=WARN msg=\"over: it failed\" repeated=11999\n"
		if text.String() != want {
			t.Errorf("logged is\n%swant\n%s", text, want)
		}
		// Another outage begins. A single warning gets no line for its end.
		text.Reset()
		log.Warn("it failed", "tenant", 7, "error", errRefused)
		<-time.After(time.Hour)
		if text.String() != "level=WARN msg=\"it failed\" tenant=7 error=\"connection refused\"\n" {
			t.Errorf("then logged is\n%s", text)
		}
	})
}

func TestOnlyOutagesAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, log, text := newOutages()
		for range 3 {
			log.Warn("a definition is wrong", "tenant", 1, "error", errors.New("unknown field"))
			log.Warn("no error")
			log.Info("it began again", "error", errRefused)
			log.With("database", "one").Warn("it failed", "error", errRefused)
			log.Warn("it failed", "database", "two", "error", errRefused)
			log.Warn("something else failed", "error", errRefused)
		}
		if lines := strings.Count(text.String(), "\n"); lines != 12 || o.Counted() != 6 {
			t.Errorf("%d warnings were counted; logged is\n%s", o.Counted(), text)
		}
		text.Reset()
		o.End()
		if lines := strings.Count(text.String(), "the process ends: "); lines != 3 {
			t.Errorf("at the end logged is\n%s", text)
		}
		log.Warn("it failed", "database", "two", "error", errRefused)
		if lines := strings.Count(text.String(), "\n"); lines != 4 {
			t.Errorf("behind the end logged is\n%s", text)
		}
	})
}
