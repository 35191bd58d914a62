package mongo

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// SwapTable points the projection's view at the build's collection, and at the overrides' collections for their
// tenants. It changes the view's definition once, waits for no reader, and makes none wait.
func (d *Driver) SwapTable(ctx context.Context, build domain.Build, overrides []drivers.Override) error {
	groups, err := drivers.GroupOverrides(build, overrides)
	if err != nil || !build.Shared() {
		return err
	}
	newest, err := d.readMarker(ctx, collectionName(build))
	for _, group := range groups {
		if err != nil {
			break
		}
		var other table
		if other, err = d.readMarker(ctx, collectionName(group.Build)); other.layout > newest.layout {
			newest = other
		}
	}
	if err == nil {
		err = d.moveView(ctx, viewName(build.Name), collectionName(build), viewPipeline(build, groups, newest.layout))
	}
	if isUnsupported(err) {
		d.noViews.Do(func() {
			d.log.WarnContext(ctx, "the documents' database has no views: shared projections have no public names in it", "error", err)
		})
		return nil
	}
	if err != nil {
		return fmt.Errorf("point %s at build %d: %w", build.Name, build.Number, err)
	}
	return nil
}

func (d *Driver) moveView(ctx context.Context, view, collection string, pipeline bson.A) error {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	definition := bson.D{{Key: "viewOn", Value: collection}, {Key: "pipeline", Value: pipeline}, writeConcern(ctx, false)}
	_, err := d.run(ctx, append(bson.D{{Key: "create", Value: view}}, definition...))
	if !hasCode(err, codeNamespaceExists) {
		return err
	}
	_, err = d.run(ctx, append(bson.D{{Key: "collMod", Value: view}}, definition...))
	return err
}

// maxStages is the maximum number of stages in a pipeline of this driver. MongoDB accepts 1,000. Further stages go into
// a pipeline nested in the last stage, and MongoDB accepts twenty levels of nesting.
const maxStages = 500

// viewPipeline returns what a projection's view shows of the build's collection and of the others. The server applies
// an added condition, such as one by tenant, to each collection before it combines them. layout is the newest layout
// among them. In layout 2 the tenant stays a text, which then has no index, and the indexed field is "tenantId".
func viewPipeline(build domain.Build, groups []drivers.Overridden, layout int) bson.A {
	var all bson.A
	for _, group := range groups {
		all = append(all, tenantValues(group.Tenants)...)
	}
	shown := bson.D{{Key: "_id", Value: 0}, {Key: "tenant", Value: 1}, {Key: "id", Value: 1}, {Key: "version", Value: 1}, {Key: data, Value: 1}}
	if layout > 1 {
		shown[1].Value = bson.D{{Key: "$substrBytes", Value: bson.A{"$_id", 0, len("00000000-0000-0000-0000-000000000000")}}}
		shown = append(shown, bson.E{Key: "tenantId", Value: "$tenant"})
	}
	first := exists(data, true)
	if len(groups) > 0 {
		first = append(bson.D{{Key: "tenant", Value: bson.D{{Key: "$nin", Value: all}}}}, first...)
	}
	stages := bson.A{bson.D{{Key: "$match", Value: first}}}
	return append(unionOverrides(stages, groups), bson.D{{Key: "$project", Value: shown}})
}

// unionOverrides appends stages that add the collections of other builds, for their tenants.
func unionOverrides(stages bson.A, groups []drivers.Overridden) bson.A {
	for i, group := range groups {
		pipeline := bson.A{bson.D{{Key: "$match", Value: append(bson.D{{Key: "tenant", Value: bson.D{{Key: "$in", Value: tenantValues(group.Tenants)}}}}, exists(data, true)...)}}}
		last := len(stages) == maxStages
		if last {
			pipeline = unionOverrides(pipeline, groups[i+1:])
		}
		stages = append(stages, bson.D{{Key: "$unionWith", Value: bson.D{{Key: "coll", Value: collectionName(group.Build)}, {Key: "pipeline", Value: pipeline}}}})
		if last {
			break
		}
	}
	return stages
}

// tenantValues returns the tenants as rows of either layout hold them.
func tenantValues(tenants []domain.TenantID) bson.A {
	var values bson.A
	for _, tenant := range tenants {
		values = append(values, table{layout: 1}.tenantValue(tenant), table{layout: 2}.tenantValue(tenant))
	}
	return values
}

// dropView drops the projection's view if it shows anything of the build.
func (d *Driver) dropView(ctx context.Context, build domain.Build) error {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	view, collection := viewName(build.Name), collectionName(build)
	answer, err := d.run(ctx, bson.D{{Key: "listCollections", Value: 1}, {Key: "filter", Value: bson.D{{Key: "name", Value: view}}}})
	if err != nil {
		return err
	}
	list, _ := answer.Lookup("cursor", "firstBatch").ArrayOK()
	found, err := list.Values()
	if err != nil {
		return fmt.Errorf("the list of collections: %w", err)
	}
	for _, one := range found {
		row, _ := one.DocumentOK()
		on, _ := row.Lookup("options", "viewOn").StringValueOK()
		if on == collection || includesCollection(row.Lookup("options", "pipeline"), collection) {
			return d.drop(ctx, view)
		}
	}
	return nil
}

// includesCollection reports whether a pipeline, which may be somebody else's, includes a collection as viewPipeline
// does.
func includesCollection(pipeline bson.RawValue, collection string) bool {
	list, _ := pipeline.ArrayOK()
	stages, err := list.Values()
	return err == nil && slices.ContainsFunc(stages, func(stage bson.RawValue) bool {
		row, _ := stage.DocumentOK()
		name, _ := row.Lookup("$unionWith", "coll").StringValueOK()
		return name == collection || includesCollection(row.Lookup("$unionWith", "pipeline"), collection)
	})
}
