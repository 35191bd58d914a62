package mongo

import (
	"crypto/sha256"
	"encoding/hex"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/manifold-es/manifold/domain"
)

// Where a build has a partition, each row says in the field "partition" which one it is in: the value at the path in a form
// that is never a list. MongoDB refuses a document that has lists at two paths of one index, and documents hold what events
// bring; so the path itself cannot stand before others in an index.
//
// The field decides nothing: the condition on the path stands beside it. But a row without it would not be found, and so the
// collection's marker says what its partition is, not the build that a caller names.
const partition = "partition"

// maxPartition is how long a value is that stands in the field as it is; a longer one is told by its hash.
const maxPartition = 100

// partitionKey is what the field holds for a scalar.
func partitionKey(value domain.Scalar) string {
	text := value.JSON()
	if len(text) <= maxPartition {
		return text
	}
	hash := sha256.Sum256([]byte(text))
	return "#" + hex.EncodeToString(hash[:16]) // no JSON begins like this
}

// partitionOf is what the field holds for a document: empty where no scalar is at the path.
func partitionOf(document bson.Raw, path domain.Path) string {
	var value bson.RawValue
	for i, step := range path {
		if i > 0 {
			inner, isObject := value.DocumentOK()
			if !isObject {
				return ""
			}
			document = inner
		}
		var err error
		if value, err = document.LookupErr(escapeName(step)); err != nil {
			return ""
		}
	}
	switch value.Type {
	case bson.TypeNull:
		return partitionKey(domain.Scalar{})
	case bson.TypeBoolean:
		return partitionKey(domain.Scalar{Kind: domain.ScalarBool, Bool: value.Boolean()})
	case bson.TypeInt64:
		return partitionKey(domain.Scalar{Kind: domain.ScalarInt, Int: value.Int64()})
	case bson.TypeDouble:
		if number := value.Double(); !math.IsInf(number, 0) && !math.IsNaN(number) {
			return partitionKey(domain.NumberOf(number))
		}
	case bson.TypeString:
		return partitionKey(domain.Scalar{Kind: domain.ScalarText, Text: value.StringValue()})
	}
	return ""
}

// asking is the place of what a predicate asks for: in one partition, if it names one.
func (p place) asking(where domain.Predicate) place {
	if p.partition != nil {
		if value, ok := domain.Fixed(where, p.partition); ok {
			p.only = partitionKey(value)
		}
	}
	return p
}
