package api

// GatewayOps are the operations that clients may send, and GatewaySends what the service sends, for the test that holds asyncapi.yaml
// against the code.
var (
	GatewayOps   = gatewayOpNames
	GatewaySends = []string{opOK, opErr, opEvent, opCaughtUp, opCheckpoint, opGap, opEnded}
)
