package api_test

import (
	"net/http"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// The operator reads the sums over all tenants' documents, also while they change and after a rebuild.
func TestTotals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	operator, a, b := w.operator(), w.tenant("acme"), w.tenant("other")
	const fold = `{"day": event.data.day, "orders": doc.?orders.orValue(0) + 1, "price": {"net": doc.?price.net.orValue(0) + event.data.net}}`
	definition := object{"name": "sales", "key": "event.data.day", "on": object{"Sold": fold}, "totals": object{"sum": list{"orders", "price.net"}, "by": "day"}}
	a.post("/v1/projections", definition).wantProblem(422, domain.CodeInvalidDefinition, "totals")
	operator.post("/v1/projections", definition).want(201)
	equal(t, "the definition's totals", operator.get("/v1/projections/sales").want(200).at("definition", "totals"), definition["totals"])
	sell := func(by *actor, day string, net float64) {
		by.post("/v1/streams/sale-1/events", list{object{"type": "Sold", "data": object{"day": day, "net": net}}}).want(201)
	}
	sell(a, "2026-10-31", 0.1)
	sell(a, "2026-11-01", 0.2)
	sell(b, "2026-11-01", 0.1)

	const path = "/v1/admin/totals/sales"
	settled := func(net string) *answer {
		return operator.until(path, func(got *answer) bool {
			return got.status == http.StatusOK && got.at("pending") == 0.0 && got.at("all", "sums", "price.net") == net
		})
	}
	got := settled("0.4")
	equal(t, "the sums over all", got.at("all"), object{"documents": 3, "sums": object{"orders": "3", "price.net": "0.4"}})
	equal(t, "how many tenants have totals", got.at("tenants"), 2)
	equal(t, "how many tenants' keys were dropped", got.at("keysDropped"), 0)
	for i, tenant := range []*actor{a, b} {
		row := operator.get(path + "?tenant=" + tenant.tenantID).want(200)
		equal(t, "a tenant's totals", list{row.at("totals", 0, "tenant"), row.at("totals", 0, "sums", "orders"), row.at("totals", 0, "position"), row.at("tenants")},
			list{tenant.tenantID, []string{"2", "1"}[i], 2 - i, 1})
	}
	equal(t, "November of each", operator.get(path+"?keyPrefix=2026-11&per=both").want(200).at("all"), object{"documents": 2, "sums": object{"orders": "2", "price.net": "0.3"}})
	first := operator.get(path + "?per=key&pageSize=1").want(200)
	equal(t, "the first key", first.at("totals"), list{object{"key": "2026-10-31", "documents": 1, "sums": object{"orders": "1", "price.net": "0.1"}}})
	second := operator.get(first.next()).want(200)
	equal(t, "the second key", second.at("totals"), list{object{"key": "2026-11-01", "documents": 2, "sums": object{"orders": "2", "price.net": "0.3"}}})
	equal(t, "what is after the last page", second.next(), "")

	a.get(path).wantProblem(403, domain.CodeForbidden, "")
	operator.get("/v1/admin/totals/none").wantProblem(404, domain.CodeNotFound, "")
	operator.get(path+"?per=day").wantProblem(400, domain.CodeInvalidRequest, "query per")
	operator.get(path+"?keyPrefix=%00").wantProblem(400, domain.CodeInvalidRequest, "query keyPrefix")
	operator.get(path+"?pageToken=x").wantProblem(400, domain.CodeInvalidRequest, "query pageToken")

	// A rebuild with another fold, in which one document has no number.
	definition["on"] = object{"Sold": `{"day": event.data.day, "orders": doc.?orders.orValue(0) + 10, "price": event.data.day == "2026-10-31" ? {} : {"net": 1}}`}
	operator.send("PUT", "/v1/projections/sales", definition).want(202)
	equal(t, "the sums over all after a rebuild", settled("2").at("all"), object{"documents": 3, "sums": object{"orders": "30", "price.net": "2"}, "skipped": object{"price.net": 1}})

	// Other totals need no rebuild.
	definition["totals"] = object{}
	operator.send("PUT", "/v1/projections/sales", definition).want(200)
	equal(t, "the totals without sums", operator.until(path, func(got *answer) bool { return got.at("tenants") == 2.0 }).at("all"), object{"documents": 3, "sums": object{}})
}
