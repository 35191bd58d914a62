package eventlog

import (
	"testing"

	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables/plantest"
)

func TestPlans(t *testing.T) {
	t.Parallel()
	plantest.Check(t, migrations.RoleApp, plantest.Events, []plantest.Statement{
		{SQL: logForward, Args: "$TENANT, 30000, 9223372036854775807, 100", Pages: 60},
		{SQL: logBackward, Args: "$TENANT, 30000, 1, 100", Pages: 60},
		{SQL: logTypesForward, Args: "$TENANT, 30000, 9223372036854775807, 100, '{Common}'", Pages: 80},
		{SQL: logTypesBackward, Args: "$TENANT, 30000, 1, 100, '{Common}'", Pages: 80},
		{SQL: categoryForward, Args: "$TENANT, 30000, 9223372036854775807, 100, 'order'", Pages: 150},
		{SQL: categoryBackward, Args: "$TENANT, 30000, 1, 100, 'order'", Pages: 150},
		{SQL: categoryForward, Args: "$TENANT, 1, 9223372036854775807, 100, 'rare'", Pages: 150},
		{SQL: categoriesForward, Args: "$TENANT, 30000, 9223372036854775807, 100, '{order,invoice,rare}'", Pages: 900},
		{SQL: categoriesBackward, Args: "$TENANT, 30000, 1, 100, '{order,invoice,rare}'", Pages: 900},
		{SQL: categoriesTypesForward, Args: "$TENANT, 30000, 9223372036854775807, 20, '{order,rare}', '{Common}'", Pages: 200},
		{SQL: categoriesTypesBackward, Args: "$TENANT, 30000, 1, 20, '{order,rare}', '{Common}'", Pages: 200},
		{SQL: categoriesTypesForward, Args: "$TENANT, 30000, 31000, 100, '{order,invoice,rare}', '{None}'", Pages: 100},
		{SQL: listCategories, Args: "$TENANT, 1001", Pages: 60},
		{SQL: countTagged, Args: "$TENANT, 100, 60000, '{own-30000,all}', '{\"\",Common}', 10000", Pages: 500},
		{SQL: matchingForward, Args: "$TENANT, 30000, 9223372036854775807, 100, '{all}', '{}'::text[] || ''::text, 100000", Pages: 900},
		{SQL: matchingBackward, Args: "$TENANT, 0, 30000, 100, '{all}', '{Common}', 100000", Pages: 900},
		{SQL: matchingForward, Args: "$TENANT, 0, 9223372036854775807, 10, '{own-30000,tag-8,all tag-8,\"\"}', '{Common,\"\",Common,\"\"}', 100000", Pages: 1000},
		{SQL: matchingForward, Args: "$TENANT, 0, 9223372036854775807, 100, '{all own-30000}', '{\"\"}', 100000", Pages: 350},
		{SQL: readConditions, Args: "$TENANT, '{59000}', '{all}', '{\"\"}', '{10000}'", Pages: 300},
		{SQL: readConditions, Args: "$TENANT, '{0}', '{own-30000}', '{Common}', '{10000}'", Pages: 30},
		{SQL: readConditions, Args: "$TENANT, '{0,0}', '{none,all none}', '{\"\",\"\"}', '{10000,10000}'", Pages: 80},
		{SQL: readConditions, Args: "$TENANT, '{0}', '{all}', '{None}', '{900}'", Pages: 100},
		{SQL: readConditions, Args: "$TENANT, '{0}', '{\"\"}', '{None}', '{900}'", Pages: 1000},
		{SQL: byStream, Args: "$TENANT, 'order-0', 1000, 9223372036854775807, 100", Pages: 150},
		{SQL: byStreamTypes, Args: "$TENANT, 'order-0', 1000, 9223372036854775807, 100, '{Common}'", Pages: 150},
		{SQL: byStreamCategory, Args: "$TENANT, 'order-0', 1000, 9223372036854775807, 100, 'order.', 'order'", Pages: 150},
		{SQL: byStreamCategoryTypes, Args: "$TENANT, 'order-0', 1000, 9223372036854775807, 100, 'order.', 'order', '{Common}'", Pages: 150},
		{SQL: byStreamSeeds, Args: "$TENANT, '{order-0,order-10,order-20}', '{1000,300,600}', '{order-10,order-20,order.}', 'order', 9223372036854775807, 100", Pages: 150},
		{SQL: byStreamSeedsTypes, Args: "$TENANT, '{order-0,order-10,order-20}', '{59900,300,600}', '{order-10,order-20,order.}', 'order', 9223372036854775807, 100, '{Common}'", Pages: 350},
		{SQL: streamForward, Args: "$TENANT, 'order-0', 1000, 9223372036854775807, 100", Pages: 150},
		{SQL: streamBackward, Args: "$TENANT, 'order-0', 9223372036854775807, 1, 100", Pages: 150},
		{SQL: latestOf, Args: "$TENANT, '{order-0,order-1,invoice-7,none-1}'", Pages: 40},
		{SQL: eventByID, Args: "$TENANT, gen_random_uuid()", Pages: 10},
		{SQL: streamVersions, Args: "$TENANT, '{order-0,order-1,invoice-7,none-1}'", Pages: 40},
		{SQL: lookUpIDs, Args: "$TENANT, array[gen_random_uuid(), gen_random_uuid()], '{order-1,order-2}', '{Common,Common}', array['{}', '{}']::jsonb[]", Pages: 20},
		{SQL: versionsAbove, Args: "$TENANT, 59900, 4001", Pages: 60},
		{SQL: streamNames, Args: "$TENANT, '', 'order-', 'order.', 100", Pages: 700},
		{SQL: streamInfo, Args: "$TENANT, 'invoice-7'", Pages: 60},
		{SQL: readHead, Args: "$TENANT", Pages: 10},
		{SQL: checkLog, Args: "$TENANT", Pages: 10},
		{SQL: awaitStandbys, Args: "$TENANT", Pages: 10},
		{SQL: positionAt, Args: "$TENANT, now()", Pages: 250},
		{SQL: recordedAt, Args: "$TENANT, '{1,30000,59999}'", Pages: 30},
		{SQL: versionAt, Args: "$TENANT, now(), 'order-0'", Pages: 250},
		{SQL: anyInLog, Args: "$TENANT, 100, 60000", Pages: 10},
		{SQL: anyOfTypes, Args: "$TENANT, 100, 60000, '{Common}'", Pages: 20},
		{SQL: anyInCategories, Args: "$TENANT, 100, 60000, '{rare,order}'", Pages: 30},
		{SQL: anyInCategoriesOfTypes, Args: "$TENANT, 100, 60000, '{rare,order}', '{Common}'", Pages: 60},
		{SQL: countInCategories, Args: "$TENANT, 100, 60000, '{rare}'", Pages: 120},
		{SQL: countInCategoriesOfTypes, Args: "$TENANT, 59000, 60000, '{rare,order}', '{Rare}'", Pages: 120},
		{SQL: countInCategoriesOfTypes, Args: "$TENANT, 57000, 60000, '{order}', '{Common}'", Pages: 200},
		{SQL: countOfTypes, Args: "$TENANT, 59000, 60000, '{Rare}'", Pages: 120},
		{SQL: countOfTypes, Args: "$TENANT, 57000, 60000, '{Common}'", Pages: 300},
		{SQL: nextInStreams, Args: "$TENANT, '{order-0,order-1,rare-1,none-1}', '{900,0,1,0}', 60000, 16", Pages: 150},
		{SQL: nextInStreams, Args: "$TENANT, '{order-0,order-1}', '{900,0}', 100, 16", Pages: 100},
		{SQL: atPositions, Args: "$TENANT, '{7,59000,30000,99999}'", Pages: 30},
		{SQL: headersAtPositions, Args: "$TENANT, '{7,59000,30000,99999}'", Pages: 30},
		{SQL: eventPosition, Args: "$TENANT, gen_random_uuid()", Pages: 10},
		{SQL: readTags, Args: "$TENANT, '{7,59000,30000,99999}'", Pages: 60},
		{SQL: versionBefore, Args: "$TENANT, 100, 'order-0'", Pages: 250},
	})
}

// The retention login changes tags.
func TestPlansOfRuns(t *testing.T) {
	t.Parallel()
	plantest.Check(t, migrations.RoleRetention, plantest.Events, []plantest.Statement{
		{SQL: lockRuns, Args: "$TENANT, '{30000,30100,30200,99999}'", Pages: 60},
		{SQL: updateRun, Args: "$TENANT, 30017, 'a', null", Pages: 20},
		{SQL: deleteRun, Args: "$TENANT, 30017", Pages: 20},
		{SQL: deleteTag, Args: "$TENANT, 'all', 30000", Pages: 20},
	})
}
