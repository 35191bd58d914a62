package tablestest

import (
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/proof"
	"github.com/manifold-es/manifold/tables"
)

// SealAll seals a log up to its head.
func SealAll(t testing.TB, s *tables.Tables, log domain.TenantID) {
	t.Helper()
	for {
		_, done, err := s.Seal(t.Context(), log)
		Must(t, err)
		if done {
			return
		}
	}
}

// Checkpoint returns the newest checkpoint of a log.
func Checkpoint(t testing.TB, s *tables.Tables, log domain.TenantID) proof.Checkpoint {
	t.Helper()
	signed, err := s.SealTables.Checkpoint(t.Context(), log)
	Must(t, err)
	checkpoint, err := proof.ParseCheckpoint(OpenSigned(t, s, signed))
	Must(t, err)
	return checkpoint
}

// OpenSigned returns the text of what the service has signed.
func OpenSigned(t testing.TB, s *tables.Tables, signed string) string {
	t.Helper()
	keys, err := s.SigningKeys.Load(t.Context())
	Must(t, err)
	text, err := keys.Open([]byte(signed))
	Must(t, err)
	return text
}

// SealedEvent returns an event as a client knows it.
func SealedEvent(t testing.TB, e *domain.Event) *proof.Event {
	t.Helper()
	event := &proof.Event{
		Position: e.Position, ID: e.ID.String(), Stream: e.Stream, Version: e.Version, Type: e.Type,
		RecordedAt: e.RecordedAt, OccurredAt: e.OccurredAt, Unreadable: e.Gap != nil,
	}
	var err error
	event.Data, err = proof.Canonical(e.Data)
	Must(t, err)
	if e.Metadata != nil {
		event.Metadata, err = proof.Canonical(e.Metadata)
		Must(t, err)
	}
	return event
}

// Verify compares a log with a checkpoint, as a client does.
func Verify(t testing.TB, s *tables.Tables, log domain.TenantID, checkpoint proof.Checkpoint) (
	proof.Summary, []proof.Finding,
) {
	t.Helper()
	var findings []proof.Finding
	v := &proof.Verification{
		Checkpoint: checkpoint,
		Found:      func(f proof.Finding) { findings = append(findings, f) },
		Read: func(number int64) (proof.Block, error) {
			block, signed, err := s.Leaves(t.Context(), log, number)
			for _, one := range signed {
				receipt, err := proof.ParseReceipt(OpenSigned(t, s, one))
				Must(t, err)
				if receipt.Origin != checkpoint.Origin {
					t.Errorf("a receipt is of %s", receipt.Origin)
				}
				block.Receipts = append(block.Receipts, receipt)
			}
			return block, err
		},
	}
	events, err := s.ReadLog(t.Context(), log, domain.LogQuery{Limit: 1 << 20})
	Must(t, err)
	for i := range events {
		Must(t, v.Add(SealedEvent(t, &events[i])))
	}
	summary, err := v.End()
	Must(t, err)
	return summary, findings
}
