package partitionlog_test

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A worker that takes a partition of a hub that was filled knows that what is there may come
// again, also if it opened the hub before that.
func TestHub_KnowsThatSomethingWasImported(t *testing.T) {
	inBubble(t, func(s *simulated) {
		worker, _ := s.open("worker")
		filler, _ := s.open("filler")
		if err := worker.Check(s.Context()); err != nil { // opens the hub
			s.Fatal(err)
		}
		if !worker.IsExact() {
			s.Error("a hub that is new is not exact")
		}
		if err := filler.Import(s.Context(), func(provider.HubWriter) error { return nil }); err != nil {
			s.Fatal(err)
		}
		if filler.IsExact() {
			s.Error("a hub that this process has filled is exact")
		}
		if err := filler.Close(); err != nil {
			s.Fatal(err)
		}
		stop := s.work(worker)
		time.Sleep(time.Minute)
		if worker.IsExact() {
			s.Error("a hub that another process has filled is exact")
		}
		stop()
	})
}
