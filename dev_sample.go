package manifold

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

//go:embed dev_sample.yaml
var sampleProjection []byte

//go:embed dev_sample.ndjson
var sampleEvents string

// sampleWait is how long the first start waits for the sample's documents.
const sampleWait = 20 * time.Second

const (
	devTenantName = "demo"
	devProjection = "order-summary"
	devStream     = "order-1001"
)

// prepareDev makes sure that the demo tenant, its key and the sample exist. It returns the guide to show the user.
func (p *Process) prepareDev(ctx context.Context, dir string, secrets *devSecrets) (guide string, err error) {
	tenant, err := p.devTenant(ctx, secrets)
	if err != nil {
		return "", fmt.Errorf("make the demo tenant: %w", err)
	}
	if err := secrets.save(dir); err != nil {
		return "", err
	}
	if !secrets.Sample {
		if err := p.loadSample(ctx, tenant); err != nil {
			return "", fmt.Errorf("load the sample: %w", err)
		}
		secrets.Sample = true
		if err := secrets.save(dir); err != nil {
			return "", err
		}
	}
	return devGuide(p.Address(), secrets), nil
}

// devTenant returns the tenant named in the secrets, with a working key. It creates what is missing: at the first
// start, and after the data was removed or the key was revoked.
func (p *Process) devTenant(ctx context.Context, secrets *devSecrets) (domain.TenantID, error) {
	tenant, err := domain.ParseTenantID(secrets.Tenant)
	if err == nil {
		found, err := p.store.Tenant(ctx, tenant)
		switch {
		case err == nil && found.State == domain.TenantActive:
			return tenant, p.devKey(ctx, tenant, secrets)
		case err == nil && found.State == domain.TenantSuspended:
			return tenant, nil // the developer tries out a suspended tenant
		case err != nil && !domain.IsCode(err, domain.CodeNotFound):
			return tenant, err
		}
	}
	tenant = domain.NewTenantID()
	secrets.Tenant, secrets.Key, secrets.Sample = tenant.String(), "", false
	name := devTenantName
	err = p.store.CreateTenant(ctx, domain.Tenant{ID: tenant, Name: name, State: domain.TenantActive})
	if domain.IsCode(err, domain.CodeAlreadyExists) {
		// The secrets are gone but the data is not: the earlier tenant keeps its name.
		name += "-" + tenant.String()[:8]
		err = p.store.CreateTenant(ctx, domain.Tenant{ID: tenant, Name: name, State: domain.TenantActive})
	}
	if err != nil {
		return tenant, err
	}
	return tenant, p.devKey(ctx, tenant, secrets)
}

// devKey creates a key if the one in the secrets does not work.
func (p *Process) devKey(ctx context.Context, tenant domain.TenantID, secrets *devSecrets) error {
	credential, err := p.keys.Authenticate(ctx, secrets.Key)
	if err == nil && credential.Tenant == tenant {
		return nil
	}
	if err != nil && !domain.IsCode(err, domain.CodeUnauthenticated) {
		return err
	}
	key, token := auth.NewKey(tenant, "dev", domain.GrantsOf(domain.TenantScopes[:]...))
	if err := p.store.CreateKey(ctx, key); err != nil {
		return err
	}
	secrets.Key = token
	return nil
}

// loadSample may be repeated: the events' ids are derived from the file, and an existing projection stays.
func (p *Process) loadSample(ctx context.Context, tenant domain.TenantID) error {
	request := domain.Append{}
	at := make(map[string]int)
	for line := range strings.Lines(sampleEvents) {
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
	definition, err := projection.ParseDefinition(sampleProjection)
	if err != nil {
		return err
	}
	if _, err := p.catalog.Create(ctx, tenant, definition, "service"); err != nil && !domain.IsCode(err, domain.CodeAlreadyExists) {
		return err
	}
	// The guide's next step reads a document. It does not matter if the document takes long, or if the projection has
	// been replaced.
	fresh := projection.Freshness{MinPosition: appended.Position, Wait: sampleWait}
	if _, err := p.catalog.Document(ctx, tenant, devProjection, devStream, fresh); err != nil {
		p.log.Warn("the sample's document is not there yet", "error", err)
	}
	return ctx.Err()
}

func devGuide(address string, secrets *devSecrets) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || net.ParseIP(host).IsUnspecified() {
		host = "localhost"
	}
	url := "http://" + net.JoinHostPort(host, port)
	header := fmt.Sprintf("-H 'Authorization: Bearer %s'", secrets.Key)
	return fmt.Sprintf(`
Manifold is ready.

  URL           %[1]s        (contract: %[1]s/docs)
  key           %[2]s
  operator key  %[3]s

Try it:

  # append an event
  curl -s %[1]s/v1/streams/%[4]s/events %[5]s -H 'Content-Type: application/json' -d '[{"type":"ItemAdded","data":{"sku":"C-9","price":4.5,"qty":2}}]'

  # read the order's document, which a projection keeps
  curl -s %[1]s/v1/projections/%[6]s/documents/%[4]s %[5]s

  # read the whole log
  curl -s '%[1]s/v1/streams/$all' %[5]s -H 'Accept: application/x-ndjson'

For the other commands of manifold, in another terminal:

  export MANIFOLD_URL=%[1]s MANIFOLD_KEY=%[2]s
  export MANIFOLD_OPERATOR_KEY=%[3]s    # for tenants, keys and usage

Ctrl-C stops it; everything is found again.
`, url, secrets.Key, secrets.OperatorKey, devStream, header, devProjection)
}
