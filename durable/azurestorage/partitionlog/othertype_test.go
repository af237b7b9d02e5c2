package partitionlog_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
)

// At its start, a worker warns if the account has a hub of the same name and another type, and only
// then.
func TestHub_WarnsOfAHubOfTheSameNameAndAnotherType(t *testing.T) {
	type worker interface{ Run(context.Context) error }
	types := map[string]func(azurestorage.Connection, *simulated, *slog.Logger) (worker, error){
		"partition logs": func(c azurestorage.Connection, s *simulated, log *slog.Logger) (worker, error) {
			return partitionlog.Open(c, partitionlog.Config{TaskHub: "Sim", Transport: s.account.Worker("logs"), Logger: log})
		},
		"queues and tables": func(c azurestorage.Connection, s *simulated, log *slog.Logger) (worker, error) {
			return azurestorage.Open(c, azurestorage.Config{TaskHub: "Sim", Transport: s.account.Worker("queues"), Logger: log})
		},
	}
	for first, openFirst := range types {
		for second, openSecond := range types {
			t.Run(first+", then "+second, func(t *testing.T) {
				inBubble(t, func(s *simulated) {
					c, err := azurestorage.ParseConnectionString(s.account.ConnectionString())
					if err != nil {
						s.Fatal(err)
					}
					run := func(open func(azurestorage.Connection, *simulated, *slog.Logger) (worker, error)) string {
						log := &strings.Builder{}
						h, err := open(c, s, slog.New(slog.NewTextHandler(log, nil)))
						if err != nil {
							s.Fatal(err)
						}
						ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
						defer cancel()
						if err := h.Run(ctx); err != nil {
							s.Error(err)
						}
						if h, is := h.(*partitionlog.Hub); is {
							if err := h.Close(); err != nil {
								s.Error(err)
							}
						}
						return log.String()
					}
					const warning = "the storage account also has a task hub of this name in "
					if log := run(openFirst); strings.Contains(log, warning) {
						s.Errorf("the first worker warns:\n%s", log)
					}
					want := 0
					if first != second {
						want = 1
					}
					if log := run(openSecond); strings.Count(log, warning) != want || strings.Count(log, warning+first+";") != want {
						s.Errorf("the second worker logs %d warnings, want %d:\n%s", strings.Count(log, warning), want, log)
					}
				})
			})
		}
	}
}
