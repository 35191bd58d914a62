package service

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/telemetry"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// tracesTimeout is how long a process that ends waits for the collector of its traces.
const tracesTimeout = 2 * time.Second

// openTraces makes the process record spans: with the program's provider, or as the environment configures it.
func (p *Process) openTraces(e Extensions) {
	if e.TracerProvider != nil {
		p.tracer = tracing.New(e.TracerProvider)
		return
	}
	if p.traces = telemetry.NewTraces(Version(), p.id.String(), p.log); p.traces != nil {
		p.tracer = tracing.New(p.traces.Provider())
	}
}

// closeTraces exports the spans that are left, until ctx ends, but no longer than tracesTimeout.
func (p *Process) closeTraces(ctx context.Context) {
	if p.traces == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tracesTimeout)
	defer cancel()
	p.traces.Shutdown(ctx)
}
