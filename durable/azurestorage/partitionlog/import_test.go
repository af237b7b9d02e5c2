package partitionlog_test

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A worker that acquires a partition of an imported hub knows that messages may be delivered twice.
// It knows that even if it opened the hub before the import.
func TestHub_IsNotExactAfterAnImport(t *testing.T) {
	inBubble(t, func(s *simulated) {
		worker, _ := s.open("worker")
		filler, _ := s.open("filler")
		if err := worker.Check(s.Context()); err != nil { // opens the hub
			s.Fatal(err)
		}
		if !worker.IsExactlyOnce() {
			s.Error("a new hub is not exact; want exact")
		}
		if err := filler.Import(s.Context(), func(provider.HubWriter) error { return nil }); err != nil {
			s.Fatal(err)
		}
		if filler.IsExactlyOnce() {
			s.Error("a hub that this process has filled is exact; want not exact")
		}
		if err := filler.Close(); err != nil {
			s.Fatal(err)
		}
		stop := s.work(worker)
		time.Sleep(time.Minute)
		if worker.IsExactlyOnce() {
			s.Error("a hub that another process has filled is exact; want not exact")
		}
		stop()
	})
}
