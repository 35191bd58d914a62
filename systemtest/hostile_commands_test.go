package systemtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// boundaries sends commands that fold hundreds of events of other streams, over HTTP, as batches, and over the gateway
// without reading the answers. Some of them append to the boundary, so that the others must decide again.
func (x *attacker) boundaries(ctx context.Context) {
	event := `{"type":"Counted","data":{},"tags":["b:0"]}`
	x.prepare(ctx, "POST", "/v1/streams/counted-1/events", []byte("["+strings.Repeat(event+",", 499)+event+"]"))
	items := strings.Repeat(`{"tags":"['b:0', 'b:' + string(command.n)]"},`, 9) + `{"tags":"['b:0']"}`
	x.prepare(ctx, "PUT", "/v1/aggregates/bounded", fmt.Appendf(nil, `{"on":{"*":"state"},"commands":{"Count":{
		"boundary":{"all":{"query":[%s],"initial":{"n":0},"on":{"Counted":"{'n': lists.range(300).all(n, n >= 0) ? state.n + 1 : 0}"}}},
		"emit":[{"if":"command.n == 0","Counted":"{'n': boundary.all.n}","tags":"['b:0']"},{"stream":"'counted-2'","if":"command.n == 0","Noted":"command"}]}}}`, items))
	entry := `{"stream":"bounded-%d","command":"Count","data":{"n":%d},"idempotencyKey":"k%d"}`
	x.times(ctx, 30, func(ctx context.Context, chance *rand.Rand, i int) {
		switch i % 3 {
		case 0:
			x.send(ctx, "POST", fmt.Sprintf("/v1/aggregates/bounded/%d/commands/Count", chance.Int()), fmt.Appendf(nil, `{"data":{"n":%d}}`, chance.IntN(10)))
		case 1:
			var entries []string
			for range 100 {
				entries = append(entries, fmt.Sprintf(entry, chance.Int(), chance.IntN(10), chance.Int()))
			}
			x.send(ctx, "POST", "/v1/commands", []byte(`{"commands":[`+strings.Join(entries, ",")+`]}`))
		default:
			x.sendUnread(ctx, func(n int) string {
				return fmt.Sprintf(`{"op":"COMMAND","id":"%d",`, n) + fmt.Sprintf(entry, chance.Int(), chance.IntN(10), chance.Int())[1:]
			})
		}
	})
}

// prepare sends a request without which the attack is none.
func (x *attacker) prepare(ctx context.Context, method, path string, body []byte) {
	if status := x.send(ctx, method, path, body); status >= 400 && status < 500 && status != http.StatusTooManyRequests {
		x.fault(fmt.Sprintf("%s %s is answered %d", method, path, status))
	}
}

// sendUnread sends messages over the gateway without reading the answers, until the service ends the connection.
func (x *attacker) sendUnread(ctx context.Context, message func(n int) string) {
	ws, response, err := websocket.Dial(ctx, "ws://"+x.Address+"/v1/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + x.Key}}})
	if err != nil {
		if response != nil && response.StatusCode >= 500 && response.StatusCode != http.StatusServiceUnavailable {
			x.fault(fmt.Sprintf("the gateway is answered %d", response.StatusCode))
		}
		select { // do not only measure refusals
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
		return
	}
	defer ws.CloseNow()
	for n := 0; ctx.Err() == nil; n++ {
		if err := ws.Write(ctx, websocket.MessageText, []byte(message(n))); err != nil {
			return
		}
	}
}

// schemas appends events whose check is as costly as may be, tries schemas on the log, and changes the expression of
// derived tags, after which stored events are tagged again.
func (x *attacker) schemas(ctx context.Context) {
	var any []string
	for i := range 60 {
		any = append(any, fmt.Sprintf(`{"type":"string","pattern":"^(a|b|c){1,50}%d$","maxLength":%d}`, i, i+100))
	}
	list := `{"type":"object","properties":{"list":{"type":"array","uniqueItems":true,"contains":{"const":"z"},"items":{"anyOf":[` + strings.Join(any, ",") + `]}}}}`
	tags := func(n int) string {
		return fmt.Sprintf(`"tags":"event.data.list.filter(a, a.matches('^(a|b)*%d$')).map(a, 't:' + a)"`, n)
	}
	x.prepare(ctx, "PUT", "/v1/schemas/Listed", []byte(`{"schema":`+list+`,"compatibility":"none"}`))
	x.prepare(ctx, "PUT", "/v1/schema-rules/listed", []byte(`{"mode":"enforce","unknownTypes":"refuse"}`))
	data := func(chance *rand.Rand, n int) string {
		var items []string
		for i := range n {
			items = append(items, fmt.Sprintf(`"%s%d"`, strings.Repeat("abc", chance.IntN(16)), i))
		}
		return `{"list":[` + strings.Join(items, ",") + `]}`
	}
	x.times(ctx, 24, func(ctx context.Context, chance *rand.Rand, i int) {
		switch i % 4 {
		case 0:
			x.send(ctx, "PUT", "/v1/schemas/Listed", fmt.Appendf(nil, `{"schema":%s,"compatibility":"none",%s}`, list, tags(chance.IntN(100))))
		case 1:
			x.send(ctx, "POST", "/v1/schemas/Listed/check", []byte(`{"schema":`+list+`,"source":{"last":1000}}`))
		case 2:
			x.send(ctx, "POST", fmt.Sprintf("/v1/streams/listed-%d/events", i), []byte(`[{"type":"Listed","data":`+data(chance, 900)+`}]`))
		default:
			event := `{"type":"Listed","data":` + data(chance, 10) + `}`
			x.send(ctx, "POST", fmt.Sprintf("/v1/streams/listed-%d/events", i), []byte("["+strings.Repeat(event+",", 99)+event+"]"))
		}
	})
}
