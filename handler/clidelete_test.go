package handler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
)

// A deletable is a hub that is idle, is used by a worker, or fails.
type deletable struct {
	err     error
	deleted bool
}

func (d *deletable) Delete(_ context.Context, force bool) error {
	if d.err != nil && (!force || !errors.Is(d.err, provider.ErrHubBusy)) {
		return d.err
	}
	d.deleted = true
	return nil
}

func TestDeleteHub_TellsTheOperatorToStopWorkers(t *testing.T) {
	t.Parallel()
	busy := fmt.Errorf("worker w has partition p: %w", provider.ErrHubBusy)
	for name, tt := range map[string]struct {
		err               error
		force, deleted    bool
		wantErr, wantSaid string
	}{
		"idle":               {deleted: true},
		"idle, by force":     {force: true, deleted: true},
		"busy":               {err: busy, wantErr: "worker w has partition p: the task hub is in use by a worker; stop the workers first. With --force the hub is deleted anyway; workers stop"},
		"busy, by force":     {err: busy, force: true, deleted: true, wantSaid: "workers stop. If the hub exists again later, stop the workers"},
		"unreachable":        {err: errNoStorage, wantErr: errNoStorage.Error()},
		"the same, by force": {err: errNoStorage, force: true, wantErr: errNoStorage.Error()},
	} {
		hub, said := &deletable{err: tt.err}, ""
		err := deleteHub(t.Context(), hub, "workers stop", hubcli.DeleteRequest{Force: tt.force, Warn: func(text string) { said += text }})
		if (err != nil) != (tt.wantErr != "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
			t.Errorf("%s: %v, want %q", name, err, tt.wantErr)
		}
		if unavailable := errors.As(err, new(*hubcli.UnavailableError)); unavailable != (errors.Is(tt.err, provider.ErrHubBusy) && !tt.force) {
			t.Errorf("%s: it counts as unreachable: %v", name, unavailable)
		}
		if hub.deleted != tt.deleted || !strings.Contains(said, tt.wantSaid) || (said == "") != (tt.wantSaid == "") {
			t.Errorf("%s: deleted %v, and said %q", name, hub.deleted, said)
		}
	}
}
