// Package oneprocessor restricts a test binary that imports it to one processor if it has the race detector.
// The environment variable GOMAXPROCS overrides it.
//
// Go's race detector can crash in a bubble of testing/synctest on several processors, with
// "ThreadSanitizer: CHECK failed" or a segmentation violation in StackDepotBase.Put
// (https://go.dev/issue/78156; seen with Go 1.26.8). All timers of a bubble share one race context without a
// lock. Two processors use it at once if a goroutine receives from an expired timer while the bubble fires
// another timer.
package oneprocessor
