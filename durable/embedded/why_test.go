package embedded_test

import (
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/whytest"
)

func TestStalls_InALocalFileAreAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := embedded.Open(filepath.Join(t.TempDir(), "hub.db"), embedded.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		whytest.ExerciseStalls(t, h, durable.Config{})
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestWhy_NamesWhatAnInstanceInALocalFileWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := embedded.Open(filepath.Join(t.TempDir(), "hub.db"), embedded.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		whytest.Exercise(t, h)
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
}
