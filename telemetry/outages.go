package telemetry

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Outages keeps a log readable while a database does not answer. Every loop and every request then fails again and again, for each tenant:
// the first warning of a kind is logged, those that follow are counted, and one line says when it was over and how many they were. Warnings
// about anything else are logged as they come. Methods may be called concurrently.
type Outages struct {
	cause   func(err error) (cause string, outage bool)
	counted atomic.Int64

	mu    sync.Mutex
	open  map[string]*outage
	ended bool
}

// outage is a kind of warning that is being logged again and again.
type outage struct {
	to          slog.Handler // of the first
	message     string
	first, last time.Time
	count       int // those that were not logged
	timer       *time.Timer
}

const (
	// outageOver is how long a warning must not come again for its outage to be over. Loops try again more often than that.
	outageOver = 30 * time.Second
	// maxOutages bounds what is remembered. Warnings of more kinds are told apart by their message alone.
	maxOutages = 1000
)

// outageOf are the attributes that tell outages apart: they name things of the configuration, never of tenants.
var outageOf = map[string]bool{"database": true, "egress": true}

// NewOutages returns Outages. cause says whether an error is that a database does not answer, and names the cause in few words.
func NewOutages(cause func(err error) (string, bool)) *Outages {
	return &Outages{cause: cause, open: make(map[string]*outage)}
}

// Counted is how many warnings were counted, and not logged.
func (o *Outages) Counted() int64 { return o.counted.Load() }

// CollectOutages has each collection ask for the number of warnings that were not logged.
func (m *Metrics) CollectOutages(o *Outages) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "manifold_log_repeated_warnings_total", Help: "Warnings that were not logged, since the same had been logged in the same outage of a database.",
	}, func() float64 { return float64(o.Counted()) }))
}

// Logger is a logger that logs outages in this way.
func (o *Outages) Logger(log *slog.Logger) *slog.Logger {
	return slog.New(outageHandler{Handler: log.Handler(), outages: o})
}

// End says of all outages that are not over how many warnings were counted. Nothing is counted any more from then on.
func (o *Outages) End() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	for key, out := range o.open {
		out.timer.Stop()
		o.over(key, out, "the process ends: ")
	}
}

// repeated reports whether a warning of a kind is to be counted, and not logged.
func (o *Outages) repeated(key, message string, to slog.Handler) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return false
	}
	if _, known := o.open[key]; !known && len(o.open) >= maxOutages {
		key = message
	}
	now := time.Now()
	if out := o.open[key]; out != nil {
		out.last = now
		out.count++
		return true
	}
	out := &outage{to: to, message: message, first: now, last: now}
	out.timer = time.AfterFunc(outageOver, func() { o.look(key, out) })
	o.open[key] = out
	return false
}

// look ends an outage whose warning has not come again.
func (o *Outages) look(key string, out *outage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return
	}
	if left := outageOver - time.Since(out.last); left > 0 {
		out.timer.Reset(left)
		return
	}
	o.over(key, out, "over: ")
}

// over forgets an outage, and logs its end where anything was counted. o.mu must be held.
func (o *Outages) over(key string, out *outage, how string) {
	delete(o.open, key)
	if out.count == 0 || !out.to.Enabled(context.Background(), slog.LevelWarn) {
		return
	}
	end := slog.NewRecord(time.Now(), slog.LevelWarn, how+out.message, 0)
	end.AddAttrs(slog.Int("repeated", out.count), slog.Time("first", out.first), slog.Time("last", out.last))
	_ = out.to.Handle(context.Background(), end)
}

// outageHandler leaves out what is repeated during an outage.
type outageHandler struct {
	slog.Handler
	outages *Outages
	within  string // what With has added that tells outages apart
}

// Handle is as in slog.Handler.
func (h outageHandler) Handle(ctx context.Context, record slog.Record) error {
	if record.Level < slog.LevelWarn {
		return h.Handler.Handle(ctx, record)
	}
	cause, found := "", false
	var key strings.Builder
	key.WriteString(record.Message)
	key.WriteString(h.within)
	record.Attrs(func(attr slog.Attr) bool {
		if err, ok := attr.Value.Any().(error); ok && !found {
			cause, found = h.outages.cause(err)
		}
		key.WriteString(tellsApart(attr))
		return true
	})
	if !found {
		return h.Handler.Handle(ctx, record)
	}
	key.WriteString("\x00" + cause)
	if h.outages.repeated(key.String(), record.Message, h.Handler) {
		h.outages.counted.Add(1)
		return nil
	}
	return h.Handler.Handle(ctx, record)
}

func tellsApart(attr slog.Attr) string {
	if !outageOf[attr.Key] {
		return ""
	}
	return "\x00" + attr.Key + "=" + attr.Value.String()
}

// WithAttrs is as in slog.Handler.
func (h outageHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	for _, attr := range attrs {
		h.within += tellsApart(attr)
	}
	return h
}

// WithGroup is as in slog.Handler.
func (h outageHandler) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}
