// Package memhub is a task hub in memory, for tests: a [provider.Provider] that
// keeps the promises of package provider, with faults to inject.
//
// Its clock is that of package time, so that in a testing/synctest bubble hours pass
// at once, or [Hub.Now]. Abandoned messages are delivered again after a delay that
// doubles with each attempt, from 2 s to 600 s, as in DurableTask.AzureStorage.
package memhub
