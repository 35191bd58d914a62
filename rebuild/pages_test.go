package rebuild

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// A validation's pages have about the same number of bytes whatever the size of documents, and each document is read
// once.
func TestPagesFitTheSizeOfDocuments(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ size, count, least, most int }{
		{size: 100, count: 12_000, least: maxPageDocuments, most: maxPageDocuments},
		{size: 10_000, count: 1_500, least: 100, most: pageBytes / 10_000},
		{size: 500_000, count: 120, least: minPageDocuments, most: minPageDocuments},
	} {
		var all []domain.Document
		for i := range test.count {
			all = append(all, domain.Document{ID: fmt.Sprintf("%06d", i), Version: 1, Data: bytes.Repeat([]byte("x"), test.size)})
		}
		var asked []int
		p := &pages{read: func(_ context.Context, p *pages) error {
			q := p.query()
			asked = append(asked, q.Limit)
			from := 0
			if q.After != nil {
				for from < len(all) && all[from].ID <= q.After.ID {
					from++
				}
			}
			p.page = nil
			for taken := 0; from < len(all) && len(p.page) < q.Limit && taken < q.MaxBytes; from++ {
				p.page = append(p.page, all[from])
				taken += len(all[from].Data)
			}
			return nil
		}}
		count := 0
		for ; ; count++ {
			document, err := p.peek(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if document == nil {
				break
			}
			if document.ID != all[count].ID {
				t.Fatalf("%d bytes: document %d is %s", test.size, count, document.ID)
			}
			p.next()
		}
		if count != len(all) {
			t.Errorf("%d bytes: %d of %d documents were read", test.size, count, len(all))
		}
		if asked[0] != pageDocuments {
			t.Errorf("%d bytes: the first page is of %d", test.size, asked[0])
		}
		for _, limit := range asked[1:] {
			if limit < test.least || limit > test.most {
				t.Errorf("%d bytes: a page of %d was asked for; want %d to %d", test.size, limit, test.least, test.most)
			}
		}
	}
}
