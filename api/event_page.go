package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/transfer"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

// eventPage is a page of events in its encoded form. Events are encoded as they are read, so that none is in memory
// twice. The page ends early if its tenant has no more room; the client then sees a shorter page with a link to the
// next.
type eventPage struct {
	form    wire.EventForm
	encoder wire.EventEncoder
	room    *fairshare.Account
	blocks  [][]byte

	events int
	bytes  int  // of data, metadata and tags
	full   bool // nothing more may be added
}

// pageBlock is the size of one memory block of a page; a large event gets a larger one.
const pageBlock = 64 << 10

// firstPageBlock is the size of the first block: most pages are small.
const firstPageBlock = 4 << 10

// newPage starts a page of the tenant's events. The caller must close it after sending it.
func (s *Server) newPage(tenant domain.TenantID, form wire.EventForm) *eventPage {
	return &eventPage{form: form, room: s.budgets.answers.Account(tenant)}
}

// wait waits until there is room for the slices that fill the page, and for its beginning.
func (p *eventPage) wait(ctx context.Context) error {
	return p.room.Wait(ctx, sliceRoom, transfer.RoomPatience)
}

// addEvents adds events until there are count, or no more, or the page is full. It reports whether there may be more,
// and returns the place of the last event that it has added.
func (p *eventPage) addEvents(
	ctx context.Context, count int64, next slicer, place func(*domain.Event) int64,
) (more bool, last int64, err error) {
	if err := p.wait(ctx); err != nil {
		return false, 0, err
	}
	// One event more than requested shows whether there is a next page.
	for !more {
		slice, err := next(ctx, int(count)+1-p.events, min(sliceBytes, maxPageBytes-p.bytes))
		if err != nil {
			return false, 0, err
		}
		if len(slice) == 0 {
			break
		}
		for i := range slice {
			if int64(p.events) == count || p.full {
				more = true
				break
			}
			last = place(&slice[i])
			p.add(&slice[i])
		}
		more = more || p.full // the next page may be empty
	}
	return more, last, nil
}

// add encodes an event. The event may exceed the page's room.
func (p *eventPage) add(event *domain.Event) {
	size := event.Bytes()
	last := len(p.blocks) - 1
	if last < 0 || cap(p.blocks[last])-len(p.blocks[last]) < size+pageEvent {
		room := max(size+pageEvent, min(pageBlock, firstPageBlock<<min(len(p.blocks), 4)))
		if p.room.Grow(int64(room)) != nil {
			p.room.Force(int64(room))
			p.full = true
		}
		p.blocks = append(p.blocks, make([]byte, 0, room))
		last++
	}
	block := p.blocks[last]
	if p.events == 0 {
		block = append(block, p.form.Open...)
	} else {
		block = append(block, ',')
	}
	p.blocks[last] = p.form.Encode(&p.encoder, block, event)
	p.events++
	p.bytes += size
	p.full = p.full || p.bytes >= maxPageBytes
}

// pageEvent is the typical size of an event on a page without its data, metadata and tags.
const pageEvent = 1 << 10

// write sends the page.
func (p *eventPage) write(c echo.Context) error {
	p.room.Shrink(sliceRoom)
	if p.events == 0 {
		p.blocks = [][]byte{[]byte(p.form.Open)}
	}
	p.blocks = append(p.blocks, []byte(p.form.Close))
	length := 0
	for _, block := range p.blocks {
		length += len(block)
	}
	response := c.Response()
	response.Header().Set("Content-Type", p.form.Kind)
	response.Header().Set("Content-Length", strconv.Itoa(length))
	response.WriteHeader(http.StatusOK)
	for _, block := range p.blocks {
		if _, err := response.Write(block); err != nil {
			return err
		}
	}
	return nil
}

func (p *eventPage) close() { p.room.Close() }
