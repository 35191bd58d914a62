package projection_test

import (
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

func TestFollowsAnExample(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{true, false} {
		b := newBench(t)
		tenant := b.tenant(t)
		p := b.process(options{})
		p.start(t, b)
		owner := tenant
		if shared {
			owner = domain.Everyone
		}
		b.append(t, tenant, "order-1", "OrderPlaced", `{"customer": "ann"}`)
		if _, err := p.catalog.Create(t.Context(), owner, orders); err != nil {
			t.Fatal(err)
		}
		b.append(t, tenant, "order-1", "ItemAdded", `{"sku": "a", "price": 2.5, "qty": 2}`)
		b.append(t, tenant, "order-2", "OrderPlaced", `{"customer": "bob"}`)
		b.append(t, tenant, "invoice-2", "OrderPlaced", `{"customer": "bob"}`)
		last := b.append(t, tenant, "order-2", "OrderCancelled", `{}`)
		got := documents(t, p.catalog, tenant, orders.Name, last)
		mustEqual(t, got, fromScratch(t, orders, b.log(t, tenant)))
		if len(got) != 1 || canonical(t, got["order-1"].Data) != `{"customer":"ann","items":["a"],"status":"placed","total":5}` {
			t.Errorf("documents are %v", got)
		}
		document, err := p.catalog.Document(t.Context(), tenant, orders.Name, "order-1", projection.Freshness{})
		if err != nil || document.Version != 2 {
			t.Errorf("order-1 is %+v, %v", document, err)
		}
	}
}
