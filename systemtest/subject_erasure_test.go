package systemtest

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

type object = map[string]any

// A person is erased although the process that has accepted that is killed at once. Afterwards the other process, which
// has read, folded and delivered the person's events, references none of the data, except in buffers of open
// connections: from clients, and those into which PostgreSQL sends rows. Neither the database's rows nor the logs have
// it.
func TestErasedPersonIsForgotten(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	// Go overwrites what it frees, so whatever is found is still referenced.
	settings := []string{"GODEBUG=clobberfree=1", "MANIFOLD_ADMIN_LISTEN=127.0.0.1:0"}
	killed, stays := serve(t, db, settings...), serve(t, db, settings...)
	_, u := newTenant(t, newUser(t, services{stays}, operatorKey), "acme")
	const person = "ada-1815"
	markers := make([]string, 20)
	u.must(t, 201, nil, "PUT", "/v1/schemas/Registered", object{"schema": object{"type": "object"}, "personal": []string{"/email"}})
	u.must(t, 200, nil, "PUT", "/v1/aggregates/customer", object{"on": object{"Registered": "{'email': event.data.email}", "Noted": "state"}})
	u.must(t, 201, nil, "PUT", "/v1/projections/customers", object{"on": object{"Registered": "{'email': event.data.email, 'plan': event.data.plan}"}})
	u.must(t, 201, nil, "PUT", "/v1/subscriptions/mail", object{"from": "start"})
	for i := range markers {
		random := make([]byte, 32) // longer than what Go keeps on stacks
		rand.Read(random)
		markers[i] = "marker-" + hex.EncodeToString(random)
		u.must(t, 201, nil, "POST", fmt.Sprintf("/v1/streams/customer-%d/events", i), []object{
			{"type": "Registered", "data": object{"email": markers[i], "plan": "gold"}, "tags": []string{"subject:" + person}},
		})
		u.must(t, 200, nil, "GET", fmt.Sprintf("/v1/streams/customer-%d/state", i), nil)
	}
	documents, err := u.documents(t.Context(), "customers", 100, int64(len(markers)))
	if err != nil || len(documents) != len(markers) {
		t.Fatalf("%d documents, %v", len(documents), err)
	}
	documents = nil
	u.must(t, 200, nil, "GET", "/v1/streams/$all", nil)
	u.must(t, 200, nil, "POST", "/v1/subscriptions/mail/receive", object{"batch": 1, "wait": 5})
	if copies, _ := copiesIn(t, stays, markers); copies == 0 {
		t.Fatal("the process has no copy before the erasure: the search finds nothing")
	}

	var erasure client.Erasure
	asking := newUser(t, services{killed}, u.key)
	asking.must(t, 202, &erasure, "POST", "/v1/subjects/"+person+"/erase", object{"reason": "asked for it"})
	killed.kill()
	for deadline := time.After(2 * patience); erasure.State != "done"; {
		select {
		case <-deadline:
			t.Fatalf("the erasure does not end: %+v", erasure)
		case <-time.After(time.Second): // it settles for a minute
		}
		u.must(t, 200, &erasure, "GET", "/v1/erasures/"+erasure.Id, nil)
	}
	killed.start()

	dump := everyRow(t, db)
	for name, text := range map[string]string{"the database": dump, "the killed process's log": killed.output(), "the other's log": stays.output()} {
		for _, secret := range append([]string{person}, markers...) {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s has %s: %s", name, secret, text[max(0, at-300):min(len(text), at+100)])
			}
		}
	}
	if n := strings.Count(dump, `plan"": ""gold`); n < 2*len(markers) {
		t.Errorf("%d rows have what is not personal", n)
	}
	u.http.CloseIdleConnections() // whose buffers have requests
	copies, received := len(markers), 0
	for deadline := time.Now().Add(time.Minute); copies > 0 && time.Now().Before(deadline); {
		for range 3 { // pools of buffers survive one collection
			collectGarbage(t, stays)
		}
		copies, received = copiesIn(t, stays, markers)
	}
	t.Logf("the process has %d copies, and %d in the buffers of connections", copies, received)
	if copies > 0 {
		t.Errorf("the process still has %d copies", copies)
	}
}

// collectGarbage makes a process collect its garbage, as a profile of the heap does.
func collectGarbage(t *testing.T, s *service) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.admin+"/debug/pprof/heap?gc=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+operatorKey)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("the profile is answered %d", response.StatusCode)
	}
}

// isReceived reports whether there is the beginning of a row in PostgreSQL's protocol: a D, the length of the rest, the
// number of columns, and the length of the first column.
func isReceived(memory []byte) bool {
	for i := 0; i+11 <= len(memory); i++ {
		row := memory[i:]
		if row[0] == 'D' && binary.BigEndian.Uint32(row[1:]) < 8192 && row[5] == 0 && row[6] > 0 && row[6] < 32 && binary.BigEndian.Uint32(row[7:]) < 8192 {
			return true
		}
	}
	return false
}

// copiesIn counts how often texts are in the memory of a process, and separately how often between rows as PostgreSQL
// sends them.
func copiesIn(t *testing.T, s *service, texts []string) (copies, received int) {
	t.Helper()
	pid := s.cmd.Process.Pid
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Skipf("this system does not show the memory of a process: %v", err)
	}
	defer maps.Close()
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Skipf("this system does not show the memory of a process: %v", err)
	}
	defer memory.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		var from, to int64
		var rights string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &rights); err != nil || !strings.HasPrefix(rights, "rw") {
			continue
		}
		region := make([]byte, to-from)
		n, _ := memory.ReadAt(region, from) // what cannot be read is not in use
		for _, text := range texts {
			for rest := region[:n]; ; {
				at := bytes.Index(rest, []byte(text))
				if at < 0 {
					break
				}
				around := rest[max(0, at-200):min(len(rest), at+len(text)+200)]
				if isReceived(around) {
					received++
				} else if copies++; copies <= 5 {
					t.Logf("in %s: %q", lines.Text(), around)
				}
				rest = rest[at+len(text):]
			}
		}
	}
	return copies, received
}

// everyRow returns all rows of all tables as text.
func everyRow(t *testing.T, db pgtest.DB) string {
	t.Helper()
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	var statements []string
	err := super.QueryRow(t.Context(), `
		select array_agg(format('select coalesce(string_agg(%L || t::text, chr(10)), '''') from %I.%I as t', table_name || ': ', table_schema, table_name))
		from information_schema.tables where table_schema like 'manifold%' and table_type = 'BASE TABLE'`).Scan(&statements)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, statement := range statements {
		var rows string
		if err := super.QueryRow(t.Context(), statement).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		all.WriteString(rows + "\n")
	}
	return all.String()
}
