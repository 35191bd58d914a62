package systemtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/auth/oidc/oidctest"
	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// contract is the part of openapi.yaml that these tests read.
type contract struct {
	Paths map[string]map[string]any
}

// endpoint is an operation of the contract.
type endpoint struct {
	method, path string
	scopes       []string
}

// endpoints are the contract's operations by their ids.
func endpoints(t *testing.T) map[string]endpoint {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var c contract
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	all := make(map[string]endpoint)
	for path, item := range c.Paths {
		for _, method := range []string{"get", "put", "post", "patch", "delete"} {
			operation, ok := item[method].(map[string]any)
			if !ok {
				continue
			}
			e := endpoint{method: strings.ToUpper(method), path: path}
			scopes, ok := operation["x-scopes"].([]any)
			if !ok {
				t.Fatalf("%s %s has no x-scopes", method, path)
			}
			for _, scope := range scopes {
				e.scopes = append(e.scopes, scope.(string))
			}
			all[operation["operationId"].(string)] = e
		}
	}
	if len(all) < 40 {
		t.Fatalf("the contract has only %d operations", len(all))
	}
	return all
}

// forOperator reports whether the operator alone may.
func (e endpoint) forOperator() bool {
	return len(e.scopes) == 1 && strings.HasPrefix(e.scopes[0], "operator")
}

// side is one of two tenants that use the same names and ids for everything. Each has a mark in every text that it
// chooses, and the ids that the service chose for it.
type side struct {
	user
	mark     string
	id       string
	rebuild  string
	key      string
	spareKey string
	member   string            // of its group
	secret   string            // the id of one of its webhook's
	refused  map[string]string // credentials that must not work, by what they are
}

// secrets are the texts that no other tenant may receive.
func (s *side) secrets() []string {
	all := []string{s.mark, s.id}
	for _, id := range []string{s.rebuild, s.key, s.spareKey, s.member, s.secret} {
		if id != "" {
			all = append(all, id)
		}
	}
	return all
}

// path puts a side's own ids, and the names that both have, into an operation's path.
func (s *side) path(path string) string {
	return strings.NewReplacer(
		"/admin/projections/{name}", "/admin/projections/everyones", "/admin/totals/{name}", "/admin/totals/everyones",
		"{streamId}", "order-1", "{category}", "order", "{name}", "orders", "{documentId}", "order-1",
		"{rebuildId}", s.rebuild, "{subjectId}", "nobody", "{erasureId}", "01900000-0000-7000-8000-000000000001", "{tenantId}", s.id, "{keyId}", s.spareKey, "{type}", "Placed", "{version}", "1",
		"{eventId}", sharedID, "{memberId}", s.member, "{secretId}", s.secret, "{projection}", "orders", "{key}", "order-1", "{position}", "1", "{id}", "4", "{command}", "Place", "{plan}", "of-"+s.mark,
	).Replace(path)
}

// try is how an operation is called in these tests.
type try struct {
	query  string
	body   func(s *side) string
	accept string
	status []int // statuses that its owner may receive
	own    bool  // the answer has the side's mark or one of its ids
}

const (
	sharedID    = "0190d3a4-5b6c-7def-8123-456789abcde0"
	sharedEvent = `{"id":"` + sharedID + `","type":"Placed","data":{"by":%q}}`
	// sharedAnswer is a consumer's answer to its first delivery, followed by more fields of the same object.
	sharedAnswer  = `{"ids":[` + sharedAttempt + `]`
	sharedAttempt = `{"id":"` + sharedID + `","attempt":1}`
)

func text(format string) func(*side) string {
	return func(s *side) string {
		if !strings.Contains(format, "%") {
			return format
		}
		return fmt.Sprintf(format, s.mark)
	}
}

// tries has every operation of the contract. They are called in the order of sequence, for one side and then the other.
var tries = map[string]try{
	"appendToStream":    {body: text(`[` + sharedEvent + `]`), status: []int{201, 200}},
	"append":            {body: text(`{"streams":[{"stream":"order-2","expectedVersion":"none","events":[{"id":"0190d3a4-5b6c-7def-8123-456789abcde1","type":"Placed","data":{"by":%q},"tags":["shared"]}]}],"condition":{"failIfEventsMatch":{"items":[{"tags":["shared"]}]}}}`), status: []int{201}},
	"publish":           {body: text(`{"id":"0190d3a4-5b6c-7def-8123-456789abcde2","topic":"order","key":"1","payload":{"by":%q}}`), status: []int{201}},
	"readEvent":         {status: []int{200}, own: true},
	"readLatest":        {query: "?keys=1,2", status: []int{200}, own: true},
	"snapDocument":      {query: "?minPosition=4&timeout=30", status: []int{200}, own: true},
	"importEvents":      {query: "?name=same", body: text(`{"stream":"order-3","type":"Placed","data":{"by":%q}}` + "\n"), status: []int{200}},
	"readStream":        {status: []int{200}, own: true},
	"readAll":           {accept: "application/x-ndjson", status: []int{200}, own: true},
	"readByQuery":       {body: text(`{"query":{"items":[{"tags":["shared"]}]}}`), status: []int{200}, own: true},
	"readCategory":      {status: []int{200}, own: true},
	"exportEvents":      {status: []int{200}, own: true},
	"listStreams":       {status: []int{200}},
	"getStreamMetadata": {status: []int{200}},
	"putAggregate": {body: text(`{"initial":{"mark":%q},"on":{"*":"merge(state, {'last': event.data.by})"},"commands":{"Place":{` +
		`"boundary":{"all":{"query":[{"tags":"['shared']"}],"initial":{"by":""},"on":{"Placed":"merge(state, {'by': event.data.by})"}}},"emit":[{"Placed":"merge(command, {'seen': boundary.all.by, 'was': state.mark})"}]}}}`), status: []int{200}, own: true},
	"sendCommand":             {body: text(`{"data":{"by":%q}}`), status: []int{200}, own: true},
	"sendCommands":            {body: text(`{"commands":[{"stream":"order-4","command":"Place","data":{"by":%q}}]}`), status: []int{200}, own: true},
	"previewAggregate":        {body: text(`{"definition":{"category":"order","initial":{"mark":%q},"on":{"*":"merge(state, {'last': event.data.by})"}},"stream":"order-1"}`), status: []int{200}, own: true},
	"getAggregate":            {status: []int{200}, own: true},
	"listAggregates":          {status: []int{200}, own: true},
	"getState":                {status: []int{200}, own: true},
	"takeSnapshot":            {body: text(`{"state":{"mark":%q},"version":1,"tag":"same"}`), status: []int{201}, own: true},
	"listSnapshots":           {status: []int{200}},
	"getLatestSnapshot":       {query: "?version=9", status: []int{200}, own: true},
	"createProjection":        {body: text(`{"name":"orders","initial":{"mark":%q},"on":{"*":"merge(doc, {'last': event.data.by})"}}`), status: []int{201}, own: true},
	"putProjection":           {body: text(`{"name":"orders","initial":{"mark":%q},"on":{"*":"merge(doc, {'last': event.data.by})"}}`), status: []int{200}, own: true},
	"getProjection":           {status: []int{200}, own: true},
	"listProjections":         {status: []int{200}, own: true},
	"listProjectionVersions":  {status: []int{200}, own: true},
	"previewProjection":       {body: text(`{"definition":{"initial":{"mark":%q},"on":{"*":"merge(doc, {'last': event.data.by})"}},"source":{"last":10}}`), status: []int{200}, own: true},
	"planProjections":         {body: text(`{"definitions":[{"name":"orders","initial":{"other":%q},"on":{"*":"doc"}}],"remove":true}`), status: []int{200}, own: true},
	"getProjectionState":      {status: []int{200}},
	"catchUpProjection":       {query: "?timeout=30", status: []int{200}},
	"listDocuments":           {query: "?minPosition=3&timeout=30&filter=doc.mark.endsWith('mark')&orderBy=last+desc,mark&fields=mark,last&pageSize=2&count=exact", status: []int{200}, own: true},
	"getDocument":             {query: "?minPosition=3&timeout=30&fields=mark", status: []int{200}, own: true},
	"retryProjection":         {status: []int{202}},
	"skipEvent":               {body: text(`{"position":1,"reason":"by %s"}`), status: []int{409}}, // it stands before none, see TestFaultsAreIsolated
	"listSkippedEvents":       {status: []int{200}},
	"withdrawSkip":            {status: []int{404}},
	"listParkedDocuments":     {status: []int{200}},
	"replayParkedDocuments":   {status: []int{200}},
	"replayParkedDocument":    {status: []int{404}},
	"discardParkedDocument":   {status: []int{404}},
	"startRebuild":            {status: []int{202}, own: true},
	"getRebuild":              {status: []int{200}, own: true},
	"listRebuilds":            {status: []int{200}, own: true},
	"cancelRebuild":           {status: []int{202, 409}},
	"watchRebuild":            {status: []int{200}, own: true},
	"listRebuildTenants":      {status: []int{200}, own: true},
	"exportDifference":        {status: []int{409}}, // it awaits no approval
	"approveRebuild":          {status: []int{409}},
	"pauseRebuild":            {status: []int{409}}, // by then it has ended
	"resumeRebuild":           {status: []int{409}},
	"rollbackRebuild":         {status: []int{202}, own: true},
	"resetProjection":         {status: []int{200, 409}},
	"putSchema":               {body: text(`{"schema":{"properties":{"by":{"const":%q}}}}`), status: []int{201}, own: true},
	"putSchemaRule":           {body: text(`{"mode":"enforce"}`), status: []int{200}},
	"getSchema":               {status: []int{200}, own: true},
	"getSchemaVersion":        {status: []int{200}, own: true},
	"listSchemas":             {status: []int{200}},
	"eventContract":           {status: []int{200}, own: true},
	"checkSchema":             {body: text(`{"schema":{"properties":{"by":{"const":"%s, and more"}}},"source":{"last":10}}`), status: []int{200}, own: true},
	"deleteSchema":            {status: []int{204}},
	"putUpcaster":             {body: text(`{"expression":"merge(event.data, {'seen': '%s'})"}`), status: []int{201}, own: true},
	"getUpcaster":             {status: []int{200}, own: true},
	"listUpcasters":           {status: []int{200}, own: true},
	"previewUpcaster":         {body: text(`{"source":{"stream":"order-1"}}`), status: []int{200}, own: true},
	"deleteUpcaster":          {status: []int{200}},
	"followAll":               {status: []int{200}, own: true},
	"followStream":            {status: []int{200}, own: true},
	"followCategory":          {status: []int{200}, own: true},
	"createTicket":            {status: []int{201}},
	"gateway":                 {status: []int{400, 426}}, // it is no WebSocket; what goes over one is tested beside it
	"putSubscription":         {body: text(`{"filter":"event.data.by == '%s' || true","partitions":2,"ackTimeout":3600,"maxAttempts":9}`), status: []int{201}, own: true},
	"getSubscription":         {status: []int{200}, own: true},
	"listSubscriptions":       {status: []int{200}, own: true},
	"joinSubscription":        {body: text(`{"label":%q}`), status: []int{201}, own: true},
	"heartbeatSubscription":   {status: []int{200}, own: true},
	"listSubscriptionMembers": {status: []int{200}, own: true},
	"peekSubscription":        {status: []int{200}, own: true},
	"receive":                 {body: func(s *side) string { return fmt.Sprintf(`{"memberId":%q,"ack":[%s]}`, s.member, sharedAttempt) }, status: []int{200}, own: true},
	"extendEvents":            {body: text(sharedAnswer + `,"by":3600}`), status: []int{200}},
	"nackEvents":              {body: text(sharedAnswer + `,"action":"park","reason":"by %s"}`), status: []int{200}},
	"ackEvents":               {body: text(sharedAnswer + `}`), status: []int{200}},
	"ackEvent":                {query: "?attempt=1", status: []int{200}},
	"listDeadLetters":         {status: []int{200}, own: true},
	"replayDeadLetter":        {status: []int{202}},
	"replayDeadLetters":       {status: []int{202}},
	"discardDeadLetter":       {status: []int{204}},
	"discardDeadLetters":      {status: []int{200}},
	"pauseSubscription":       {status: []int{200}, own: true},
	"resumeSubscription":      {status: []int{200}, own: true},
	"seekSubscription":        {body: text(`{"position":2}`), status: []int{200}, own: true},
	// Nothing is sent but test messages: what comes of sending later would show in views.
	"putWebhook":          {body: text(`{"url":"https://%s.invalid/","types":["None"],"timeout":1}`), status: []int{201}, own: true},
	"getWebhook":          {status: []int{200}, own: true},
	"listWebhooks":        {status: []int{200}, own: true},
	"pauseWebhook":        {status: []int{200}, own: true},
	"resumeWebhook":       {status: []int{200}, own: true},
	"addWebhookSecret":    {body: text(`{}`), status: []int{201}, own: true},
	"removeWebhookSecret": {status: []int{204}},
	"testWebhook":         {status: []int{200}},
	"listWebhookAttempts": {status: []int{200}},
	"startWebhookReplay":  {body: text(`{"from":1}`), status: []int{202}},
	"getWebhookReplay":    {status: []int{200}},
	"cancelWebhookReplay": {status: []int{204}},
	"deleteWebhook":       {status: []int{204}},
	"eraseSubject":        {body: text(`{"reason":"%s","approval":true,"id":"01900000-0000-7000-8000-000000000001"}`), status: []int{202}, own: true},
	"exportSubject":       {status: []int{200}},
	"listErasures":        {status: []int{200}, own: true},
	"getErasure":          {status: []int{200}, own: true},
	"approveErasure":      {status: []int{403}},
	"cancelErasure":       {status: []int{202}, own: true},
	"putRetention":        {body: text(`{"maxAge":3153600000,"force":{"groups":[%q]}}`), status: []int{201}, own: true},
	"getRetention":        {status: []int{200}, own: true},
	"listRetention":       {status: []int{200}, own: true},
	"runRetention":        {body: text(`{}`), status: []int{202}, own: true},
	"deleteRetention":     {status: []int{204}},
	"getReports":          {status: []int{200}},
	"putReports":          {body: text(`{"enabled":true}`), status: []int{200}},
	"listCursors":         {status: []int{200}},
	"getLag":              {status: []int{200}},
	"leaveSubscription":   {status: []int{204}},
	"deleteSubscription":  {status: []int{204}},
	"createKey":           {body: text(`{"name":%q,"scopes":["events:read"]}`), status: []int{201}, own: true},
	"listKeys":            {status: []int{200}, own: true},
	"limitKey":            {body: text(`{"connections":900}`), status: []int{200}, own: true},
	"rotateKey":           {status: []int{201}, own: true},
	"revokeKey":           {status: []int{204}},
	"whoami":              {status: []int{200}, own: true},
	"getSignIn":           {status: []int{200}},
	"deleteProjection":    {status: []int{204}},
	"deleteAggregate":     {status: []int{204}},

	"createTenant":     {body: text(`{"name":"third-of-%s"}`), status: []int{201}},
	"listTenants":      {status: []int{200}},
	"listMembers":      {status: []int{200}},
	"listEgresses":     {status: []int{200}},
	"getAllLag":        {status: []int{200}},
	"listAllDocuments": {status: []int{200}, own: true}, // these two are of the shared projection everyones
	"getTotals":        {query: "?per=key", status: []int{200}},
	"getTenant":        {status: []int{200}, own: true},
	"changeTenant":     {body: text(`{"state":"active"}`), status: []int{200}, own: true},
	"putPlan":          {body: text(`{"limits":{"requests":{"perSecond":100000}},"quotas":{"webhooks":100}}`), status: []int{201}},
	"getPlan":          {status: []int{200}},
	"listPlans":        {status: []int{200}},
	"putTenantLimits":  {body: text(`{"quotas":{"keys":900}}`), status: []int{200}},
	"getTenantLimits":  {status: []int{200}},
	"getLimits":        {status: []int{200}},
	"getUsage":         {status: []int{200}},
	"exportUsage":      {status: []int{200}},
	"deletePlan":       {status: []int{204}},

	// The log may be sealed already, or not yet.
	"getCheckpoint":       {status: []int{200, 404}},
	"getInclusionProof":   {query: "?position=1&size=1", status: []int{200, 400}},
	"getConsistencyProof": {query: "?from=1&to=1", status: []int{200, 400}},
	"getLeaves":           {query: "?block=0", status: []int{200}},
	"listSigningKeys":     {status: []int{200}},
	"rotateSigningKeys":   {status: []int{201}},

	"createTenantKey": {body: text(`{"name":%q,"scopes":["events:read"]}`), status: []int{201}, own: true},
	"listTenantKeys":  {status: []int{200}, own: true},
	"limitTenantKey":  {body: text(`{"connections":900}`), status: []int{200}, own: true},
	"rotateTenantKey": {status: []int{201}, own: true},
	"revokeTenantKey": {status: []int{204}},
	"redactEvent":     {body: text(`{"reason":"by %s"}`), status: []int{409}}, // it can be read
	"deleteTenant":    {query: "?confirm=%s", status: []int{202}, own: true},

	"livez":      {status: []int{200}},
	"readyz":     {status: []int{200}},
	"metrics":    {status: []int{200}},
	"contract":   {status: []int{200}},
	"docs":       {status: []int{200}},
	"docsErrors": {status: []int{200}},

	"asyncContract": {status: []int{200}},
}

// sequence is an order in which each operation finds what it needs.
var sequence = []string{
	"appendToStream", "append", "importEvents", "publish", "readStream", "readAll", "readCategory", "readByQuery", "readEvent", "readLatest", "exportEvents", "listStreams", "getStreamMetadata",
	"putAggregate", "getAggregate", "listAggregates", "previewAggregate", "getState", "sendCommand", "sendCommands", "takeSnapshot", "listSnapshots", "getLatestSnapshot",
	"createProjection", "putProjection", "getProjection", "listProjections", "listProjectionVersions", "previewProjection", "planProjections", "getProjectionState", "catchUpProjection", "listDocuments", "getDocument", "snapDocument",
	"retryProjection", "skipEvent", "listSkippedEvents", "withdrawSkip", "listParkedDocuments", "replayParkedDocuments", "replayParkedDocument", "discardParkedDocument",
	"startRebuild", "getRebuild", "listRebuilds", "watchRebuild", "listRebuildTenants", "exportDifference", "cancelRebuild", "approveRebuild", "pauseRebuild", "resumeRebuild",
	"rollbackRebuild", "resetProjection",
	"followAll", "followStream", "followCategory", "createTicket", "gateway", "asyncContract",
	"putSubscription", "getSubscription", "listSubscriptions", "joinSubscription", "heartbeatSubscription", "listSubscriptionMembers",
	"peekSubscription", "receive", "extendEvents", "nackEvents", "ackEvents", "ackEvent", "listDeadLetters", "replayDeadLetter", "replayDeadLetters",
	"discardDeadLetter", "discardDeadLetters", "pauseSubscription", "resumeSubscription", "seekSubscription", "listCursors", "getLag",
	"leaveSubscription", "deleteSubscription",
	"putWebhook", "getWebhook", "listWebhooks", "pauseWebhook", "addWebhookSecret", "testWebhook", "listWebhookAttempts",
	"startWebhookReplay", "getWebhookReplay", "cancelWebhookReplay", "removeWebhookSecret", "resumeWebhook",
	"eraseSubject", "exportSubject", "listErasures", "getErasure", "approveErasure", "cancelErasure",
	"putRetention", "getRetention", "listRetention", "runRetention", "getReports", "putReports",
	"putUpcaster", "getUpcaster", "listUpcasters", "previewUpcaster", "deleteUpcaster",
	"putSchema", "putSchemaRule", "getSchema", "getSchemaVersion", "listSchemas", "eventContract", "checkSchema", "deleteSchema",
	"whoami", "getSignIn", "createKey", "listKeys", "limitKey", "rotateKey", "revokeKey", "createTenantKey", "listTenantKeys", "limitTenantKey", "rotateTenantKey", "revokeTenantKey", "redactEvent",
	"putPlan", "getPlan", "listPlans", "putTenantLimits", "getTenantLimits", "getLimits", "getUsage", "exportUsage", "deletePlan",
	"getCheckpoint", "getInclusionProof", "getConsistencyProof", "getLeaves", "rotateSigningKeys", "listSigningKeys",
	"createTenant", "listAllDocuments", "getTotals", "getAllLag", "listTenants", "listMembers", "listEgresses", "getTenant", "changeTenant",
	"livez", "readyz", "metrics", "contract", "docs", "docsErrors",
	"deleteWebhook", "deleteRetention", "deleteProjection", "deleteAggregate", "deleteTenant",
}

// TestEveryEndpointIsCovered fails where the contract has an operation that the tests of isolation leave out.
func TestEveryEndpointIsCovered(t *testing.T) {
	t.Parallel()
	want := slices.Sorted(maps.Keys(endpoints(t)))
	if got := slices.Sorted(maps.Keys(tries)); !slices.Equal(got, want) {
		t.Errorf("tries has the operations\n%v\nthe contract\n%v", got, want)
	}
	if got := slices.Sorted(slices.Values(sequence)); !slices.Equal(got, want) {
		t.Errorf("sequence has the operations\n%v\nthe contract\n%v", got, want)
	}
}

// call makes an operation's request with a key. The ids in the path belong to whose.
func (s *side) call(t *testing.T, e endpoint, try try, key string, whose *side) answer {
	t.Helper()
	u := s.user
	u.key = key
	if strings.HasPrefix(e.path, "/v1/subscribe/") {
		return u.untilCaughtUp(t, whose.path(e.path))
	}
	query := try.query
	if strings.Contains(query, "%s") {
		query = fmt.Sprintf(query, whose.mark)
	}
	var body any
	if try.body != nil {
		body = []byte(try.body(s))
	}
	header := []string{"Accept", "*/*"}
	if try.accept != "" {
		header = []string{"Accept", try.accept}
	}
	if e.path == "/v1/import" {
		header = append(header, "Content-Type", "application/x-ndjson")
	}
	a, err := u.call(t.Context(), 0, e.method, whose.path(e.path)+query, body, header...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// untilCaughtUp follows a log up to its head. The answer is everything received until then.
func (u user) untilCaughtUp(t *testing.T, path string) answer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address, err := u.site.address(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(ctx, "GET", "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if u.key != "" {
		request.Header.Set("Authorization", "Bearer "+u.key)
	}
	response, err := u.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	a := answer{status: response.StatusCode, header: response.Header}
	for lines := bufio.NewReader(response.Body); ; {
		line, err := lines.ReadBytes('\n')
		a.body = append(a.body, line...)
		switch {
		case errors.Is(err, io.EOF), bytes.Contains(line, []byte(`"caughtUp"`)):
			return a
		case err != nil:
			t.Fatalf("GET %s: %v", path, err)
		}
	}
}

// view returns everything that a side can read of its data, while nothing changes it.
func (s *side) view(t *testing.T, all map[string]endpoint) string {
	t.Helper()
	var seen strings.Builder
	for _, operation := range sequence {
		e := all[operation]
		if e.method != "GET" || len(e.scopes) == 0 || e.forOperator() || strings.Contains(e.path, "{rebuildId}") && s.rebuild == "" {
			continue
		}
		if slices.Contains([]string{"getUsage", "getCheckpoint", "getLeaves", "listSigningKeys"}, operation) {
			continue // they change when the service saves what the tenant has used, or seals its log, or when the operator rotates
		}
		try := tries[operation]
		try.query = ""
		a := s.call(t, e, try, s.user.key, s)
		fmt.Fprintf(&seen, "%s: %d %s\n", operation, a.status, inPassing.ReplaceAll(a.body, nil))
	}
	return seen.String()
}

// inPassing matches what differs between two answers although nothing has changed: the id of a problem, the lag, the
// times when a member last sent a sign of life, when retention last ran by itself, and when a key was last used.
var inPassing = regexp.MustCompile(`,?("requestId":"[^"]*"|"seconds":[0-9.e+-]+|"(aliveAt|askedAt|lastRunAt|lastUsedAt)":"[^"]*")`)

// changed are the lines in which two views differ.
func changed(before, after string) string {
	was, is := strings.Split(before, "\n"), strings.Split(after, "\n")
	only := func(in, other []string, sign string) (lines string) {
		for _, line := range in {
			if !slices.Contains(other, line) {
				lines += "\n" + sign + " " + line
			}
		}
		return lines
	}
	return only(was, is, "-") + only(is, was, "+")
}

// newSides makes two tenants.
func newSides(t *testing.T, operator user, marks ...string) []*side {
	t.Helper()
	var sides []*side
	for _, mark := range marks {
		id, u := newTenant(t, operator, mark)
		u.must(t, 201, nil, "PUT", "/v1/subscriptions/"+mark, map[string]any{"source": map[string]any{"categories": []string{"none"}}}) // a policy forces its removal
		sides = append(sides, &side{user: u, mark: mark, id: id})
	}
	return sides
}

// Two tenants have the same names and ids for everything. What one does through any endpoint is invisible to the
// other and does not change the other's data. With the other's ids it finds nothing.
func TestTenantsAreIsolatedInEveryEndpoint(t *testing.T) {
	t.Parallel()
	c := configuration(pgtest.Database(t))
	c.Admin.Listen = "none" // so that all operations are at one address
	c.Usage = false         // it saves when it likes, which shows in everybody's cursors
	provider, stranger := oidctest.Start(t), oidctest.Start(t)
	everything := make([]string, len(auth.TenantScopes))
	for i, scope := range auth.TenantScopes {
		everything[i] = string(scope)
	}
	c.Issuers = map[string]config.Issuer{"company": {
		Issuer: provider.URL, Audience: []string{"manifold"}, TenantClaim: "tenant", Grants: []config.ClaimScopes{{Scopes: everything}},
	}}
	operator := newUser(t, inside(t, c), operatorKey)
	all := endpoints(t)
	shareProjection(t, operator)
	sides := newSides(t, operator, "acmemark", "umbrellamark")
	seen := make(map[*side]string)                                             // each side's latest view, until it writes something
	sides[1].user.key = provider.Token(oidctest.Claims{"tenant": sides[1].id}) // the other one has a key
	for _, s := range sides {
		s.refused = map[string]string{
			"an expired token":       provider.Token(oidctest.Claims{"tenant": s.id, "exp": time.Now().Add(-time.Hour).Unix()}),
			"another issuer's token": stranger.Token(oidctest.Claims{"tenant": s.id}),
		}
	}
	reads := func(n int) bool { return n < len(sequence) && all[sequence[n]].method == "GET" }
	var since []string // operations since the views were compared
	for n, operation := range sequence {
		e, try := all[operation], tries[operation]
		if operation == "deleteTenant" {
			continue // see TestDeletedTenant
		}
		since = append(since, operation)
		for i, s := range sides {
			other := sides[1-i]
			key := s.user.key
			if e.forOperator() {
				key = operatorKey
			}
			before, unchanged := seen[other]
			if !unchanged {
				before = other.settled(t, all)
			}
			s.keepMember(t, all)
			a := s.call(t, e, try, key, s)
			if !slices.Contains(try.status, a.status) {
				t.Fatalf("%s for %s: %s", operation, s.mark, a)
			}
			s.keep(t, operation, a)
			said := fmt.Sprint(a.header) + string(a.body)
			if own := slices.ContainsFunc(s.secrets(), func(secret string) bool { return strings.Contains(said, secret) }); try.own && !own {
				t.Errorf("%s for %s returns none of the tenant's data: %s", operation, s.mark, a)
			}
			if !slices.Contains([]string{"listTenants", "listPlans", "exportUsage", "getAllLag", "listAllDocuments"}, operation) { // the operator's lists of all
				for _, secret := range other.secrets() {
					if strings.Contains(said, secret) {
						t.Errorf("%s tells %s of %s, which is %s's: %s", operation, s.mark, secret, other.mark, a)
					}
				}
			}
			if operation == "metrics" && strings.Contains(said, s.mark) {
				t.Errorf("the metrics name a tenant: %s", s.mark)
			}
			s.trespass(t, e, operation, try, other)
			if seen[other] = before; reads(n) && reads(n+1) {
				continue // compare after the last of several reads
			}
			after := other.settled(t, all)
			if after != before {
				t.Errorf("%s for %s, or with what is not its own, changes what %s sees:%s", strings.Join(since, ", "), s.mark, other.mark, changed(before, after))
			}
			if seen[other] = after; e.method != "GET" {
				delete(seen, s)
			}
		}
		if !reads(n) || !reads(n+1) {
			since = nil
		}
	}
}

// settled is the view once work on the side's projections has ended.
func (s *side) settled(t *testing.T, all map[string]endpoint) string {
	t.Helper()
	s.settle(t, all)
	return s.view(t, all)
}

// settle waits until work on the side's projections has ended.
func (s *side) settle(t *testing.T, all map[string]endpoint) {
	t.Helper()
	var list client.RebuildList
	for {
		a := s.call(t, all["listRebuilds"], try{}, s.user.key, s)
		if a.status != http.StatusOK {
			break // there is no projection
		}
		if err := a.decode(200, &list); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(list.Rebuilds, func(r client.Rebuild) bool { return r.EndedAt == nil }) {
			break
		}
		pauseBriefly(t.Context())
	}
	for _, path := range []string{"/v1/projections/everyones/state", "/v1/projections/orders/state"} {
		s.settleProjection(t, path)
	}
	s.keepMember(t, all)
}

// keepMember sends a heartbeat of the side's member, if it has one. Otherwise it would be removed on a slow machine.
func (s *side) keepMember(t *testing.T, all map[string]endpoint) {
	if s.member != "" {
		s.call(t, all["heartbeatSubscription"], try{}, s.user.key, s)
	}
}

// settleProjection waits until a projection has caught up with the side's log, if there is one.
func (s *side) settleProjection(t *testing.T, path string) {
	t.Helper()
	for {
		a, err := s.user.call(t.Context(), 0, "GET", path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if a.status != http.StatusOK {
			return
		}
		var head client.ProjectionState
		if err := a.decode(200, &head); err != nil {
			t.Fatal(err)
		}
		if head.State == "caught-up" && head.Checkpoint != nil && *head.Checkpoint == head.Head {
			return
		}
		pauseBriefly(t.Context())
	}
}

// keep notes the ids that the service chose.
func (s *side) keep(t *testing.T, operation string, a answer) {
	t.Helper()
	var made struct{ Id, MemberId string }
	switch operation {
	case "startRebuild", "createKey", "createTenantKey", "rotateKey", "rotateTenantKey", "joinSubscription", "addWebhookSecret":
		if err := json.Unmarshal(a.body, &made); err != nil {
			t.Fatal(err)
		}
	}
	switch operation {
	case "startRebuild":
		s.rebuild = made.Id
	case "createKey", "createTenantKey", "rotateKey", "rotateTenantKey":
		s.spareKey = made.Id
	case "joinSubscription":
		s.member = made.MemberId
	case "addWebhookSecret":
		s.secret = made.Id
	}
}

// trespass calls the operation with the other side's ids in the path, with a tenant's key where the operator's is
// required, and without a key.
func (s *side) trespass(t *testing.T, e endpoint, operation string, try try, other *side) {
	t.Helper()
	if len(e.scopes) == 0 {
		return
	}
	if a := s.call(t, e, try, "", s); a.status != http.StatusUnauthorized {
		t.Errorf("%s without a key: %s", operation, a)
	}
	if a := s.call(t, e, try, "mk_0190d3a4-0000-7def-8123-456789abcdef_nonsense", s); a.status != http.StatusUnauthorized {
		t.Errorf("%s with a key that is none: %s", operation, a)
	}
	for what, credential := range s.refused {
		if a := s.call(t, e, try, credential, s); a.status != http.StatusUnauthorized {
			t.Errorf("%s with %s: %s", operation, what, a)
		}
	}
	if e.forOperator() {
		if a := s.call(t, e, try, s.user.key, other); a.status != http.StatusForbidden {
			t.Errorf("%s of %s with a key of %s: %s", operation, other.mark, s.mark, a)
		}
	} else {
		for _, id := range []struct{ name, theirs string }{{"{rebuildId}", other.rebuild}, {"{keyId}", other.spareKey}, {"{memberId}", other.member}, {"{secretId}", other.secret}} {
			if !strings.Contains(e.path, id.name) || id.theirs == "" {
				continue
			}
			if a := s.call(t, e, try, s.user.key, other); a.status != http.StatusNotFound {
				t.Errorf("%s with an id of %s: %s", operation, other.mark, a)
			}
		}
	}
}
