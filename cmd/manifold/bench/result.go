package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime"
	"strconv"
	"text/tabwriter"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what a benchmark found. --json prints it as JSON.
type Result struct {
	Name            string  `json:"name"`
	Clients         int     `json:"clients"`
	Events          int64   `json:"events"`
	EventsPerSecond float64 `json:"eventsPerSecond"`
	P50             float64 `json:"p50ms"`
	P99             float64 `json:"p99ms"`
	LimitPerSecond  float64 `json:"limitPerSecond"` // 0: the benchmark has no such limit
	Ratio           float64 `json:"ratio"`          // EventsPerSecond / LimitPerSecond
	RSS             float64 `json:"rssMB"`          // the measured process's peak memory
	SyncedCommits   bool    `json:"syncedCommits"`
	// GeneratorCPU is the load generator's processor time as a share of all processors, or 0 if it was not measured.
	// If it is large, the figures show the limits of the generator rather than of the service.
	GeneratorCPU float64 `json:"generatorCPU"`
	// Queries are the kinds of queries, each measured separately.
	Queries []Query `json:"queries,omitempty"`
	// Figures are all other measurements.
	Figures []Figure `json:"figures,omitempty"`

	limitName   string
	latencyName string // what P50 and P99 measure
	// unknown means that the database belongs to a service that was already running, so its properties are not known.
	unknown bool
}

// Query is the latency of one kind of query, in milliseconds.
type Query struct {
	Name  string  `json:"name"`
	Asked int64   `json:"asked"` // number of queries
	P50   float64 `json:"p50ms"`
	P99   float64 `json:"p99ms"`
	Plain float64 `json:"plainP50ms,omitempty"` // the median of the same query to the database itself; 0: not measured
}

// Figure is one measurement.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// limit is what PostgreSQL alone achieves, in rows per second.
type limit struct {
	name    string
	measure func(ctx context.Context, r *run) (perSecond float64, err error)
}

// finish fills in the measured load, what is known about the service and its database, and the limit. limit may be
// nil.
func (r *run) finish(ctx context.Context, measured load, limit *limit) error {
	r.Events, r.EventsPerSecond = measured.events, measured.perSecond()
	if measured.latencies != nil {
		r.P50, r.P99 = milliseconds(measured.latencies, 50), milliseconds(measured.latencies, 99)
	}
	if measured.took > 0 {
		r.GeneratorCPU = round(measured.processor.Seconds()/measured.took.Seconds()/float64(runtime.NumCPU()), 3)
	}
	if r.service != nil {
		r.RSS = r.service.peakMemory()
	}
	if r.db == nil {
		r.unknown = true
		return nil
	}
	var err error
	if r.SyncedCommits, err = r.db.synced(ctx); err != nil || limit == nil {
		return err
	}
	perSecond, err := limit.measure(ctx, r)
	if err != nil {
		return err
	}
	r.limitName, r.LimitPerSecond = limit.name, round(perSecond, 0)
	if perSecond > 0 {
		r.Ratio = round(r.EventsPerSecond/perSecond, 3)
	}
	return nil
}

// addFigure adds a measurement.
func (r *Result) addFigure(value float64, unit, name string, args ...any) {
	r.Figures = append(r.Figures, Figure{fmt.Sprintf(name, args...), round(value, 3), unit})
}

// addLatencies adds the median and the 99th percentile. latencies may be nil.
func (r *Result) addLatencies(latencies *hdrhistogram.Histogram, name string) {
	if latencies == nil {
		return
	}
	r.addFigure(milliseconds(latencies, 50), "ms", "%s, p50", name)
	r.addFigure(milliseconds(latencies, 99), "ms", "%s, p99", name)
}

// milliseconds returns a percentile in milliseconds.
func milliseconds(h *hdrhistogram.Histogram, percent float64) float64 {
	return round(float64(h.ValueAtPercentile(percent))/1000, 3)
}

func round(x float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(x*scale) / scale
}

func (r *Result) writeJSON(w io.Writer) error {
	return json.NewEncoder(w).Encode(r)
}

func (r *Result) writeTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("benchmark", "%s", r.Name)
	row("clients", "%d", r.Clients)
	if len(r.Queries) == 0 && r.Events > 0 {
		row("events", "%d", r.Events)
		row("events/s", "%.0f", r.EventsPerSecond)
	}
	for _, q := range r.Queries {
		plain := ""
		if q.Plain > 0 {
			plain = fmt.Sprintf(", the database itself %.3f ms", q.Plain)
		}
		row(q.Name, "p50 %.3f ms, p99 %.3f ms%s", q.P50, q.P99, plain)
	}
	for _, f := range r.Figures {
		row(f.Name, "%s %s", strconv.FormatFloat(f.Value, 'f', -1, 64), f.Unit)
	}
	if r.latencyName != "" {
		row(r.latencyName+" p50", "%.3f ms", r.P50)
		row(r.latencyName+" p99", "%.3f ms", r.P99)
	}
	if r.limitName != "" {
		row("limit: "+r.limitName, "%.0f/s", r.LimitPerSecond)
		row("share of the limit", "%.2f", r.Ratio)
	}
	if r.RSS > 0 {
		row("memory of the measured process", "%.0f MB", r.RSS)
	}
	if r.unknown {
		return t.Flush()
	}
	if r.GeneratorCPU > 0 {
		row("processor time of the load generator", "%.0f %%", 100*r.GeneratorCPU)
	}
	synced := "the database syncs its commits"
	if !r.SyncedCommits {
		synced = "the database does NOT sync its commits: a crash may lose acknowledged events"
	}
	row("durability", "%s", synced)
	return t.Flush()
}
