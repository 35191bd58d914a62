package mongo_test

import (
	"bytes"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers/mongo"
	"github.com/manifold-es/manifold/drivers/mongo/mongotest"
)

// The driver determines a deployment's abilities when it is opened.
func TestDeployments(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		address      string
		transactions bool
		shards       bool
	}{
		"standalone":  {mongotest.FerretDB(t), false, false},
		"replica set": {mongotest.ReplicaSet(t), true, false},
		"cluster":     {mongotest.Cluster(t), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			driver, err := mongo.Open(t.Context(), mongo.Config{URL: c.address, Transactions: true, ShardBuilds: true, NoWildcardIndex: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer driver.Close()
			if got := driver.Transactions(); got != c.transactions {
				t.Errorf("it saves in transactions: %t, want %t", got, c.transactions)
			}
			if warned := strings.Contains(log.String(), "no sharded cluster"); warned == c.shards {
				t.Errorf("warned that nothing is sharded: %t", warned)
			}
			build := domain.Build{ProjectionID: domain.ProjectionID{Name: "orders"}, Number: 7}
			for range 2 { // it may be repeated
				if err := driver.CreateTemporaryTable(t.Context(), build); err != nil {
					t.Fatal(err)
				}
			}
			address, err := url.Parse(c.address)
			if err != nil {
				t.Fatal(err)
			}
			sharded, err := database(t, c.address).Client().Database("config").Collection("collections").CountDocuments(t.Context(),
				bson.D{{Key: "_id", Value: address.Path[1:] + ".orders.7"}, {Key: "key", Value: bson.D{{Key: "_id", Value: int32(1)}}}})
			if err != nil || sharded == 1 != c.shards {
				t.Errorf("the build's collection is sharded %d times, %v; want %t", sharded, err, c.shards)
			}
		})
	}
}
