package sim_test

// amounts is the number of simulations in the different tests.
type amounts struct {
	runs      int  // seeds of a plan on a hub
	logRuns   int  // maximum on partition logs, which are slower
	largeRuns int  // maximum for apps with large payloads, which are slower
	oneHub    bool // run each plan on one hub only

	crashEvery int // inject a fault at every n-th request of a worker
	largeEvery int // the same for apps with large payloads
	cutEvery   int // interrupt every n-th step of a client's operation

	repetitions   int // runs of one seed that must make the same requests
	repeatedSeeds int // random seeds that run twice and must make the same requests

	whyStates     int // states per hub in which the reasons of waits are compared with the truth
	foundAtMost   int // maximum number of the seeds that found one bug
	bankTransfers int
}
