package service

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

//go:embed demo.yaml
var demoProjection []byte

//go:embed demo.ndjson
var demoEvents string

// sampleWait is how long the first start waits for the sample's documents.
const sampleWait = 20 * time.Second

// These are the names of the sample's parts.
const (
	demoTenant     = "demo"
	DemoProjection = "order-summary"
	DemoStream     = "order-1001" // the projection has a document of the same id
)

// Demo is the tenant with which `manifold dev` begins. Its caller keeps it between starts.
type Demo struct {
	Tenant string `json:"tenant,omitempty"` // its id
	Key    string `json:"key,omitempty"`
	Sample bool   `json:"sample,omitempty"` // the sample was loaded
}

// PrepareDemo makes sure that the tenant, its key and the sample exist. It calls save after each change of demo.
func (p *Process) PrepareDemo(ctx context.Context, demo *Demo, save func() error) error {
	tenant, err := p.demoTenant(ctx, demo)
	if err != nil {
		return fmt.Errorf("create the demo tenant: %w", err)
	}
	if err := save(); err != nil || demo.Sample {
		return err
	}
	if err := p.loadSample(ctx, tenant); err != nil {
		return fmt.Errorf("load the sample: %w", err)
	}
	demo.Sample = true
	return save()
}

// demoTenant returns the tenant named in demo, with a working key. It creates what is missing: at the first
// start, and after the data was removed or the key was revoked.
func (p *Process) demoTenant(ctx context.Context, demo *Demo) (domain.TenantID, error) {
	tenant, err := domain.ParseTenantID(demo.Tenant)
	if err == nil {
		found, err := p.store.Tenant(ctx, tenant)
		switch {
		case err == nil && found.State == domain.TenantActive:
			return tenant, p.demoKey(ctx, tenant, demo)
		case err == nil && found.State == domain.TenantSuspended:
			return tenant, nil // the developer tries out a suspended tenant
		case err != nil && !domain.IsCode(err, domain.CodeNotFound):
			return tenant, err
		}
	}
	tenant = domain.NewTenantID()
	demo.Tenant, demo.Key, demo.Sample = tenant.String(), "", false
	name := demoTenant
	err = p.store.CreateTenant(ctx, domain.Tenant{ID: tenant, Name: name, State: domain.TenantActive})
	if domain.IsCode(err, domain.CodeAlreadyExists) {
		// The id was lost but the data was not: the earlier tenant keeps its name.
		name += "-" + tenant.String()[:8]
		err = p.store.CreateTenant(ctx, domain.Tenant{ID: tenant, Name: name, State: domain.TenantActive})
	}
	if err != nil {
		return tenant, err
	}
	return tenant, p.demoKey(ctx, tenant, demo)
}

// demoKey creates a key if the one in demo does not work.
func (p *Process) demoKey(ctx context.Context, tenant domain.TenantID, demo *Demo) error {
	credential, err := p.keys.Authenticate(ctx, demo.Key)
	if err == nil && credential.Tenant == tenant {
		return nil
	}
	if err != nil && !domain.IsCode(err, domain.CodeUnauthenticated) {
		return err
	}
	key, token := auth.NewKey(tenant, "dev", auth.GrantsOf(auth.TenantScopes[:]...))
	if err := p.store.CreateKey(ctx, key); err != nil {
		return err
	}
	demo.Key = token
	return nil
}

// loadSample may be repeated: the events' ids are derived from the file, and an existing projection stays.
func (p *Process) loadSample(ctx context.Context, tenant domain.TenantID) error {
	request := domain.Append{}
	at := make(map[string]int)
	for line := range strings.Lines(demoEvents) {
		var event struct {
			Stream string          `json:"stream"`
			Type   string          `json:"type"`
			Time   time.Time       `json:"time"`
			Data   json.RawMessage `json:"data"`
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			return err
		}
		i, ok := at[event.Stream]
		if !ok {
			i = len(request.Streams)
			at[event.Stream] = i
			request.Streams = append(request.Streams, domain.StreamAppend{Stream: event.Stream, Expected: domain.Any})
		}
		request.Streams[i].Events = append(request.Streams[i].Events, domain.NewEvent{
			ID: domain.DeriveEventID("manifold dev sample", line), Type: event.Type, Data: event.Data, OccurredAt: event.Time,
		})
	}
	appended, err := p.store.Append(ctx, tenant, request)
	if err != nil {
		return err
	}
	definition, err := folding.ParseDefinition(demoProjection)
	if err != nil {
		return err
	}
	if _, err := p.catalog.Create(ctx, tenant, definition, "service"); err != nil && !domain.IsCode(err, domain.CodeAlreadyExists) {
		return err
	}
	// The guide's next step reads a document. It does not matter if the document takes long, or if the projection has
	// been replaced.
	fresh := projection.Freshness{MinPosition: appended.Position, Wait: sampleWait}
	if _, err := p.catalog.Document(ctx, tenant, DemoProjection, DemoStream, fresh); err != nil {
		p.log.Warn("the sample's document does not exist yet", "error", err)
	}
	return ctx.Err()
}
