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

// Outages keeps a log readable while a database does not answer. During an outage every loop and every request fails
// repeatedly, for each tenant. Outages logs the first warning of a kind and counts the following ones. When the
// outage is over, one line reports the count. Outages logs all other warnings as they come. Methods may be called
// concurrently.
type Outages struct {
	cause   func(err error) (cause string, outage bool)
	counted atomic.Int64

	mu    sync.Mutex
	open  map[string]*outage
	ended bool
}

// outage is a kind of warning that is being repeated.
type outage struct {
	to          slog.Handler // the handler of the first warning
	message     string
	first, last time.Time
	count       int // warnings that were not logged
	timer       *time.Timer
}

const (
	// outageOver is how long a warning must be absent for its outage to be over. Loops retry more often than that.
	outageOver = 30 * time.Second
	// maxOutages bounds the number of outages in memory. Beyond it, warnings are distinguished only by message.
	maxOutages = 1000
)

// outageOf are the attributes that distinguish outages. They name configured things, never tenants.
var outageOf = map[string]bool{"database": true, "egress": true}

// NewOutages returns Outages. cause reports whether an error means that a database does not answer, and names the
// cause in a few words.
func NewOutages(cause func(err error) (string, bool)) *Outages {
	return &Outages{cause: cause, open: make(map[string]*outage)}
}

// Counted returns how many warnings were counted instead of logged.
func (o *Outages) Counted() int64 { return o.counted.Load() }

// CollectOutages adds a metric that reports the number of warnings that were not logged, at each scrape.
func (m *Metrics) CollectOutages(o *Outages) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "manifold_log_repeated_warnings_total", Help: "Warnings that were not logged, since the same had been logged in the same outage of a database.",
	}, func() float64 { return float64(o.Counted()) }))
}

// Logger returns a logger that handles outages in this way.
func (o *Outages) Logger(log *slog.Logger) *slog.Logger {
	return slog.New(outageHandler{Handler: log.Handler(), outages: o})
}

// End logs the count of every outage that is not over. After that, outages are no longer counted.
func (o *Outages) End() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	for key, out := range o.open {
		out.timer.Stop()
		o.over(key, out, "the process ends: ")
	}
}

// repeated reports whether to count a warning instead of logging it.
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
	out.timer = time.AfterFunc(outageOver, func() { o.endIfOver(key, out) })
	o.open[key] = out
	return false
}

// endIfOver ends an outage whose warning has not been repeated for outageOver.
func (o *Outages) endIfOver(key string, out *outage) {
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

// over removes an outage, and logs its end if any warning was counted. The caller must hold o.mu.
func (o *Outages) over(key string, out *outage, how string) {
	delete(o.open, key)
	if out.count == 0 || !out.to.Enabled(context.Background(), slog.LevelWarn) {
		return
	}
	end := slog.NewRecord(time.Now(), slog.LevelWarn, how+out.message, 0)
	end.AddAttrs(slog.Int("repeated", out.count), slog.Time("first", out.first), slog.Time("last", out.last))
	_ = out.to.Handle(context.Background(), end)
}

// outageHandler leaves out warnings that are repeated during an outage.
type outageHandler struct {
	slog.Handler
	outages *Outages
	within  string // attributes added by With that distinguish outages
}

// Handle implements slog.Handler.
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

// WithAttrs implements slog.Handler.
func (h outageHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	for _, attr := range attrs {
		h.within += tellsApart(attr)
	}
	return h
}

// WithGroup implements slog.Handler.
func (h outageHandler) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}
