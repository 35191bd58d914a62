package mongo

import (
	"crypto/sha256"
	"encoding/hex"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/manifold-es/manifold/domain"
)

// If a build has a partition, each row stores it in the field "partition": the value at the path in a form that is
// never a list. MongoDB refuses a document that has lists at two paths of one index, and documents contain whatever
// events bring. So the path itself cannot precede other paths in an index.
//
// The field only narrows the search; the condition on the path is always there too. But a row without the field would
// not be found. So the partition's path comes from the collection's marker, not from the build that a caller names.
const partition = "partition"

// maxPartition is the maximum length of a value that the field holds unchanged. A longer value is replaced by its hash.
const maxPartition = 100

// partitionKey returns what the field holds for a scalar.
func partitionKey(value domain.Scalar) string {
	text := value.JSON()
	if len(text) <= maxPartition {
		return text
	}
	hash := sha256.Sum256([]byte(text))
	return "#" + hex.EncodeToString(hash[:16]) // no JSON begins with "#"
}

// partitionOf returns what the field holds for a document, or an empty string if there is no scalar at the path.
func partitionOf(document bson.Raw, path domain.Path) string {
	value := valueAt(document, path)
	if scalar, ok := scalarOf(value); ok && !value.IsZero() {
		return partitionKey(scalar)
	}
	return ""
}

// valueAt returns the value at a path that leads only through objects, or the zero value if it is missing.
func valueAt(document bson.Raw, path domain.Path) bson.RawValue {
	var value bson.RawValue
	for i, step := range path {
		if i > 0 {
			inner, isObject := value.DocumentOK()
			if !isObject {
				return bson.RawValue{}
			}
			document = inner
		}
		var err error
		if value, err = document.LookupErr(escapeName(step)); err != nil {
			return bson.RawValue{}
		}
	}
	return value
}

// scalarOf returns the value as a scalar: null if it is missing. ok is false for a list or an object.
func scalarOf(value bson.RawValue) (scalar domain.Scalar, ok bool) {
	switch value.Type {
	case 0, bson.TypeNull:
		return domain.Scalar{}, true
	case bson.TypeBoolean:
		return domain.Scalar{Kind: domain.ScalarBool, Bool: value.Boolean()}, true
	case bson.TypeInt64:
		return domain.Scalar{Kind: domain.ScalarInt, Int: value.Int64()}, true
	case bson.TypeDouble:
		number := value.Double()
		return domain.NumberOf(number), !math.IsInf(number, 0) && !math.IsNaN(number)
	case bson.TypeString:
		return domain.Scalar{Kind: domain.ScalarText, Text: value.StringValue()}, true
	}
	return domain.Scalar{}, false
}

// restrictedBy returns the place restricted to one partition if the predicate fixes it.
func (p place) restrictedBy(where domain.Predicate) place {
	if p.partition != nil {
		if value, ok := domain.Fixed(where, p.partition); ok {
			p.only = partitionKey(value)
		}
	}
	return p
}
