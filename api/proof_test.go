package api_test

import (
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/proof"
)

// seal seals the actor's log.
func (a *actor) seal() {
	a.t.Helper()
	tenant, err := domain.ParseTenantID(a.tenantID)
	must(a.t, err)
	_, _, err = a.seals.Seal(a.t.Context(), tenant)
	must(a.t, err)
}

func testProofs(t *testing.T, documented *documentation, operator, a *actor) {
	documented.run(a, "getCheckpoint", 404)
	a.seal()
	for _, id := range []string{"getCheckpoint", "getInclusionProof", "getConsistencyProof", "getLeaves", "listSigningKeys"} {
		documented.run(a, id, 200)
	}
	documented.run(operator, "rotateSigningKeys", 201)
}

// A checkpoint is verified with the listed keys, also after a rotation, and each position has a proof in it. A key of
// another tenant, or for some categories, sees none of it.
func TestProofs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a, other := w.tenant("acme"), w.tenant("other")
	a.append("order-1", 3)
	a.seal()
	keys := func() note.Verifiers {
		t.Helper()
		var found []note.Verifier
		for i, key := range a.get("/v1/signing-keys").at("keys").(list) {
			verifier, err := note.NewVerifier(key.(object)["verifier"].(string))
			must(t, err)
			equal(t, "whether it signs", key.(object)["signs"], i == 0)
			found = append(found, verifier)
		}
		return note.VerifierList(found...)
	}
	before := keys()
	checkpoint := func(verifiers note.Verifiers) proof.Checkpoint {
		t.Helper()
		opened, err := note.Open([]byte(a.get("/v1/log/checkpoint").body), verifiers)
		must(t, err)
		checkpoint, err := proof.ParseCheckpoint(opened.Text)
		must(t, err)
		return checkpoint
	}
	first := checkpoint(before)
	equal(t, "the size", first.Size, int64(3))
	if !strings.HasSuffix(first.Origin, "/"+a.tenantID) {
		t.Errorf("the origin is %s", first.Origin)
	}
	hashes := func(answer *answer) (hashes []tlog.Hash) {
		t.Helper()
		for _, text := range answer.at("hashes").(list) {
			hash, err := tlog.ParseHash(text.(string))
			must(t, err)
			hashes = append(hashes, hash)
		}
		return hashes
	}
	inclusion := a.get("/v1/log/proof?position=2&size=3")
	leaf, err := tlog.ParseHash(inclusion.text("leaf"))
	must(t, err)
	must(t, tlog.CheckRecord(hashes(inclusion), 3, first.Root, 1, leaf))

	w.operator().post("/v1/signing-keys", nil).want(201)
	must(t, func() error { _, err := note.Open([]byte(a.get("/v1/log/checkpoint").body), keys()); return err }())
	a.append("order-1", 4)
	a.seal()
	second := checkpoint(keys())
	must(t, tlog.CheckTree(hashes(a.get("/v1/log/consistency?from=3&to=7")), 7, second.Root, 3, first.Root))

	a.get("/v1/log/proof?position=8&size=7").wantProblem(400, domain.CodeInvalidRequest, "position")
	a.get("/v1/log/proof?position=1&size=8").wantProblem(400, domain.CodeInvalidRequest, "size")
	a.get("/v1/log/consistency?from=2&to=1").wantProblem(400, domain.CodeInvalidRequest, "from")
	a.get("/v1/log/leaves?block=-1").wantProblem(400, domain.CodeInvalidRequest, "query block")
	equal(t, "the leaves after the end", a.get("/v1/log/leaves?block=9").want(200).text("leaves"), "")
	other.get("/v1/log/checkpoint").wantProblem(404, domain.CodeNotFound, "")
	equal(t, "the leaves of an empty log", other.get("/v1/log/leaves?block=0").want(200).text("leaves"), "")
	a.post("/v1/signing-keys", nil).wantProblem(403, domain.CodeForbidden, "Authorization")
}
