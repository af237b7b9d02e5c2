package handler

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
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

// An app that listens on all addresses is asked on the loopback address, and without a proxy: the request
// contains the key.
func TestHubTool_AsksTheHolderDirectly(t *testing.T) {
	t.Parallel()
	cfg := embeddedHub(t)
	cfg.Address, cfg.Key, cfg.RoutePrefix = "0.0.0.0:0", "the key", "api"
	start(t, New(App{}, cfg))
	var held *embedded.HeldError
	patience.Until(t, "the app holds the file", func() bool {
		hub, err := embedded.Open(cfg.hubFile(), cfg.embeddedConfig())
		if err == nil {
			_ = hub.Close()
		}
		return errors.As(err, &held)
	})
	if !strings.HasPrefix(held.Contact, "http://127.0.0.1:") {
		t.Errorf("the app is reached at %s, want the loopback address", held.Contact)
	}
	target, err := targetOfHolder(held, cfg.Key)
	if err != nil {
		t.Fatal(err)
	}
	if v := target.Client.Transport.(*viaHolder); v.direct.Proxy != nil {
		t.Error("the requests use a proxy")
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target.Base+"/instances", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Functions-Key", target.Key)
	resp, err := target.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusOK {
		t.Errorf("the app answers with status %d", resp.StatusCode)
	}
}
