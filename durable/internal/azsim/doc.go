// Package azsim simulates an Azure Storage account in memory for the real storage clients. It
// supports the queues, tables and blobs that task hubs use. Each process under test is a
// [Worker], the transport of its clients (a policy.Transporter).
//
// In a bubble of testing/synctest, the account makes runs of whole task hubs reproducible. The
// time at which a request takes effect depends only on the seed, the worker, the request, and
// the number of identical requests before it. The order in which the scheduler runs goroutines
// of the same instant therefore rarely matters. Parts of a request that differ between runs
// without a meaning, such as GUIDs and times, do not count. Faults are chosen in the same way
// (see [Config]).
//
// The tests of package azsim/differential compare the account's answers with Azurite's. Azurite
// guarantees more than the service documents. [Config.Loose] removes these guarantees: queues
// are unordered, and pages of a query or a list end anywhere.
package azsim
