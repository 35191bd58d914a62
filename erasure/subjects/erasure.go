package subjects

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// What says what to remove of events.
type What string

// Personal removes the fields that the schema of an event's type names, and everything of an event whose schema names
// none. Data removes everything.
const (
	Personal What = "personal"
	Data     What = "data"
)

// State says how far an Erasure is.
type State string

// The states of an Erasure.
const (
	AwaitingApproval State = "awaiting-approval"
	Running          State = "running"
	Done             State = "done"
	Cancelled        State = "cancelled" // before it was approved
)

// Step is what a running Erasure does.
type Step string

// The steps, in their order.
const (
	StepEvents    Step = "events"    // removes the data of the subject's events
	StepDerived   Step = "derived"   // and of the events that the service has made of them
	StepRows      Step = "rows"      // and what other tables have of them
	StepSettle    Step = "settle"    // waits until all work that began before has ended
	StepDocuments Step = "documents" // rebuilds documents
	StepReceipt   Step = "receipt"
)

// Actor is who requests or approves an Erasure.
type Actor struct {
	ID string `json:"id"` // as audit logs tag it: no two actors have the same
	By string `json:"by"` // for people
}

// Erasure is the erasure of a data subject.
type Erasure struct {
	ID          domain.UUID
	SubjectHash []byte // see HashSubject
	What        What
	Reason      string
	AcceptLoss  bool
	RequestedBy Actor
	ApprovedBy  *Actor
	State       State
	Step        Step
	Until       int64 // the last position that it covers
	Position    int64 // up to where the step has come
	Counts      Counts
	Problem     string // why it does not proceed; empty: it does
	CreatedAt   time.Time
	ApprovedAt  time.Time
	FinishedAt  time.Time
	Receipt     string // a signed note; empty: it is not done

	subject string // empty once it is done
	plan    plan
}

// Counts says how much an Erasure has touched.
type Counts struct {
	Events        map[string]int64 `json:"events"`        // by type
	DerivedEvents int64            `json:"derivedEvents"` // changes of documents, and reports
	Streams       int64            `json:"streams"`
	Rows          map[string]int64 `json:"rows,omitempty"` // other rows, by what they are
	Projections   []string         `json:"projections"`    // that were rebuilt
	// NamedStreams is how many of the streams have the subject's id in their name, which stays.
	NamedStreams int64 `json:"namedStreams"`
}

// none reports whether no event was erased.
func (c *Counts) none() bool { return len(c.Events) == 0 && c.DerivedEvents == 0 }

// TagOf returns the tag of a subject's events.
func TagOf(subject string) string { return "subject:" + subject }

// CheckSubject checks a subject's id: it must fit into a tag.
func CheckSubject(subject string) error {
	if subject == "" {
		return domain.Errorf(domain.CodeInvalidRequest, "path subjectId", "required: the subject's id")
	}
	return domain.CheckTag("path subjectId", TagOf(subject))
}

// HashSubject returns the SHA-256 of an erasure's id, a line feed and the subject's id: what stays of the id. Whoever
// knows the id can tell that a receipt is about it.
func HashSubject(erasure domain.UUID, subject string) []byte {
	sum := sha256.Sum256([]byte(erasure.String() + "\n" + subject))
	return sum[:]
}

// maxReasonBytes limits a reason.
const maxReasonBytes = 500

func checkReason(reason, subject string) error {
	switch {
	case strings.TrimSpace(reason) == "":
		return domain.Errorf(domain.CodeInvalidRequest, "reason", "required: why the data is erased")
	case len(reason) > maxReasonBytes:
		return domain.Errorf(domain.CodeInvalidRequest, "reason", "it has %d bytes; at most %d are allowed", len(reason), maxReasonBytes)
	case strings.Contains(reason, subject):
		return domain.Errorf(domain.CodeInvalidRequest, "reason", "it contains the subject's id, and is kept after the erasure; leave the id out")
	}
	return nil
}

// Receipt says what an Erasure has done. It is the JSON text of a note that the service has signed.
type Receipt struct {
	Erasure     string    `json:"erasure"`
	Tenant      string    `json:"tenant"`
	SubjectHash string    `json:"subjectHash"` // SHA-256 of the erasure's id, a line feed and the subject's id
	What        What      `json:"what"`
	Reason      string    `json:"reason"`
	RequestedBy string    `json:"requestedBy"`
	ApprovedBy  string    `json:"approvedBy,omitempty"`
	RequestedAt time.Time `json:"requestedAt"`
	ErasedAt    time.Time `json:"erasedAt"`
	FinishedAt  time.Time `json:"finishedAt"`
	Until       int64     `json:"until"`
	Counts      Counts    `json:"counts"`
	Limits      []string  `json:"limits"` // what the service cannot touch
	BackupsTo   time.Time `json:"backupsUntil"`
}

// receiptLimits is what no erasure touches.
var receiptLimits = []string{
	"what was delivered before: to followers, groups, webhooks, reactors and brokers",
	"what was made of events that retention had removed before",
	"events about other people that quote this person's data, also in reports",
	"metadata and other tags, where the schema names personal fields; other tags of all events",
	"audit logs from before, and hashes of webhook claims until they expire",
	"names of streams, and ids of documents made from them",
	"old versions of rows until the databases vacuum, and write-ahead logs and replicas until they are recycled",
	"memory that a process has released and not used again, and buffers of its connections, until it is restarted",
	"backups, until backupsUntil",
}

func (e *Erasure) receipt(tenant domain.TenantID, erasedAt, now time.Time, backups time.Duration) Receipt {
	r := Receipt{
		Erasure: e.ID.String(), Tenant: tenant.String(), SubjectHash: hex.EncodeToString(e.SubjectHash), What: e.What, Reason: e.Reason, RequestedBy: e.RequestedBy.By,
		RequestedAt: e.CreatedAt, ErasedAt: erasedAt, FinishedAt: now, Until: e.Until, Counts: e.Counts, Limits: receiptLimits, BackupsTo: now.Add(backups),
	}
	if e.ApprovedBy != nil {
		r.ApprovedBy = e.ApprovedBy.By
	}
	return r
}
