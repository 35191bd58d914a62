// Package relational is what the drivers of relational databases have in common: names of tables and views, public
// views, retries, errors, and how a batch is cut into statements. Start with Dialect, which holds the differences
// between the databases.
//
// Statements on documents, and the code that builds them from predicates and orders, are deliberately not shared. Each
// database reads JSON, compares values, separates tenants and uses its indexes in its own way, so a common form would
// have an option for nearly every line. Files, types and functions that do the same have equal names in both drivers.
package relational

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// Schema holds everything that a driver creates.
const Schema = "manifold_documents"

// Dialect is one kind of database.
type Dialect struct {
	Quotes     string                // opens and closes a quoted name
	MaxName    int                   // maximum length of a name
	NameLength func(name string) int // as the database counts

	View ViewParts

	NoTable     func(err error) bool // a table does not exist
	LockTimeout func(err error) bool // a lock was not granted in time
	Transient   func(err error) bool // the same transaction may well succeed when it is retried
	Unavailable func(err error) bool // the database cannot be reached, or cannot serve now
}

// Quote quotes the name of a table, column, view or index.
func (d *Dialect) Quote(name string) string {
	closing := d.Quotes[1:]
	return d.Quotes[:1] + strings.ReplaceAll(d.Shorten(name), closing, closing+closing) + closing
}

// Shorten returns the name as the catalog stores it. A name that is too long keeps its beginning and gets a hash of the
// whole, so that no two names become equal. No projection's name contains "~", so no name can be mistaken for a
// shortened one.
func (d *Dialect) Shorten(name string) string {
	const hashed = 16
	if d.NameLength(name) <= d.MaxName {
		return name
	}
	hash := sha256.Sum256([]byte(name))
	kept := 0
	for i := range name {
		if d.NameLength(name[:i]) > d.MaxName-hashed-1 {
			break
		}
		kept = i
	}
	return name[:kept] + "~" + hex.EncodeToString(hash[:hashed/2])
}

// InSchema returns a name in the schema as it is written in statements.
func (d *Dialect) InSchema(name string) string { return Schema + "." + d.Quote(name) }

// Table returns the build's table as it is written in statements.
func (d *Dialect) Table(build domain.Build) string { return d.InSchema(drivers.TableName(build)) }

// ViewName returns the public name of a shared projection as it is written in statements.
func (d *Dialect) ViewName(projection string) string {
	return d.InSchema(drivers.PublicName(projection))
}
