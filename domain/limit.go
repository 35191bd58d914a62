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

	// JSONB keeps and prints numbers without an exponent, so that they are bounded as they are printed.
	MaxWholeDigits    = 309     // of a number, before the decimal point: those of the largest double
	MaxFractionDigits = 340     // after it: those of the smallest double, with 17 significant digits
	MaxPrintedBytes   = 2 << 20 // of a JSON value as JSONB prints it, unless twice its own length is more
)

// Quotas: how many things of a kind a tenant may keep, give or take those created at the same moment. One more is
// CodeQuotaExceeded.
const (
	MaxKeys              = 1000 // not revoked
	MaxRevokedKeys       = 1000 // of those beyond, the ones revoked first are forgotten
	MaxProjections       = 1000 // the tenant's own
	MaxAggregates        = 1000
	MaxGroups            = 1000 // without service groups
	MaxWebhooks          = 1000
	MaxRetentionPolicies = 1000
	MaxVersions          = 1000 // of a projection's definition; older ones are forgotten
	MaxRebuilds          = 100  // of a projection, ended: so many that swapped, and so many others; older ones are forgotten
)
