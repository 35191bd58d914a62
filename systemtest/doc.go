// Package systemtest holds the tests of Manifold as a whole: processes that are killed, databases that crash, rebuilds
// under load, tenants that must not see one another, imports that are cut off, requests that nobody thought of. There is
// nothing in it but tests.
//
// The processes are the real binary, built once for each test run, where something is killed; else the service runs in
// the test's own process. Every test has a database of its own, and those that kill PostgreSQL a server of their own.
// What is random follows a seed, which a failure prints, and which MANIFOLD_TEST_SEED repeats.
package systemtest
