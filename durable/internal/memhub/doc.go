// Package memhub is a task hub in memory, for tests: a [provider.Provider]
// that keeps what package provider promises, with faults that can be switched
// on.
//
// It takes the time from package time, so that in a testing/synctest bubble
// hours pass at once, or from a clock that it is given. What is handed back is
// delivered again after a delay that doubles with each attempt, from 2 s to
// 600 s, as in DurableTask.AzureStorage.
package memhub
