package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// testSubjects runs the documented requests about people.
func testSubjects(t *testing.T, documented *documentation, a *actor) {
	t.Helper()
	a.post("/v1/streams/customer-17/events", list{object{"type": "CustomerRegistered", "data": object{"email": "ada@example.com"}, "tags": list{"subject:c-17"}}}).want(201)
	preview := documented.run(a, "eraseSubject", 200)
	equal(t, "the preview", preview.at("events"), object{"CustomerRegistered": 1})
	equal(t, "the lines", len(documented.run(a, "exportSubject", 200).lines()), 1)
	const id = "0190d3a4-5b6c-7def-8123-456789abcde0" // as in the examples
	request := object{"id": id, "reason": "asked for it", "approval": true}
	asked := a.post("/v1/subjects/c-17/erase", request).want(202)
	equal(t, "the state", asked.text("state"), "awaiting-approval")
	equal(t, "the place", asked.header.Get("Location"), "/v1/erasures/"+id)
	a.post("/v1/subjects/c-18/erase", request).wantProblem(409, domain.CodeConflict, "id")
	equal(t, "the list", documented.run(a, "listErasures", 200).at("erasures"), list{documented.run(a, "getErasure", 200).json()})
	a.post("/v1/erasures/"+id+"/approve", nil).wantProblem(403, domain.CodeForbidden, "")
	approver := &actor{a.world, a.world.key(a.tenantID, auth.ScopeSubjectsErase), a.tenantID}
	documented.run(approver, "approveErasure", 202)
	documented.params["erasureId"] = a.post("/v1/subjects/c-18/erase", object{"reason": "asked for it", "approval": true}).want(202).text("id")
	documented.run(a, "cancelErasure", 202)
	delete(documented.params, "erasureId")
	for deadline := time.Now().Add(patience); ; {
		erasure := a.get("/v1/erasures/" + id).want(200)
		if erasure.text("state") == "done" {
			if receipt := erasure.text("receipt"); !strings.Contains(receipt, id) || strings.Contains(receipt, "c-17") {
				t.Errorf("the receipt is %s", receipt)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the erasure does not come to its end: %s", erasure.body)
		}
		<-time.After(100 * time.Millisecond) // the tenant may send 50 requests a second
	}
	equal(t, "the lines after it", len(a.get("/v1/subjects/c-17/export").want(200).lines()), 0)
	event := a.get("/v1/streams/customer-17").want(200)
	equal(t, "the event's gap", event.text("events", 0, "gap", "reason"), "erased")
}

// A person's id is in no audit log, although the requests are recorded there.
func TestAuditLogsHaveNoSubjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("acme")
	a.post("/v1/subjects/ada-lovelace/erase", object{"reason": "asked", "dryRun": true}).want(200)
	a.post("/v1/subjects/ada-lovelace/erase", object{"reason": "asked"}).want(202)
	a.post("/v1/subjects/ada-lovelace/erase", object{"reason": "ada-lovelace asked"}).wantProblem(400, domain.CodeInvalidRequest, "reason")
	log := string(a.get("/audit/v1/streams/$all").want(200).body)
	if strings.Contains(log, "ada-lovelace") || !strings.Contains(log, "eraseSubject") {
		t.Errorf("the audit log is %s", log)
	}
	if strings.Contains(w.log.String(), "/v1/subjects/ada-lovelace") {
		t.Errorf("the log is %s", w.log.String())
	}
}
