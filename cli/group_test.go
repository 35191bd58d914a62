package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const groupAnswer = `{"name":"mail","source":{"categories":["order","invoice"]},"types":["Placed"],"query":{"items":[{"tags":["vip"]}]},"filter":"event.data.n > 1","from":"start","batchSize":100,"maxInFlight":1000,` +
	`"ackTimeout":30,"maxAttempts":5,"backoff":{"min":1,"max":300},"ordering":"stream","partitions":2,"paused":true,"createdAt":"2026-03-01T10:00:00Z","updatedAt":"2026-03-01T10:00:00Z","head":50,` +
	`"progress":[{"partition":0,"checkpoint":40,"readTo":50,"oldest":41,"inFlight":3,"retrying":1,"deadLetters":2,"memberId":"0190d3a4-2222-7def-8123-456789abcdef"},` +
	`{"partition":1,"checkpoint":45,"readTo":50,"inFlight":1,"retrying":0,"deadLetters":0}]}`

const memberAnswer = `{"memberId":"0190d3a4-2222-7def-8123-456789abcdef","label":"mailer-1","joinedAt":"2026-03-01T10:00:00Z","aliveAt":"2026-03-01T10:00:10Z","partitions":[0,7]}`

const totalsAnswer = `{"sum":["orders","price.net"],"by":"day","tenants":1,"pending":1,"keysDropped":1,"all":{"documents":2,"sums":{"orders":"12","price.net":"0.3"},"skipped":{"price.net":1}},` +
	`"totals":[{"tenant":"0190d3a4-0000-7def-8123-456789abcdef","tenantName":"acme","key":"2026-11-01","documents":2,"sums":{"orders":"12","price.net":"0.3"},"skipped":{"price.net":1},"build":1,"position":9,"computedAt":"2026-12-01T00:00:12Z"}]}`

const deliveryAnswer = `{"event":{"id":"0190d3a4-5b6c-7def-8123-456789abcde0","stream":"order-1","version":1,"position":9,"type":"Placed","data":{"n":7},"recordedAt":"2026-03-01T09:30:00.1Z"},"attempt":3,"ackDeadline":"2026-03-01T10:00:30Z","attempts":3,"maxAttempts":5,"group":"mail","cursor":8,"replays":2}`

const peekEvent = `{"event":{"id":"0190d3a4-5b6c-7def-8123-456789abcde0","stream":"order-1","version":1,"position":9,"type":"Placed","data":{"n":7},"recordedAt":"2026-03-01T09:30:00.1Z"},`

const peekAnswer = `200 {"next":[` + peekEvent + `"attempt":1,"partition":1}],"inFlight":[` + peekEvent + `"attempt":2,"ackDeadline":"2026-03-01T10:00:30Z"}],` +
	`"retrying":[` + peekEvent + `"attempt":3,"dueAt":"2026-03-01T10:00:30Z","reason":"no\n such address"}]}`

// Each command about groups sends what its flags say, and prints the answer.
func TestGroupCommands(t *testing.T) {
	t.Parallel()
	const event = "0190d3a4-5b6c-7def-8123-456789abcde0"
	const letter = `{"event":{"id":"` + event + `","stream":"order-1","version":1,"position":9,"type":"Placed","data":{"n":7},"recordedAt":"2026-03-01T09:30:00.1Z"},` +
		`"attempts":5,"replays":1,"reason":"no\n such address","firstParkedAt":"2026-03-01T10:05:00Z","parkedAt":"2026-03-01T10:05:00Z"}`
	const answers = `{"results":[{"id":"` + event + `","attempt":3,"outcome":"done"}]}`
	const ids = `{"ids":[{"id":"` + event + `","attempt":3}]`
	const path = "/v1/subscriptions/mail"
	received := "POST " + path + "/receive " + `{"batch":10}` + "\n"
	for _, c := range []struct {
		args     []string
		requests string            // lines of method, path and body
		answers  map[string]string // by method and path: status and body
		code     int
		want     []string
	}{
		{[]string{"group", "list"}, "GET /v1/subscriptions?pageSize=1000\n", map[string]string{"GET /v1/subscriptions": `200 {"subscriptions":[` + groupAnswer + `]}`}, 0,
			[]string{"DEAD LETTERS\n", "mail  order,invoice  stream    2           paused  10      4          1         2\n"}},
		{[]string{"group", "get", "mail"}, "GET " + path + "\nGET " + path + "/members\n", map[string]string{"GET " + path: "200 " + groupAnswer, "GET " + path + "/members": `200 {"members":[` + memberAnswer + `]}`}, 0,
			[]string{"mail: paused, of order,invoice from start, types Placed\n", `query:        {"items":[{"tags":["vip"]}]}`, "event.data.n > 1", "stream, 2 partitions", "within 30s", "5, 1s to 5m0s apart", "40 of 50, 10 positions behind", "see manifold group dead-letters mail",
				"0          40          50       41      3          1         2             0190d3a4-2222-7def-8123-456789abcdef mailer-1\n"}},
		{[]string{"group", "get", "mail", "--json"}, "GET " + path + "\n", map[string]string{"GET " + path: "200 " + groupAnswer}, 0, []string{`{"name":"mail","source":{`, `"filter":"event.data.n > 1"`}},
		{[]string{"group", "delete", "mail"}, "", nil, 1, []string{"--yes"}},
		{[]string{"group", "delete", "mail", "--yes"}, "DELETE " + path + "\n", map[string]string{"DELETE " + path: "204 "}, 0, nil},
		{[]string{"group", "pause", "mail"}, "POST " + path + "/pause\n", map[string]string{"POST " + path + "/pause": "200 " + groupAnswer}, 0, []string{"mail: is paused; 10 positions behind, 4 in flight\n"}},
		{[]string{"group", "resume", "mail"}, "POST " + path + "/resume\n", map[string]string{"POST " + path + "/resume": "200 " + groupAnswer}, 0, []string{"mail: delivers again"}},
		{[]string{"group", "seek", "mail", "--position", "41"}, "POST " + path + `/seek {"position":41}` + "\n", map[string]string{"POST " + path + "/seek": "200 " + groupAnswer}, 0, []string{"mail: continues at position 41; the head is at 50\n"}},
		{[]string{"group", "seek", "mail", "--time", "2026-03-01T09:00:00Z"}, "POST " + path + `/seek {"timestamp":"2026-03-01T09:00:00Z"}` + "\n", map[string]string{"POST " + path + "/seek": "200 " + groupAnswer}, 0, nil},
		{[]string{"group", "seek", "mail", "--time", "yesterday"}, "", nil, 1, []string{`"yesterday" is not a time`}},
		{[]string{"group", "seek", "mail"}, "", nil, 1, []string{"give --position or --time; see manifold group seek --help"}},
		{[]string{"group", "receive", "mail"}, received + "POST " + path + "/nack " + ids + `,"action":"retry","delay":0,"reason":"given back by manifold group receive"}` + "\n",
			map[string]string{"POST " + path + "/receive": `200 {"deliveries":[` + deliveryAnswer + `]}`, "POST " + path + "/nack": "200 " + answers}, 0,
			[]string{"9  2026-", "  order-1  Placed  (attempt 3, replayed 2 times)  {\"n\":7}\n"}},
		// An unfinished search does not mean that no event is due.
		{[]string{"group", "receive", "mail", "--keep"}, received + received, map[string]string{"POST " + path + "/receive": `200 {"deliveries":[],"searching":true}` + "\n" + `200 {"deliveries":[` + deliveryAnswer + `]}`}, 0,
			[]string{"still searching the log", "  order-1  Placed  (attempt 3, until 2026-"}},
		{[]string{"group", "peek", "mail"}, "GET " + path + "/peek?limit=10\nGET " + path + "/peek?limit=10\n", map[string]string{"GET " + path + "/peek": `200 {"next":[],"inFlight":[],"retrying":[],"searching":true}` + "\n" + peekAnswer}, 0,
			[]string{"still searching the log", "next       9  2026-", "(partition 1, attempt 1)  {\"n\":7}\n", "in flight  9  2026-", "(attempt 2, until 2026-", "retrying   9  2026-", "(attempt 3, due at 2026-", ": no such address)"}},
		{[]string{"group", "peek", "mail", "--partition", "0", "--limit", "3", "--json"}, "GET " + path + "/peek?limit=3&partition=0\n", map[string]string{"GET " + path + "/peek": `200 {"next":[],"inFlight":[],"retrying":[]}`}, 0, []string{`{"next":[],"inFlight":[],"retrying":[]}` + "\n"}},
		{[]string{"group", "peek", "mail"}, "GET " + path + "/peek?limit=10\n", map[string]string{"GET " + path + "/peek": `200 {"next":[],"inFlight":[],"retrying":[]}`}, 0, []string{"nothing is due, in flight or waiting"}},
		{[]string{"group", "peek", "mail", "--limit", "0"}, "", nil, 1, []string{"at least 1"}},
		{[]string{"group", "receive", "mail", "--ack", "--json"}, received + "POST " + path + "/ack " + ids + "}\n",
			map[string]string{"POST " + path + "/receive": `200 {"deliveries":[` + deliveryAnswer + `]}`, "POST " + path + "/ack": "200 " + strings.Replace(answers, "done", "stale", 1)}, 1,
			[]string{deliveryAnswer + "\n", "1 of 1 events were not answered"}},
		{[]string{"group", "receive", "mail", "--nack", "park", "--reason", "why"}, received + "POST " + path + "/nack " + ids + `,"action":"park","reason":"why"}` + "\n",
			map[string]string{"POST " + path + "/receive": `200 {"deliveries":[` + deliveryAnswer + `]}`, "POST " + path + "/nack": "200 " + answers}, 0, nil},
		{[]string{"group", "receive", "mail", "--keep"}, received, map[string]string{"POST " + path + "/receive": `200 {"deliveries":[` + deliveryAnswer + `]}`}, 0, []string{"(attempt 3, until 2026-"}},
		// Mistakes are reported before anything is delivered.
		{[]string{"group", "receive", "mail", "--delay", "1s"}, "", nil, 1, []string{"go with --nack"}},
		{[]string{"group", "receive", "mail", "--nack", "drop"}, "", nil, 1, []string{"retry, park or skip"}},
		{[]string{"group", "receive", "mail", "--nack", "park", "--delay", "1s"}, "", nil, 1, []string{"goes with --nack retry"}},
		{[]string{"group", "receive", "mail", "--nack", "retry", "--delay", "-1s"}, "", nil, 1, []string{"up to 24h"}},
		{[]string{"group", "receive", "mail", "--nack", "park", "--reason", strings.Repeat("a", 1001)}, "", nil, 1, []string{"1001 bytes"}},
		{[]string{"group", "receive", "mail", "--batch", "0"}, "", nil, 1, []string{"at least 1"}},
		{[]string{"group", "receive", "mail"}, received + "GET " + path + "\n", map[string]string{"POST " + path + "/receive": `200 {"deliveries":[]}`, "GET " + path: "200 " + groupAnswer}, 0, []string{"nothing is due: the group is paused"}},
		{[]string{"group", "receive", "mail", "--join", "--wait", "2s", "--batch", "1"},
			"POST " + path + `/members {"label":"manifold group receive"}` + "\nPOST " + path + `/receive {"batch":1,"wait":2,"memberId":"0190d3a4-2222-7def-8123-456789abcdef"}` + "\nGET " + path + "\nDELETE " + path + "/members/0190d3a4-2222-7def-8123-456789abcdef\n",
			map[string]string{"POST " + path + "/members": "201 " + memberAnswer, "POST " + path + "/receive": `200 {"deliveries":[]}`, "GET " + path: "200 " + strings.Replace(groupAnswer, `"paused":true`, `"paused":false`, 1), "DELETE " + path + "/members/0190d3a4-2222-7def-8123-456789abcdef": "204 "}, 0, []string{"nothing is due in the partitions that this member holds, 10 positions behind; manifold group get mail shows"}},
		{[]string{"group", "dead-letters", "mail"}, "GET " + path + "/dead-letters?pageSize=1000\n", map[string]string{"GET " + path + "/dead-letters": `200 {"deadLetters":[` + letter + `]}`}, 0,
			[]string{"9         " + event + "  Placed  order-1  5         1        2026-", "no such address\n"}},
		{[]string{"group", "replay", "mail"}, "", nil, 1, []string{"or --all"}},
		{[]string{"group", "replay", "mail", event, "--all"}, "", nil, 1, []string{"or --all"}},
		{[]string{"group", "replay", "mail", event}, "POST " + path + "/dead-letters/" + event + "/replay\n", map[string]string{"POST " + path + "/dead-letters/" + event + "/replay": `202 {"replayed":1}`}, 0, []string{"mail: 1 dead letter will be delivered again\n"}},
		{[]string{"group", "replay", "mail", "--all"}, "POST " + path + "/dead-letters/replay\n", map[string]string{"POST " + path + "/dead-letters/replay": `202 {"replayed":4}`}, 0, []string{"mail: 4 dead letters"}},
		{[]string{"group", "discard", "mail", "--all"}, "", nil, 1, []string{"--yes"}},
		{[]string{"group", "discard", "mail", "--all", "--yes"}, "DELETE " + path + "/dead-letters\n", map[string]string{"DELETE " + path + "/dead-letters": `200 {"discarded":4}`}, 0, []string{"mail: discarded 4 dead letters\n"}},
		{[]string{"group", "discard", "mail", event, "--yes"}, "DELETE " + path + "/dead-letters/" + event + "\n", map[string]string{"DELETE " + path + "/dead-letters/" + event: "204 "}, 0, []string{"mail: discarded 1 dead letter\n"}},
		{[]string{"group", "members", "mail"}, "GET " + path + "/members\n", map[string]string{"GET " + path + "/members": `200 {"members":[` + memberAnswer + `]}`}, 0, []string{"0190d3a4-2222-7def-8123-456789abcdef  mailer-1  2026-", "  0,7\n"}},
		{[]string{"lag"}, "GET /v1/lag\n", map[string]string{"GET /v1/lag": `200 {"head":50,"consumers":[{"kind":"group","name":"mail","partition":1,"position":40,"events":10,"seconds":1.25,"inFlight":3,"retrying":1,"deadLetters":2},` +
			`{"kind":"projection","name":"orders","position":49,"events":1,"seconds":0.5,"faulted":true}]}`}, 0,
			[]string{"group       mail    1          40        10                1.2             3          1         2             \n", "projection  orders             49        1                 0.5", "stopped\n"}},
		{[]string{"lag", "--all-tenants", "--behind", "1m"}, "GET /v1/admin/lag?behind=60\n", map[string]string{"GET /v1/admin/lag": `200 {"tenants":[` +
			`{"tenant":"0190d3a4-0000-7def-8123-456789abcdef","name":"acme","head":50,"consumers":[{"kind":"projection","name":"orders","position":49,"events":1,"seconds":90,"faulted":true}]},` +
			`{"tenant":"0190d3a4-1111-7def-8123-456789abcdef","name":"umbrella","head":0,"consumers":[],"error":"the database does not answer"}]}`}, 0,
			[]string{"acme      projection  orders             49        1                 90.0", "stopped\n", "umbrella", "the database does not answer\n"}},
		{[]string{"egress", "list"}, "GET /v1/admin/egresses\n", map[string]string{"GET /v1/admin/egresses": `200 {"egresses":[{"name":"orders","kind":"nats","addresses":["nats-1:4222"],"topic":"m.{key}","processes":[` +
			`{"id":"0190d3a4-2222-7def-8123-456789abcdef","name":"one:8080","up":true,"failing":2,"error":"no such stream","errorSince":"2026-03-01T09:00:00Z"},` +
			`{"id":"0190d3a4-2222-7def-8123-456789abcde0","name":"two:8080","up":false,"failing":0,"error":"the broker does\n not answer","errorSince":"2026-03-01T10:00:00Z","waitingSince":"2026-03-01T09:59:58Z"}]},` +
			`{"name":"done","removed":true,"processes":[{"id":"0190d3a4-2222-7def-8123-456789abcdef","name":"one:8080","up":true,"failing":0}]},` +
			`{"name":"past","processes":[]},{"name":"slow","processes":[{"id":"0190d3a4-2222-7def-8123-456789abcdef","name":"one:8080","up":true,"failing":1,"error":"no such stream","errorTenant":"0190d3a4-0000-7def-8123-456789abcdef"}]}]}`}, 0,
			[]string{"orders  nats nats-1:4222  m.{key}  down           2026-03-01T09:59:58Z  2          the broker does not answer\n", "past    -                 -        no process     -                     0          \n", "done    -                 -        removed        -                     1          \n", "failing for 1  -                     1          tenant 0190d3a4-0000-7def-8123-456789abcdef: no such stream\n"}},
		{[]string{"totals", "sales", "--per", "both", "--key-prefix", "2026-11"}, "GET /v1/admin/totals/sales?per=both&keyPrefix=2026-11&pageSize=1000\n", map[string]string{"GET /v1/admin/totals/sales": `200 ` + totalsAnswer}, 0,
			[]string{"TENANT  KEY         DOCUMENTS  ORDERS  PRICE.NET  NOT NUMBERS  POSITION  COMPUTED\n", "acme    2026-11-01  2          12      0.3        1            9         2026-", "all                 2          12      0.3        1                      \n",
				"tenants with newer documents, whose totals follow: 1\ntenants with too many or too long keys, whose documents count without a key: 1\n"}},
		{[]string{"totals", "sales", "--csv"}, "GET /v1/admin/totals/sales?pageSize=1000\n", map[string]string{"GET /v1/admin/totals/sales": `200 ` + totalsAnswer}, 0,
			[]string{"tenant,name,key,documents,orders,price.net,notNumbers,position,computedAt\n0190d3a4-0000-7def-8123-456789abcdef,acme,2026-11-01,2,12,0.3,1,9,2026-12-01T00:00:12Z\n"}},
		{[]string{"totals", "sales", "--per", "key", "--json"}, "GET /v1/admin/totals/sales?per=key&pageSize=1000\n", map[string]string{"GET /v1/admin/totals/sales": `200 ` + totalsAnswer}, 0, []string{`"sums":{"orders":"12","price.net":"0.3"}`}},
		{[]string{"lag", "--behind", "1m"}, "", nil, 1, []string{"--behind needs --all-tenants"}},
		{[]string{"lag", "--all-tenants", "--tenant", "acme"}, "", nil, 1, []string{"--all-tenants and --tenant cannot be combined"}},
	} {
		var got strings.Builder
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			body, _ := io.ReadAll(request.Body)
			line := strings.TrimSpace(request.Method + " " + request.URL.RequestURI() + " " + string(body))
			got.WriteString(line + "\n")
			// Several answers to the same request follow each other.
			answer, more, several := strings.Cut(c.answers[request.Method+" "+request.URL.Path], "\n")
			if several {
				c.answers[request.Method+" "+request.URL.Path] = more
			}
			if len(answer) < 4 {
				t.Errorf("%v sends %s", c.args, line)
				answer = "404 {}"
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(map[string]int{"200": 200, "201": 201, "202": 202, "204": 204, "404": 404}[answer[:3]])
			_, _ = io.WriteString(w, answer[4:])
		}))
		t.Cleanup(service.Close)
		o := run(t, []string{"MANIFOLD_URL=" + service.URL, "MANIFOLD_KEY=k"}, nil, c.args...)
		if o.code != c.code || got.String() != c.requests {
			t.Errorf("%v sends\n%sand ends with %+v; it should send\n%s", c.args, &got, o, c.requests)
		}
		for _, want := range c.want {
			if !strings.Contains(o.out+o.err, want) {
				t.Errorf("%v says\n%s%s\nit should say %q", c.args, o.out, o.err, want)
			}
		}
	}
}

// A put changes only the given fields, or takes a file as the whole definition, and prints what has changed.
func TestGroupPut(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "mail.yaml")
	if err := os.WriteFile(file, []byte("name: mail\nsource: {categories: [order]}\nbackoff: {min: 2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const definition = `"batchSize":100,"filter":"event.data.n > 1","from":"start","maxAttempts":5,"maxInFlight":1000,"ordering":"stream","partitions":2,"query":{"items":[{"tags":["vip"]}]},"source":{"categories":["order","invoice"]},"types":["Placed"]}`
	for _, c := range []struct {
		args   []string
		there  bool
		sent   string
		answer string
		code   int
		want   string
	}{
		{nil, true, `{"ackTimeout":30,"backoff":{"min":1,"max":300},` + definition, groupAnswer, 0, "mail: nothing to change\n"},
		{[]string{"--ack-timeout", "1m", "--backoff-max", "10m"}, true, `{"ackTimeout":60,"backoff":{"max":600,"min":1},` + definition, strings.NewReplacer(`"ackTimeout":30`, `"ackTimeout":60`, `"max":300`, `"max":600`).Replace(groupAnswer), 0,
			"mail: changed\n    ackTimeout\n      - 30\n      + 60\n    backoff\n      - {\"min\":1,\"max\":300}\n      + {\"min\":1,\"max\":600}\n"},
		{[]string{"--stream", "order-7", "--types", "Placed,Sent", "--partitions", "0"}, false, `{"partitions":0,"source":{"stream":"order-7"},"types":["Placed","Sent"]}`, groupAnswer, 0, "mail: created\n"},
		{[]string{"-f", file, "--backoff-max", "1m", "--filter", ""}, true, `{"backoff":{"max":60,"min":2},"filter":"","source":{"categories":["order"]}}`, groupAnswer, 0, "mail: nothing to change\n"},
		{[]string{"--types", ""}, true, `{"ackTimeout":30,"backoff":{"min":1,"max":300},` + strings.Replace(definition, `,"types":["Placed"]`, "", 1), groupAnswer, 0, "mail: nothing to change\n"},
		{[]string{"--query", `{"items": [{"types": ["A"]}]}`}, false, `{"query":{"items":[{"types":["A"]}]}}`, groupAnswer, 0, "mail: created\n"},
		{[]string{"--query", ""}, true, `{"ackTimeout":30,"backoff":{"min":1,"max":300},` + strings.Replace(definition, `"query":{"items":[{"tags":["vip"]}]},`, "", 1), groupAnswer, 0, "mail: nothing to change\n"},
		{[]string{"--query", "vip"}, true, "", "", 1, "it is not JSON"},
		{[]string{"-f", "-"}, true, "", "", 1, `it defines the group "post", not mail`},
		{[]string{"--all", "--category", "order"}, true, "", "", 1, "--all and --category cannot be combined: give one of them"},
	} {
		sent := ""
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch {
			case request.Method == "PUT":
				body, _ := io.ReadAll(request.Body)
				sent = strings.ReplaceAll(string(body), `\u003e`, ">")
				if !c.there {
					w.WriteHeader(http.StatusCreated)
				}
				_, _ = io.WriteString(w, c.answer)
			case c.there:
				_, _ = io.WriteString(w, groupAnswer)
			default:
				w.WriteHeader(http.StatusNotFound)
				_, _ = io.WriteString(w, `{"type":"t","title":"t","status":404,"code":"not-found"}`)
			}
		}))
		t.Cleanup(service.Close)
		o := run(t, []string{"MANIFOLD_URL=" + service.URL, "MANIFOLD_KEY=k"}, strings.NewReader("name: post\n"), append([]string{"group", "put", "mail"}, c.args...)...)
		if o.code != c.code || sent != c.sent || !strings.Contains(o.out+o.err, c.want) {
			t.Errorf("%v sends\n%s\nand says %+v; it should send\n%s\nand say %s", c.args, sent, o, c.sent, c.want)
		}
	}
}

// An event goes from a group's consumer to the dead letters and back, and is acknowledged at last.
func TestGroupOfAService(t *testing.T) {
	t.Parallel()
	environ := sharedTenant(t, "acme")
	for _, stream := range []string{"order-1", "order-2", "invoice-1"} {
		r, err := clientOf(t, environ).AppendToStreamWithBodyWithResponse(t.Context(), stream, nil, "application/json", strings.NewReader(`[{"type":"Placed","data":{"n":1}}]`))
		if err != nil || r.JSON201 == nil {
			t.Fatal(err, string(r.Body))
		}
	}
	has := func(want string, args ...string) string {
		t.Helper()
		out := must(t, environ, args...)
		if !strings.Contains(out, want) {
			t.Errorf("%v says\n%s\nit should say %q", args, out, want)
		}
		return out
	}
	has("mail: created", "group", "put", "mail", "--category", "order", "--ordering", "stream")
	has("mail: nothing to change", "group", "put", "mail", "--category", "order")
	has("mail: changed\n    maxAttempts\n      - 5\n      + 2\n", "group", "put", "mail", "--max-attempts", "2")
	has("0 of 3, 3 positions behind", "group", "get", "mail")
	for range 3 { // there are two attempts
		has("order-1  Placed  (attempt 1)", "group", "peek", "mail")
	}
	has("order-1  Placed  (attempt 1)", "group", "receive", "mail", "--batch", "1")
	id := ""
	if fields := strings.Fields(has("order-1", "group", "receive", "mail", "--batch", "1", "--nack", "park", "--reason", "no such address", "--json")); len(fields) > 0 {
		_, rest, _ := strings.Cut(fields[0], `"id":"`)
		id, _, _ = strings.Cut(rest, `"`)
	}
	has("no such address", "group", "dead-letters", "mail")
	has("mail: 1 dead letter will be delivered again", "group", "replay", "mail", id)
	if out := has(", replayed 1 time)", "group", "receive", "mail", "--wait", "5s", "--ack"); strings.Count(out, "\n") != 2 {
		t.Errorf("there were received\n%s", out)
	}
	has("dead letters: 0", "group", "get", "mail")
	has("mail: is paused", "group", "pause", "mail")
	has("paused", "group", "list")
	has("mail: delivers again", "group", "resume", "mail")
	has("mail: continues at position 3; the head is at 3", "group", "seek", "mail", "--position", "3")
	has("group", "lag")
	must(t, environ, "group", "delete", "mail", "--yes")
	if o := run(t, environ, nil, "group", "get", "mail"); o.code != 1 || !strings.Contains(o.err, "not-found") {
		t.Errorf("behind its end there is %+v", o)
	}
	// Of a group with partitions, members receive.
	has("created", "group", "put", "state", "--partitions", "2")
	if o := run(t, environ, nil, "group", "receive", "state"); o.code != 1 {
		t.Errorf("who is no member receives %+v", o)
	}
	has("next ", "group", "peek", "state")
	if out := must(t, environ, "group", "receive", "state", "--join", "--wait", "10s", "--ack"); !strings.Contains(out, "Placed") {
		t.Errorf("a member receives %q", out)
	}
	if out := must(t, environ, "group", "members", "state"); out != "" {
		t.Errorf("there are still members:\n%s", out)
	}
}
