package api_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/domain"
)

// Streams and imports that are under way end when their key is revoked.
func TestOpenStreamsEndWithTheirKey(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	w := setup{change: func(c *api.Config) { c.Recheck = 20 * time.Millisecond }, ended: readsEnd(ended)}.start(t)
	suspend := func(a *actor) {
		w.operator().send("PATCH", "/v1/tenants/"+a.tenantID, object{"state": "suspended"}).want(200)
	}
	t.Run("read", func(t *testing.T) {
		t.Parallel()
		a := w.tenant("reads")
		a.appendLongLog()
		response := a.open("GET", "/v1/streams/$all", nil, "Accept", ndjson)
		defer response.Body.Close()
		_, err := io.CopyN(io.Discard, response.Body, 1000)
		must(t, err)
		suspend(a)
		// It is read slowly, so that it does not end before the key is checked again, however busy the machine is.
		var n, read int64
		for ends, deadline := false, time.After(patience); err == nil && !ends; read += n {
			n, err = io.CopyN(io.Discard, response.Body, 100_000)
			select {
			case <-ended:
				ends = true
			case <-deadline:
				t.Fatal("the log is still being read")
			case <-time.After(20 * time.Millisecond):
			}
		}
		if n, err := io.Copy(io.Discard, response.Body); err == nil {
			t.Errorf("%d bytes later the log has an end that looks like its own", read+n)
		}
	})
	t.Run("import", func(t *testing.T) {
		t.Parallel()
		a := w.tenant("imports")
		body, lines := io.Pipe()
		go func() {
			for {
				if _, err := io.WriteString(lines, strings.Repeat(`{"stream":"a-1","type":"T","data":1}`+"\n", 100)); err != nil {
					return
				}
			}
		}()
		defer lines.Close()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		request := a.request("POST", "/v1/import?name=a", body, "Content-Type", ndjson).WithContext(ctx)
		response, err := (&http.Client{}).Do(request)
		must(t, err)
		defer response.Body.Close()
		if _, err := io.ReadFull(response.Body, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		suspend(a)
		rest, err := io.ReadAll(response.Body)
		if ctx.Err() != nil || !strings.Contains(string(rest), string(domain.CodeTenantSuspended)) {
			t.Errorf("it ends with %.300q, %v", rest[max(0, len(rest)-300):], err)
		}
	})
}
