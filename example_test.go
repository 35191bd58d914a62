package manifold_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/manifold-es/manifold"
	"github.com/manifold-es/manifold/aggregate"
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

// A program that gives each seat of a show once, whatever streams the reservations are in: POST
// /v1/aggregates/show/hamlet/commands/Reserve with {"data": {"seat": "B7", "order": "1001"}}.
func ExampleWithDecider() {
	type request struct {
		Seat  string `json:"seat"`
		Order string `json:"order"`
	}
	type seat struct {
		Order string `json:"order"` // empty: the seat is free
	}
	query := func(d aggregate.Decision) (domain.Query, error) {
		var asked request
		if err := json.Unmarshal(d.Data, &asked); err != nil || asked.Seat == "" {
			return nil, &aggregate.Rejection{Code: "no-seat", Message: "name a seat"}
		}
		return domain.Query{{
			Types: []string{"SeatReserved", "SeatReleased"},
			Tags:  []string{"seat:" + domain.Key(d.Stream) + "/" + asked.Seat},
		}}, nil
	}
	fold := func(value *seat, event aggregate.NewEvent) error {
		if event.Type == "SeatReleased" {
			*value = seat{}
			return nil
		}
		return json.Unmarshal(event.Data, value)
	}
	reserve := func(_ context.Context, d aggregate.Decision) ([]aggregate.NewEvent, error) {
		var asked request
		var found seat
		if err := json.Unmarshal(d.Data, &asked); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(d.Boundary["seat"], &found); err != nil {
			return nil, err
		}
		switch found.Order {
		case "":
		case asked.Order:
			return nil, nil // reserved already
		default:
			return nil, &aggregate.Rejection{Code: "taken", Message: "seat " + asked.Seat + " is taken"}
		}
		data, err := json.Marshal(asked)
		return []aggregate.NewEvent{{
			Stream: "order-" + asked.Order, Type: "SeatReserved", Data: data,
			Tags: []string{"seat:" + domain.Key(d.Stream) + "/" + asked.Seat},
		}}, err
	}
	manifold.Main(manifold.WithDecider("show", "Reserve", reserve, aggregate.WithoutState(), aggregate.WithBoundary("seat", query, fold)))
}
