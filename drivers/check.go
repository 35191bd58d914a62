package drivers

import (
	"fmt"
	"math"

	"github.com/manifold-es/manifold/domain"
)

// Check reports any rule that the batch breaks, or that it is too large for every database. The error is a
// *domain.Error, as Save returns it. Check does not examine whether the documents' data is JSON: the database or
// domain.CheckJSON does.
func (b Batch) Check() error {
	if b.From < 0 || b.To < b.From {
		return domain.Errorf(domain.CodeInvalidRequest, "batch", "it goes from %d to %d; it must not move the checkpoint back", b.From, b.To)
	}
	above, most := b.From, b.To
	if b.IsRepair() {
		above = 0
	}
	if b.To == 0 {
		most = math.MaxInt64
	}
	if b.New < 0 || b.New > len(b.Upserts) {
		return domain.Errorf(domain.CodeInvalidRequest, "batch", "New is %d, and it has %d documents", b.New, len(b.Upserts))
	}
	seen := make(map[string]struct{}, len(b.Upserts)+len(b.Deletes))
	check := func(id string, version int64) error {
		if err := domain.CheckDocumentID("batch", id); err != nil {
			return err
		}
		if version <= above || version > most {
			return domain.Errorf(domain.CodeInvalidRequest, "batch", "document %q has version %d, which is not in the batch: above %d, at most %d",
				id, version, above, most)
		}
		seen[id] = struct{}{}
		return nil
	}
	for i := range b.Upserts {
		document := &b.Upserts[i]
		if err := check(document.ID, document.Version); err != nil {
			return err
		}
		if len(document.Data) > domain.MaxDocumentBytes {
			return domain.Errorf(domain.CodeTooLarge, "document "+document.ID, "it has %d bytes; at most %d are allowed", len(document.Data), domain.MaxDocumentBytes)
		}
	}
	for _, deletion := range b.Deletes {
		if err := check(deletion.ID, deletion.Version); err != nil {
			return err
		}
	}
	if len(seen) < len(b.Upserts)+len(b.Deletes) {
		return domain.Errorf(domain.CodeInvalidRequest, "batch", "it contains a document twice")
	}
	return nil
}

// PossibleIDs returns those of the ids that a document can have, each once.
func PossibleIDs(ids []string) []string {
	possible := make([]string, 0, len(ids))
	seen := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		if _, twice := seen[id]; twice || domain.CheckDocumentID("", id) != nil {
			continue
		}
		seen[id] = struct{}{}
		possible = append(possible, id)
	}
	return possible
}

// CheckTenant returns an error if the tenant cannot have documents or a checkpoint in the build: the tenant is nil, or
// the build belongs to another tenant's own projection.
func CheckTenant(build domain.Build, tenant domain.TenantID) error {
	if tenant == domain.Everyone {
		return fmt.Errorf("build %d of %s: no tenant is given", build.Number, build.Name)
	}
	if !build.Shared() && build.Owner != tenant {
		return fmt.Errorf("build %d of %s belongs to tenant %s, not to %s", build.Number, build.Name, build.Owner, tenant)
	}
	return nil
}
