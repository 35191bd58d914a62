package api

// GatewayOps are the operations that clients may send, and GatewaySends those that the service sends. A test compares
// them with asyncapi.yaml.
var (
	GatewayOps   = gatewayOpNames
	GatewaySends = []string{opOK, opErr, opEvent, opCaughtUp, opCheckpoint, opGap, opEnded}
)
