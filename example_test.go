package manifold_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/manifold-es/manifold"
	"github.com/manifold-es/manifold/delivery/reactor"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
)

// A program with a Go fold: it sums up for every tenant how much each customer has spent.
func ExampleMain() {
	type customer struct {
		Orders int   `json:"orders"`
		Cents  int64 `json:"cents"`
	}
	type paid struct {
		Customer string `json:"customer"`
		Cents    int64  `json:"cents"`
	}
	spend := folding.HandlerOf(folding.Rule[customer]{
		Types: []string{"PaymentReceived"},
		Key: func(event domain.Event) (string, error) {
			var data paid
			err := json.Unmarshal(event.Data, &data)
			return data.Customer, err
		},
		Fold: func(doc *customer, event domain.Event) (keep bool, err error) {
			var data paid
			if err := json.Unmarshal(event.Data, &data); err != nil {
				return false, err
			}
			doc.Orders++
			doc.Cents += data.Cents
			return true, nil
		},
	})
	manifold.Main(manifold.WithProjection(domain.Definition{Name: "customer-spend"}, spend))
}

// A program that sends the current state of every order to another system, after the projection order-summary has
// stored it. The call is repeated until it succeeds. A rebuild never makes it.
func ExampleWithReactor() {
	index := func(ctx context.Context, tenant domain.TenantID, event reactor.Event) error {
		if event.Document == nil {
			fmt.Println("remove", event.DocumentID)
			return nil
		}
		fmt.Println("put", event.DocumentID, "as of", event.Document.Version)
		return nil
	}
	manifold.Main(manifold.WithReactor(reactor.Definition{Name: "search-index", Projection: "order-summary"}, index))
}
