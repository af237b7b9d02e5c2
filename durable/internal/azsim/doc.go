// Package azsim is an Azure Storage account in memory, to run the real storage
// clients against without a server: queues, tables and blobs as far as task hubs
// need them. Each process under test is a [Worker], which is the transport of
// its clients (a policy.Transporter).
//
// Within a bubble of testing/synctest the account makes whole task hubs
// reproducible. A request takes effect at a time that depends on the seed, on
// who asks, on what is asked and on how often it was asked before, and on
// nothing else; so it hardly matters in which order the scheduler runs
// goroutines that become runnable at the same instant. What differs from run to
// run without meaning anything, such as GUIDs and times, is left out of "what is
// asked". Faults are decided in the same way; see [Config].
//
// What the account answers is compared with what Azurite answers by the tests of
// package azsim/differential. Where the documentation of the service promises
// less than Azurite does, [Config.Loose] makes the account promise less, too:
// queues are not in order, and pages of a query or a list end anywhere.
package azsim
