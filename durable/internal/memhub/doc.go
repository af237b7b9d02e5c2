// Package memhub implements a task hub in memory for tests: a [provider.Provider] that can
// inject faults.
//
// Its clock is time.Now, which runs ahead in a testing/synctest bubble, or [Hub.Now]. Abandoned
// messages are redelivered after a delay that doubles with each attempt, from 2 s to 600 s, as
// in DurableTask.AzureStorage.
package memhub
