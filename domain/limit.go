package domain

// Limits on what a client may send. They are part of the API: raising one is a change, lowering one is a breaking
// change.
const (
	MaxStreamBytes     = 256     // a stream's whole name
	MaxCategoryBytes   = 100     // the part before a stream's first "-"
	MaxTypeBytes       = 200     // an event's type
	MaxNameBytes       = 100     // a projection's, tenant's or key's name
	MaxDocumentIDBytes = 512     // a document's id
	MaxEventDocuments  = 100     // the documents of one event in one projection
	MaxItemBytes       = 1 << 20 // what an event's key gives its documents as items, together
	MaxEventBytes      = 1 << 20 // data and metadata of one event, as sent
	MaxRequestBytes    = 8 << 20 // the body of one request, uncompressed
	MaxRequestEvents   = 1000    // the events of one request
	MaxJSONDepth       = 128     // nesting depth of arrays and objects
	MaxTags            = 32      // of one event
	MaxTagBytes        = 100     // a tag
	MaxConditions      = 16      // of one append
	MaxQueryItems      = 100     // of one query, and of all conditions of one append together
	MaxItemTags        = 10      // of one item of a query
	MaxItemTypes       = 32      // of one item of a query

	// JSONB keeps and prints numbers without an exponent. So the limits apply to numbers as printed.
	MaxWholeDigits    = 309     // of a number, before the decimal point: as many as the largest double has
	MaxFractionDigits = 340     // after it: as many as the smallest double has, with 17 significant digits
	MaxPrintedBytes   = 2 << 20 // of a JSON value as JSONB prints it, or twice its own length if that is more
)
