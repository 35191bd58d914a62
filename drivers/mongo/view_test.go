package mongo

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// This tests the stages of a view with many overrides, which FerretDB cannot show. No pipeline has more stages than
// MongoDB accepts. Each tenant is excluded from the build's documents and included from the override's build, once.
func TestViewPipelineOfManyOverrides(t *testing.T) {
	t.Parallel()
	build := domain.Build{ProjectionID: domain.ProjectionID{Name: "orders"}, Number: 1}
	for _, overridden := range []int{0, 1, maxStages - 1, maxStages, maxStages + 1, 2 * maxStages, 1200} {
		var overrides []drivers.Override
		for i := range overridden {
			other := build
			other.Number = int64(i + 2)
			overrides = append(overrides, drivers.Override{Tenant: domain.NewTenantID(), Build: other}, drivers.Override{Tenant: domain.NewTenantID(), Build: other})
		}
		groups, err := drivers.GroupOverrides(build, overrides)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := bson.Marshal(bson.D{{Key: "pipeline", Value: viewPipeline(build, groups, 1+overridden%2)}})
		if err != nil {
			t.Fatal(err)
		}
		from := make(map[string]string) // tenant to collection
		var read func(pipeline bson.RawValue, depth int)
		read = func(pipeline bson.RawValue, depth int) {
			list, _ := pipeline.ArrayOK()
			stages, err := list.Values()
			if err != nil || len(stages) > maxStages+2 || depth > 10 {
				t.Fatalf("a pipeline has %d stages, %d deep, %v", len(stages), depth, err)
			}
			for _, stage := range stages {
				union, ok := stage.Document().Lookup("$unionWith").DocumentOK()
				if !ok {
					continue
				}
				collection := union.Lookup("coll").StringValue()
				tenants, err := union.Lookup("pipeline", "0", "$match", "tenant", "$in").Array().Values()
				if err != nil {
					t.Fatal(err)
				}
				for i := 0; i < len(tenants); i += 2 { // each as a text and in binary
					tenant, err := tenantOf(tenants[i+1])
					if err != nil || tenants[i].StringValue() != tenant.String() {
						t.Fatalf("%s and %s are not one tenant, %v", tenants[i], tenants[i+1], err)
					}
					from[tenant.String()] += collection
				}
				read(union.Lookup("pipeline"), depth+1)
			}
		}
		read(bson.Raw(raw).Lookup("pipeline"), 0)
		without := 0
		if overridden > 0 {
			values, err := bson.Raw(raw).Lookup("pipeline", "0", "$match", "tenant", "$nin").Array().Values()
			if err != nil {
				t.Fatal(err)
			}
			without = len(values) / 2
		}
		for _, override := range overrides {
			if want := collectionName(override.Build); from[override.Tenant.String()] != want {
				t.Errorf("of %d builds, tenant %s's documents come from %q, want %q", overridden, override.Tenant, from[override.Tenant.String()], want)
			}
			if !includesCollection(bson.Raw(raw).Lookup("pipeline"), collectionName(override.Build)) {
				t.Errorf("of %d builds, the view is not known to show %d", overridden, override.Build.Number)
			}
		}
		if len(from) != len(overrides) || without != len(overrides) {
			t.Errorf("of %d overrides, %d are brought in and %d left out", len(overrides), len(from), without)
		}
		if includesCollection(bson.Raw(raw).Lookup("pipeline"), "orders.99999") {
			t.Error("the view is taken for showing a build that it does not")
		}
	}
}

// A row's partition fits beside the largest data, and distinguishes values.
func TestPartitionKeysAreShort(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	for _, text := range []string{"", "a", "#", "null", "1", strings.Repeat("x", maxPartition-2), strings.Repeat("x", maxPartition-1), strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20) + "y"} {
		key := partitionKey(domain.Scalar{Kind: domain.ScalarText, Text: text})
		if len(key) > maxPartition {
			t.Errorf("the key of a text of %d bytes has %d", len(text), len(key))
		}
		if other, twice := seen[key]; twice {
			t.Errorf("%.20q and %.20q are in one partition", text, other)
		}
		seen[key] = text
	}
	if partitionKey(domain.Scalar{Kind: domain.ScalarText, Text: "1"}) == partitionKey(domain.Scalar{Kind: domain.ScalarInt, Int: 1}) {
		t.Error("a text and a number are in one partition")
	}
}
