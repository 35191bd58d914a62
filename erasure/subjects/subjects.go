package subjects

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/registry"
	"github.com/manifold-es/manifold/rebuild"
	"github.com/manifold-es/manifold/signing"
)

// Owner removes what tables have of erased events. Its functions return how many rows they have changed, also with an
// error. They may be repeated.
type Owner struct {
	Name string // of the rows, for the receipt
	// Events removes what is about the events at positions, which are in the streams. Nil: nothing says what it is
	// about.
	Events func(ctx context.Context, tenant domain.TenantID, positions []int64, streams []string) (int64, error)
	// Tenant removes everything of the tenant that may quote events. Nil: Events finds all.
	Tenant func(ctx context.Context, tenant domain.TenantID) (int64, error)
}

// Config configures Subjects. All fields but the last ones, from Approval on, are required.
type Config struct {
	Store    *Postgres
	Events   *eventlog.Log
	Registry *registry.Registry
	Catalog  *projection.Catalog
	Rebuilds *rebuild.Rebuilds
	Drivers  map[string]drivers.Driver // by the name of the database
	Owners   []Owner
	// Personal returns the function for eventlog.Erasing.Personal.
	Personal func(ctx context.Context, tenant domain.TenantID) (func(eventType string, version int64) []string, error)
	Keys     *signing.Keys // sign the receipt
	// ForgetSalts erases the salts of erased events, and leaves receipts about them, as seal.Postgres does.
	ForgetSalts func(ctx context.Context, tenant domain.TenantID, cause string, positions []int64) error
	Owns        func(domain.TenantID) bool // whether this process works for the tenant

	Approval bool          // every erasure must be approved by a second actor
	Backups  time.Duration // how long backups are kept
	// Settle is how long work that began before the log was erased may continue. It must be longer than requests, saves
	// and folds may take, and than memory keeps what it does not compare with the log. 0: one minute.
	Settle time.Duration
	Every  time.Duration // between two looks for work; 0: 5 s
	Log    *slog.Logger

	turn time.Duration // after which other tenants have their turn; 0: turnTime
}

// Subjects erases data subjects. All methods may be called concurrently.
type Subjects struct {
	config Config
	work   chan struct{}
}

// New returns Subjects.
func New(config Config) *Subjects {
	config.Settle = cmp.Or(config.Settle, time.Minute)
	config.Every = cmp.Or(config.Every, 5*time.Second)
	config.turn = cmp.Or(config.turn, turnTime)
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	return &Subjects{config: config, work: make(chan struct{}, 1)}
}

// Request asks for the erasure of a subject.
type Request struct {
	ID         domain.UUID // of the erasure; zero: a new one. A repeated request with the id returns the erasure
	Subject    string
	What       What // empty: Personal
	Reason     string
	Approval   bool // another actor must approve it
	AcceptLoss bool // see rebuild; a repeated request may set it, but not after another actor's approval
	By         Actor
}

func (r *Request) check() error {
	if err := CheckSubject(r.Subject); err != nil {
		return err
	}
	if r.What = cmp.Or(r.What, Personal); r.What != Personal && r.What != Data {
		return domain.Errorf(domain.CodeInvalidRequest, "what", "unknown value %q; give personal or data", domain.Clip(string(r.What), 20))
	}
	return checkReason(r.Reason, r.Subject)
}

// Request stores an erasure of all events that the log has now; Run carries it out. Later events of the subject are new
// data. added is false for a repeated request. The error is domain.CodeConflict if the id is that of another request.
func (s *Subjects) Request(ctx context.Context, tenant domain.TenantID, r Request) (e Erasure, added bool, err error) {
	if err := r.check(); err != nil {
		return Erasure{}, false, err
	}
	head, err := s.config.Events.Head(ctx, tenant)
	if err != nil {
		return Erasure{}, false, err
	}
	e = Erasure{
		ID: r.ID, What: r.What, Reason: r.Reason, AcceptLoss: r.AcceptLoss, RequestedBy: r.By, State: Running, Until: head.Position, subject: r.Subject,
	}
	if e.ID == (domain.UUID{}) {
		e.ID = domain.NewUUID()
	}
	if r.Approval || s.config.Approval {
		e.State = AwaitingApproval
	}
	e.SubjectHash = HashSubject(e.ID, r.Subject)
	kept, added, err := s.config.Store.put(ctx, tenant, e)
	switch {
	case err != nil:
		return Erasure{}, false, err
	case !bytes.Equal(kept.SubjectHash, e.SubjectHash) || kept.What != r.What:
		return Erasure{}, false, domain.Errorf(domain.CodeConflict, "id", "erasure %s is of another subject, or of something else; use a new id", e.ID)
	case !added && r.AcceptLoss && !kept.AcceptLoss && kept.FinishedAt.IsZero():
		if kept.State == AwaitingApproval && kept.RequestedBy.ID != r.By.ID {
			return Erasure{}, false, domain.Errorf(domain.CodeForbidden, "acceptLoss", "only the actor that has requested the erasure can accept a loss, for the other one to approve")
		}
		if err := s.config.Store.acceptLoss(ctx, tenant, e.ID); err != nil {
			return Erasure{}, false, err
		}
		kept.AcceptLoss = true
	}
	s.wake()
	return kept, added, nil
}

// Touched is what an erasure would touch.
type Touched struct {
	Events      map[string]int64 // by type
	Streams     int64
	Projections []string // that would be rebuilt
	Until       int64    // the last position that it would cover, or that DryRun has looked at
}

// maxDryRun is how many events DryRun looks at.
const maxDryRun = 100_000

// DryRun returns what an erasure would touch. It changes nothing. If the subject has more than 100,000 events, it looks
// only at the first of them.
func (s *Subjects) DryRun(ctx context.Context, tenant domain.TenantID, r Request) (Touched, error) {
	if err := r.check(); err != nil {
		return Touched{}, err
	}
	head, err := s.config.Events.Head(ctx, tenant)
	if err != nil {
		return Touched{}, err
	}
	touched := Touched{Events: make(map[string]int64), Until: head.Position}
	streams := make(map[string]bool)
	var kinds []eventlog.Kind
	for looked, after := 0, int64(0); ; {
		positions, err := s.config.Events.TaggedPositions(ctx, tenant, TagOf(r.Subject), after, head.Position, pageEvents)
		if err != nil {
			return Touched{}, err
		}
		if len(positions) == 0 {
			break
		}
		if looked += len(positions); looked > maxDryRun {
			touched.Until = after
			break
		}
		after = positions[len(positions)-1]
		places, err := s.config.Events.Places(ctx, tenant, positions)
		if err != nil {
			return Touched{}, err
		}
		for _, place := range places {
			touched.Events[place.Type]++
			streams[place.Stream] = true
			kinds = withKinds(kinds, []eventlog.Kind{place.Kind})
		}
	}
	touched.Streams = int64(len(streams))
	affected, err := s.affected(ctx, tenant, kinds)
	touched.Projections = namesOf(affected)
	return touched, err
}

// Approve lets an erasure begin that awaits approval. An actor cannot approve what it has requested.
func (s *Subjects) Approve(ctx context.Context, tenant domain.TenantID, id domain.UUID, by Actor) (Erasure, error) {
	e, err := s.config.Store.decide(ctx, tenant, id, by, Running)
	s.wake()
	return e, err
}

// Cancel ends an erasure that awaits approval.
func (s *Subjects) Cancel(ctx context.Context, tenant domain.TenantID, id domain.UUID, by Actor) (Erasure, error) {
	return s.config.Store.decide(ctx, tenant, id, by, Cancelled)
}

// Erasure returns an erasure, or domain.CodeNotFound.
func (s *Subjects) Erasure(ctx context.Context, tenant domain.TenantID, id domain.UUID) (Erasure, error) {
	return s.config.Store.Erasure(ctx, tenant, id)
}

// Erasures returns a tenant's erasures before the one with an id (zero: all), the newest first, at most limit.
func (s *Subjects) Erasures(ctx context.Context, tenant domain.TenantID, before domain.UUID, limit int) ([]Erasure, error) {
	return s.config.Store.Erasures(ctx, tenant, before, limit)
}

func (s *Subjects) wake() {
	select {
	case s.work <- struct{}{}:
	default:
	}
}
