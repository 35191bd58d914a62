package relational

import "github.com/manifold-es/manifold/domain"

// One statement's share of a batch. It is large enough that the statement's fixed cost vanishes (measured in
// PostgreSQL: 250 to 1,000 documents of 200 bytes are alike). It is small enough that the database works on one part
// while the next is encoded, and holds no more than one in memory. In SQL Server it is also far below the 5,000 locks
// at which the server considers locking the whole table.
const (
	PartBytes = 4 << 20
	PartRows  = 1000
)

// Part returns how many of the documents make up the next part, and their size. A part has at most PartRows documents,
// and ends with the one that reaches PartBytes.
func Part(documents []domain.Document) (n, size int) {
	for n < len(documents) && n < PartRows && size < PartBytes {
		size += len(documents[n].ID) + len(documents[n].Data)
		n++
	}
	return n, size
}
