package audit

import (
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Bounds of what is counted between two appends. Further denied requests of a log are counted together.
const (
	maxLogs            = 1000
	maxDenials         = 10
	maxOperatorDenials = 100
)

// Denial is a kind of denied requests, which are counted together.
type Denial struct {
	Actor     Actor  // zero: unknown, because the credential is not valid
	Operation string // its operationId in the contract; empty: of further kinds
	Code      string // of the problem
	Network   string // the prefix of the client's address
}

// denials are the denied requests of one kind.
type denials struct {
	count       int64
	first, last time.Time
}

// denied is the data of RequestsDenied.
type denied struct {
	Action  string    `json:"action,omitempty"`
	Actor   *Actor    `json:"actor,omitempty"`
	Code    string    `json:"code,omitempty"`
	Network string    `json:"network,omitempty"`
	Count   int64     `json:"count"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
}

// Denied counts a denied request for the audit log of a tenant, or for the operators' if it is domain.Everyone. The
// tenant must be certain: the caller's credential was valid.
func (r *Recorder) Denied(tenant domain.TenantID, d Denial) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.denied[tenant]
	if of == nil && len(r.denied) >= maxLogs {
		tenant = domain.Everyone
		of = r.denied[tenant]
	}
	if of == nil {
		of = make(map[Denial]*denials)
		r.denied[tenant] = of
	}
	most := maxDenials
	if tenant == domain.Everyone {
		most = maxOperatorDenials
	}
	if of[d] == nil && len(of) >= most {
		d = Denial{}
	}
	counted := of[d]
	if counted == nil {
		counted = &denials{first: now}
		of[d] = counted
	}
	counted.count++
	counted.last = now
}

// deniedEvents returns an event for each kind of denied requests of one log.
func deniedEvents(of map[Denial]*denials) (domain.Append, error) {
	var all domain.Append
	for d, counted := range of {
		data := denied{Action: d.Operation, Code: d.Code, Network: d.Network, Count: counted.count, First: counted.first, Last: counted.last}
		var tags []string
		if d.Operation != "" {
			tags = append(tags, "action:"+d.Operation)
		}
		if d.Actor != (Actor{}) {
			data.Actor = &d.Actor
			tags = append(tags, d.Actor.Tag())
		}
		stream := "denied-further"
		if d.Operation != "" {
			stream = "denied-" + d.Operation
		}
		one, err := newEvent(stream, domain.NewEventID(), TypeDenied, tags, data)
		if err != nil {
			return all, err
		}
		if i := slices.IndexFunc(all.Streams, func(s domain.StreamAppend) bool { return s.Stream == stream }); i >= 0 {
			all.Streams[i].Events = append(all.Streams[i].Events, one.Streams[0].Events...)
			continue
		}
		all.Streams = append(all.Streams, one.Streams...)
	}
	return all, nil
}
