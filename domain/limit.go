package domain

// Limits of what a client may send. They are part of the API: raising one is a change, lowering one a breaking change.
const (
	MaxStreamBytes     = 256     // a stream's whole name
	MaxCategoryBytes   = 100     // what stands before its first "-"
	MaxTypeBytes       = 200     // an event's type
	MaxNameBytes       = 100     // a projection's, tenant's or key's name
	MaxDocumentIDBytes = 512     // a document's id
	MaxEventBytes      = 1 << 20 // data and metadata of one event, as sent
	MaxRequestBytes    = 8 << 20 // the body of one request, uncompressed
	MaxRequestEvents   = 1000    // the events of one request
	MaxJSONDepth       = 128     // arrays and objects inside one another
)
