// Package systemtest tests Manifold as a whole: killed processes, crashed databases, rebuilds under load, isolation
// of tenants, interrupted imports, and unexpected requests. It contains only tests. Start with workload, and with
// site, which represents the processes under test.
//
// Tests that kill processes run the real binary, built once for each test run. Otherwise the service runs in the
// test's process. Every test has a separate database, and tests that kill PostgreSQL have a separate server. Random
// choices follow a seed. A failure prints the seed, and MANIFOLD_TEST_SEED repeats it.
//
// Go 1.26 begins parallel tests with those of the last file. Put tests that take long into files late in the alphabet:
// otherwise they run on alone when all others have ended.
package systemtest
