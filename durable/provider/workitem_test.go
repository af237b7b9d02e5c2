package provider_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func TestAbandonDelay_IsShortenedByRetryAtError(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	retryAt := func(at time.Duration) error {
		return fmt.Errorf("wrapped: %w", &provider.RetryAtError{Cause: errors.New("cause"), At: now.Add(at)})
	}
	for name, c := range map[string]struct {
		cause error
		want  time.Duration
	}{
		"nil":     {nil, time.Minute},
		"other":   {errors.New("other"), time.Minute},
		"earlier": {retryAt(time.Second), time.Second},
		"later":   {retryAt(time.Hour), time.Minute},
		"now":     {retryAt(0), 0},
		"past":    {retryAt(-time.Second), 0},
	} {
		if got := provider.AbandonDelay(c.cause, now, time.Minute); got != c.want {
			t.Errorf("%s: the delay is %v, want %v", name, got, c.want)
		}
	}
}
