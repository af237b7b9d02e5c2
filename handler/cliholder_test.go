package handler

import (
	"errors"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
)

// A command asks an app that holds the local file at once. It waits for a holder that cannot be asked.
func TestHubTool_WaitsOnlyForAHolderThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	app := httptest.NewServer(nil)
	defer app.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, tt := range []struct {
		name, contact string
		waits         bool
	}{
		{"a running app", app.URL, false},
		{"an app that has stopped to listen", gone.URL, true},
		{"another command", "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := embeddedHub(t)
			held := cfg.embeddedConfig()
			held.Contact = tt.contact
			holder, err := embedded.Open(cfg.hubFile(), held)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := holder.Close(); err != nil {
					t.Error(err)
				}
			}()
			synctest.Test(t, func(t *testing.T) {
				from := time.Now()
				_, err := (&hubTool{}).server(cfg, "")
				if _, isHeld := errors.AsType[*embedded.HeldError](err); !isHeld {
					t.Errorf("the error is %v, want a HeldError", err)
				}
				if waited := time.Since(from) >= embedded.DefaultLockTimeout; waited != tt.waits {
					t.Errorf("the command waited for %v, want a wait: %v", time.Since(from), tt.waits)
				}
			})
		})
	}
}
