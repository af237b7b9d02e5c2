package sim_test

// amounts says how much is simulated.
type amounts struct {
	runs      int  // seeds of a plan on a hub
	logRuns   int  // the most on logs, which take longer
	largeRuns int  // the most of apps with large payloads, which take longer
	oneHub    bool // each plan runs on one hub only

	crashEvery int // of so many requests one is the last of a worker
	largeEvery int // the same of apps with large payloads
	cutEvery   int // of so many steps of a client's operation, one is interrupted

	repetitions   int // of one seed that must take the same course
	repeatedSeeds int // random seeds that run twice and must take the same course

	whyStates     int // in which the reasons of waits are compared with the truth, on a hub
	foundAtMost   int // of the seeds that found one bug
	bankTransfers int
}
