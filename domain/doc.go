// Package domain holds Manifold's words as types, and the rules that follow from the words alone: what a stream may be
// called, what JSON the log can keep, what an append is and when its expectation holds.
//
// It imports the standard library only, does no I/O and keeps no state: every other package speaks in its types, and an
// interface that one package asks of another has nothing but domain types in its signatures. Values are plain data;
// unless a type says otherwise they may be read by many goroutines and must not be changed once they were handed over.
package domain
